"""SIGHUP: a renewed certificate is in force for new connections, and a broken file changes nothing."""

import shutil
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from client_lib import Connection, Message
from tests.integration.test_client_tls import TlsBroker
from tests.support.certificates import Authority, needs_openssl
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for, wait_logged

pytestmark = needs_openssl
READ = "SIGHUP: log rules, user file and certificates are read"
REFUSED = "SIGHUP: nothing is changed"


def serial(port: int) -> int:
    """Of the certificate that a new connection is shown."""
    pem = ssl.get_server_certificate(("127.0.0.1", port), timeout=30)
    return hash(pem)


def hang_up(broker: BrokerProcess, said: str) -> None:
    before = broker.log.count(said)
    broker.signal(signal.SIGHUP)
    wait_for(lambda: broker.log.count(said) > before, 60, lambda: f"{said}\n{broker.log}")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "tls")


@pytest.fixture
def broker(tmp_path: Path, authority: Authority) -> Iterator[TlsBroker]:
    (tmp_path / "qpidd.conf").write_text("log-enable=notice+\n")
    in_use = tmp_path / "in-use.pem"
    shutil.copy(authority.certificate("first"), in_use)
    made = TlsBroker(tmp_path, in_use, "--config", str(tmp_path / "qpidd.conf"))
    made.start()
    yield made
    made.close()


def test_new_connections_see_the_new_certificate_and_old_ones_go_on(
    broker: TlsBroker, authority: Authority, tmp_path: Path
) -> None:
    first, in_use = serial(broker.tls_port), tmp_path / "in-use.pem"
    url = f"ssl:localhost:{broker.tls_port}"
    with Connection(url, ssl_trustfile=authority.file, reconnect=False) as connection:
        sender = connection.session().sender("q; {create: always}")
        shutil.copy(authority.certificate("second"), in_use)
        hang_up(broker, READ)
        second = serial(broker.tls_port)
        assert second != first
        sender.send(Message("still here"), timeout=30)
        for broken in ("", "nonsense", (authority.directory / "first.crt").read_text()):
            in_use.write_text(broken)
            hang_up(broker, REFUSED)
            assert serial(broker.tls_port) == second
        in_use.unlink()
        hang_up(broker, REFUSED)
        assert serial(broker.tls_port) == second
        sender.send(Message("and still"), timeout=30)


def test_log_rules_are_read_again(broker: TlsBroker, tmp_path: Path) -> None:
    file = tmp_path / "qpidd.conf"

    def opened() -> int:
        return broker.log.count("connection opened")

    def comes_and_goes() -> None:
        with Connection(broker.address) as connection:
            connection.session()

    comes_and_goes()
    wait_for(lambda: opened() == 1, 60, "the line")
    file.write_text("log-enable=notice+\nlog-disable=notice:Broker\n")
    hang_up(broker, READ)
    comes_and_goes()
    file.write_text("log-enable=nonsense+\n")
    hang_up(broker, REFUSED)
    file.write_text("no-such-option=1\n")
    hang_up(broker, REFUSED)
    file.write_text("log-enable=notice+\n")
    hang_up(broker, READ)
    comes_and_goes()
    wait_for(lambda: opened() == 2, 60, "the line")


def test_a_backup_whose_certificate_had_expired_joins_after_renewal(tmp_path: Path, authority: Authority) -> None:
    """Its links use the renewed certificate, too."""
    files = {name: tmp_path / f"{name}.pem" for name in "ab"}
    shutil.copy(authority.certificate("a"), files["a"])
    shutil.copy(authority.certificate("b", days=-1), files["b"])
    brokers = {name: TlsBroker(tmp_path, files[name], name=name) for name in "ab"}
    url = ",".join(f"ssl:127.0.0.1:{broker.tls_port}" for broker in brokers.values())
    for broker in brokers.values():
        cluster = ("--ha-cluster", "yes", "--ha-brokers-url", url, "--ha-safety", "availability")
        links = ("--ssl-ca", str(authority.file), "--link-heartbeat-interval", "0.5")
        broker.options = (*broker.options, *cluster, *links)
    try:
        for broker in brokers.values():
            broker.start()
        a, b = brokers["a"], brokers["b"]
        a.request("ha.promote")
        wait_for(lambda: "certificate" in a.log, 60, lambda: a.log)
        assert b.request("ha.status")["state"] == "joining"
        shutil.copy(authority.certificate("renewed"), files["b"])
        hang_up(b, READ)
        wait_for(lambda: b.request("ha.status")["state"] == "ready", 60, lambda: b.log)
    finally:
        for broker in brokers.values():
            broker.close()


def test_live_options_change_and_the_others_are_named(broker: TlsBroker, tmp_path: Path) -> None:
    file = tmp_path / "qpidd.conf"
    file.write_text(
        "log-enable=notice+\nheartbeat=7\nmax-queues=1\nmax-message-size=10\nport=1\nconnection-backlog=9\n"
    )
    hang_up(broker, "wait for a restart: connection-backlog")
    wait_logged(broker, "SIGHUP: changed: max-message-size, max-queues, heartbeat")
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, heartbeat=None)
    with pika.BlockingConnection(parameters) as connection:
        assert connection._impl.params.heartbeat == 7
        channel = connection.channel()
        channel.queue_declare("one")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="max-queues"):
            connection.channel().queue_declare("two")
        channel.basic_publish("", "one", b"x" * 11)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="at most 10"):
            channel.queue_declare("one", passive=True)


def test_options_of_a_member_change(tmp_path: Path) -> None:
    file = tmp_path / "qpidd.conf"
    member = BrokerProcess(tmp_path, "--config", str(file))
    text = f"ha-cluster=yes\nha-brokers-url={member.address}\nha-safety=manager\nha-registry=none\n"
    file.write_text(text)
    try:
        member.start()
        file.write_text(text.replace(member.address, f"{member.address},127.0.0.1:1") + "ha-slow-backup-timeout=3\n")
        hang_up(member, "wait for a restart: ha-brokers-url")
        wait_logged(member, "SIGHUP: changed: ha-slow-backup-timeout")
        file.write_text(text + "ha-promote-on-shutdown=always\n")
        hang_up(member, "SIGHUP: changed: ha-promote-on-shutdown, ha-slow-backup-timeout")
    finally:
        member.close()
