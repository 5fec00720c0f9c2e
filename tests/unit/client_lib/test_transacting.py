"""The order on the wire at the end of a transaction."""

from contextlib import nullcontext
from typing import Any

from client_lib.core.deliveries import Deliveries
from client_lib.core.ledger import Disposition
from client_lib.core.publishing import Publishing
from client_lib.core.subscription import Subscription
from client_lib.core.transacting import Transacting
from client_lib.core.transaction import Phase, Transaction
from client_lib.events import EventLog
from client_lib.message import Message


class Monitor(nullcontext[Any]):
    lock = nullcontext[Any]()

    def notify_all(self) -> None:
        pass


class Channel:
    """Remembers what was written, and answers when asked to."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.answers: list[Any] = []

    def tx_commit(self, callback: Any) -> None:
        self.written.append("commit")
        self.answers.append(callback)

    def tx_rollback(self) -> None:
        self.written.append("rollback")

    def basic_recover(self, requeue: bool, callback: Any) -> None:
        self.written.append("recover")
        self.answers.append(callback)


class Bench:
    def __init__(self) -> None:
        self.transaction = Transaction()
        publishing = Publishing("s", Monitor(), EventLog("c"), self.transaction)
        self.deliveries = Deliveries(lambda: None, self.transaction)
        self.transacting = Transacting(self.transaction, publishing, self.deliveries, Monitor())
        self.channel = Channel()
        self.woken = 0
        self.current = True

    def write(self) -> None:
        def wake() -> None:
            self.woken += 1

        self.transacting.write(self.channel, lambda: self.current, wake)

    def fetched(self) -> Message:
        session: Any = None
        subscription = Subscription(session, "q", "t", 10, False, False, None, None)
        message = Message("1")
        self.deliveries.subscriptions["t"] = subscription
        self.deliveries.arrived(subscription, message, 1)
        subscription.drain()
        assert message._delivery is not None
        self.deliveries.fetched[message._delivery] = message
        return message


def test_an_acknowledgement_made_after_the_flush_goes_before_the_commit() -> None:
    """The I/O thread has just written all acknowledgements when the application makes one more and commits."""
    bench = Bench()
    delivery = bench.fetched()._delivery
    assert delivery is not None
    bench.deliveries.settle(delivery, Disposition.ACCEPT)
    bench.transacting.start_commit()
    bench.write()
    assert bench.channel.written == [] and bench.transaction.phase is Phase.COMMITTING
    assert len(bench.deliveries.take()) == 1
    bench.write()
    bench.write()
    assert bench.channel.written == ["commit"] and bench.transaction.phase is Phase.COMMIT_SENT


def test_who_comes_later_gets_the_same_answer() -> None:
    bench = Bench()
    bench.transaction.disposed()
    first, second = bench.transacting.start_commit(), bench.transacting.start_commit()
    assert first is second and not first.cancel()
    bench.write()
    bench.channel.answers[0](None)
    assert first.result(0) is None and bench.woken == 1


def test_an_answer_of_another_channel_says_nothing() -> None:
    bench = Bench()
    bench.transaction.disposed()
    future = bench.transacting.start_commit()
    bench.write()
    bench.current = False
    bench.channel.answers[0](None)
    assert not future.done() and bench.transaction.phase is Phase.COMMIT_SENT


def test_rollback_recovers_and_drops_what_comes_before_the_answer() -> None:
    bench = Bench()
    bench.fetched()
    future = bench.transacting.start_rollback()
    bench.write()
    assert bench.channel.written == ["rollback", "recover"] and not bench.deliveries.fetched
    subscription = bench.deliveries.subscriptions["t"]
    bench.deliveries.arrived(subscription, Message("2"), 2)
    assert subscription.drain() == []
    bench.channel.answers[0](None)
    bench.deliveries.arrived(subscription, Message("3"), 3)
    assert future.done() and [m.content for m in subscription.drain()] == ["3"]
