"""Publishes that are sent again enter once, and are confirmed when the first one is safe; backups know their keys."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Batch, Catchup, Engine, Queue, Route, records
from qpidd_py.core.window import Window
from qpidd_py.errors import LinkError
from tests.support.memory import MemoryClient, confirms, deliveries

SECRET = bytes(range(16))
NOW = 1_800_000_000_000


class World:
    """A primary with a queue that takes nothing twice and one that takes all, and a backup that follows."""

    def __init__(self, most: int = 1000, time: int | None = None, header: bytes | None = None) -> None:
        self.window = (most, time, SECRET, header)
        self.engine, self.backup = Engine(segment_size=8192), follower()
        self.engine.now = NOW
        self.engine.on_batch = self.sealed
        self.batches: list[bytes] = []
        self.once, self.all = (self.declared(self.engine, number) for number in (1, 2))
        self.declared(self.backup, 1), self.declared(self.backup, 2)
        self.client = self.connected()

    def declared(self, engine: Engine, number: int) -> Queue:
        queue = engine.create_queue(number, "once" if number == 1 else "all", True)
        if number == 1:
            queue.window = Window(*self.window)
        return queue

    def connected(self) -> MemoryClient:
        client = MemoryClient(self.engine, once=self.once, all=self.all)
        client.owner.routes[b"both"] = [self.once, self.all]
        client.channel.confirm_select()
        return client

    def sealed(self, batch: Batch) -> None:
        self.batches.append(bytes(batch))
        self.backup.apply(bytes(batch))

    def publish(self, *keys: str, queue: str = "once", safe: bool = True) -> list[tuple[int, bool]]:
        """Confirms that come, with all of it safe or none."""
        for key in keys:
            self.client.publish(key.encode(), queue, message_id=key)
        frames = self.client.turn()
        if safe:
            self.engine.advance_safe(self.engine.flush())
            frames += self.client.turn()
        return confirms(frames)

    def joined(self, held: tuple[Engine, int] | None = None, limit: int = 200) -> Engine:
        """A backup that joins now; one that knows the keys up to a position."""
        engine, after = held or (follower(), 0)
        for number in (1, 2) if held is None else ():
            self.declared(engine, number)
        cut = self.engine.flush()
        for queue in self.engine.queues.values():
            cursor = Catchup(queue, engine.queues[queue.number].held(), cut, None, after)
            if drops := cursor.drops():
                engine.drop(queue.number, drops)
            while found := cursor.slice(limit):
                engine.apply_slice(found)
            engine.merge(queue.number)
        engine.set_position(cut)
        return engine

    def takes_over(self, engine: Engine) -> None:
        engine.passive = False
        engine.begin_epoch(engine.epoch + 1)
        engine.now = self.engine.now
        self.engine, self.backup = engine, follower()
        for number in (1, 2):
            self.declared(self.backup, number)
        self.once, self.all = engine.queues[1], engine.queues[2]
        engine.on_batch = lambda batch: self.batches.append(bytes(batch))
        self.client = self.connected()
        engine.advance_safe(engine.flush())


def follower() -> Engine:
    engine = Engine(lambda position, payload: None, segment_size=8192)
    engine.passive = True
    return engine


def bodies(queue: Queue) -> list[bytes]:
    return [message[5] for message in queue.peek(1 << 20)]


def window(queue: Queue) -> Window:
    assert queue.window is not None
    queue.window.check()
    return queue.window


# ---------------------------------------------------------------- what enters


def test_a_publish_that_is_sent_again_enters_once() -> None:
    world = World()
    assert world.publish("a", "b", "a", "c", "b") == [(5, True)]
    assert bodies(world.once) == [b"a", b"b", b"c"]
    assert window(world.once).duplicates == 2


def test_also_when_the_first_one_was_consumed_long_ago() -> None:
    world = World()
    world.publish("a")
    world.client.channel.consume(world.once, "c", False, 0)
    world.client.send(Basic.Ack(deliveries(world.client.turn())[0][0]))
    assert world.publish("a") == [(2, False)]
    assert (world.once.ready, world.once.unacked, bodies(world.backup.queues[1])) == (0, 0, [])


def test_what_has_no_key_enters_always() -> None:
    world = World()
    for _ in range(2):
        world.client.publish(b"x", "once")
        world.client.publish(b"x", "once", message_id="")
        world.client.publish(b"x", "once", headers={"key": "k"}, correlation_id="k", reply_to="k", expiration="9999")
    world.client.turn()
    assert world.once.ready == 6


@pytest.mark.parametrize("value", ["k", 7, b"\xff", {"a": 1}, [1], True, 1.5])
def test_the_key_may_be_in_a_header_of_any_type(value: Any) -> None:
    world = World(header=b"key")
    others: list[dict[str, Any]] = [{"kex": value}, {"keyy": value}, {}]
    for headers in ({"key": value}, {"a": "b", "key": value}, {"key": value, "z": "k"}, *others):
        world.client.publish(b"x", "once", headers=headers, message_id="m")
    world.client.turn()
    assert world.once.ready == 4
    assert window(world.once).count == 1


def test_a_header_without_a_value_is_no_key() -> None:
    world = World(header=b"key")
    for _ in range(2):
        world.client.publish(b"x", "once", headers={"key": None})
    world.client.turn()
    assert world.once.ready == 2


def test_the_longest_names_and_keys() -> None:
    for name in ("n" * 255, "n"):
        world = World(header=name.encode())
        for key in ("k" * 60000, "k" * 60000 + "l", "k" * 60000):
            world.client.publish(b"x", "once", headers={name: key})
        world.client.turn()
        assert world.once.ready == 2
    world = World()
    world.publish("m" * 255, "m" * 254, "m" * 255)
    assert world.once.ready == 2


def test_a_queue_that_takes_all_gets_it_again() -> None:
    world = World()
    world.publish("a", queue="once")
    world.publish("a", queue="both")
    world.publish("a", queue="both")
    assert (bodies(world.once), bodies(world.all)) == ([b"a"], [b"a", b"a"])


def test_after_its_time_a_key_is_forgotten_on_both() -> None:
    world = World(time=1000)
    world.publish("a")
    world.engine.now = NOW + 900
    world.publish("a")
    world.engine.now = NOW + 2000
    world.publish("a")
    assert bodies(world.once) == bodies(world.backup.queues[1]) == [b"a", b"a"]
    assert window(world.once).entries() == window(world.backup.queues[1]).entries()


def test_what_a_full_queue_refuses_is_not_remembered() -> None:
    world = World()
    world.once.max_count, world.once.rejects = 1, True
    world.publish("a", "b")
    assert [type(frame).__name__ for _, frame in world.client.turn()] == []
    world.client.channel.get(world.once, True)
    world.publish()
    assert window(world.once).entries() == window(world.backup.queues[1]).entries()
    world.publish("b")
    assert bodies(world.once) == [b"b"]


def test_a_duplicate_for_a_full_queue_is_confirmed() -> None:
    world = World()
    world.once.max_count, world.once.rejects = 1, True
    assert world.publish("a", "a") == [(2, True)]


def test_what_the_broker_puts_there_enters_always() -> None:
    world = World()
    world.publish("a")
    message = world.once.peek(1)[0]
    assert world.engine.publish(Route([world.once]), *message[2:])
    world.once.dead_letter = lambda reason, exchange, key, header, body: (Route([world.once]), exchange, key, header)
    world.client.channel.consume(world.once, "c", False, 1)
    tag = deliveries(world.client.turn())[0][0]
    world.client.send(Basic.Reject(tag, requeue=False))
    world.client.turn()
    assert world.once.ready + world.once.unacked == 2
    assert window(world.once).count == 1


# ---------------------------------------------------------------- confirms


def test_a_duplicate_is_not_confirmed_before_the_first_one_is_safe() -> None:
    world = World()
    assert world.publish("a", safe=False) == []
    again = world.connected()
    again.publish(b"a", "once", message_id="a")
    assert confirms(again.turn()) == []
    world.engine.advance_safe(world.engine.flush())
    assert confirms(again.turn()) == [(1, False)]


def test_neither_by_what_somebody_acknowledges_of_another_queue() -> None:
    world = World()
    world.publish("a", safe=False)
    again = world.connected()
    again.channel.consume(world.all, "c", False, 0)
    again.publish(b"a", "both", message_id="a")
    again.send(Basic.Ack(deliveries(again.turn())[0][0]))
    frames = again.turn()
    for _ in range(3):
        world.engine.tick()
        frames += again.turn()
    assert confirms(frames) == []
    world.engine.advance_safe(world.engine.flush())
    assert confirms(again.turn()) == [(1, False)]


def test_a_duplicate_of_a_deposed_primary_is_never_confirmed() -> None:
    world = World()
    world.publish("a", safe=False)
    again = world.connected()
    again.publish(b"a", "once", message_id="a")
    again.turn()
    world.engine.demote()
    world.engine.advance_safe(world.engine.position)
    assert confirms(again.turn()) == []


def test_in_a_queue_of_this_broker_only() -> None:
    engine = Engine()
    engine.now = NOW
    queue = engine.create_queue(1, "q", False)
    queue.window = Window(10, None, SECRET)
    client = MemoryClient(engine, q=queue)
    client.channel.confirm_select()
    for _ in range(3):
        client.publish(b"x", "q", message_id="a")
    assert confirms(client.turn()) == [(3, True)]
    assert queue.ready == 1
    engine.demote()
    assert (queue.ready, queue.window.count) == (0, 0)


# ---------------------------------------------------------------- transactions


def in_transaction(world: World, *keys: str) -> MemoryClient:
    client = world.connected()
    client.channel.tx_select()
    for key in keys:
        client.publish(key.encode(), "once", message_id=key)
    return client


def test_a_transaction_that_is_committed_again() -> None:
    world = World()
    for _ in range(2):
        client = in_transaction(world, "a", "b", "a")
        assert client.channel.tx_commit() > 0
        client.turn()
    assert bodies(world.once) == [b"a", b"b"]


def test_one_that_is_rolled_back_or_refused_is_not_remembered() -> None:
    world = World()
    in_transaction(world, "a").channel.tx_rollback()
    world.once.max_count, world.once.rejects = 1, True
    assert in_transaction(world, "a", "b").channel.tx_commit() == 0
    assert window(world.once).count == 0
    world.publish("x")
    assert in_transaction(world, "x").channel.tx_commit(), "it brings nothing new to a full queue"


# ---------------------------------------------------------------- backups


def test_a_backup_remembers_what_its_primary_does() -> None:
    world = World(most=50)
    draw = random.Random(1)
    for _ in range(40):
        world.publish(*(str(draw.randrange(100)) for _ in range(10)))
    assert window(world.once).entries() == window(world.backup.queues[1]).entries()
    assert window(world.once).count == 50


def test_a_promoted_backup_takes_nothing_twice() -> None:
    world = World()
    world.publish("a", "b")
    world.takes_over(world.backup)
    world.publish("b", "c")
    assert bodies(world.once) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("limit", [1, 100, 1 << 20])
def test_a_backup_that_joins_gets_the_keys(limit: int) -> None:
    world = World(most=50)
    world.publish(*(str(number) for number in range(80)))
    world.client.channel.consume(world.once, "c", True, 0)
    world.publish()
    joined = world.joined(limit=limit)
    assert window(joined.queues[1]).entries() == window(world.once).entries()
    world.takes_over(joined)
    world.publish("79", "30", "29")
    assert bodies(world.once) == [b"29"]


def test_a_backup_gets_only_the_keys_that_it_lacks() -> None:
    world = World()
    world.publish("a", "b")
    known = world.engine.position
    old = world.joined()
    world.publish("c")
    cursor = Catchup(world.once, old.queues[1].held(), world.engine.flush(), None, known)
    (_, _, _, _, keys) = records(cursor.slice(1 << 20) or b"")[0]
    assert [id for id, _ in keys] == [id for _, id, _ in window(world.once).entries()[2:]]
    joined = world.joined((old, known))
    assert window(joined.queues[1]).entries() == window(world.once).entries()


def test_a_deposed_primary_forgets_the_keys_that_the_new_one_never_had() -> None:
    """Else it would, promoted again, drop a message that nobody has."""
    world = World()
    world.publish("a")
    old, known = world.engine, world.engine.position
    world.engine.on_batch = lambda batch: None
    world.publish("lost", safe=False)
    old.demote()
    old.passive = True
    world.takes_over(world.backup)
    joined = world.joined((old, known))
    assert window(joined.queues[1]).entries() == window(world.once).entries()
    world.takes_over(joined)
    world.publish("lost", "a")
    assert bodies(world.once) == [b"a", b"lost"]


def test_live_batches_between_the_slices() -> None:
    world = World(most=30)
    world.publish(*(str(number) for number in range(20)))
    engine = follower()
    for number in (1, 2):
        world.declared(engine, number)
    cut = world.engine.flush()
    world.batches.clear()
    cursor = Catchup(world.once, b"", cut, None, 0)
    for number in range(20, 40):
        world.publish(str(number))
        engine.apply(world.batches[-1])
        if found := cursor.slice(100):
            engine.apply_slice(found)
    while found := cursor.slice(100):
        engine.apply_slice(found)
    engine.merge(1)
    assert window(engine.queues[1]).entries() == window(world.once).entries()


def test_a_promotion_in_the_middle_of_a_difference_keeps_what_came_live() -> None:
    world = World()
    world.publish("a")
    engine = follower()
    for number in (1, 2):
        world.declared(engine, number)
    cursor = Catchup(world.once, b"", world.engine.flush(), None, 0)
    engine.apply_slice(cursor.slice(1) or b"")
    world.publish("b")
    engine.apply(world.batches[-1])
    engine.passive = False
    engine.begin_epoch(engine.epoch + 1)
    assert [id for _, id, _ in window(engine.queues[1]).entries()] == [id for _, id, _ in window(world.once).entries()]


def test_keys_that_are_not_in_order_or_have_no_queue_are_refused() -> None:
    world = World()
    world.publish("a", "b")
    found = Catchup(world.once, b"", world.engine.flush(), None, 0).slice(1 << 20) or b""
    size = int.from_bytes(found[:4], "little")
    entry = found[32:64]
    engine = follower()
    world.declared(engine, 1)
    with pytest.raises(LinkError, match="not in order"):
        engine.apply_slice(found[:32] + entry + entry)
    engine = follower()
    engine.create_queue(1, "once", True)
    with pytest.raises(LinkError, match="remembers no keys"):
        engine.apply_slice(found[:size])
    with pytest.raises(LinkError, match="lengths"):
        engine.apply_slice(found[: size - 1])
