"""The client library over TLS, with real brokers: what is believed, what is refused and why, and fail-over."""

import contextlib
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from client_lib import AuthenticationFailure, ConnectError, Connection, Message
from tests.support.certificates import Authority, needs_openssl
from tests.support.members import TIME, Members
from tests.support.process import BrokerProcess, HeldPort
from tests.support.wait import wait_for

pytestmark = needs_openssl
ONCE = {"reconnect": False, "connect_timeout": 10.0}


class TlsBroker(BrokerProcess):
    """With a TLS port next to the plain one."""

    def __init__(self, directory: Path, certificate: Path, *options: str, name: str = "broker") -> None:
        self._tls = HeldPort()
        self.tls_port = self._tls.port
        given = ("--ssl-cert", str(certificate), "--ssl-port", str(self.tls_port), *options)
        super().__init__(directory, *given, name=name)

    def close(self) -> None:
        super().close()
        self._tls.release()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def broker(tmp_path: Path, authority: Authority) -> Iterator[Callable[..., TlsBroker]]:
    made: list[TlsBroker] = []

    def make(*options: str, certificate: Path | None = None, name: str = "broker") -> TlsBroker:
        certificate = certificate or authority.certificate("good")
        made.append(TlsBroker(tmp_path, certificate, *options, name=name))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close()


def there_and_back(connection: Connection, queue: str = "q") -> None:
    session = connection.session()
    session.declare_queue(queue, durable=True)
    body = b"x" * 300_000
    session.queue_sender(queue).send(Message(body), timeout=TIME)
    message = session.queue_receiver(queue).fetch(TIME)
    session.acknowledge(message)
    session.close()
    assert message.body == body


def refused(url: str, **options: Any) -> str:
    with pytest.raises(ConnectError) as error:
        Connection(url, **ONCE | options).open(TIME)
    return str(error.value)


@pytest.mark.parametrize("form", ["amqps://localhost:{}", "ssl:localhost:{}", "amqp:guest/guest@ssl:127.0.0.1:{}"])
def test_messages_over_tls(broker: Callable[..., TlsBroker], authority: Authority, form: str) -> None:
    one = broker("--require-encryption")
    with Connection(form.format(one.tls_port), ssl_trustfile=authority.file) as connection:
        there_and_back(connection)


def test_many_threads_write_while_another_one_reads(broker: Callable[..., TlsBroker], authority: Authority) -> None:
    """OpenSSL takes one call at a time."""
    threads, count = 4, 100

    def send(sender: Any, name: int) -> None:
        for number in range(count):
            sender.send(Message(f"{name}.{number}".encode() + bytes(20_000)), timeout=TIME)

    with Connection(f"amqps://127.0.0.1:{broker().tls_port}", ssl_trustfile=authority.file) as connection:
        session = connection.session()
        session.declare_queue("q")
        sender, receiver = session.queue_sender("q"), session.queue_receiver("q")
        senders = [threading.Thread(target=send, args=(sender, name)) for name in range(threads)]
        for thread in senders:
            thread.start()
        seen = []
        for _ in range(threads * count):
            message = receiver.fetch(TIME)
            session.acknowledge(message, sync=False)
            seen.append(message.body[:-20_000].decode())
        for thread in senders:
            thread.join(TIME)
        assert connection.failovers == 0
    for name in range(threads):
        assert [text for text in seen if text.startswith(f"{name}.")] == [f"{name}.{number}" for number in range(count)]


def test_what_a_uri_says_about_tls(broker: Callable[..., TlsBroker], authority: Authority) -> None:
    one = broker()
    uri = f"amqps://guest:guest@localhost:{one.tls_port}/%2F?cacertfile={authority.file}&heartbeat=9&verify=verify_peer"
    with Connection(uri) as connection:
        there_and_back(connection)
    with Connection(f"amqps://localhost:{one.tls_port}?verify=verify_none") as connection:
        there_and_back(connection)


def test_who_is_not_believed(broker: Callable[..., TlsBroker], authority: Authority, tmp_path: Path) -> None:
    one = broker()
    place = f"localhost:{one.tls_port}"
    assert f"{place}: certificate verify failed: unable to get local issuer" in refused(f"ssl:{place}")
    foreign = Authority(tmp_path, "foreign").file
    assert "it is not signed by an authority in ssl_trustfile" in refused(f"ssl:{place}", ssl_trustfile=foreign)
    assert f"cannot read '{tmp_path}/none'" in refused(f"ssl:{place}", ssl_trustfile=tmp_path / "none")
    with Connection(f"ssl:{place}", ssl_verify=False) as connection:
        there_and_back(connection)


def test_wrong_host_name(broker: Callable[..., TlsBroker], authority: Authority) -> None:
    one = broker(certificate=authority.certificate("elsewhere", "DNS:elsewhere.example"))
    url = f"ssl:localhost:{one.tls_port}"
    text = refused(url, ssl_trustfile=authority.file)
    assert "certificate is not valid for 'localhost'. (ssl_server_name, ssl_skip_hostname_check)" in text
    for way in ({"ssl_skip_hostname_check": True}, {"ssl_server_name": "elsewhere.example"}):
        with Connection(url, ssl_trustfile=authority.file, **way) as connection:
            there_and_back(connection)


def test_expired_certificate_that_is_renewed(
    broker: Callable[..., TlsBroker], authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "renewed.pem"
    file.write_bytes(authority.certificate("old", days=-1).read_bytes())
    one = broker(certificate=file)
    events: list[Any] = []
    connection = Connection(f"ssl:localhost:{one.tls_port}", ssl_trustfile=authority.file, on_event=events.append)
    try:
        with pytest.raises(TimeoutError):
            connection.open(0.5)
        wait_for(
            lambda: "certificate verify failed: certificate has expired" in {event.get("reason") for event in events}
        )
        file.write_bytes(authority.certificate("new").read_bytes())
        one.stop()
        one.start()
        wait_for(lambda: connection.is_connected, TIME)
    finally:
        connection.close()


def test_client_certificates(broker: Callable[..., TlsBroker], authority: Authority, tmp_path: Path) -> None:
    one = broker("--ssl-ca", str(authority.file), "--ssl-require-client-authentication")
    url, trust = f"ssl:localhost:{one.tls_port}", {"ssl_trustfile": authority.file}
    assert "does not take our certificate (ssl_certfile)" in refused(url, **trust)
    stranger = Authority(tmp_path, "foreign").certificate("stranger", "")
    assert "does not take our certificate (ssl_certfile)" in refused(url, **trust, ssl_certfile=stranger)
    mine = authority.certificate("client", "")
    with Connection(url, **trust, ssl_certfile=mine) as connection:
        there_and_back(connection)


@pytest.mark.parametrize("end", ["reset", "closed", "said"])
def test_an_end_right_after_the_handshake_is_explained(end: str, authority: Authority) -> None:
    """A broker on asyncio does not send the reason, and if it has not read our first octets the connection is reset."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate("good"))

    def serve() -> None:
        sock, _ = listener.accept()
        raw = socket.socket(fileno=os.dup(sock.fileno()))
        with raw, context.wrap_socket(sock, server_side=True) as encrypted:
            encrypted.recv(8)
            if end == "reset":
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif end == "said":  # that TLS ends, not why
                with contextlib.suppress(OSError):
                    encrypted.unwrap()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        text = refused(f"ssl:localhost:{listener.getsockname()[1]}", ssl_trustfile=authority.file)
        server.join(TIME)
    assert "does not take our certificate (ssl_certfile)" in text


def test_the_wrong_port(broker: Callable[..., TlsBroker], authority: Authority) -> None:
    one = broker()
    text = refused(f"ssl:localhost:{one.port}", ssl_trustfile=authority.file)
    assert f"localhost:{one.port}: " in text and "TLS" in text
    refused(f"localhost:{one.tls_port}")


def test_a_mechanism_that_the_broker_does_not_have(broker: Callable[..., TlsBroker], authority: Authority) -> None:
    one = broker()
    connection = Connection(
        f"ssl:localhost:{one.tls_port}", ssl_trustfile=authority.file, sasl_mechanisms="EXTERNAL", reconnect=True
    )
    with pytest.raises(AuthenticationFailure, match="offers PLAIN AMQPLAIN, sasl_mechanisms wants EXTERNAL"):
        connection.open(TIME)
    with Connection(f"localhost:{one.port}", sasl_mechanisms="AMQPLAIN") as plain:
        there_and_back(plain)


def test_a_list_of_both_transports(broker: Callable[..., TlsBroker], authority: Authority) -> None:
    plain, secure = broker(name="plain"), broker(name="secure")
    url = f"amqp:guest/guest@tcp:localhost:{plain.port},ssl:localhost:{secure.tls_port}"
    with Connection(url, ssl_trustfile=authority.file) as connection:
        assert connection.address.port == plain.port
        there_and_back(connection)
        plain.kill()
        wait_for(lambda: connection.is_connected and connection.address.port == secure.tls_port, TIME)
        there_and_back(connection)
        plain.start()
        secure.kill()
        wait_for(lambda: connection.is_connected and connection.address.port == plain.port, TIME)
        there_and_back(connection)


@pytest.mark.parametrize("nodelay", [True, False])
def test_tcp_nodelay(broker: Callable[..., TlsBroker], authority: Authority, nodelay: bool) -> None:
    one = broker()
    for url in (f"ssl:localhost:{one.tls_port}", f"localhost:{one.port}"):
        with Connection(url, ssl_trustfile=authority.file, tcp_nodelay=nodelay) as connection:
            there_and_back(connection)
            (found,) = sockets(connection.address.port)
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == nodelay
            found.close()


def sockets(*ports: int) -> list[socket.socket]:
    """Copies of this process's sockets that are connected to one of these ports."""
    kinds = [c for c in psutil.Process().net_connections("tcp") if c.raddr and c.raddr.port in ports and c.fd >= 0]
    return [socket.socket(fileno=os.dup(connection.fd)) for connection in kinds]


# -- a cluster


class TlsMembers(Members):
    """Every member has a TLS port; the brokers talk over the plain ones."""

    def __init__(self, directory: Path, certificate: Path, *options: str, names: str = "abc") -> None:
        self._held = {name: HeldPort() for name in names}
        self._certificate = certificate
        super().__init__(directory, *options, names=names)

    def configure(self, broker: BrokerProcess) -> None:
        super().configure(broker)
        tls = ("--ssl-cert", str(self._certificate), "--ssl-port", str(self.tls_port(broker.name)))
        broker.options = [*broker.options, *tls]

    def tls_port(self, name: str) -> int:
        return self._held[name].port

    def close(self) -> None:
        super().close()
        for held in self._held.values():
            held.release()


def test_fail_over_from_one_tls_broker_to_another(tmp_path: Path, authority: Authority) -> None:
    members = TlsMembers(tmp_path, authority.certificate("cluster"), names="ab")
    try:
        members.up()
        everywhere = ",".join(f"ssl:localhost:{members.tls_port(name)}" for name in "ba")
        events: list[Any] = []
        trust = {"ssl_trustfile": authority.file, "on_event": events.append}
        with Connection(everywhere, **trust) as connection:
            session = connection.session()
            session.declare_queue("q", durable=True)
            sender = session.queue_sender("q", capacity=1000)
            for number in range(500):
                sender.send(Message(str(number)), sync=False)
            members.brokers["a"].kill()
            for number in range(500, 1000):
                sender.send(Message(str(number)), sync=False)
            members.tool("promote", "--cluster-manager", name="b")
            sender.sync(TIME)
            assert connection.address.port == members.tls_port("b")
            receiver = session.queue_receiver("q", drop_duplicates=True)
            for number in range(1000):
                message = receiver.fetch(TIME)
                session.acknowledge(message, sync=False)
                assert message.body == b"%d" % number
        assert any(event.get("result") == "320" for event in events), "b has refused us and named the port without TLS"
        peers = {int(event["peer"].rpartition(":")[2]) for event in events if event["kind"] == "connect"}
        assert peers <= {members.tls_port(name) for name in "ab"}, "no client may be led to a port without TLS"
    finally:
        members.close()
