"""A backlog larger than memory: it is taken, kept and handed out in order while the broker stays below its limit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pika
import psutil
import pytest

from benchmarks import load_generator
from qpidd_py.cli.client_socket import RequestRefused
from qpidd_py.errors import EXIT_DISK
from tests.support.members import TIME, Members
from tests.support.process import BrokerProcess
from tests.support.slow import mostly_slow
from tests.support.wait import wait_for, wait_logged

MIB = 1 << 20
SIZE = 65536
LIMIT = 64 * MIB
OPTIONS = ("--memory-limit", "64M")
PERSISTENT = pika.BasicProperties(delivery_mode=2)
STARTED = 50 * MIB
"""Of a broker without messages, and what its consumers and publishers need in addition."""


@contextmanager
def channel_of(broker: BrokerProcess) -> Iterator[Any]:
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, blocked_connection_timeout=60)
    with pika.BlockingConnection(parameters) as connection:
        yield connection.channel()


def body(number: int) -> bytes:
    return b"%010d" % number + number.to_bytes(4, "big") * ((SIZE - 10) // 4)


def publish(broker: BrokerProcess, first: int, number: int, confirmed: list[int] | None = None) -> None:
    """Returns when all are confirmed; `confirmed` gets the numbers of those that are."""
    seen = confirmed if confirmed is not None else []

    def confirm(frame: Any) -> None:
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        seen.extend(range(first + len(seen), first + frame.method.delivery_tag))

    with channel_of(broker) as channel:
        channel.queue_declare("q", durable=True)
        channel._impl.confirm_delivery(confirm)
        for n in range(number):
            channel._impl.basic_publish("", "q", body(first + n), PERSISTENT)
            while n - len(seen) > 50:
                channel.connection.process_data_events(0.01)
        wait_for(lambda: channel.connection.process_data_events(0.01) or len(seen) == number, 60)


def consume(broker: BrokerProcess, first: int, number: int) -> None:
    """The next ones of the queue, in order and unchanged."""
    with channel_of(broker) as channel:
        channel.basic_qos(prefetch_count=200)
        wanted = iter(range(first, first + number))
        for n in wanted:
            method, _, found = next(channel.consume("q", inactivity_timeout=30))
            assert method is not None, f"message {n} does not come"
            assert found == body(n), f"message {n}"
            if n % 50 == 0 or n == first + number - 1:
                channel.basic_ack(method.delivery_tag, multiple=True)


def rss(broker: BrokerProcess) -> int:
    return int(psutil.Process(broker.pid).memory_info().rss)


def info(broker: BrokerProcess) -> Any:
    return broker.request("broker.info")


def paged(broker: BrokerProcess) -> Any:
    return info(broker)["paged"]


def is_paged(broker: BrokerProcess, messages: int) -> bool:
    """What does not fit below the limit is on disk."""
    return bool(paged(broker)["octets"] > messages * SIZE - LIMIT and rss(broker) < LIMIT + 8 * MIB)


@pytest.mark.parametrize("number", mostly_slow([2500, 9600], 1))
def test_a_backlog_beyond_the_limit_is_taken_and_handed_out_in_order(tmp_path: Path, number: int) -> None:
    with BrokerProcess(tmp_path, *OPTIONS) as broker:
        publish(broker, 0, number)
        assert rss(broker) < LIMIT
        assert paged(broker)["octets"] > number * SIZE - LIMIT
        consume(broker, 0, number // 2)
        publish(broker, number, 100)
        consume(broker, number // 2, number - number // 2 + 100)
        wait_for(lambda: not paged(broker)["file"])
        wait_for(lambda: rss(broker) < LIMIT + 8 * MIB and paged(broker)["octets"] == 0, what="the memory is free")
        assert not list(broker.data_dir.glob("*page*")), "the file has no name"


def test_three_brokers_with_a_backlog_beyond_their_memory_lose_nothing(tmp_path: Path) -> None:
    members = Members(tmp_path, "--ha-safety", "quorum", *OPTIONS)
    try:
        members.up()
        brokers = members.brokers
        publish(brokers["a"], 0, 2000)
        members.settled("a")
        for broker in brokers.values():
            wait_for(partial(is_paged, broker, 2000), what="a backlog on disk")
        consume(brokers["a"], 0, 500)
        assert "of messages are in the page file" in members.tool("status", "-v", name="a")
        members.settled("a")
        members.level()
        brokers["a"].kill()
        members.tool("promote", "--cluster-manager", name="b")
        brokers["a"].start()
        members.settled("b")
        wait_for(lambda: paged(brokers["a"])["octets"] > 0, what="what joins is paged, too")
        consume(brokers["b"], 500, 1000)
        members.settled("b")
        members.level()
        brokers["b"].kill()
        members.tool("promote", "--cluster-manager", name="a")
        consume(brokers["a"], 1500, 500)
    finally:
        members.close()


@pytest.mark.parametrize("journal", mostly_slow(["no", "yes"], 1))
def test_a_primary_that_is_killed_while_it_pages_loses_nothing_confirmed(tmp_path: Path, journal: str) -> None:
    members = Members(tmp_path, "--ha-safety", "quorum", "--journal", journal, *OPTIONS)
    try:
        members.up()
        brokers = members.brokers
        confirmed: list[int] = []
        killer = threading.Thread(target=lambda: kill_when(brokers["a"], lambda: len(confirmed) > 1500))
        killer.start()
        with pytest.raises(pika.exceptions.AMQPError):
            publish(brokers["a"], 0, 5000, confirmed)
        killer.join()
        primary = members.promote_newest("b", "c")
        brokers["a"].start()
        members.settled(primary)
        wait_for(lambda: paged(brokers[primary])["octets"] > 0, what="a backlog on disk")
        consume(brokers[primary], 0, len(confirmed))
    finally:
        members.close()


def kill_when(broker: BrokerProcess, due: Callable[[], bool]) -> None:
    wait_for(due, 60)
    broker.kill()


def test_a_journal_larger_than_memory_is_read_within_the_limit(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, *OPTIONS, "--journal", "yes", "--journal-segment-size", "4M")
    try:
        publish(broker.start(), 0, 2000)
        broker.kill()
        broker.start()
        assert rss(broker) < LIMIT + 8 * MIB and paged(broker)["octets"] > 2000 * SIZE - LIMIT
        consume(broker, 0, 1500)
        publish(broker, 2000, 100)
        broker.kill()
        consume(broker.start(), 1500, 600)
    finally:
        broker.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: root only")
def test_a_page_file_that_is_full_leaves_the_limit_to_do_its_work(tmp_path: Path) -> None:
    folder = tmp_path / "pages"

    class OnSmallDisk(BrokerProcess):
        def command(self) -> list[str]:
            words = " ".join(super().command())
            return ["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size=24m none {folder} && exec {words}"]

    folder.mkdir()
    broker = OnSmallDisk(tmp_path, *OPTIONS, "--page-folder", str(folder))
    try:
        broker.start()
        told: list[str] = []
        with channel_of(broker) as channel:
            # On the adapter: the blocking connection's publish would wait until a blocked broker reads on.
            adapter = channel.connection._impl
            adapter.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
            channel.queue_declare("q", durable=True)
            number = 0
            while not told:
                assert number < 2000
                channel._impl.basic_publish("", "q", body(number), PERSISTENT)
                number += 1
                channel.connection.process_data_events(0)
            assert "memory-limit" in told[0]
            assert "cannot be written" in paged(broker)["reason"]
            wait_logged(broker, "cannot be written")
            consume(broker, 0, number)
        publish(broker, number, 2 * LIMIT // SIZE // 4)
        consume(broker, number, 2 * LIMIT // SIZE // 4)
        assert broker.running
    finally:
        broker.close()


def rot(broker: BrokerProcess) -> None:
    """Some octets of the first page in the page file are others."""
    open_files = list(Path(f"/proc/{broker.pid}/fd").iterdir())
    (file,) = (path for path in open_files if str(broker.data_dir / "#") in path_of(path))
    with open(file, "r+b") as pages:
        pages.seek(0)
        pages.write(b"rot")


def test_a_page_file_that_rots_ends_a_broker_that_has_a_journal_and_no_cluster(tmp_path: Path) -> None:
    """It must not hand out other octets, and not go on without the message: the journal has it."""
    broker = BrokerProcess(tmp_path, *OPTIONS, "--journal", "yes")
    try:
        publish(broker.start(), 0, 1500)
        rot(broker)
        with pytest.raises((AssertionError, pika.exceptions.AMQPError)):
            consume(broker, 0, 1500)
        assert broker.wait() == EXIT_DISK
        wait_logged(broker, "other octets")
        assert "Traceback" not in broker.log
        broker.start()
        with channel_of(broker) as channel:
            assert channel.queue_declare("q", passive=True).method.message_count
    finally:
        broker.close()


def test_without_either_its_messages_wait_and_the_others_are_served(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *OPTIONS) as broker:
        publish(broker, 0, 1500)
        rot(broker)
        with channel_of(broker) as channel:
            channel.basic_consume("q", lambda *_: None, auto_ack=True)
            read_until_told(channel, broker)
            wait_logged(broker, f"last found in the page file in {broker.data_dir}, ")
            waiting = channel.queue_declare("q", passive=True).method.message_count
            assert waiting, "they are still there"
            channel.queue_declare("other", exclusive=True)
            channel.basic_publish("", "other", b"served")
            assert channel.basic_get("other", auto_ack=True)[2] == b"served"
            (alarm,) = info(broker)["alarms"].items()
            assert alarm[0] == "rot" and "offset 0" in alarm[1]
            with pytest.raises(RequestRefused, match="queue q cannot be read back"):
                broker.request("queue.move", source="q", exchange="amq.fanout")
            channel.queue_purge("q")
            wait_logged(broker, "no message waits any more that cannot be read")
            assert not info(broker)["alarms"] and broker.running


@pytest.mark.parametrize("journal", mostly_slow(["no", "yes"], 1))
def test_a_primary_whose_page_file_rots_hands_over_and_refills_itself(tmp_path: Path, journal: str) -> None:
    members = Members(tmp_path, "--ha-safety", "quorum", "--journal", journal, *OPTIONS)
    try:
        members.up()
        brokers = members.brokers
        publish(brokers["a"], 0, 1500)
        members.settled("a")
        wait_for(partial(is_paged, brokers["a"], 1500), what="a backlog on disk")
        rot(brokers["a"])
        done = consume_until_told(brokers["a"], 1500)
        assert done < 1500, "what cannot be read is not delivered"
        primary = wait_for(lambda: next((name for name in "bc" if members.states()[name] == "active"), ""), TIME)
        wait_logged(brokers["a"], "messages cannot be read back, and wait: queue q (", "the role goes to a backup")
        members.settled(primary)
        wait_logged(brokers["a"], "no message waits any more that cannot be read")
        assert not members.ask("a", "ha.status")["alarms"]
        if journal == "yes":
            brokers["a"].kill()  # what the difference brought is on its disk
            brokers["a"].start()
            members.settled(primary)
        members.level()
        members.tool("relocate", "--to", "a", name=primary)
        members.settled("a")
        consume_the_rest(brokers["a"], done, 1500)
        assert all(broker.running for broker in brokers.values())
    finally:
        members.close()


def test_a_primary_without_a_backup_serves_what_it_can_until_one_that_has_the_rest_is_back(tmp_path: Path) -> None:
    """The other one is gone for a while, with its messages; it is not told to take over before it is back."""
    members = Members(tmp_path, "--ha-safety", "availability", *OPTIONS, names="ab")
    try:
        members.up()
        brokers = members.brokers
        publish(brokers["a"], 0, 1500)
        members.settled("a")
        wait_for(partial(is_paged, brokers["a"], 1500), what="a backlog on disk")
        os.kill(brokers["b"].pid, signal.SIGSTOP)
        wait_logged(brokers["a"], "backup b is lost")
        rot(brokers["a"])
        with channel_of(brokers["a"]) as channel:
            channel.basic_consume("q", lambda *_: None)
            read_until_told(channel, brokers["a"])
            channel.queue_declare("other", exclusive=True)
            channel.confirm_delivery()
            channel.basic_publish("", "other", b"served")
            shown = members.tool("status", "-v", name="a")
            assert "Alarm:" in shown and "queue q (" in shown
            assert "nobody can take over" in members.ask("a", "ha.status")["advice"]
            assert not members.ask("a", "ha.query")["whole"]
        with pytest.raises(RequestRefused, match="queue q cannot be read back"):
            copy = brokers["a"].request("ha.backup", action="begin", messages=True)["id"]
            while True:
                brokers["a"].request("ha.backup", action="next", id=copy)
        os.kill(brokers["b"].pid, signal.SIGCONT)
        members.settled("b")
        wait_logged(brokers["a"], "no message waits any more that cannot be read")
        consume(brokers["b"], 0, 1500)
        assert all(broker.running for broker in brokers.values())
    finally:
        members.close()


def read_until_told(channel: Any, broker: BrokerProcess) -> None:
    """A consumer takes what comes before it."""

    def told() -> bool:
        channel.connection.process_data_events(0.01)
        return "messages cannot be read back, and wait: queue q (" in broker.log

    wait_for(told, TIME, what="the alarm")


def consume_until_told(broker: BrokerProcess, number: int) -> int:
    """In order and unchanged, until the connection is closed; up to which message all are acknowledged."""
    acknowledged = 0
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as told, channel_of(broker) as channel:
        channel.basic_qos(prefetch_count=200)
        for n in range(number):
            method, _, found = next(channel.consume("q", inactivity_timeout=60))
            assert method is not None and found == body(n), f"message {n}"
            channel.basic_ack(method.delivery_tag)
            acknowledged = n + 1
    assert told.value.reply_code == 320
    return acknowledged


def consume_the_rest(broker: BrokerProcess, acknowledged: int, number: int) -> None:
    """Nothing that was not acknowledged is missing; the last acknowledgements may not have arrived."""
    with channel_of(broker) as channel:
        first: int | None = None
        for n in range(number):
            method, _, found = next(channel.consume("q", inactivity_timeout=60))
            assert method is not None
            first = int(found[:10]) if first is None else first
            assert first <= acknowledged and found == body(first + n)
            channel.basic_ack(method.delivery_tag)
            if first + n == number - 1:
                return


def path_of(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("limit", "text"),
    [("64M", "cannot be used: No such file or directory"), ("0", "with memory-limit=0, expected a limit")],
)
def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path, limit: str, text: str) -> None:
    broker = BrokerProcess(tmp_path, "--page-folder", str(tmp_path / "missing"), "--memory-limit", limit)
    try:
        assert broker.spawn().wait() == 1
        wait_logged(broker, "option page-folder: ", text)
    finally:
        broker.close()


class Confined(BrokerProcess):
    """With 600 MiB of address space (`ulimit -v`)."""

    def command(self) -> list[str]:
        return ["prlimit", f"--as={600 * MIB}", *super().command()]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["quorum", "manager", "availability"])
def test_confined_brokers_take_more_than_their_address_space(tmp_path: Path, mode: str) -> None:
    members = Members(tmp_path, "--ha-safety", mode, process=Confined)
    try:
        members.up()
        publish(members.brokers["a"], 0, 14000)
        members.settled("a")
        consume(members.brokers["a"], 0, 14000)
        members.settled("a")
        assert all(broker.running for broker in members.brokers.values())
    finally:
        members.close()


@pytest.mark.slow
def test_millions_of_messages_take_32_octets_each_in_memory(tmp_path: Path) -> None:
    """3,000,000 of 1 KiB, ten times the limit; also at full speed nothing reaches it."""
    load_generator.build()
    number = 3_000_000
    with BrokerProcess(tmp_path, "--memory-limit", "300M") as broker:
        options: dict[str, str | float] = {"address": broker.address, "queue": "big", "size": 1024, "count": number}
        load_generator.run("load", **options, window=5000, no_consume=True, transient=True)
        index = 32 * number
        assert rss(broker) < 300 * MIB and paged(broker)["octets"] > number * 1024 - (300 * MIB - index)
        report = load_generator.run("load", **options, prefetch=5000, no_publish=True)
        assert (report["delivered"], report["out_of_order"]) == (number, 0)
        assert "publishers wait" not in broker.log
        wait_for(lambda: rss(broker) < 150 * MIB, what="the memory is free")
