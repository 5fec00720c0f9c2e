"""What the core does is counted at n, 4n and 16n: it grows as what happens, not as what exists."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Engine, Queue, Route
from qpidd_py.core.catchup import Catchup
from qpidd_py.core.memory import plan_failures
from tests.support.memory import MemoryClient, deliveries, method_octets, publish_octets

SIZES = (250, 1000, 4000)


def filled(engine: Engine, count: int) -> Queue:
    queue = engine.create_queue(len(engine.queues) + 1, f"q{len(engine.queues)}", True)
    publisher = MemoryClient(engine, a=queue)
    publisher.connection.feed(b"".join(publish_octets(b"%d" % number, "a") for number in range(count)))
    publisher.turn()
    return queue


def holder(engine: Engine, queue: Queue) -> MemoryClient:
    """A client that holds all messages, unacknowledged, and takes no more."""
    client = MemoryClient(engine)
    client.channel.consume(queue, "holder", False, 0)
    while client.turn():
        pass
    client.channel.cancel("holder")
    return client


def ascending(count: int) -> list[int]:
    return list(range(1, count + 1))


def oldest_first_then_down(count: int) -> list[int]:
    return [1, *range(count - 1, 1, -1), count]


def shuffled(count: int) -> list[int]:
    return random.Random(17).sample(range(1, count + 1), count)


@pytest.mark.parametrize("order", [ascending, oldest_first_then_down, shuffled])
def test_messages_that_come_back_cost_the_same_each_and_are_in_order(order: Callable[[int], list[int]]) -> None:
    for count in SIZES:
        engine = Engine()
        queue = filled(engine, count)
        client = holder(engine, queue)
        client.connection.feed(b"".join(nack(tag) for tag in order(count)))
        assert queue.ready == count
        queue.check()
        other = MemoryClient(engine)
        other.channel.consume(queue, "other", False, 0)
        bodies = [body for _, body, _ in deliveries(other.turn())]
        assert bodies == [b"%d" % number for number in range(count)]
        assert queue.moves <= 2 * count * count.bit_length()


def test_a_client_that_ends_gives_back_all_it_holds_without_comparisons() -> None:
    for count in SIZES:
        engine = Engine()
        queue = filled(engine, count)
        holder(engine, queue).connection.close()
        assert queue.ready == count
        engine.purge(queue)
        assert queue.moves <= 2 * count


def nack(tag: int) -> bytes:
    return b"\x01\0\x01\0\0\0\x0d\0\x3c\0\x78" + tag.to_bytes(8, "big") + b"\x02\xce"


def test_queues_whose_messages_expire_are_looked_at_when_one_does() -> None:
    for count in SIZES:
        engine = Engine()
        engine.now = 1000
        client = MemoryClient(engine)
        queues = [engine.create_queue(number, f"q{number}", True) for number in range(1, count + 1)]
        for number, queue in enumerate(queues):
            client.owner.routes[b"q%d" % number] = [queue]
        for lifetime in ("100", "50", "500"):
            for number in range(count):
                client.connection.feed(publish_octets(b"x", f"q{number}", expiration=lifetime))
        client.turn()
        for _ in range(10):
            engine.tick()
        assert engine.expiries.looks == 0
        looked = 0
        for engine.now in (1051, 1101, 1501):
            while engine.expiries.waits(engine.now):
                engine.tick()
                assert engine.expiries.looks - looked <= 3 * 4096
            looked = engine.expiries.looks
        assert not any(queue.ready for queue in queues)
        assert engine.expiries.looks <= 5 * count


def test_each_publish_that_expires_sooner_leaves_nothing_behind() -> None:
    engine = Engine()
    engine.now = 1000
    queue = engine.create_queue(1, "a", False)
    client = MemoryClient(engine, a=queue)
    for lifetime in range(10**6, 10**6 - 5000, -1):
        client.publish(b"x", "a", expiration=str(lifetime))
    engine.purge(queue)
    assert len(engine.expiries) == 1
    engine.delete_queue(queue)
    assert len(engine.expiries) == 0


def test_messages_that_expire_at_once_are_dropped_in_slices() -> None:
    engine = Engine()
    engine.now = 1000
    queue = engine.create_queue(1, "a", True)
    client = MemoryClient(engine, a=queue)
    client.connection.feed(publish_octets(b"x", "a", expiration="1") * 20_000)
    client.turn()
    turns: list[int] = []
    engine.schedule = lambda: turns.append(queue.ready)
    engine.now = 2000
    engine.tick()
    for _ in range(20_000 // 4096):
        engine.end_turn()
    assert queue.ready == 0 and len(turns) >= 3
    assert all(before - after <= 4096 for before, after in pairwise(turns))


def test_dead_letters_leave_in_slices_and_others_have_their_turn_between() -> None:
    engine = Engine()
    engine.now = 1000
    dying, grave = engine.create_queue(1, "dying", True), engine.create_queue(2, "grave", True)
    dying.dead_letter = lambda reason, exchange, key, header, body: (Route([grave]), exchange, key, header)
    client = MemoryClient(engine, dying=dying)
    client.connection.feed(publish_octets(b"x", "dying", expiration="1") * 1000)
    client.turn()
    turns: list[int] = []
    engine.schedule = lambda: turns.append(grave.ready)
    engine.now = 2000
    engine.tick()
    for _ in range(1000 // 64):
        engine.end_turn()
    assert max(after - before for before, after in pairwise(turns)) == 64
    assert grave.ready == 1000 and dying.ready == dying.unacked == 0


def test_memory_of_drained_queues_goes_back() -> None:
    """Octets that segments have, or that are kept for them; those of 1 MiB and more are mapped."""
    engine = Engine()
    queue = engine.create_queue(1, "a", False)
    client = MemoryClient(engine, a=queue)
    for _ in range(5):
        client.connection.feed(publish_octets(b"x" * 1_000_000, "a") * 40)
        client.turn()
        assert engine.pool.held() > 40_000_000
        engine.purge(queue)
        for _ in range(30):
            engine.tick()
        assert engine.pool.held() <= 4 * engine.pool.segment_size


@pytest.mark.parametrize("levels", [0, 3])
@pytest.mark.parametrize("consumed", [False, True])
def test_the_index_of_a_drained_queue_goes_back(consumed: bool, levels: int) -> None:
    engine = Engine()
    queue = engine.create_queue(1, "a", True)
    if levels:
        queue.add_levels(levels)
    client = MemoryClient(engine, a=queue)
    client.connection.feed(publish_octets(b"x", "a") * 20_000)
    client.turn()
    if consumed:
        client.channel.consume(queue, "c", True, 0)
        while queue.ready:
            client.turn()
    else:
        engine.purge(queue)
    assert queue.room >= 20_000, "nothing is given back in the middle of the work"
    for _ in range(2):
        engine.tick()
    assert queue.room < 100


def test_slots_of_what_a_client_held_go_back() -> None:
    engine = Engine()
    queue = filled(engine, 40_000)
    client = MemoryClient(engine)
    client.channel.consume(queue, "c", False, 0)
    while queue.ready:
        client.turn()
    assert client.channel.unacked_mask >= 40_000
    client.connection.feed(method_octets(Basic.Ack(0, True)))
    while client.channel.unacked_count:
        client.turn()
    assert client.channel.unacked_mask < 100
    publisher = MemoryClient(engine, a=queue)
    publisher.connection.feed(publish_octets(b"x", "a"))
    publisher.turn()
    client.turn()
    assert client.channel.unacked_count == 1


def test_the_index_of_a_queue_in_use_stays() -> None:
    """It is empty now and then, as each queue whose consumers keep up."""
    engine = Engine()
    queue = filled(engine, 5000)
    client = MemoryClient(engine, a=queue)
    for _ in range(20):
        engine.purge(queue)
        engine.tick()
        client.connection.feed(publish_octets(b"x", "a"))
        client.turn()
        assert queue.room >= 5000
        engine.tick()


def test_a_tick_looks_at_some_of_many_drained_queues() -> None:
    engine = Engine()
    queues = [filled(engine, 2000) for _ in range(300)]
    for queue in queues:
        engine.purge(queue)
    engine.tick()
    left = [len(queues)]
    while left[-1]:
        engine.tick()
        left.append(sum(queue.room > 100 for queue in queues))
        assert left[-2] - left[-1] <= 100
        assert len(left) < 20


@pytest.mark.parametrize(
    ("size", "most"), [(1 << 20, 1.05), (600_000, 1.25), (800_000, 1.4), (1_100_000, 1.01), (3 << 20, 1.01)]
)
def test_large_messages_take_memory_for_what_they_are(size: int, most: float) -> None:
    engine = Engine()
    queue = engine.create_queue(1, "a", False)
    client = MemoryClient(engine, a=queue)
    before = engine.pool.allocated
    for _ in range(40):
        client.connection.feed(publish_octets(b"x" * size, "a"))
        client.turn()
    assert queue.ready == 40
    assert engine.pool.allocated - before <= most * 40 * size


def test_small_messages_between_large_ones_take_no_segment_each() -> None:
    engine = Engine()
    client = MemoryClient(engine, a=engine.create_queue(1, "a", False))
    before = engine.pool.allocated
    for _ in range(40):
        client.connection.feed(publish_octets(b"x" * 1_500_000, "a") + publish_octets(b"y" * 100, "a"))
        client.turn()
    assert engine.pool.allocated - before <= 1.5 * 40 * 1_500_000


def merge_asks(engine: Engine, queue: Queue) -> int:
    """For how much memory, in allocations."""
    plan_failures(1 << 60)
    engine.merge(queue.number)
    return int(plan_failures(0))


def test_a_queue_without_a_difference_is_not_copied() -> None:
    """A promotion does it for each."""
    engine = Engine()
    queue = filled(engine, 4000)
    assert merge_asks(engine, queue) == 0
    client = holder(engine, queue)
    client.send(Basic.Ack(7))
    client.turn()
    assert merge_asks(engine, queue) == 0, "what was removed is squeezed out in place"
    queue.check()
    assert queue.ready + queue.unacked == 3999


def test_half_a_difference_is_part_of_the_queue_after_a_promotion() -> None:
    engine, backup = Engine(), Engine()
    queue = filled(engine, 1000)
    copy = backup.create_queue(queue.number, queue.name, True)
    piece = Catchup(queue, b"", engine.flush()).slice(20_000)
    assert piece is not None
    backup.apply_slice(piece)
    backup.begin_epoch(1)
    copy.check()
    client = MemoryClient(backup)
    client.channel.consume(copy, "c", True, 0)
    bodies = [body for _, body, _ in deliveries(client.turn())]
    assert bodies == [b"%d" % number for number in range(len(bodies))] and bodies
