"""Every allocation of the core fails once: what fails is one connection, and a backup has what the primary has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pamqp.commands as commands
import pytest

from qpidd_py.broker.broker import Broker
from qpidd_py.core import Catchup, Engine
from qpidd_py.core.memory import plan_failures
from tests.unit.broker.peer import Peer, Replicated
from tests.unit.broker.test_replication import state

Basic, Confirm, Queue, Tx = commands.Basic, commands.Confirm, commands.Queue, commands.Tx
MANY = 40
"""More than the first size of each table of the core."""


@pytest.fixture(autouse=True)
def no_plan() -> Iterator[None]:
    yield
    plan_failures(0)


class Prefixes(Replicated):
    """A primary whose log is applied by a backup, and looked at after each batch."""

    def __init__(self) -> None:
        super().__init__(engine=Engine(segment_size=8192))

    def backup(self) -> Broker:
        self.engine.flush()
        copy = Broker()
        copy.passive = True
        for batch in self.batches:
            copy.engine.apply(batch)
            waiting = {queue.name: {body for *_, body in queue.peek(1 << 20)} for queue in copy.engine.queues.values()}
            assert waiting.get("t1", set()) == waiting.get("t2", set()), "half of a transaction"
            assert not waiting.get("source", set()) & waiting.get("letters", set()), "a dead letter and its message"
        return copy


def settle(broker: Replicated, *peers: Peer) -> list[list[Any]]:
    """All that was said is done; what each peer has got."""
    found: list[list[Any]] = [[] for _ in peers]
    for _ in range(4):
        broker.advance()
        broker.engine.tick()
        for k, peer in enumerate(peers):
            found[k] += peer.frames()
    return found


class Run:
    """The scenario, once."""

    def __init__(self) -> None:
        self.broker = Prefixes()
        self.publisher, self.consumer, self.other = (Peer(self.broker) for _ in range(3))
        self.peers = (self.publisher, self.consumer, self.other)
        for peer in self.peers:
            peer.open_channel()
        for name, arguments in SETUP.items():
            self.other.send(1, Queue.Declare(queue=name, durable=True, arguments=arguments))
            settle(self.broker, self.other)
        self.got: list[tuple[Peer, Any]] = []

    def play(self, first: int, times: int) -> int:
        """With the allocations from `first` on failing; how many there were."""
        plan_failures(first, times)
        for step in STEPS:
            step(self)
            for peer, frames in zip(self.peers, settle(self.broker, *self.peers), strict=True):
                self.got += [(peer, frame) for frame in frames]
        return plan_failures(0)

    def check(self) -> None:
        self._other_is_served()
        backup, engine = self.broker.backup(), self.broker.engine
        copy = backup.engine
        assert state(self.broker.vhost) == state(backup.vhost)
        assert engine.queues.keys() == copy.queues.keys()
        for number, queue in engine.queues.items():
            queue.check()
            copy.queues[number].check()
            assert queue.held() == copy.queues[number].held(), queue
        for peer in self.peers:
            peer.connection.closed("the end")
        for queue in engine.queues.values():
            assert not queue.unacked, "no consumer holds it"
        self._everything_comes_out()

    def _other_is_served(self) -> None:
        peer = self.other
        assert peer.connection.opened
        peer.send(1, Queue.Declare(queue="after"))
        settle(self.broker, peer)
        peer.publish(b"after", "after")
        (got,) = settle(self.broker, peer)
        peer.send(1, Basic.Get(queue="after"))
        (got,) = settle(self.broker, peer)
        assert got[0].name == "Basic.GetOk"

    def _everything_comes_out(self) -> None:
        reader = Peer(self.broker)
        reader.open_channel()
        for queue in list(self.broker.engine.queues.values()):
            waiting = queue.ready
            reader.send(1, Basic.Consume(queue=queue.name, no_ack=True))
            (got,) = settle(self.broker, reader)
            assert sum(frame.name == "Basic.Deliver" for frame in got) == waiting, queue


SETUP: dict[str, dict[str, Any]] = {
    "plain": {},
    "second": {},
    "t1": {},
    "t2": {},
    "letters": {},
    "source": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters", "x-max-length": 25},
    "ranked": {"x-max-priority": 3},
    "taken": {},
    "once": {"x-message-deduplication": True, "x-deduplication-window": 1500},
}


def publish_confirmed(run: Run) -> None:
    run.publisher.send(1, Confirm.Select())
    for i in range(MANY):
        run.publisher.publish(b"%d" % i + b"x" * 600, "plain")
        run.publisher.publish(b"y%d" % i, "nowhere")


def publish_to_both(run: Run) -> None:
    run.publisher.send(1, Queue.Bind(queue="plain", exchange="amq.fanout"))
    settle(run.broker, run.publisher)
    run.publisher.send(1, Queue.Bind(queue="second", exchange="amq.fanout"))
    settle(run.broker, run.publisher)
    for i in range(MANY):
        run.publisher.publish(b"%d" % i, "", "amq.fanout")


def publish_large(run: Run) -> None:
    run.publisher.publish(b"z" * 300_000, "plain")


def overflow_to_letters(run: Run) -> None:
    for i in range(MANY):
        run.publisher.publish(b"o%d" % i + b"x" * 300, "source")


def publish_ranked(run: Run) -> None:
    for i in range(MANY):
        run.publisher.publish(b"r%d" % i, "ranked", priority=i % 4)


def publish_once(run: Run) -> None:
    for i in range(MANY):
        run.publisher.publish(b"u%d" % i, "once", message_id=str(i % 30))


def declare(run: Run) -> None:
    run.publisher.send(1, Queue.Declare(queue="declared", arguments={"x-max-priority": 2}))


def consume(run: Run) -> None:
    run.consumer.send(1, Basic.Consume(queue="plain", consumer_tag="c"), Basic.Consume(queue="ranked"))


def settle_some(run: Run) -> None:
    for tag in range(2, 2 * MANY, 2):
        run.consumer.send(1, Basic.Ack(tag))
    for tag in range(3, 2 * MANY, 4):
        run.consumer.send(1, Basic.Nack(tag, requeue=True))


def reject_to_letters(run: Run) -> None:
    run.consumer.send(2, commands.Channel.Open(), Basic.Consume(queue="source"))
    settle(run.broker)
    for tag in range(1, 20, 2):
        run.consumer.send(2, Basic.Reject(tag, requeue=False))


def take_without_acknowledgement(run: Run) -> None:
    run.consumer.send(3, commands.Channel.Open(), Basic.Consume(queue="second", no_ack=True))


def get(run: Run) -> None:
    for _ in range(20):
        run.consumer.send(3, Basic.Get(queue="letters"))


def recover(run: Run) -> None:
    run.consumer.send(1, Basic.Recover(requeue=False))
    run.consumer.send(2, Basic.Recover(requeue=True))


def transaction(run: Run) -> None:
    peer = run.consumer
    peer.send(4, commands.Channel.Open(), Tx.Select(), Basic.Consume(queue="taken"))
    for i in range(MANY):
        run.publisher.publish(b"t%d" % i, "taken")
    settle(run.broker)
    for i in range(MANY):
        peer.publish(b"T%d" % i + b"x" * 500, "t1", channel=4)
        peer.publish(b"T%d" % i + b"x" * 500, "t2", channel=4)
        peer.send(4, Basic.Ack(i + 1))
    peer.send(4, Tx.Commit())


def join(run: Run) -> None:
    """What a backup that joins asks of the primary, in the turn of its link."""
    try:
        for queue in run.broker.engine.queues.values():
            cursor = Catchup(queue, queue.held(), run.broker.engine.position, keys=0)
            cursor.drops()
            while cursor.slice(4096):
                pass
    except MemoryError:
        """Its link is closed."""


def purge(run: Run) -> None:
    run.consumer.send(5, commands.Channel.Open(), Queue.Purge(queue="plain"), Queue.Purge(queue="ranked"))


def delete(run: Run) -> None:
    run.consumer.send(6, commands.Channel.Open(), Queue.Delete(queue="declared"))


STEPS: tuple[Callable[[Run], None], ...] = (
    publish_confirmed,
    publish_to_both,
    publish_large,
    overflow_to_letters,
    publish_ranked,
    publish_once,
    declare,
    consume,
    settle_some,
    reject_to_letters,
    take_without_acknowledgement,
    get,
    recover,
    transaction,
    join,
    purge,
    delete,
)


@pytest.mark.parametrize(("times", "step"), [(1, 1), (40, 7)])
def test_a_failed_allocation_costs_its_connection_only(times: int, step: int) -> None:
    plain = Run()
    count = plain.play(1 << 40, 1)
    assert count > 100
    plain.check()
    lost = 0
    for first in range(1, count + 1, step):
        run = Run()
        run.play(first, times)
        try:
            run.check()
        except BaseException:
            print(f"allocation {first}")
            raise
        lost += run.publisher.connection.finished or run.consumer.connection.finished
    assert lost
