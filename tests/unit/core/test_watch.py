"""Queues whose publishers wait while they are full enough, that tell when they are, or that end with their limit."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Engine, Queue
from qpidd_py.core.watch import Watch
from tests.support.memory import MemoryClient, deliveries


class World:
    """A primary with a queue that has levels, and a publisher."""

    def __init__(self, **levels: Any) -> None:
        self.engine = Engine(segment_size=65536)
        self.queue: Queue = self.engine.create_queue(1, "a", True)
        self.watch = Watch(**levels)
        self.queue.watch = self.watch
        self.changes: list[tuple[bool, bool]] = []
        self.watch.on_change = lambda: self.changes.append((self.watch.stopped, self.watch.alerting))
        self.publisher = self.client()

    def client(self) -> MemoryClient:
        return MemoryClient(self.engine, a=self.queue)

    def publish(self, count: int = 1, client: MemoryClient | None = None, body: bytes = b"m") -> None:
        client = client or self.publisher
        for _ in range(count):
            client.publish(body, "a")
        client.turn()

    def take(self, count: int) -> None:
        """By a client that gets them, and acknowledges at once."""
        client = self.client()
        for _ in range(count):
            assert client.channel.get(self.queue, True)
        client.turn()
        client.connection.close()
        self.engine.end_turn()


def held(client: MemoryClient) -> bool:
    return not client.connection.reads()


FLOW = {"flow": (10, None), "resume": (4, None)}


def test_publishers_wait_above_the_level_and_go_on_at_the_lower_one() -> None:
    world = World(**FLOW)
    world.publish(10)
    assert not world.watch.stopped and not held(world.publisher)
    world.publish(1)
    assert world.watch.stopped
    world.publish(1)
    assert held(world.publisher) and world.publisher.owner.flows[-1].startswith("queue 'a' has 11 messages")
    world.take(7)
    assert world.queue.ready == 5 and held(world.publisher)
    world.take(1)
    assert not held(world.publisher) and world.publisher.owner.flows[-1] == ""
    assert world.changes == [(True, False), (False, False)]
    world.publish(6)
    assert not held(world.publisher)


def test_octets_count_as_well() -> None:
    world = World(flow=(None, 1000), resume=(None, 0))
    world.publish(1, body=b"m" * 1001)
    world.publish(1)
    assert held(world.publisher)
    world.take(1)
    assert held(world.publisher), "one of one octet is still there"
    world.take(1)
    assert not held(world.publisher)


def test_who_takes_messages_is_told_and_read() -> None:
    """It may be what empties the queue: its acknowledgements have to be read."""
    world = World(flow=(2, None), resume=(0, None))
    client = world.client()
    client.channel.consume(world.queue, "c", False, 1)
    world.publish(10, client)
    assert len(client.owner.flows) == 1 and not held(client)
    for tag in range(1, 11):
        assert world.watch.stopped == (tag < 10)
        client.send(Basic.Ack(tag))
        client.turn()
    assert client.owner.flows[-1] == ""


def test_who_begins_to_take_messages_is_read_again() -> None:
    """What it had sent behind its publishes has arrived with them."""
    world = World(flow=(1, None), resume=(0, None))
    world.publish(3)
    assert held(world.publisher)
    assert world.publisher.channel.get(world.queue, False)
    assert not held(world.publisher)


def test_others_are_not_touched() -> None:
    world = World(**FLOW)
    other = world.client()
    world.publish(13)
    assert held(world.publisher) and not held(other) and other.owner.flows == []
    other.owner.routes[b"b"] = [world.engine.create_queue(2, "b", True)]
    other.publish(b"m", "b")
    assert not held(other)


def test_two_queues_one_publisher() -> None:
    world = World(**FLOW)
    second = world.engine.create_queue(2, "b", True)
    second.watch = Watch((10, None), (0, None))
    world.publisher.owner.routes[b"b"] = [second]
    for _ in range(12):
        world.publisher.publish(b"m", "a")
        world.publisher.publish(b"m", "b")
        world.publisher.turn()
    world.take(12)
    assert held(world.publisher), "the other one is full"
    world.engine.purge(second)
    world.engine.end_turn()
    assert not held(world.publisher) and world.publisher.owner.flows.count("") == 1


def test_a_general_halt_that_ends_does_not_end_it() -> None:
    world = World(**FLOW)
    world.publish(13)
    world.engine.throttle(True, "disk")
    world.engine.throttle(False, "disk")
    assert held(world.publisher)
    world.engine.throttle(True, "disk")
    world.take(11)
    assert held(world.publisher)
    world.engine.throttle(False, "disk")
    assert not held(world.publisher)


def test_they_go_on_when_the_queue_is_deleted() -> None:
    world = World(**FLOW)
    world.publish(13)
    world.engine.delete_queue(world.queue)
    world.engine.end_turn()
    assert not held(world.publisher) and world.publisher.owner.flows[-1] == ""


def test_a_publisher_that_goes_is_forgotten() -> None:
    world = World(**FLOW)
    world.publish(13)
    world.publisher.connection.close()
    world.take(12)
    assert world.publisher.owner.flows[-1] != "" and not world.watch.stopped


def test_a_new_primary_looks_for_itself_and_a_backup_does_not() -> None:
    world = World(alert=(3, None), **FLOW)
    backup = Engine()
    copy = backup.create_queue(1, "a", True)
    copy.watch = Watch((10, None), (4, None), (3, None))
    backup.passive = True
    world.engine.on_batch = lambda batch: backup.apply(bytes(batch))
    world.publish(11)
    assert world.watch.stopped and not copy.watch.stopped and not copy.watch.alerting
    backup.passive = False
    backup.begin_epoch(2)
    backup.end_turn()
    assert copy.watch.stopped and copy.watch.alerting


def test_a_deposed_primary_holds_nobody() -> None:
    world = World(alert=(3, None), **FLOW)
    world.publish(13)
    world.engine.passive = True
    world.engine.demote()
    world.engine.end_turn()
    assert not world.watch.stopped and not world.watch.alerting and not held(world.publisher)


def test_more_queues_than_one_turn_looks_at() -> None:
    world = World(**FLOW)
    queues = [world.engine.create_queue(10 + n, f"q{n}", True) for n in range(200)]
    clients = []
    for queue in queues:
        queue.watch = Watch((0, None), (0, None))
        client = MemoryClient(world.engine, q=queue)
        client.publish(b"m", "q")
        client.publish(b"m", "q")
        clients.append(client)
    world.engine.end_turn()
    assert all(map(held, clients))
    for queue in queues:
        world.engine.purge(queue)
    for _ in range(4):
        world.engine.tick()
        world.publish(1, world.client())
    assert not any(map(held, clients))


def test_alerts_begin_at_the_level_and_end_below_it() -> None:
    world = World(alert=(3, None))
    world.publish(2)
    assert world.changes == []
    world.publish(2)
    world.take(1)
    assert world.changes == [(False, True)]
    world.take(1)
    assert world.changes == [(False, True), (False, False)]


@pytest.mark.parametrize("limit", ["max_count", "max_bytes"])
def test_a_queue_that_destructs_itself_refuses_what_is_too_much_and_tells_it_once(limit: str) -> None:
    world = World()
    world.watch.destructs = world.queue.rejects = True
    setattr(world.queue, limit, 2)
    world.publisher.channel.confirm_select()
    for _ in range(5):
        world.publisher.publish(b"m", "a")
    frames = [type(frame).__name__ for _, frame in world.publisher.turn()]
    assert frames.count("Nack") == 3 and world.queue.ready == 2
    assert world.watch.overflown and world.changes == [(False, False)]


def test_messages_are_delivered_while_publishers_wait() -> None:
    world = World(**FLOW)
    world.publish(13)
    client = world.client()
    client.channel.consume(world.queue, "c", True)
    assert len(deliveries(client.turn())) == 13
    assert not held(world.publisher)
