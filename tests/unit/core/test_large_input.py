"""Frames that come in many parts: one buffer serves them all, and it is given back when nobody needs it."""

from __future__ import annotations

import pytest

from qpidd_py.core import Engine, link_frame
from qpidd_py.core.memory import plan_failures
from tests.support.memory import RecordingOwner

MIB = 1 << 20
PART = 100_000
KIND = 9


def link(engine: Engine) -> RecordingOwner:
    owner = RecordingOwner(engine)
    owner.connection.switch_to_link(True)
    return owner


def frame(octets: int) -> bytes:
    return link_frame(KIND, octets, bytes([octets % 251]) * octets)


def feed(octets: bytes, *owners: RecordingOwner) -> None:
    """Part by part, to each of them in turn."""
    for at in range(0, len(octets), PART):
        for owner in owners:
            owner.connection.feed(octets[at : at + PART])


def right(owner: RecordingOwner, *sizes: int) -> bool:
    """They have come whole."""
    found = [(kind, position, len(body), set(body)) for kind, position, body in owner.frames]
    return found == [(KIND, size, size, {size % 251}) for size in sizes]


def allocations(octets: bytes, *owners: RecordingOwner) -> int:
    plan_failures(1 << 60)
    feed(octets, *owners)
    return int(plan_failures(0))


def test_the_next_large_frame_of_any_connection_asks_for_no_memory() -> None:
    engine = Engine()
    one, other = link(engine), link(engine)
    before = engine.pool.held()
    assert allocations(frame(3 * MIB), one) > 0
    assert engine.pool.held() == before + 4 * MIB
    assert allocations(frame(3 * MIB + 1), one) == 0
    assert allocations(frame(2 * MIB), other) == 0
    assert right(one, 3 * MIB, 3 * MIB + 1) and right(other, 2 * MIB)


def test_two_at_the_same_time_do_not_meet() -> None:
    engine = Engine()
    one, other = link(engine), link(engine)
    feed(frame(3 * MIB), one)
    for size in (3 * MIB + 5, 5 * MIB, 2 * MIB):
        feed(frame(size), one, other)
    assert right(one, 3 * MIB, 3 * MIB + 5, 5 * MIB, 2 * MIB) and right(other, 3 * MIB + 5, 5 * MIB, 2 * MIB)


def test_a_frame_larger_than_the_buffer_makes_a_larger_one() -> None:
    engine = Engine()
    one = link(engine)
    before = engine.pool.held()
    feed(frame(2 * MIB - 100), one)
    assert engine.pool.held() == before + 2 * MIB
    feed(frame(7 * MIB), one)
    assert engine.pool.held() == before + 8 * MIB
    feed(frame(9 * MIB), one)
    assert engine.pool.held() == before, "that would be too much to keep"
    assert right(one, 2 * MIB - 100, 7 * MIB, 9 * MIB)


@pytest.mark.parametrize("trim", ["tick", "trim"])
def test_what_nobody_needs_is_given_back(trim: str) -> None:
    engine = Engine()
    one = link(engine)
    engine.pool.trim()
    before = engine.pool.held()
    feed(frame(3 * MIB), one)
    if trim == "trim":
        engine.pool.trim()
    else:
        engine.tick()
        assert engine.pool.held() == before + 4 * MIB, "it was used since the last tick"
        engine.tick()
    assert engine.pool.held() == before
    feed(frame(3 * MIB), one)
    assert right(one, 3 * MIB, 3 * MIB)


def test_a_connection_that_ends_in_the_middle_takes_its_buffer_along() -> None:
    engine = Engine()
    one, other = link(engine), link(engine)
    before = engine.pool.held()
    feed(frame(3 * MIB), one)
    feed(frame(3 * MIB)[: 2 * MIB], one)
    assert engine.pool.held() == before
    del one
    feed(frame(3 * MIB), other)
    assert right(other, 3 * MIB) and engine.pool.held() == before + 4 * MIB


def test_small_parts_have_buffers_of_their_own() -> None:
    engine = Engine()
    one, other = link(engine), link(engine)
    feed(frame(3 * MIB), one)
    held = engine.pool.held()
    for _ in range(3):
        other.connection.feed(frame(9_000)[:5_000])
        assert engine.pool.held() == held
        other.connection.feed(frame(9_000)[5_000:])
    assert right(other, *[9_000] * 3)
