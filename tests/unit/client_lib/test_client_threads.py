"""Many threads on one connection, with a thread switch as often as Python can, while brokers come and go."""

import logging
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pamqp import commands

from client_lib import LinkClosed, Message, Receiver, Sender, Session
from tests.support.wait import wait_for
from tests.unit.client_lib.test_client_failover import Lab, lab

__all__ = ["lab"]  # a fixture


@pytest.fixture(autouse=True)
def nervous() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
    sys.setswitchinterval(before)


class Crew:
    """Threads whose errors are the test's."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, count: int, work: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.errors.append(error)

        for _ in range(count):
            thread = threading.Thread(target=run, daemon=True)
            self._threads.append(thread)
            thread.start()

    def finish(self, timeout: float = 60) -> None:
        for thread in self._threads:
            thread.join(timeout)
        assert not self.errors
        assert not any(thread.is_alive() for thread in self._threads)


def test_senders_and_receivers_share_one_session(lab: Lab) -> None:
    """Sixteen threads, one sender, one receiver: nothing is lost, nothing handed out twice, no wake-up missed."""
    brokers = [lab.broker() for _ in range(3)]
    connection = lab.connect(*brokers)
    session = connection.session()
    sender = session.queue_sender("q", capacity=7)
    receiver = session.queue_receiver("q", capacity=5, drop_duplicates=True)
    sent: list[str] = []
    got: list[str | None] = []
    crew = Crew()

    def produce() -> None:
        for number in range(60):
            sent.append(sender.send(b"x", sync=number % 3 == 0, timeout=30))

    def consume() -> None:
        try:
            while True:
                message = receiver.fetch(30)
                got.append(message.id)
                session.acknowledge(message, sync=False)
        except LinkClosed:
            pass

    crew.start(8, produce)
    crew.start(8, consume)
    for number in range(8):
        wait_for(lambda: connection.failovers == number and connection.is_connected)  # noqa: B023
        goal = min(480, 40 * (number + 1))
        wait_for(lambda: len(got) >= goal)  # noqa: B023
        for broker in brokers:
            broker.drop()
    wait_for(lambda: len(got) >= 480)
    sender.sync(20)
    receiver.close(10)
    crew.finish()
    assert sorted(map(str, got)) == sorted(sent) and len(set(sent)) == 480
    assert session.unsettled() == sender.unsettled() == 0


def test_everything_at_once(lab: Lab) -> None:
    """Sessions, senders, receivers, declarations and gets come and go in eight threads while connections are lost."""
    brokers = [lab.broker() for _ in range(2)]
    connection = lab.connect(*brokers)
    crew = Crew()
    names = iter(range(1 << 30))
    stop = threading.Event()

    def one_round(chance: random.Random) -> None:
        with connection.session(transactional=chance.random() < 0.3) as session:
            queue = session.declare_queue(f"q{next(names)}", timeout=30)
            receiver, sender = session.queue_receiver(queue, capacity=3), session.queue_sender(queue, capacity=2)
            if session.transactional:
                session.rollback(30)
                return
            for _ in range(5):
                sender.send(b"x", sync=False, timeout=30)
            sender.close(30)
            # not acknowledged in time it may come again, so that there are more
            for _ in range(5):
                session.acknowledge(session.next_receiver(30).fetch(30), sync=chance.random() < 0.3)
            receiver.close(30)
            assert session.get("empty", timeout=30) is None

    def work() -> None:
        chance = random.Random(next(names))
        while not stop.is_set():
            one_round(chance)

    crew.start(8, work)
    for number in range(6):
        wait_for(lambda: connection.failovers == number and connection.is_connected)  # noqa: B023
        seen = len(lab.store.calls)
        wait_for(lambda: len(lab.store.calls) > seen + 200)  # noqa: B023
        for broker in brokers:
            broker.drop()
    stop.set()
    crew.finish()
    assert connection.sessions == []
    wait_for(lambda: connection.link.sessions.all == [])


def test_no_lock_is_held_in_callbacks(lab: Lab) -> None:
    """What an application does in on_settled may wait for a thread that uses the session."""
    session = lab.connect(lab.broker()).session()
    done: list[str] = []

    def settled(message: Message, message_id: str, error: Exception | None) -> None:
        other = threading.Thread(target=use, args=(session,))
        other.start()
        other.join(30)
        done.append("alive" if other.is_alive() else "done")

    def use(session: Session) -> None:
        session.unsettled()
        sender.available()
        sender.send("more", sync=False)
        assert receiver.poll(0) is None

    receiver: Receiver = session.queue_receiver("nothing")
    sender: Sender = session.queue_sender("q", on_settled=lambda *_: None)
    session.queue_sender("q", on_settled=settled).send("1", sync=False)
    wait_for(lambda: done == ["done"])


def test_waiting_threads_are_woken_one_and_all(lab: Lab) -> None:
    """Room for one lets one go on; the end lets all go on."""
    broker = lab.broker()
    broker.confirm = "hold"
    connection = lab.connect(broker)
    session = connection.session()
    sender = session.queue_sender("q", capacity=1)
    crew = Crew()
    ended: list[str] = []

    def work() -> None:
        try:
            sender.send(b"x", sync=False)
        except LinkClosed:
            ended.append("closed")
        else:
            ended.append("sent")

    crew.start(8, work)
    wait_for(lambda: sender.blocked == 7)
    peer = broker.peers[0]
    for number in range(1, 5):
        wait_for(lambda: peer.publishes == number)  # noqa: B023
        assert sender.unsettled() == 1
        peer.send(1, commands.Basic.Ack(number, False))
        wait_for(lambda: ended.count("sent") == number + 1)  # noqa: B023
    with session._waiting.monitor:
        sender.end()
    crew.finish()
    assert (ended.count("sent"), ended.count("closed")) == (5, 3)
