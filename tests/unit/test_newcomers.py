"""Who has to go when too many connections are not logged in, and what that question costs."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidd_py.server.newcomers import Newcomers

LIMIT = 12


class One:
    """A connection."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.negotiating = True


def arrive(newcomers: Newcomers[One], address: str, now: float = 0.0) -> tuple[One | None, One | None]:
    """The connection if it was taken, and which one had to go."""
    room, oldest = newcomers.room(address)
    if oldest is not None:
        oldest.negotiating = False
    if not room:
        return None, oldest
    taken = One(address)
    newcomers.add(address, taken, now)
    return taken, oldest


STEP = st.one_of(st.sampled_from("abcd"), st.integers(0, 100), st.just("tick"))


@given(st.lists(STEP, max_size=120))
def test_the_address_with_most_pays(steps: list[Any]) -> None:
    newcomers: Newcomers[One] = Newcomers(LIMIT, 10.0)
    waiting: list[One] = []
    for now, step in enumerate(steps):
        waiting = [each for each in waiting if each.negotiating]
        if step == "tick":
            for late in newcomers.late(float(now)):
                late.negotiating = False
        elif isinstance(step, int):
            if waiting:
                waiting[step % len(waiting)].negotiating = False  # it has logged in
        else:
            has = Counter(each.address for each in waiting)
            taken, gone = arrive(newcomers, step, float(now))
            if taken is None:
                assert len(newcomers) >= LIMIT
            else:
                waiting.append(taken)
            if gone is not None and gone in waiting:
                assert has[gone.address] > has[step] or len(newcomers) > len(waiting), (has, step)
        assert len(newcomers) <= LIMIT
    for each in waiting:
        each.negotiating = False
    assert not [*newcomers.late(1e9)] and len(newcomers) == 0


def calls(addresses: int) -> int:
    """Of functions, while 50 more come to a full table with so many addresses."""
    newcomers: Newcomers[One] = Newcomers(2 * addresses, 10.0)
    for number in range(2 * addresses):
        arrive(newcomers, f"10.{number % addresses}")
    arrive(newcomers, "first")  # looks whether some have logged in
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    for number in range(50):
        arrive(newcomers, f"11.{number}")
    sys.setprofile(None)
    return count


def test_one_more_costs_the_same_however_many_addresses_wait() -> None:
    assert calls(4000) < 1.5 * calls(250)


@pytest.mark.parametrize("address", ["flood", "another"])
def test_a_flood_of_one_address_keeps_no_other_out(address: str) -> None:
    newcomers: Newcomers[One] = Newcomers(LIMIT, 10.0)
    for _ in range(LIMIT):
        arrive(newcomers, "flood")
    taken, gone = arrive(newcomers, address)
    assert (taken is None, gone is None) == ((True, True) if address == "flood" else (False, False))
