"""Which binding of a consistent-hash exchange takes a message.                                                   Pure.

The bindings stand in one line in the order of their declaration, each as long as its weight; a hash picks a place by
Lamping and Veach's jump consistent hash.  So the choice depends on the declared bindings only, and is the same on
every broker of a cluster; a binding at the end of the line takes over just its share, and gives just that back.  The
removal of an earlier one moves those behind it, as RabbitMQ's does.  A choice costs the logarithm of the weights and
of the number of bindings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable
from hashlib import blake2b
from itertools import accumulate
from typing import Final, Generic, TypeVar

MOST: Final = 1_000_000
"""The largest weight of a binding."""
_MULTIPLIER: Final = 2862933555777941757  # of the paper, "A fast, minimal memory, consistent hash algorithm"
_MASK: Final = (1 << 64) - 1

T = TypeVar("T", bound=Hashable)


def weight(routing_key: bytes) -> int:
    """Of a binding with this key; 0 if it is none."""
    value = int(routing_key) if routing_key.isdigit() and len(routing_key) <= len(str(MOST)) else 0
    return value if value <= MOST else 0


def jump(octets: bytes, places: int) -> int:
    """The place of 0 to `places` - 1 for these octets."""
    state, place, following = int.from_bytes(blake2b(octets, digest_size=8).digest(), "big"), 0, 0
    while following < places:
        place = following
        state = (state * _MULTIPLIER + 1) & _MASK
        following = (place + 1) * (1 << 31) // ((state >> 33) + 1)
    return place


def _never(thing: object) -> bool:
    return False


class Line(Generic[T]):
    """Things in a line, each with a weight."""

    def __init__(self, rank: Callable[[T], int], gone: Callable[[T], bool] = _never) -> None:
        """`rank`: the order in which things came; equal ones keep the order in which they were added.  `gone`: they
        have no place in the line, and are removed some time; `changed` has to be called when it answers anew."""
        self._rank = rank
        self._gone = gone
        self._weights: dict[T, int] = {}
        self._things: list[T] = []
        self._ends: list[int] = []
        self._current = False

    def add(self, thing: T, weight: int) -> None:
        self._weights[thing] = weight
        self.changed()

    def remove(self, thing: T) -> None:
        del self._weights[thing]
        if not self._gone(thing):
            self.changed()

    def changed(self) -> None:
        self._current = False

    def find(self, octets: bytes) -> T | None:
        """The thing that takes what has these octets; None without any weight."""
        if not self._current:
            self._things = sorted((thing for thing in self._weights if not self._gone(thing)), key=self._rank)
            self._ends = list(accumulate(self._weights[thing] for thing in self._things))
            self._current = True
        if not self._ends or not self._ends[-1]:
            return None
        return self._things[bisect_right(self._ends, jump(octets, self._ends[-1]))]
