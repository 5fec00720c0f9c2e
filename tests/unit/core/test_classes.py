"""Quorum queues with high and normal messages: two high ones are handed out for a normal one, on each broker."""

from __future__ import annotations

import random
from bisect import insort
from typing import Any

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Catchup, Engine, Queue, Route, records
from tests.support.memory import MemoryClient, deliveries
from tests.unit.core.test_returns import World as Counting
from tests.unit.core.test_returns import promoted, seen

HIGH, NORMAL = 5, 4


class World(Counting):
    """A primary with such a queue, a backup that follows it, and a client that has no consumer yet."""

    def __init__(self, most: int = 30) -> None:
        super().__init__(most)
        self.client.channel.cancel("c")

    def counting(self, engine: Engine) -> Queue:
        queue = super().counting(engine)
        queue.weighted = True
        return queue

    def publish(self, *bodies: str) -> None:
        """High ones begin with h."""
        for body in bodies:
            self.client.publish(body.encode(), "q", priority=HIGH if body.startswith("h") else NORMAL)
        self.client.turn()

    def got(self, count: int = 1) -> list[tuple[str, bool]]:
        """Messages that the client takes and keeps, one by one."""
        found = []
        for _ in range(count):
            assert self.client.channel.get(self.queue, False)
            found += [shown(frame) for frame in got(self.client.turn())]
        return found


def got(frames: list[tuple[int, Any]]) -> list[tuple[bytes, bool]]:
    """(body, redelivered) of each basic.get-ok."""
    marks = [frame.redelivered for _, frame in frames if isinstance(frame, Basic.GetOk)]
    bodies = [frame.value for _, frame in frames if hasattr(frame, "value")]
    return list(zip(bodies, marks, strict=True))


def shown(found: tuple[bytes, bool]) -> tuple[str, bool]:
    return found[0].decode(), found[1]


def order(found: list[tuple[bytes, bool, int | None]]) -> str:
    return " ".join(body.decode() for body, _, _ in found)


def test_two_high_ones_are_handed_out_for_a_normal_one() -> None:
    world = World()
    world.publish("n1", "h1", "n2", "n3", "h2", "h3", "h4", "h5", "n4", "n5")
    client = MemoryClient(world.engine)
    client.channel.consume(world.queue, "c", False)
    wanted = "h1 h2 n1 h3 h4 n2 h5 n3 n4 n5"
    assert order(seen(client.turn())) == wanted
    client.connection.close()
    world.engine.end_turn()
    assert order(promoted(world.backup)) == wanted


@pytest.mark.parametrize(("priority", "high"), [(None, False), (0, False), (4, False), (5, True), (255, True)])
def test_five_is_high(priority: int | None, high: bool) -> None:
    world = World()
    world.publish("n1")
    world.client.publish(b"x", "q", priority=priority, content_type="t", headers={"a": 1}, delivery_mode=2)
    assert (world.queue.levels is not None) == high
    assert world.got(2) == ([("x", False), ("n1", False)] if high else [("n1", False), ("x", False)])


def test_at_most_two_in_a_row_while_a_normal_one_waits_and_all_of_one_class_alone() -> None:
    world = World()
    world.publish("h1", "h2", "h3")
    assert world.got(3) == [("h1", False), ("h2", False), ("h3", False)]
    world.publish("h4", "n1", "h5", "h6", "h7", "n2")
    assert [body for body, _ in world.got(6)] == ["h4", "h5", "n1", "h6", "h7", "n2"]
    world.publish("n3", "n4", "h8", "h9")
    assert [body for body, _ in world.got(1)] == ["h8"]
    world.publish("h10", "h11")
    assert [body for body, _ in world.got(5)] == ["h9", "n3", "h10", "h11", "n4"]


def test_a_queue_is_split_while_messages_are_out_and_noted() -> None:
    """What is out, what came back, what is acknowledged in the very turn of the first high message."""
    world = World()
    world.publish("n1", "n2", "n3", "n4")
    assert [body for body, _ in world.got(4)] == ["n1", "n2", "n3", "n4"]
    world.client.send(Basic.Nack(2, requeue=True))
    world.client.send(Basic.Ack(3))
    world.client.publish(b"h1", "q", priority=HIGH)
    world.client.send(Basic.Ack(1))
    world.client.send(Basic.Nack(4, requeue=True))
    world.client.turn()
    world.queue.check()
    assert (world.queue.ready, world.queue.unacked, world.copy.ready) == (3, 0, 3)
    assert world.got(3) == [("h1", False), ("n2", True), ("n4", True)]
    world.client.send(Basic.Ack(7, multiple=True))
    world.client.turn()
    world.queue.check()
    assert (world.queue.ready, world.queue.unacked, world.copy.ready, world.queue.dequeued) == (0, 0, 0, 5)


def test_only_what_was_out_is_redelivered_and_counted_after_a_fail_over() -> None:
    world = World()
    world.publish("n1", "n2", "h1", "h2", "h3")
    assert [body for body, _ in world.got(3)] == ["h1", "h2", "n1"]
    wanted = [(b"h1", True, 1), (b"h2", True, 1), (b"n1", True, 1), (b"h3", False, None), (b"n2", False, None)]
    late = world.joined(holds=False)
    assert promoted(world.backup) == wanted
    assert promoted(late) == wanted


def test_a_rhythm_begins_anew_with_a_new_primary() -> None:
    world = World()
    world.publish("n1", "h1", "h2", "h3", "h4")
    world.got(2)
    world.client.send(Basic.Ack(2, multiple=True))
    world.client.turn()
    assert order(promoted(world.backup)) == "h3 h4 n1"


@pytest.mark.parametrize("holds", [False, True])
def test_a_backup_that_joins_has_both_classes(holds: bool) -> None:
    world = World()
    world.publish("n1", "n2", "h1", "n3", "h2", "h3")
    world.got(1)
    late = world.joined(holds=holds)
    world.publish("h4", "n4")
    assert order(promoted(late)) == "h1 h2 n1 h3 n2 n3", "(the last two came after it had joined)"
    assert order(promoted(world.backup)) == "h1 h2 n1 h3 h4 n2 n3 n4"


def test_a_cursor_over_a_queue_goes_on_when_it_is_split() -> None:
    world = World()
    world.publish(*(f"n{number:02}" for number in range(20)))
    cursor, found = Catchup(world.queue, b"", world.engine.flush()), []
    found += records(cursor.slice(100) or b"")
    world.publish("h")
    while slice := cursor.slice(100):
        found += records(slice)
    assert [payload[2].decode() for *_, payload in found] == [f"n{number:02}" for number in range(20)]
    assert cursor.left == 0


def test_a_transaction_that_splits_the_queue_is_whole() -> None:
    world = World()
    world.publish("n1")
    world.got(1)
    world.client.channel.tx_select()
    for body, priority in ((b"n2", 0), (b"h1", 9)):
        world.client.publish(body, "q", priority=priority)
    world.client.send(Basic.Ack(1))
    world.client.channel.tx_commit()
    world.client.turn()
    world.queue.check()
    assert order(promoted(world.backup)) == "h1 n2"


def test_letters_of_a_queue_that_is_split_before_they_leave() -> None:
    world = World(0)
    other = world.engine.create_queue(2, "other", True)
    world.backup.create_queue(2, "other", True)
    world.queue.dead_letter = lambda reason, *content: (Route([other]), *content[:3])
    world.publish("n1", "n2")
    world.got(2)
    world.client.send(Basic.Reject(1, requeue=False))
    world.client.send(Basic.Nack(2, requeue=True))
    world.client.publish(b"h1", "q", priority=HIGH)
    world.client.turn()
    world.client.turn()
    world.queue.check()
    assert [message[5] for message in other.peek(9)] == [b"n1", b"n2"]
    assert order(promoted(world.backup)) == "h1" and world.backup.queues[2].ready == 2


def test_a_full_queue_drops_normal_ones_first() -> None:
    world = World()
    world.queue.max_count = 3
    world.queue.dead_letter = None
    world.client.owner.routes[b"q"] = [world.queue]
    world.engine.forget_routes()
    world.publish("n1", "n2", "h1", "h2", "h3", "h4")
    assert [body for body, _ in world.got(3)] == ["h2", "h3", "h4"]


def test_other_queues_have_one_class() -> None:
    world = World()
    world.queue.weighted = False
    world.publish("n1", "h1")
    assert world.queue.levels is None and [body for body, _ in world.got(2)] == ["n1", "h1"]


@pytest.mark.parametrize("seed", range(12))
def test_random_work_against_a_model(seed: int) -> None:
    """Order, redelivered and counts of a primary, its backup and one that joins."""
    rng, world = random.Random(seed), World(1000)
    waiting: dict[bool, list[int]] = {False: [], True: []}  # by class
    returns: dict[int, int] = {}
    out: dict[int, tuple[bool, int]] = {}
    number = tag = run = 0
    for step in range(300):
        action = rng.random()
        if action < 0.4:
            high = step > 40 and rng.random() < 0.6  # it is split at some time
            world.client.publish(b"%d" % number, "q", priority=HIGH if high else None)
            waiting[high].append(number)
            number += 1
        elif action < 0.7 and (waiting[True] or waiting[False]):
            world.client.turn()
            high = bool(waiting[True]) and (run < 2 or not waiting[False])
            run = run + 1 if high and waiting[False] else 0
            wanted = waiting[high].pop(0)
            tag += 1
            out[tag] = high, wanted
            assert world.got() == [(str(wanted), wanted in returns)]
        elif out:
            settled = rng.choice(list(out))
            high, message = out.pop(settled)
            if action < 0.85:
                world.client.send(Basic.Ack(settled))
            else:
                world.client.send(Basic.Nack(settled, requeue=True))
                insort(waiting[high], message)
                returns[message] = returns.get(message, 0) + 1
        if rng.random() < 0.3:
            world.client.turn()
            world.queue.check()
    world.client.turn()
    late = world.joined(holds=bool(seed % 2))
    for high, message in out.values():
        insort(waiting[high], message)
        returns[message] = returns.get(message, 0) + 1
    wanted_order: list[tuple[bytes, bool, int | None]] = []
    run = 0
    while waiting[True] or waiting[False]:
        high = bool(waiting[True]) and (run < 2 or not waiting[False])
        run = run + 1 if high and waiting[False] else 0
        message = waiting[high].pop(0)
        wanted_order.append((b"%d" % message, message in returns, returns.get(message)))
    assert promoted(world.backup) == wanted_order
    assert promoted(late) == wanted_order


def test_deliveries_go_on_in_the_rhythm_with_a_prefetch_of_one() -> None:
    world = World()
    world.publish("n1", "n2", "h1", "h2", "h3")
    world.client.channel.consume(world.queue, "c", False, 1)
    found = []
    while got := deliveries(world.client.turn()):
        found += [body.decode() for _, body, _ in got]
        world.client.send(Basic.Ack(got[-1][0]))
    assert found == ["h1", "h2", "n1", "h3", "n2"]


def test_what_the_turn_of_the_split_has_noted_is_in_the_log() -> None:
    world = World()
    world.publish("n1", "n2", "n3")
    world.got(3)
    world.client.send(Basic.Nack(2, requeue=True))
    world.client.send(Basic.Ack(3))
    world.client.publish(b"h1", "q", priority=HIGH)
    world.client.turn()
    assert promoted(world.backup) == [(b"h1", False, None), (b"n1", True, 1), (b"n2", True, 1)]


def test_a_message_that_has_come_back_too_often_leaves_a_split_queue() -> None:
    world = World(most=1)
    world.publish("n1", "h1")
    assert world.got(1) == [("h1", False)]
    for tag in (2, 3):
        assert [body for body, _ in world.got(1)] == ["n1"]
        world.client.send(Basic.Nack(tag, requeue=True))
        world.client.turn()
    assert (world.queue.ready, world.dead) == (0, [("delivery_limit", b"n1")])


def test_what_a_transaction_holds_back_is_held_back_when_the_queue_is_split() -> None:
    """The outputs of a commit that is not safe are not handed out."""
    world = World()
    world.engine.flush()
    world.client.channel.tx_select()
    world.client.publish(b"n1", "q", priority=NORMAL)
    world.client.channel.tx_commit()
    other = MemoryClient(world.engine, q=world.queue)
    other.publish(b"h1", "q", priority=HIGH)
    other.turn()
    assert not world.client.channel.get(world.queue, False)
    world.engine.advance_safe(world.engine.flush())
    world.engine.end_turn()
    assert [body for body, _ in world.got(2)] == ["h1", "n1"]
