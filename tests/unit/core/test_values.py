"""Last-value queues: of the messages with one value of a header the newest is kept, on the next primary, too."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Batch, Engine, Queue
from qpidd_py.core.batch import HEADER_SIZE
from qpidd_py.core.values import keep_last_of
from tests.support.memory import MemoryClient, confirms, deliveries

DEQUEUE = 2
"""OP_DEQUEUE of the core."""


class World:
    """A primary with a last-value queue, and a backup that applies its batches as long as it is connected."""

    def __init__(self) -> None:
        self.engine = Engine(segment_size=8192)
        self.engine.begin_epoch(1)
        self.engine.on_batch = self._sealed
        self.queue = self.made(self.engine)
        self.backup = Engine(segment_size=8192)
        self.backup.passive = True
        self.copy = self.made(self.backup)
        self.connected = True
        self.client = MemoryClient(self.engine, q=self.queue)
        self.client.channel.confirm_select()

    @staticmethod
    def made(engine: Engine) -> Queue:
        queue = engine.create_queue(1, "q", True)
        keep_last_of(queue, "key")
        return queue

    def _sealed(self, batch: Batch) -> None:
        if self.connected:
            self.backup.apply(bytes(batch))

    def publish(self, *messages: tuple[Any, bytes]) -> list[Any]:
        for value, body in messages:
            self.client.publish(body, "q", headers={} if value is None else {"key": value})
        return self.client.turn()

    def promoted(self) -> list[bytes]:
        """What the backup has when it becomes primary."""
        self.backup.passive = False
        self.backup.begin_epoch(2)
        self.backup.end_turn()
        self.copy.check()
        return bodies(self.copy)


def bodies(queue: Queue) -> list[bytes]:
    return [message[5] for message in queue.peek(1000)]


def test_the_newest_of_each_value_is_kept_in_the_order_of_their_arrival() -> None:
    world = World()
    world.publish(("a", b"a1"), ("b", b"b1"), ("a", b"a2"), ("c", b"c1"), ("b", b"b2"), ("b", b"b3"))
    assert bodies(world.queue) == bodies(world.copy) == [b"a2", b"c1", b"b3"]
    assert world.promoted() == [b"a2", b"c1", b"b3"]


def test_a_message_without_the_header_replaces_nothing() -> None:
    world = World()
    world.publish((None, b"1"), (None, b"2"), ("a", b"3"), (None, b"4"))
    world.client.publish(b"5", "q")
    world.client.publish(b"6", "q", headers={"keys": "a", "ke": "a"}, content_type="text/plain", content_encoding="x")
    world.client.turn()
    assert len(bodies(world.queue)) == 6


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1", 1, True),
        (1, 1 << 40, False),
        (True, True, True),
        (True, 1, False),
        ("", "", True),
        ("x" * 3000, "x" * 3000, True),
        ("ä", "ä", True),
        ({"a": 1}, {"a": 1}, True),
        ([1], [2], False),
        (-5, "-5", True),
    ],
)
def test_values_of_other_types(one: Any, other: Any, same: bool) -> None:
    world = World()
    world.publish((one, b"1"), (other, b"2"))
    assert bodies(world.queue) == ([b"2"] if same else [b"1", b"2"])


def test_one_that_a_client_holds_stays_and_goes_when_it_comes_back() -> None:
    world = World()
    world.publish(("a", b"a1"))
    world.client.channel.consume(world.queue, "c", False, 1)
    assert [body for _, body, _ in deliveries(world.client.turn())] == [b"a1"]
    world.publish(("a", b"a2"), ("a", b"a3"))
    assert bodies(world.queue) == [b"a1", b"a3"]
    world.client.send(Basic.Nack(1, requeue=True))
    assert [body for _, body, _ in deliveries(world.client.turn())] == [b"a3"]
    assert bodies(world.queue) == bodies(world.copy) == [b"a3"]
    world.queue.check()


def test_one_that_comes_back_and_is_the_newest_is_replaced_by_the_next() -> None:
    world = World()
    world.publish(("a", b"a1"), ("b", b"b1"))
    for _ in range(2):
        assert world.client.channel.get(world.queue, False)
    world.client.send(Basic.Nack(2, multiple=True, requeue=True))
    world.client.turn()
    world.publish(("a", b"a2"))
    world.queue.check()
    assert bodies(world.queue) == [b"b1", b"a2"]
    for body in (b"b1", b"a2"):
        world.client.channel.get(world.queue, True)
        assert body in bytes(world.client.connection.take_output())
    assert world.client.channel.get(world.queue, True) is False


def test_what_a_client_has_acknowledged_is_replaced_by_nothing() -> None:
    world = World()
    for number in range(3):
        world.publish(("a", b"a%d" % number))
        assert world.client.channel.get(world.queue, True)
        world.client.turn()
    assert bodies(world.queue) == [] and world.queue.ready == 0


def test_a_confirm_does_not_rest_on_the_removal() -> None:
    """Nor on the newer message."""
    world = World()
    world.connected = False
    assert confirms(world.publish(("a", b"a1"))) == []
    assert confirms(world.publish(("a", b"a2"))) == []
    world.engine.tick()
    world.engine.tick()
    assert confirms(world.client.turn()) == []
    world.engine.advance_safe(world.engine.position)
    assert [tag for tag, _ in confirms(world.client.turn())] == [2]


def test_a_backup_that_lacks_the_removal_has_both_and_removes_the_older_one_when_it_is_promoted() -> None:
    world = World()
    world.publish(("a", b"a1"), ("b", b"b1"))
    kept = [*bodies(world.copy)]
    world.connected = False
    world.publish(("b", b"b2"))
    assert kept == [b"a1", b"b1"] and world.promoted() == [b"a1", b"b1"], "of the newer one it has nothing"
    other = World()
    other.publish(("a", b"a1"))
    plain = MemoryClient(other.backup, q=other.copy)
    other.backup.passive = False
    other.copy.kind = None  # as if the removal had not come
    plain.publish(b"a2", "q", headers={"key": "a"})
    plain.turn()
    assert bodies(other.copy) == [b"a1", b"a2"]
    keep_last_of(other.copy, "key")
    assert other.promoted() == [b"a2"]


def test_one_that_was_held_goes_at_a_fail_over_when_there_is_a_newer_one() -> None:
    world = World()
    world.publish(("a", b"a1"))
    world.client.channel.consume(world.queue, "c", False, 1)
    world.client.turn()
    world.publish(("a", b"a2"), ("b", b"b1"))
    assert bodies(world.copy) == [b"a1", b"a2", b"b1"]
    assert world.promoted() == [b"a2", b"b1"]


def slow(world: World, keys: int) -> list[int]:
    """The backup has two of each value, is promoted, and looks through them in turns that it asks for."""
    asked: list[int] = []
    batches: list[Batch] = []
    world.engine.on_batch = batches.append
    for round in range(2):
        for number in range(keys):
            world.client.publish(b"%d.%d" % (round, number), "q", headers={"key": number})
        world.engine.end_turn()
    for batch in batches:
        world.backup.apply_held(batch.last, _without_dequeues(bytes(batch)))
    world.backup.schedule = lambda: asked.append(1)
    world.backup.slice.look, world.backup.slice.most = 4, 1
    world.backup.passive = False
    world.backup.begin_epoch(2)
    return asked


def _without_dequeues(batch: bytes) -> bytes:
    kept, at = [], HEADER_SIZE
    while at < len(batch):
        size = int.from_bytes(batch[at : at + 4], "little")
        kept.append(batch[at : at + size] if batch[at + 4] != DEQUEUE else b"")
        at += size
    return b"".join(kept)


def finished(world: World, asked: list[int]) -> int:
    """Turns until no more are wanted."""
    turns = 0
    while asked:
        asked.clear()
        world.backup.end_turn()
        turns += 1
        world.copy.check()
    return turns


def test_a_new_primary_looks_through_many_in_many_turns() -> None:
    world = World()
    asked = slow(world, 40)
    assert world.copy.ready == 80 and asked
    assert finished(world, asked) >= 10
    assert bodies(world.copy) == [b"1.%d" % number for number in range(40)]


def test_what_comes_while_it_looks_replaces_what_was_there_and_speeds_it_up() -> None:
    world = World()
    asked = slow(world, 40)
    client = MemoryClient(world.backup, q=world.copy)
    for number in range(30):
        client.publish(b"new %d" % number, "q", headers={"key": number})
    client.turn()
    assert world.copy.ready < 80
    finished(world, asked)
    assert bodies(world.copy) == [b"1.%d" % number for number in range(30, 40)] + [b"new %d" % n for n in range(30)]


def test_what_a_client_holds_while_it_looks_goes_when_it_comes_back() -> None:
    world = World()
    asked = slow(world, 10)
    client = MemoryClient(world.backup, q=world.copy)
    client.channel.consume(world.copy, "c", False, 3)
    got = deliveries(client.turn())
    finished(world, asked)
    assert len(got) == 3 and world.copy.ready == 10
    client.connection.close()
    finished(world, [1])
    assert bodies(world.copy) == [b"1.%d" % number for number in range(10)]


def test_a_primary_that_is_deposed_while_it_looks_begins_again_when_it_is_promoted_again() -> None:
    world = World()
    asked = slow(world, 10)
    world.backup.end_turn()
    world.backup.passive = True
    world.backup.demote()
    world.backup.passive = False
    world.backup.begin_epoch(3)
    finished(world, asked)
    assert bodies(world.copy) == [b"1.%d" % number for number in range(10)]


def test_a_queue_that_is_deleted_while_it_is_looked_through_is_forgotten() -> None:
    world = World()
    asked = slow(world, 10)
    world.backup.delete_queue(world.copy)
    finished(world, asked)


def test_a_new_primary_goes_on_replacing() -> None:
    world = World()
    world.publish(("a", b"a1"), ("b", b"b1"))
    world.promoted()
    client = MemoryClient(world.backup, q=world.copy)
    client.publish(b"a2", "q", headers={"key": "a"})
    client.turn()
    assert bodies(world.copy) == [b"b1", b"a2"]


def test_a_transaction_replaces_what_was_there_and_itself() -> None:
    world = World()
    world.publish(("a", b"a1"))
    client = MemoryClient(world.engine, q=world.queue)
    client.channel.tx_select()
    for body in (b"a2", b"a3"):
        client.publish(body, "q", headers={"key": "a"})
    assert bodies(world.queue) == [b"a1"]
    client.channel.tx_commit()
    client.turn()
    assert bodies(world.queue) == bodies(world.copy) == [b"a3"]


def test_a_queue_with_a_limit_as_well() -> None:
    world = World()
    world.queue.max_count = 2
    world.publish(("a", b"a1"), ("b", b"b1"), ("a", b"a2"), ("c", b"c1"))
    assert bodies(world.queue) == [b"a2", b"c1"]


def test_many_messages_of_few_values_and_many_values_that_leave() -> None:
    world = World()
    for number in range(2000):
        world.client.publish(b"%d" % number, "q", headers={"key": f"k{number % 7}"})
        world.client.turn()
    assert bodies(world.queue) == bodies(world.copy) == [b"%d" % n for n in range(1993, 2000)]
    world.client.channel.consume(world.queue, "c", True)
    for number in range(2000):
        world.client.publish(b"x", "q", headers={"key": f"once{number}"})
        world.client.turn()
    assert world.queue.ready == 0
    assert world.queue.kind is not None and world.queue.kind.notes < 200


def test_the_removal_is_noted_for_the_event_log() -> None:
    world = World()
    world.engine.on_removed = lambda: None
    world.publish(("a", b"a1"), ("a", b"a2"))
    assert [(queue, reason, dead) for queue, reason, dead, _ in world.engine.removed()] == [("q", "replaced", False)]


def test_it_is_no_dead_letter() -> None:
    world = World()
    world.queue.dead_letter = lambda *_: pytest.fail("a replaced message is no dead letter")
    world.publish(("a", b"a1"), ("a", b"a2"))
    assert bodies(world.queue) == [b"a2"]


def test_what_comes_back_in_disorder_is_handed_out_once_and_no_more_when_it_is_replaced() -> None:
    """The one that goes makes the queue look from its place on; those behind it come back after that."""
    world = World()
    world.publish(*((value, value.encode()) for value in ("a", "b", "c", "d")))
    world.client.channel.consume(world.queue, "t", False)
    tags = [delivery[0] for delivery in deliveries(world.client.turn())]
    world.publish(("a", b"a2"))
    world.client.turn()
    world.client.channel.cancel("t")
    for tag in tags:
        world.client.send(Basic.Nack(tag, requeue=True))
        world.client.turn()
    world.publish(("b", b"b2"), ("c", b"c2"), ("d", b"d2"))
    world.queue.check()
    world.client.channel.consume(world.queue, "u", True)
    assert [delivery[1] for delivery in deliveries(world.client.turn())] == [b"b2", b"c2", b"d2"]
