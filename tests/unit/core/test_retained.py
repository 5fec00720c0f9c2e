"""Dead letters that stay in their queue until another queue has them (at-least-once)."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Engine, Queue, Route
from tests.support.memory import MemoryClient, deliveries


class World:
    """A queue that keeps its letters, and a target for one message, which refuses the next."""

    def __init__(self, replicated: bool = True) -> None:
        self.engine = Engine(segment_size=8192)
        self.engine.now = 1000
        self.source = self.engine.create_queue(1, "source", True)
        self.target = self.engine.create_queue(2, "target", replicated)
        self.targets = [self.target]
        self.source.keeps = True
        self.source.dead_letter = lambda reason, exchange, key, header, body: (
            Route(self.targets),
            exchange,
            key,
            header,
        )
        self.client = MemoryClient(self.engine, source=self.source)

    def reject(self, *messages: bytes) -> None:
        for body in messages:
            self.client.publish(body, "source")
        self.client.channel.consume(self.source, "c", False, 0)
        for tag, _, _ in deliveries(self.client.turn()):
            self.client.send(Basic.Reject(tag, requeue=False))
        self.client.turn()
        self.client.channel.cancel("c")

    def later(self, seconds: int = 2) -> None:
        self.engine.now += seconds * 1000
        for _ in range(4):
            self.engine.tick()
            self.engine.end_turn()

    def waiting(self) -> tuple[int, list[bytes]]:
        """Messages that are still in the source, and those in the target."""
        self.engine.flush()
        for queue in self.engine.queues.values():
            queue.check()
        return self.source.ready + self.source.unacked, bodies(self.target)


def bodies(queue: Queue) -> list[bytes]:
    return [message[5] for message in queue.peek(1 << 20)]


def test_what_finds_a_queue_leaves_at_once() -> None:
    world = World()
    world.reject(b"a", b"b")
    assert world.waiting() == (0, [b"a", b"b"])


def test_what_finds_none_stays_and_is_tried_again() -> None:
    world = World()
    world.targets = []
    world.reject(b"a", b"b")
    assert world.waiting() == (2, [])
    world.later()
    assert world.waiting() == (2, [])
    world.targets = [world.target]
    world.later()
    assert world.waiting() == (0, [b"a", b"b"])


def test_what_a_full_queue_refuses_stays_and_no_other_gets_it_meanwhile() -> None:
    world = World()
    other = world.engine.create_queue(3, "other", True)
    world.targets = [other, world.target]
    world.target.max_count, world.target.rejects = 1, True
    world.reject(b"a", b"b")
    assert world.waiting() == (1, [b"a"])
    assert bodies(other) == [b"a"]
    MemoryClient(world.engine).channel.get(world.target, True)
    world.engine.end_turn()
    world.engine.now += 500
    world.engine.tick()
    assert world.source.unacked == 1, "not yet"
    world.later()
    assert bodies(other) == [b"a", b"b"]


def test_a_queue_of_this_broker_only_is_not_safe_enough() -> None:
    world = World(replicated=False)
    world.reject(b"a")
    assert world.waiting() == (1, [])


def test_a_clock_that_goes_back_delays_nothing() -> None:
    world = World()
    world.targets = []
    world.reject(b"a")
    world.targets = [world.target]
    world.engine.now = 1
    world.later(0)
    world.later(2)
    assert world.waiting() == (0, [b"a"])


@pytest.mark.parametrize("again", [True, False])
def test_after_a_change_of_role_it_is_ready_again(again: bool) -> None:
    world = World()
    world.targets = []
    world.reject(b"a")
    world.engine.demote() if again else None
    world.engine.begin_epoch(world.engine.epoch + 1)
    assert (world.source.ready, world.source.unacked) == (1, 0)
    world.targets = [world.target]
    world.later()
    assert world.waiting() == (1, []), "it is a message, and no letter"


def test_all_leave_soon_when_the_way_is_free() -> None:
    world = World()
    world.targets = []
    world.reject(*(b"%d" % number for number in range(500)))
    assert world.waiting() == (500, [])
    world.targets = [world.target]
    world.engine.now += 2000
    world.engine.tick()
    for _ in range(100):
        world.engine.end_turn()
    assert world.waiting()[0] == 0


def test_it_goes_with_its_queue() -> None:
    world = World()
    world.targets = []
    world.reject(b"a")
    world.engine.settle(world.source)
    world.engine.delete_queue(world.source)
    world.later()
    assert bodies(world.target) == []
