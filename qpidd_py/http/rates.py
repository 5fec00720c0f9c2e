"""Rates of what counts, a second, from the answers that pass: as RabbitMQ's API has them next to each number.

    "messages": 12, "messages_details": {"rate": 3.5}

The broker keeps no history.  What is asked for again and again, by a page or by monitoring, has rates over the last
WINDOW to twice as long; what was not asked for in LONGEST has none (0.0).  Memory is bounded: OBJECTS.
Times are arguments, in seconds; any thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

WINDOW: Final = 5.0
SHORTEST: Final = 0.5
LONGEST: Final = 60.0
OBJECTS: Final = 100_000
Json = dict[str, Any]
Counts = tuple[int, ...]

LENGTHS: Final = ("messages", "messages_ready", "messages_unacknowledged")
"""These may fall; all others only grow: a smaller one counts from 0 again."""
_STATS: Final = ("publish", "deliver_get")
GROUPS: Final[Mapping[str, Sequence[tuple[str, Sequence[str]]]]] = {
    "queue": (("", LENGTHS), ("message_stats", _STATS)),
    "overview": (("queue_totals", LENGTHS), ("message_stats", _STATS)),
    "connection": (("", ("recv_oct", "send_oct")),),
}
"""What has rates, by the kind of object: the object in it, empty for itself, and its numbers."""


@dataclass(slots=True)
class _Seen:
    """Two moments: rates count from the first, which the newer one replaces when it is WINDOW old."""

    then: float
    counts: Counts
    newer: float
    newer_counts: Counts


class Rates:
    """Of one server."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Hashable, _Seen] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, kind: str, objects: Sequence[Json], now: float, sight: str = "") -> None:
        """Puts its rates into each object, which has a name, or is the only one of its kind and `sight`: numbers that
        are not the same for everybody."""
        for each in objects:
            key = (kind, sight, each.get("vhost"), each.get("name"))
            put(kind, each, self.of(key, counts_of(kind, each), now))

    def of(self, key: Hashable, counts: Counts, now: float) -> list[float]:
        """Those of one object."""
        with self._lock:
            seen = self._look(key, counts, now)
        return _rates(seen, counts, now)

    def _look(self, key: Hashable, counts: Counts, now: float) -> _Seen:
        """What its rates count from."""
        seen = self._seen.pop(key, None)
        if seen is None or now - seen.newer > LONGEST:
            seen = _Seen(now, counts, now, counts)
        elif now - seen.newer >= WINDOW:
            seen = _Seen(seen.newer, seen.newer_counts, now, counts)
        self._seen[key] = seen
        if len(self._seen) > OBJECTS:
            self._seen.popitem(last=False)
        return seen


def _places(kind: str, each: Json) -> list[tuple[Json, Sequence[str]]]:
    return [(each[above] if above else each, names) for above, names in GROUPS[kind]]


def counts_of(kind: str, each: Json) -> Counts:
    """What has rates in an object."""
    return tuple([place[name] for place, names in _places(kind, each) for name in names])


def put(kind: str, each: Json, rates: Sequence[float]) -> None:
    """Into the object."""
    found = iter(rates)
    for place, names in _places(kind, each):
        for name in names:
            rate = next(found)
            place[name + "_details"] = {"rate": rate if rate > 0 or name in LENGTHS else 0.0}


def _rates(seen: _Seen, counts: Counts, now: float) -> list[float]:
    passed = now - seen.then
    if passed < SHORTEST or seen.counts == counts:
        return [0.0] * len(counts)
    return [round((count - before) / passed, 2) for count, before in zip(counts, seen.counts, strict=True)]
