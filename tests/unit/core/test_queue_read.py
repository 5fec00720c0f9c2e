"""Reading messages out of a queue by their ids (for salvage files)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidd_py.core import Catchup, Engine, Queue, decode_ids, encode_ids, reading
from tests.support.memory import MemoryClient

LAST = (1 << 64) - 1


def filled(engine: Engine, queue: Queue, priorities: list[int]) -> dict[int, bytes]:
    """Publishes one message for each priority; id -> body."""
    client = MemoryClient(engine, a=queue)
    for number, priority in enumerate(priorities):
        client.publish(b"m%d" % number, "a", priority=priority, message_id=f"id{number}")
    client.turn()
    return {item[0]: item[5] for item in queue.peek(1 << 20)}


def make(levels: int) -> tuple[Engine, Queue]:
    engine = Engine(segment_size=65536)
    queue = engine.create_queue(1, "a", True)
    if levels:
        queue.add_levels(levels)
    return engine, queue


@given(
    st.integers(0, 3),
    st.lists(st.integers(0, 4), max_size=30),
    st.sets(st.integers(0, 29)),
    st.integers(0, 35),
    st.integers(0, 35),
    st.integers(0, 10),
)
def test_what_is_read_is_what_lies_between(
    levels: int, priorities: list[int], gone: set[int], low: int, high: int, limit: int
) -> None:
    engine, queue = make(levels)
    bodies = filled(engine, queue, priorities)
    for id in sorted(bodies)[::-1]:
        if id - 1 in gone:
            engine.drop(1, one(id))
            del bodies[id]
    within = sorted(id for id in bodies if low <= id <= high)
    assert [(item[0], item[6]) for item in reading.read(queue, low, high, limit)] == [
        (id, bodies[id]) for id in within[:limit]
    ]
    held = decode_ids(queue.held(low, high))
    assert [id for first, last in held for id in range(first, last + 1)] == within
    assert [item[0] for item in reading.read(queue, 0, LAST, 100)] == sorted(bodies)
    assert queue.held() == queue.held(0, LAST)


def one(id: int) -> bytes:
    return encode_ids([(id, id)])


def test_a_message_is_read_with_all_that_it_has() -> None:
    engine, queue = make(0)
    engine.now = 1_800_000_000_123
    client = MemoryClient(engine, a=queue)
    client.publish(b"body", "a", expiration="60000", message_id="m1")
    client.publish(b"plain", "a")
    client.channel.get(queue, False)
    client.turn()
    timed, plain = reading.read(queue, 0, LAST, 10)
    assert timed[:5] == (timed[0], False, 1_800_000_000_123, b"", b"a")
    assert b"m1" in timed[5]
    assert (timed[6], plain[2], plain[6]) == (b"body", 0, b"plain")


def test_messages_next_to_the_live_stream_are_read_too() -> None:
    primary, source = make(0)
    filled(primary, source, [0] * 6)
    backup, queue = make(0)
    backup.apply_slice(Catchup(source, b"", primary.position).slice(1 << 20) or b"")
    assert [item[6] for item in reading.read(queue, 0, LAST, 10)] == [b"m%d" % number for number in range(6)]
    queue.check()


@pytest.mark.parametrize("levels", [0, 2])
def test_reading_changes_nothing(levels: int) -> None:
    engine, queue = make(levels)
    filled(engine, queue, [0, 2, 1, 0])
    before = queue.peek(10)
    assert len(reading.read(queue, 0, LAST, 10)) == 4
    assert queue.peek(10) == before
    queue.check()


@pytest.mark.parametrize("octets", [1, 60, 200])
def test_a_page_that_is_full_leaves_out_no_level(octets: int) -> None:
    """The next page goes on behind the last message of this one."""
    engine, queue = make(2)
    filled(engine, queue, [0, 0, 0, 2, 1, 0, 2, 1])
    found: list[int] = []
    while page := reading.read(queue, found[-1] + 1 if found else 0, LAST, 5, octets):
        found += [item[0] for item in page]
    assert found == [item[0] for item in reading.read(queue, 0, LAST, 100)] and len(found) == 8
