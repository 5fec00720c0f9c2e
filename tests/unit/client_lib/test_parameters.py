"""Options and address -> what pika wants; TLS contexts, and errors of TLS in words (two ends in memory, no sockets)."""

import copy
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client_lib.connecting import tls
from client_lib.connecting.parameters import Credentials, check, connection_parameters
from client_lib.errors import AuthenticationFailure, ConnectError
from client_lib.options import Options
from client_lib.urls.url import Endpoint, parse_url, parse_urls
from tests.support.certificates import Authority, needs_openssl

BROKER = Endpoint("localhost", 5671, transport="ssl")


def login(parameters: Any, offered: str | bytes = b"AMQPLAIN PLAIN") -> Any:
    return parameters.credentials.response_for(SimpleNamespace(mechanisms=offered))


def test_the_address_counts_more_than_the_options() -> None:
    options = Options(username="u", password="p", virtual_host="v", heartbeat=3, channel_max=7)
    plain = connection_parameters(Endpoint("h", 1), options)
    assert (plain.host, plain.port, plain.virtual_host, plain.heartbeat) == ("h", 1, "v", 3)
    assert (plain.channel_max, plain.frame_max, plain.ssl_options) == (7, 131072, None)
    assert login(plain) == ("PLAIN", b"\0u\0p")
    special = connection_parameters(parse_url("amqp://x:y@h/w?heartbeat=9&channel_max=2"), options)
    assert (special.virtual_host, special.heartbeat, special.channel_max) == ("w", 9, 2)
    assert login(special) == ("PLAIN", b"\0x\0y")
    assert "geheim" not in repr(connection_parameters(Endpoint("h", 1, "u", "geheim"), options).credentials)


def test_what_pika_has_no_name_for_survives_its_copy() -> None:
    """pika's connections work with a deep copy of their parameters."""
    for url, wanted in (("amqp://h", True), ("brokerlist='h?tcp_nodelay='false''", False)):
        (address,) = parse_urls(url)
        made = connection_parameters(address, Options())
        assert (copy.deepcopy(made).tcp_nodelay, made.tcp_nodelay) == (wanted, wanted)


def test_client_properties() -> None:
    given = Options(client_properties={"product": "mine", "a": 1}, client_id="me")
    properties = connection_parameters(Endpoint("h"), given).client_properties
    assert properties == {"product": "mine", "a": 1, "qpid.channel_flow": True, "connection_name": "me"}
    named = Options(client_properties={"connection_name": "other"}, client_id="me")
    assert connection_parameters(Endpoint("h"), named).client_properties["connection_name"] == "other"


@pytest.mark.parametrize(
    ("wanted", "offered", "answer"),
    [
        (None, "PLAIN", ("PLAIN", b"\0u\0p")),
        (None, "EXTERNAL AMQPLAIN", ("AMQPLAIN", b"\x05LOGINS\0\0\0\x01u\x08PASSWORDS\0\0\0\x01p")),
        ("external plain", "PLAIN EXTERNAL", ("EXTERNAL", b"")),
        ("EXTERNAL PLAIN", "PLAIN AMQPLAIN", ("PLAIN", b"\0u\0p")),
        ("ANONYMOUS", "ANONYMOUS", ("ANONYMOUS", b"")),
    ],
)
def test_the_first_mechanism_that_the_broker_offers(wanted: str | None, offered: str, answer: tuple) -> None:
    made = connection_parameters(Endpoint("h"), Options(username="u", password="p", sasl_mechanisms=wanted))
    assert login(made, offered) == login(made, offered.encode()) == answer


def test_no_mechanism_in_common() -> None:
    credentials = Credentials("h:1", ("EXTERNAL",), "u", "p")
    with pytest.raises(AuthenticationFailure, match="h:1: offers PLAIN AMQPLAIN, sasl_mechanisms wants EXTERNAL"):
        credentials.response_for(SimpleNamespace(mechanisms="PLAIN AMQPLAIN"))


# -- TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def server_context(certificate: Path, trusted: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if trusted is not None:
        context.load_verify_locations(trusted)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def handshake(address: Endpoint, options: Options, server: ssl.SSLContext, hello: bytes = b"") -> Exception | None:
    """Both ends in memory; what the client gets, until it has read the first message.  `hello`: no TLS but this."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    wanted = connection_parameters(address, options).ssl_options
    client = wanted.context.wrap_bio(to_client, to_server, server_hostname=wanted.server_hostname)
    broker = server.wrap_bio(to_server, to_client, server_side=True)
    steps = [client.do_handshake, lambda: client.read(1)]
    answers = [lambda: to_client.write(hello)] if hello else [broker.do_handshake, lambda: broker.write(b"x")]
    for _ in range(10):
        try:
            while steps:
                steps[0]()
                steps.pop(0)
            return None
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            return error
        try:
            while answers:
                answers[0]()
                answers.pop(0)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            answers.clear()  # its alert is on the way
    raise AssertionError("the two ends talk for ever")


@needs_openssl
def test_trusted_broker(authority: Authority) -> None:
    server = server_context(authority.certificate("good"))
    trusting = Options(ssl_trustfile=authority.file)
    assert handshake(BROKER, trusting, server) is None
    assert handshake(Endpoint("127.0.0.1", transport="ssl"), trusting, server) is None
    assert handshake(Endpoint("elsewhere", transport="ssl"), Options(ssl_verify=False), server) is None


@needs_openssl
def test_what_is_wrong_with_a_certificate(authority: Authority, tmp_path: Path) -> None:
    good = server_context(authority.certificate("other", "DNS:elsewhere"))
    old = server_context(authority.certificate("old", days=-1))
    trusting = Options(ssl_trustfile=authority.file)

    def said(options: Options, server: ssl.SSLContext, address: Endpoint = BROKER) -> str | None:
        error = handshake(address, options, server)
        return None if error is None else tls.explain(error)

    foreign = Options(ssl_trustfile=Authority(tmp_path, "foreign").file)
    assert said(foreign, old) == (
        "certificate verify failed: unable to get local issuer certificate: "
        "it is not signed by an authority in ssl_trustfile"
    )
    assert said(trusting, old) == "certificate verify failed: certificate has expired"
    mismatch = "certificate is not valid for 'localhost'. (ssl_server_name, ssl_skip_hostname_check)"
    assert (said(trusting, good) or "").endswith(mismatch)
    address = Endpoint("127.0.0.1", 1, transport="ssl")
    assert "not valid for '127.0.0.1'. (ssl_server_name" in (said(trusting, good, address) or "")
    assert said(Options(ssl_trustfile=authority.file, ssl_server_name="elsewhere"), good) is None
    assert said(Options(ssl_trustfile=authority.file, ssl_skip_hostname_check=True), good) is None
    assert said(Options(ssl_trustfile=authority.file, ssl_skip_hostname_check=True), old) is not None


@needs_openssl
def test_client_certificates(authority: Authority, tmp_path: Path) -> None:
    server = server_context(authority.certificate("strict"), authority.file)
    foreign = Authority(tmp_path, "foreign").certificate("stranger", "")
    none = handshake(BROKER, Options(ssl_trustfile=authority.file), server)
    assert none is not None and "wants a certificate of ours (ssl_certfile)" in str(tls.explain(none))
    wrong = handshake(BROKER, Options(ssl_trustfile=authority.file, ssl_certfile=foreign), server)
    assert wrong is not None and "does not trust the authority of our certificate" in str(tls.explain(wrong))
    both = authority.certificate("client", "")
    mine = Options(ssl_trustfile=authority.file, ssl_certfile=both)
    assert handshake(BROKER, mine, server) is None
    apart = Options(
        ssl_trustfile=authority.file, ssl_certfile=both.with_suffix(".crt"), ssl_keyfile=both.with_suffix(".key")
    )
    assert handshake(BROKER, apart, server) is None


@needs_openssl
def test_a_port_without_tls(authority: Authority) -> None:
    server = server_context(authority.certificate("plain"))
    error = handshake(BROKER, Options(ssl_trustfile=authority.file), server, b"AMQP\0\0\x09\x01")
    assert error is not None
    assert str(tls.explain(error)).startswith("TLS failed: it does not speak TLS on this port: ")
    ended = tls.explain(ssl.SSLEOFError(8, "EOF occurred"))
    assert ended is not None and ended.startswith("TLS failed: the broker ended it") and "ssl_certfile" in ended
    assert tls.explain(ConnectionRefusedError(111, "refused")) is None


@needs_openssl
def test_contexts_are_kept_until_a_file_changes(authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "trust.pem"
    file.write_bytes(authority.file.read_bytes())
    options = Options(ssl_trustfile=file)
    first = tls.context(options)
    assert tls.context(options) is first
    assert tls.context(Options(ssl_trustfile=file, ssl_skip_hostname_check=True)) is not first
    file.write_bytes(Authority(tmp_path, "renewed").file.read_bytes())
    assert tls.context(options) is not first
    given = ssl.create_default_context()
    assert tls.context(Options(ssl_context=given)) is given


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    missing = tmp_path / "missing.pem"
    with pytest.raises(ConnectError, match=r"cannot read '.*missing.pem': No such file"):
        check([BROKER], Options(ssl_trustfile=missing))
    with pytest.raises(ConnectError, match=r"cannot use '.*rubbish.pem' as authorities \(ssl_trustfile\): "):
        check([BROKER], Options(ssl_trustfile=rubbish))
    with pytest.raises(ConnectError, match=r"cannot use '.*rubbish.pem' as our certificate and key"):
        check([Endpoint("h"), BROKER], Options(ssl_certfile=rubbish))
    check([Endpoint("h")], Options(ssl_trustfile=missing))


@needs_openssl
def test_an_encrypted_key(authority: Authority) -> None:
    both = authority.certificate("secret", "")
    locked = authority.lock(both, "geheim")
    tls.context(Options(ssl_certfile=locked, ssl_key_password="geheim"))
    for password in (None, "wrong"):
        with pytest.raises(ConnectError, match="ssl_key_password") as error:
            tls.context(Options(ssl_certfile=locked, ssl_key_password=password))
        assert "wrong" not in str(error.value)
