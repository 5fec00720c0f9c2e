"""More than fits into memory: publishers wait, nothing is lost, no process ends, consumers and management go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import psutil
import pytest

from tests.support.cgroup import MemoryGroup, writable
from tests.support.members import Members
from tests.support.process import BrokerProcess
from tests.support.wait import wait_for, wait_logged

MIB = 1 << 20
BODY = b"x" * 65536
LIMIT = 100 * MIB


class Publisher:
    """Publishes without a window until told to stop, then waits for its confirms."""

    def __init__(self, port: int) -> None:
        self.told: list[str] = []
        self.confirmed = self.published = 0
        self._port = port
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self._port)) as connection:
            # Of the adapter below: the blocking one calls back only when all that it has to send is sent.
            implementation = connection._impl
            implementation.add_on_connection_blocked_callback(lambda _, frame: self.told.append(frame.method.reason))
            implementation.add_on_connection_unblocked_callback(lambda *_: self.told.append("unblocked"))
            channel = connection.channel()
            channel.queue_declare("q")
            channel._impl.confirm_delivery(self._confirm)
            while not self._end.is_set():
                if not self.told or self.told[-1] == "unblocked":
                    channel._impl.basic_publish("", "q", BODY, pika.BasicProperties())
                    self.published += 1
                connection.process_data_events(0)
            while self.confirmed < self.published:
                connection.process_data_events(0.05)

    def _confirm(self, frame: pika.frame.Method) -> None:
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        self.confirmed = frame.method.delivery_tag

    def waits(self) -> bool:
        return bool(self.told) and self.told[-1] != "unblocked"

    def end(self) -> None:
        self._end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def consumer(port: int) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        yield connection.channel()


def drain(port: int, least: int = 0) -> int:
    """Consumes `least` messages, or until none is left and none has come for a second; how many these were."""
    number = 0
    with consumer(port) as channel:
        for method, _, body in channel.consume("q", inactivity_timeout=1.0):
            if method is None:
                if channel.queue_declare("q", passive=True).method.message_count == 0:
                    break
                continue  # a busy broker
            assert body == BODY
            number += 1
            channel.basic_ack(method.delivery_tag)
            if number == least:
                break
    return number


def drain_to_the_end(port: int, *publishers: Publisher) -> int:
    """The publishers end, and all that they have published is consumed; how many messages were taken."""
    ends = [threading.Thread(target=publisher.end) for publisher in publishers]
    for end in ends:
        end.start()
    taken = 0
    while any(end.is_alive() for end in ends):
        taken += drain(port)
    return taken + drain(port)


def rss(broker: BrokerProcess) -> int:
    return int(psutil.Process(broker.pid).memory_info().rss)


def test_publishers_wait_at_the_limit_and_go_on_when_it_is_drained(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--memory-limit", "100M", "--page-folder", "no") as broker:
        publisher = Publisher(broker.port)
        wait_for(publisher.waits)
        assert publisher.told[-1] == "memory: the limit of 100 MiB is reached (memory-limit)"
        assert rss(broker) < LIMIT + 16 * MIB
        with consumer(broker.port) as channel:
            assert channel.basic_get("q", auto_ack=True)[2] == BODY, "consumers are served"
        taken = 1 + drain(broker.port, 1000)
        wait_for(lambda: "unblocked" in publisher.told)
        wait_for(publisher.waits, 60, lambda: "it fills up again")
        taken += drain_to_the_end(broker.port, publisher)
        assert taken == publisher.confirmed == publisher.published
        assert broker.running


def test_a_backup_at_its_limit_stops_the_publishers_of_its_primary(tmp_path: Path) -> None:
    members = Members(tmp_path, names="ab")
    members.brokers["b"].options = [*members.brokers["b"].options, "--memory-limit", "100M", "--page-folder", "no"]
    try:
        members.up()
        publisher = Publisher(members.brokers["a"].port)
        wait_for(publisher.waits)
        assert publisher.told[-1].startswith("backup b") and "memory-limit" in publisher.told[-1]
        assert "memory-limit" in members.ask("b", "ha.status")["advice"]
        assert rss(members.brokers["b"]) < LIMIT + 32 * MIB
        members.settled("a")
        taken = drain_to_the_end(members.brokers["a"].port, publisher)
        assert "unblocked" in publisher.told
        assert taken == publisher.confirmed == publisher.published
        wait_for(lambda: members.ask("b", "ha.status")["advice"] == "", what="no advice")
    finally:
        members.close()


class Confined(BrokerProcess):
    """With 600 MiB of address space (`ulimit -v`)."""

    def command(self) -> list[str]:
        return ["prlimit", f"--as={600 * MIB}", *super().command()]


class Grouped(BrokerProcess):
    """In a control group of its own with 600 MiB of memory: who takes more is killed by the system."""

    group: MemoryGroup | None = None

    def command(self) -> list[str]:
        self.group = self.group or MemoryGroup(self.name, 600 * MIB)
        return self.group.inside(super().command())

    def close(self) -> None:
        super().close()
        if self.group is not None:
            self.group.remove()


def flood(port: int) -> str:
    """Publishes until it is closed, or blocked: why.  What is blocked is not read, so it cannot close in order."""
    told: list[str] = []
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    connection._impl.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
    try:
        channel = connection.channel()
        while not told:
            channel._impl.basic_publish("", "q", BODY, pika.BasicProperties(delivery_mode=2))
            connection.process_data_events(0)
    except pika.exceptions.ConnectionClosedByBroker as error:
        return f"{error.reply_code} {error.reply_text}"
    except pika.exceptions.AMQPConnectionError as error:
        return str(error)
    return told[0]


def test_when_the_system_gives_no_more_publishers_are_closed_and_others_are_served(tmp_path: Path) -> None:
    with Confined(tmp_path, "--memory-limit", "0") as broker, consumer(broker.port) as channel:
        channel.queue_declare("q", durable=True)
        ends = [flood(broker.port) for _ in range(3)]
        assert any(end.startswith("506 RESOURCE_ERROR") for end in ends), ends
        assert all(end.startswith(("506 RESOURCE_ERROR", "memory: the system gives no more")) for end in ends), ends
        assert channel.basic_get("q", auto_ack=True)[2] == BODY
        wait_logged(broker, "the system gives no more; the reserve is used, and publishers wait")
        assert drain(broker.port) > 1000
        wait_for(lambda: "there is a reserve again" in broker.log)
        with consumer(broker.port) as other:
            other.confirm_delivery()
            other.basic_publish("", "q", b"again")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["quorum", "manager", "availability"])
@pytest.mark.parametrize("process", [Confined, Grouped])
def test_equal_brokers_do_not_die_of_the_same_backlog(tmp_path: Path, mode: str, process: type[BrokerProcess]) -> None:
    """Both backups died of it in the same 50 ms, then the primary, with 262,144 confirmed messages."""
    if process is Grouped and (reason := writable()):
        pytest.skip(reason)
    members = Members(tmp_path, "--ha-safety", mode, "--page-folder", "no", process=process)
    try:
        members.up()
        port = members.brokers["a"].port
        publishers = [Publisher(port) for _ in range(3)]
        wait_for(lambda: all(publisher.waits() for publisher in publishers), 60)
        with consumer(port) as channel:
            waiting = channel.queue_declare("q", passive=True).method.message_count
        assert waiting * len(BODY) > 100 * MIB
        members.settled("a")
        taken = drain(port, waiting // 2)
        wait_for(lambda: all("unblocked" in publisher.told for publisher in publishers))
        wait_for(lambda: all(publisher.waits() for publisher in publishers), 60)
        members.settled("a")
        taken += drain_to_the_end(port, *publishers)
        assert taken == sum(publisher.confirmed for publisher in publishers)
        assert all(broker.running for broker in members.brokers.values())
    finally:
        members.close()


@pytest.mark.parametrize("value", ["10M", "0.5", "101%", "-1"])
def test_a_limit_that_makes_no_sense_is_refused(tmp_path: Path, value: str) -> None:
    broker = BrokerProcess(tmp_path, "--memory-limit", value)
    try:
        assert broker.spawn().wait() == 1
        wait_logged(broker, "option memory-limit: found", "expected")
    finally:
        broker.close()
