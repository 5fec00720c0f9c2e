"""The keys that a queue remembers: by count, by time, in how much memory."""

from __future__ import annotations

import random
from collections import OrderedDict

import pytest

from qpidd_py.core import memory
from qpidd_py.core.window import Window

SECRET = bytes(range(16))
NOW = 1_800_000_000_000


def window(most: int = 10, time: int | None = None) -> Window:
    return Window(most, time, SECRET)


def test_the_hash_is_siphash() -> None:
    """The first vectors of its authors, for no octets and for one of 0."""
    found = window()
    found.add(b"", 1, NOW)
    found.add(b"\0", 2, NOW)
    empty, zero = (key for key, _, _ in found.entries())
    assert empty.hex() == "a3817f04ba25a8e66df67214c7550293"
    assert zero.hex() == "da87c1d86b99af44347659119b22fc45"


def test_a_key_is_found_until_others_have_taken_its_place() -> None:
    found = window(most=3)
    for number in range(1, 5):
        found.add(b"%d" % number, number, NOW)
        found.check()
    assert [found.seen(b"%d" % number, NOW) for number in range(1, 5)] == [0, 2, 3, 4]


def test_a_key_that_is_there_keeps_its_message() -> None:
    found = window()
    found.add(b"a", 1, NOW)
    found.add(b"a", 2, NOW)
    assert (found.seen(b"a", NOW), found.count) == (1, 1)


@pytest.mark.parametrize("time", [1, 250, 1000])
def test_a_key_is_found_for_its_time_and_half_a_second_more(time: int) -> None:
    for start in range(0, 250, 50):
        found = window(time=time)
        found.add(b"a", 1, NOW + start)
        assert found.seen(b"a", NOW + start + time) == 1
        assert found.seen(b"a", NOW + start + time + 500) == 0


def test_a_key_that_is_too_old_enters_anew() -> None:
    found = window(time=1000)
    found.add(b"a", 1, NOW)
    found.add(b"b", 2, NOW)
    found.add(b"a", 3, NOW + 2000)
    found.check()
    assert (found.seen(b"a", NOW + 2000), found.seen(b"b", NOW + 2000)) == (3, 0)


def test_also_when_many_have_to_leave_before_it() -> None:
    found = window(most=10000, time=1000)
    for number in range(1, 501):
        found.add(b"%d" % number, number, NOW)
    found.add(b"500", 501, NOW + 2000)
    found.check()
    assert found.seen(b"500", NOW + 2000) == 501


def test_old_keys_leave_with_those_that_come_some_at_a_time() -> None:
    found = window(most=10000, time=1000)
    for number in range(1, 1001):
        found.add(b"%d" % number, number, NOW)
    for number in range(1001, 1031):
        found.add(b"%d" % number, number, NOW + 2000)
        found.check()
    assert found.count == 30


def test_a_clock_that_goes_back_makes_no_key_older() -> None:
    found = window(time=1000)
    found.add(b"a", 1, NOW + 10_000)
    found.add(b"b", 2, NOW)
    found.check()
    assert found.seen(b"a", NOW) == 1
    assert found.seen(b"b", NOW + 10_000) == 2


@pytest.mark.parametrize("most", [1, 7, 1000, 5000])
@pytest.mark.parametrize("time", [None, 3000])
def test_it_remembers_what_a_dictionary_would(most: int, time: int | None) -> None:
    draw = random.Random(f"{most} {time}")
    found, model = window(most, time), OrderedDict[bytes, int]()
    now = NOW
    for number in range(1, 20000):
        now += draw.choice((0, 0, 1, 20))
        key = b"%d" % draw.randrange(3 * most)
        if time is None:
            assert found.seen(key, now) == model.get(key, 0)
        if key not in model:
            model[key] = number
            if len(model) > most:
                model.popitem(last=False)
        if time is None or not found.seen(key, now):
            found.add(key, number, now)
        if number % 997 == 0:
            found.check()
    if time is None:
        assert [id for _, id, _ in found.entries()] == list(model.values())


def test_ten_million_keys_take_forty_octets_each_at_most() -> None:
    """A tenth of them here; the table is the same."""
    found = window(most=1_000_000)
    for number in range(1, 1_500_001):
        found.add(number.to_bytes(8, "big"), number, NOW)
    assert found.count == 1_000_000
    assert 36 * found.count <= found.octets < 38 * found.count


def test_a_key_without_memory_changes_nothing() -> None:
    found = window(most=5000)
    for number in range(1, 1025):
        found.add(b"%d" % number, number, NOW)
    before = found.entries()
    memory.plan_failures(1, 1000)
    try:
        with pytest.raises(MemoryError):
            found.add(b"one more", 2000, NOW)
    finally:
        memory.plan_failures(0)
    found.check()
    assert found.entries() == before
    found.add(b"one more", 2000, NOW)
    assert found.seen(b"one more", NOW) == 2000
