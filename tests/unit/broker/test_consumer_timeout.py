"""Clients that keep deliveries for too long lose their channel."""

from __future__ import annotations

from typing import Any

import pamqp.commands as commands
import pytest

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.queue import quarters
from tests.unit.broker.peer import Peer

Basic, Channel, Queue, Tx = commands.Basic, commands.Channel, commands.Queue, commands.Tx


class World:
    """A broker, a client, and a clock."""

    def __init__(self, default: float = 0.0) -> None:
        self.broker = Broker()
        self.broker.time_consumers(default)
        self.now = 1000.0
        self.broker.tick(self.now)
        self.peer = Peer(self.broker)
        self.peer.open_channel()

    def declare(self, name: str = "q", /, **arguments: Any) -> None:
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        assert isinstance(self.peer.call(1, Queue.Declare(queue=name, arguments=named)), Queue.DeclareOk)

    def after(self, seconds: float) -> list[Any]:
        """What the client gets until then; a tick each quarter of a second."""
        found: list[Any] = []
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 0.25, end)
            self.broker.tick(self.now)
            found += self.peer.frames()
        return found

    def closes(self, seconds: float) -> list[str]:
        return [frame.reply_text for frame in self.after(seconds) if isinstance(frame, Channel.Close)]


def consumer(world: World, no_ack: bool = False, queue: str = "q") -> None:
    world.peer.send(1, Basic.Consume(queue=queue, consumer_tag=queue, no_ack=no_ack))
    world.peer.frames()


def test_a_delivery_that_is_kept_closes_the_channel() -> None:
    world = World(5.0)
    world.declare()
    consumer(world)
    assert world.closes(60) == [], "it holds nothing"
    world.peer.publish(b"m", "q")
    assert world.closes(5) == []
    (text,) = world.closes(2)
    assert text.startswith("PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. ")
    assert text.endswith("Timeout value used: 5000 ms")
    core = world.broker.vhost.queues["q"].core
    assert (core.ready, core.unacked, core.consumer_count) == (1, 0, 0)
    world.peer.send(1, Channel.CloseOk())
    world.peer.open_channel()
    consumer(world)
    assert world.closes(5) == [] and len(world.closes(2)) == 1, "it is delivered again, and timed again"


def test_those_that_are_settled_in_time_keep_it() -> None:
    world = World(5.0)
    world.declare()
    consumer(world)
    for tag in range(1, 20):
        world.peer.publish(b"m", "q")
        assert world.closes(4) == []
        world.peer.send(1, Basic.Ack(tag))
    assert world.closes(60) == []


def test_the_oldest_counts_and_each_queue_has_its_own_time() -> None:
    world = World(20.0)
    world.declare("slow", consumer_timeout=60_000)
    world.declare("usual")
    world.declare("quick", consumer_timeout=3_000)
    for name in ("slow", "usual", "quick"):
        consumer(world, queue=name)
    world.peer.publish(b"m", "slow")
    assert world.closes(30) == []
    world.peer.publish(b"m", "usual")
    assert world.closes(15) == []
    world.peer.publish(b"m", "quick")
    assert world.closes(2.5) == []
    assert [text[-7:] for text in world.closes(2)] == ["3000 ms"]


@pytest.mark.parametrize("kept", ["x-max-priority", "get"])
def test_priorities_and_get_are_timed_too(kept: str) -> None:
    world = World()
    world.declare(consumer_timeout=3_000, **({"max_priority": 3} if kept != "get" else {}))
    if kept != "get":
        consumer(world)
    world.peer.publish(b"m", "q", priority=2)
    if kept == "get":
        world.peer.send(1, Basic.Get(queue="q"))
    assert world.closes(3) == [] and len(world.closes(2)) == 1


def test_what_needs_no_acknowledgement_and_what_a_transaction_has_settled_is_not_timed() -> None:
    world = World(3.0)
    world.declare()
    world.declare("auto")
    consumer(world, no_ack=True, queue="auto")
    world.peer.publish(b"m", "auto")
    assert world.closes(30) == []
    world.peer.call(1, Tx.Select())
    consumer(world)
    world.peer.publish(b"m", "q")
    world.peer.send(1, Tx.Commit())
    world.peer.frames()
    world.peer.send(1, Basic.Ack(2))
    assert world.closes(30) == []


def test_the_option_may_change_while_clients_consume() -> None:
    world = World()
    world.declare()
    consumer(world)
    world.peer.publish(b"m", "q")
    assert world.closes(1000) == []
    world.broker.time_consumers(2000.0)
    assert world.closes(999) == [] and len(world.closes(3)) == 1


def test_channels_that_are_gone_are_forgotten() -> None:
    world = World(1000.0)
    world.declare()
    for number in range(2, 300):
        world.peer.open_channel(number)
        world.peer.send(number, Basic.Consume(queue="q", consumer_tag="t"))
        world.peer.frames()
        world.after(0.25)
        world.peer.send(number, Channel.Close(200, "", 0, 0))
        world.peer.frames()
    assert len(world.broker.timeouts._looks) <= 1


def test_a_channel_is_looked_at_when_it_may_be_late_only() -> None:
    world = World(1000.0)
    world.declare()
    consumer(world)
    for _ in range(100):
        world.peer.publish(b"m", "q")
    before = world.broker.timeouts._looks.looks
    world.after(900)
    assert world.broker.timeouts._looks.looks - before <= 3


@pytest.mark.parametrize(("seconds", "found"), [(0, 0), (0.001, 1), (0.25, 1), (0.3, 2), (60, 240), (1e12, 126144000)])
def test_quarters(seconds: float, found: int) -> None:
    assert quarters(seconds) == found
