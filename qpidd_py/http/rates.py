"""Rates of what counts, a second, from the answers that pass: as RabbitMQ's API has them next to each number.

    "messages": 12, "messages_details": {"rate": 3.5}

The broker keeps no history.  What is asked for again and again, by a page or by monitoring, has rates over the last
WINDOW to twice as long; what nobody has asked for in LONGEST has none (0.0).  Memory is bounded: OBJECTS.
Times are arguments, in seconds; any thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

WINDOW: Final = 5.0
SHORTEST: Final = 0.5
LONGEST: Final = 60.0
OBJECTS: Final = 100_000
Json = dict[str, Any]
Counts = tuple[int, ...]

LENGTHS: Final = ("messages", "messages_ready", "messages_unacknowledged")
COUNTERS: Final = ("message_stats.publish", "message_stats.deliver_get", "recv_oct", "send_oct")
"""They only grow: a smaller one counts from 0 again."""
QUEUE: Final = (*LENGTHS, *COUNTERS[:2])
OVERVIEW: Final = (*(f"queue_totals.{name}" for name in LENGTHS), *COUNTERS[:2])
CONNECTION: Final = COUNTERS[2:]


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

    def add(self, kind: str, objects: Sequence[Json], names: Sequence[str], now: float) -> None:
        """Puts the rates of `names` into each object, which has a name, or is the only one of its kind."""
        with self._lock:
            for each in objects:
                places = [_place(each, name) for name in names]
                counts = tuple(int(place[last]) for place, last in places)
                rates = self._rates((kind, each.get("name")), counts, now)
                for name, (place, last), rate in zip(names, places, rates, strict=True):
                    place[f"{last}_details"] = {"rate": max(0.0, rate) if name in COUNTERS else rate}

    def _rates(self, key: Hashable, counts: Counts, now: float) -> Sequence[float]:
        seen = self._seen.pop(key, None)
        if seen is None or now - seen.newer > LONGEST:
            seen = _Seen(now, counts, now, counts)
        elif now - seen.newer >= WINDOW:
            seen = _Seen(seen.newer, seen.newer_counts, now, counts)
        self._seen[key] = seen
        if len(self._seen) > OBJECTS:
            self._seen.popitem(last=False)
        passed = now - seen.then
        if passed < SHORTEST:
            return [0.0] * len(counts)
        return [round((count - before) / passed, 2) for count, before in zip(counts, seen.counts, strict=True)]


def _place(found: Json, name: str) -> tuple[Json, str]:
    *above, last = name.split(".")
    for each in above:
        found = found[each]
    return found, last
