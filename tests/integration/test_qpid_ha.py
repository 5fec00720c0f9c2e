"""`qpid-ha` and the management requests against real brokers: a cluster of two, and one without HA."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from tests.support import programs
from tests.support.certificates import needs_openssl
from tests.support.process import HeldPort, explicit
from tests.support.wait import wait_for

TIMEOUT = 60.0  # seconds; far beyond what anything here takes, on a busy machine too


class Broker:
    """A `qpidd` process of our own."""

    def __init__(self, folder: Path, held: HeldPort, *options: str) -> None:
        port = held.port
        self._held = held
        self.address = f"127.0.0.1:{port}"
        self.port = port
        self.log = folder / f"{port}.log"
        command = [sys.executable, "-m", "qpidd_py", "--interface", "127.0.0.1", "--port", str(port)]
        command += ["--data-dir", str(folder / str(port)), *explicit(options)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("QPID_")}
        with self.log.open("w") as log:
            self.process = programs.start(command, stdout=subprocess.DEVNULL, stderr=log, env=environment)

    def wait(self) -> "Broker":
        wait_for(lambda: "Broker running" in self.log.read_text() or self.process.poll() is not None, what="the broker")
        assert self.process.poll() is None, self.log.read_text()
        return self

    def ask(self, method: str, **arguments: Any) -> Any:
        with ManagementSocket(Target("127.0.0.1", self.port), Deadline(TIMEOUT)) as connection:
            return connection.request(method, arguments)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._held.release()


def qpid_ha(*arguments: str) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QPID_")}
    command = [sys.executable, "-m", "ha.qpid_ha.main", *arguments]
    result = programs.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert result.stderr == ""
    return result.returncode, result.stdout


def status(broker: Broker) -> str:
    return qpid_ha("status", "-b", broker.address)[1].strip()


def amqp_connection(port: int) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[Broker]]:
    """Two members, both joining."""
    ports = [HeldPort(), HeldPort()]
    url = ",".join(f"127.0.0.1:{each.port}" for each in ports)
    options = ["--ha-cluster", "yes", "--ha-brokers-url", url, "--ha-replicate", "all"]
    options += ["--ha-username", "guest", "--ha-password", "guest", "--ha-mechanism", "PLAIN"]
    brokers = [Broker(tmp_path, port, *options) for port in ports]
    try:
        yield [broker.wait() for broker in brokers]
    finally:
        for broker in brokers:
            broker.end()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path, HeldPort())
    try:
        yield broker.wait()
    finally:
        broker.end()


def promote(broker: Broker) -> None:
    assert qpid_ha("promote", "--cluster-manager", "-b", broker.address) == (0, "")


def form(cluster: list[Broker]) -> None:
    promote(cluster[0])
    wait_for(lambda: [status(broker) for broker in cluster] == ["active", "ready"], what="a formed cluster")


def test_the_life_of_a_cluster_as_an_administrator_sees_it(cluster: list[Broker]) -> None:
    first, second = cluster
    assert [status(broker) for broker in cluster] == ["joining", "joining"]
    assert qpid_ha("status", "--is-primary", "-b", first.address) == (1, "")
    form(cluster)
    assert qpid_ha("status", "--is-primary", "-b", first.address) == (0, "")
    assert qpid_ha("status", "--expect", "backup", "-b", second.address) == (0, "")
    assert qpid_ha("status", "--expect", "primary", "-b", second.address) == (1, "")
    lines = f"{first.address} active\n{second.address} ready\n"
    assert qpid_ha("status", "--all", "-b", second.address) == (0, lines)

    first.end()
    code, out = qpid_ha("status", "--all", "-b", second.address)
    assert code == 0
    assert out == f"{first.address} ConnectionRefusedError: Connection refused\n{second.address} ready\n"
    promote(second)
    wait_for(lambda: status(second) == "active", what="the survivor to be active")


def test_promotion_is_refused_next_to_a_primary_and_repeated_without_effect(cluster: list[Broker]) -> None:
    form(cluster)
    code, out = qpid_ha("promote", "--cluster-manager", "-b", cluster[1].address)
    assert code == 1
    assert re.fullmatch(r"RequestRefused: [^\n]+\n", out)
    assert [status(broker) for broker in cluster] == ["active", "ready"]
    promote(cluster[0])
    assert [status(broker) for broker in cluster] == ["active", "ready"]


def test_query_tells_what_was_configured(cluster: list[Broker]) -> None:
    form(cluster)
    for broker, state in zip(cluster, ("active", "ready"), strict=True):
        code, out = qpid_ha("query", "-b", broker.address)
        assert code == 0
        found = dict(re.fullmatch(r"([^:]+): *(.*)", line).groups() for line in out.splitlines())  # type: ignore
        assert list(found) == ["Status", "Broker ID", "Brokers URL", "Public URL", "Replicate"]
        assert found["Status"] == state
        assert found["Replicate"] == "all"
        assert found["Brokers URL"] == ",".join(member.address for member in cluster)
    assert qpid_ha("query", "--all", "--verbose", "-b", cluster[0].address)[0] == 0
    answers = json.loads(qpid_ha("query", "--all", "--json", "-b", cluster[1].address)[1])
    assert [answer["status"] for answer in answers] == ["active", "ready"]
    assert len({answer["epoch"] for answer in answers}) == 1


def test_a_backup_refuses_clients_and_admits_the_tool(cluster: list[Broker]) -> None:
    form(cluster)
    with pytest.raises(pika.exceptions.AMQPConnectionError) as caught:
        amqp_connection(cluster[1].port)
    # pika wraps what ends the opening; the text is what an application's log will show.
    assert "is a backup (ready); the primary is " + cluster[0].address in repr(caught.value)
    assert qpid_ha("ping", "-b", cluster[1].address) == (0, "")


def test_a_backup_shows_the_queues_that_it_holds(cluster: list[Broker]) -> None:
    form(cluster)
    with amqp_connection(cluster[0].port) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        for number in range(3):
            channel.basic_publish("", "orders", b"order %d" % number, mandatory=True)
        for broker in cluster:
            (queue,) = broker.ask("queue.list")
            assert (queue["name"], queue["ready"], queue["replicate"]) == ("orders", 3, "all")
            peeked = broker.ask("queue.peek", queue="orders", limit=2)
            assert [message["body"] for message in peeked] == ["order 0", "order 1"]


def test_a_stopped_broker_costs_the_timeout_and_no_more(cluster: list[Broker]) -> None:
    cluster[1].process.send_signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        code, out = qpid_ha("status", "--timeout", "0.3", "-b", cluster[1].address)
        assert (code, out) == (1, f"TimeoutError: {cluster[1].address}: no answer within 0.3 s\n")
        assert time.monotonic() - begin < TIMEOUT / 2
        assert qpid_ha("status", "--all", "--timeout", "3", "-b", cluster[0].address) == (
            0,
            f"{cluster[0].address} joining\n{cluster[1].address} TimeoutError: no answer within 3 s\n",
        )
    finally:
        cluster[1].process.send_signal(signal.SIGCONT)


def test_the_configuration_file_of_the_broker_serves_the_tool(cluster: list[Broker], tmp_path: Path) -> None:
    file = tmp_path / "qpidd.conf"
    file.write_text(f"port={cluster[1].port}\nha-username=guest\nha-password=guest\nlink-heartbeat-interval=500ms\n")
    assert qpid_ha("status", "--config", str(file)) == (0, "joining\n")
    file.write_text(f"port={cluster[1].port}\nha-username=guest\nha-password=wrong\n")
    code, out = qpid_ha("--config", str(file), "status")
    assert code == 1
    assert out.startswith(f"AuthenticationFailure: {cluster[1].address}: 403 ACCESS_REFUSED")


def test_a_broker_outside_a_cluster(alone: Broker) -> None:
    assert qpid_ha("ping", "-b", alone.address) == (0, "")
    assert status(alone) == "standalone"
    assert qpid_ha("status", "--is-primary", "-b", alone.address) == (1, "")
    promote(alone)
    assert qpid_ha("status", "--all", "-b", alone.address) == (0, f"{alone.address} standalone\n")
    assert alone.ask("broker.info")["pid"] == alone.process.pid
    with pytest.raises(RequestRefused, match=r"unknown method 'queue\.burn'"):
        alone.ask("queue.burn")


@needs_openssl
def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subprocess.run([*make, "-keyout", key, "-out", certificate, *names], check=True, capture_output=True)
    secure = HeldPort()
    tls = ("--ssl-port", str(secure.port), "--ssl-cert", str(certificate), "--ssl-key", str(key))
    broker = Broker(tmp_path, HeldPort(), *tls)
    address = f"127.0.0.1:{secure.port}"
    try:
        broker.wait()
        assert qpid_ha("status", "--ssl-ca", str(certificate), "-b", address) == (0, "standalone\n")
        own = ("--ssl-certificate", str(certificate), "--ssl-key", str(key))
        assert qpid_ha("status", "--ssl-ca", str(certificate), *own, "-b", address) == (0, "standalone\n")
        code, out = qpid_ha("status", "--ssl", "-b", address)
        assert code == 1
        assert out.startswith(f"SSLCertVerificationError: ssl:{address}: ")
    finally:
        broker.end()
        secure.release()


def test_management_requests_from_an_unmodified_client(alone: Broker) -> None:
    with amqp_connection(alone.port) as connection:
        channel = connection.channel()
        answers: dict[str | None, Any] = {}
        channel.basic_consume(
            "qpid.management",
            lambda _channel, _method, properties, body: answers.update({properties.correlation_id: json.loads(body)}),
            auto_ack=True,
        )
        for number, method in enumerate(("broker.info", "session.list", "nonsense")):
            properties = pika.BasicProperties(correlation_id=f"r{number}")
            channel.basic_publish("qpid.management", method, b"{}", properties)
        deadline = time.monotonic() + TIMEOUT
        while len(answers) < 3 and time.monotonic() < deadline:
            connection.process_data_events(0.1)
    assert answers["r0"]["result"]["sessions"] == 1
    assert answers["r1"]["result"][0]["user"] == "guest"
    assert answers["r2"] == {"ok": False, "error": "unknown method 'nonsense'", "code": 406}
