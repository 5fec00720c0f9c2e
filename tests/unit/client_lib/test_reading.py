"""The thread that waits for messages reads the socket itself: in `fetch`, and in pika's style."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from client_lib import Connection, FailoverConnection
from client_lib.connecting import lending
from client_lib.connecting.incoming import Incoming
from client_lib.failover import inbox
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.styles import QUICK

MAIN = threading.main_thread().name
COUNT = 50  # messages of one lot


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker()
    yield broker
    broker.kill()


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that have read, with time to do so."""
    monkeypatch.setattr(lending, "LEASE", 3600.0)
    found: list[str] = []
    quick = Incoming.feed_quick

    def noted(incoming: Incoming, data: bytes) -> bytes | None:
        found.append(threading.current_thread().name)
        return quick(incoming, data)

    monkeypatch.setattr(Incoming, "feed_quick", noted)
    return found


@pytest.fixture
def feed(broker: ScriptedBroker) -> Iterator[Any]:
    """Sends a lot of messages on another connection."""
    with Connection([broker.url], **QUICK) as connection:
        sender = connection.session().queue_sender("q")

        def lot(count: int = COUNT) -> None:
            for number in range(count):
                sender.send(str(number), timeout=20)

        yield lot


class Pikas:
    """A consumer in pika's style."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.bodies: list[bytes] = []
        self.connection = FailoverConnection(broker.url, **QUICK)
        self.channel = self.connection.channel()
        self.channel.queue_declare("q")
        self.channel.basic_consume("q", self._take)

    def _take(self, channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self.bodies.append(body)
        channel.basic_ack(method.delivery_tag)

    def take(self, count: int) -> None:
        wanted, end = len(self.bodies) + count, time.monotonic() + 20
        while len(self.bodies) < wanted and time.monotonic() < end:
            self.connection.process_data_events(1)
        assert len(self.bodies) == wanted

    def until(self, seen: Callable[[], object]) -> None:
        """Processes events until then."""

        def step() -> bool:
            self.connection.process_data_events(0.1)
            return bool(seen())

        wait_for(step)

    @property
    def lending(self) -> lending.Lending | None:
        return self.connection._connection.link.lending

    @property
    def lent(self) -> bool:
        return self.lending is not None and self.lending.lent

    @property
    def reads(self) -> bool:
        return self.lending is not None and self.lending._lock.locked()

    def borrow(self, feed: Any, readers: list[str]) -> None:
        """Until this thread has read, and may go on."""

        def lent() -> bool:
            thread = threading.Thread(target=feed)
            thread.start()
            self.take(COUNT)
            thread.join(20)
            return self.lent and MAIN in readers

        wait_for(lent)


@pytest.fixture
def pikas(broker: ScriptedBroker) -> Iterator[Pikas]:
    found = Pikas(broker)
    yield found
    if found.connection.is_open:
        found.connection.close()


def test_fetch_reads(broker: ScriptedBroker, feed: Any, readers: list[str]) -> None:
    with Connection([broker.url], **QUICK) as connection:
        session = connection.session()
        session.declare_queue("q", timeout=20)
        receiver = session.queue_receiver("q", capacity=10)

        def read() -> bool:
            thread = threading.Thread(target=feed)
            thread.start()
            bodies = []
            for _ in range(COUNT):
                message = receiver.fetch(20)
                bodies.append(message.body)
                session.acknowledge(message, sync=False)
            thread.join(20)
            assert bodies == [str(number).encode() for number in range(COUNT)]
            return MAIN in readers

        wait_for(read)
        session.sync(20)
    assert not broker.peers[-1].unacked


def test_pikas_style_reads(pikas: Pikas, feed: Any, readers: list[str]) -> None:
    pikas.borrow(feed, readers)
    assert pikas.bodies[-COUNT:] == [str(number).encode() for number in range(COUNT)]


@pytest.mark.parametrize("how", ["add_callback_threadsafe", "call_later", "basic_publish"])
def test_another_thread_is_heard_at_once_by_one_that_reads(
    pikas: Pikas, feed: Any, readers: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It would not look for a minute."""
    monkeypatch.setattr(lending, "PATIENCE", 60.0)
    monkeypatch.setattr(inbox, "LOOKS", 1 / 60)
    pikas.borrow(feed, readers)
    seen: list[str] = []

    def ask() -> None:
        wait_for(lambda: pikas.reads)  # it reads
        match how:
            case "add_callback_threadsafe":
                pikas.connection.add_callback_threadsafe(lambda: seen.append(threading.current_thread().name))
            case "call_later":
                pikas.connection.call_later(0.01, lambda: seen.append(threading.current_thread().name))
            case _:
                pikas.channel.basic_publish("", "elsewhere", b"x")  # its confirm may be read by the other one
                pikas.connection.add_callback_threadsafe(lambda: seen.append(MAIN))

    thread = threading.Thread(target=ask)
    began = time.monotonic()
    thread.start()
    while not seen and time.monotonic() - began < 30:
        pikas.connection.process_data_events(None)
    thread.join(30)
    assert seen == [MAIN] and time.monotonic() - began < 30


def test_a_long_callback_gives_reading_back(
    broker: ScriptedBroker, pikas: Pikas, feed: Any, readers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats are heard, and the end of the connection is seen, while it runs."""
    pikas.borrow(feed, readers)
    pikas.until(lambda: not pikas.lent)  # nothing comes
    monkeypatch.setattr(lending, "LEASE", 0.01)
    ended: list[int] = []

    def long(channel: Any, method: Any, *_: Any) -> None:
        channel.basic_ack(method.delivery_tag)
        if not ended and pikas.lent:
            wait_for(lambda: not pikas.lent)
            broker.drop()
            wait_for(lambda: pikas.connection.failovers == 1)
            ended.append(1)

    pikas.channel.queue_declare("long")
    pikas.channel.basic_consume("long", long)
    thread = threading.Thread(target=lambda: _post(broker, "long", lambda: bool(ended)))
    thread.start()
    pikas.until(lambda: ended)
    thread.join(20)


def _post(broker: ScriptedBroker, queue: str, over: Any) -> None:
    with Connection([broker.url], **QUICK) as connection:
        sender = connection.session().queue_sender(queue)
        wait_for(lambda: sender.send("x", timeout=20) and over())


@pytest.mark.parametrize("how", ["drop", "shut"])
def test_the_connection_ends_while_it_reads(
    broker: ScriptedBroker, pikas: Pikas, feed: Any, readers: list[str], how: str
) -> None:
    pikas.borrow(feed, readers)

    def end() -> None:
        wait_for(lambda: pikas.reads)
        broker.drop() if how == "drop" else broker.shut("CONNECTION_FORCED")

    thread = threading.Thread(target=end)
    thread.start()
    pikas.until(lambda: pikas.connection.failovers == 1)
    thread.join(20)
    before = len(pikas.bodies)
    feed()
    pikas.until(lambda: len(pikas.bodies) >= before + COUNT)


def test_a_callback_may_publish_and_ask(pikas: Pikas, feed: Any, readers: list[str]) -> None:
    pikas.borrow(feed, readers)
    asked: list[str] = []

    def answer(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        channel.basic_publish("", "answers", body)
        channel.queue_declare("answers")
        channel.basic_ack(method.delivery_tag)
        asked.append(body.decode())

    pikas.channel.queue_declare("asked")
    pikas.channel.basic_consume("asked", answer)
    for number in range(20):
        pikas.channel.basic_publish("", "asked", str(number))
    pikas.until(lambda: len(asked) == 20)
    assert asked == [str(number) for number in range(20)]


def test_it_closes_while_another_thread_reads(pikas: Pikas, feed: Any, readers: list[str]) -> None:
    pikas.borrow(feed, readers)

    def close() -> None:
        wait_for(lambda: pikas.reads)
        pikas.connection.close()

    thread = threading.Thread(target=close)
    thread.start()
    with pytest.raises(Exception, match="closed"):
        while True:
            pikas.connection.process_data_events(None)
    thread.join(20)
    assert not thread.is_alive()


def test_only_who_is_nudged_takes_descriptors(broker: ScriptedBroker, pikas: Pikas) -> None:
    """Programs hold many connections, and may have 1024 descriptors."""
    with Connection([broker.url], **QUICK) as connection:
        session = connection.session()
        session.declare_queue("elsewhere", timeout=20)
        session.queue_sender("elsewhere").send("x", timeout=20)
        assert session.queue_receiver("elsewhere").fetch(20).body == b"x"
        assert connection.link.lending is not None and connection.link.lending._ear < 0
    pikas.connection.process_data_events(0.1)
    assert pikas.lending is not None and pikas.lending._ear >= 0


def test_without_descriptors_the_io_thread_reads(
    pikas: Pikas, feed: Any, readers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "pipe", none_left)
    thread = threading.Thread(target=feed)
    thread.start()
    pikas.take(COUNT)
    thread.join(20)
    assert pikas.bodies == [str(number).encode() for number in range(COUNT)] and MAIN not in readers
