"""What a shovel and a dynamic route promise, judged from the histories of their clients alone.                    Pure.

* Every message that was confirmed where it was published arrives where it is moved to.
* Nothing arrives that was not published, and nothing is refused for want of the route's queue.
* A message may come more than once: then all but one say so (`redelivered`, or the header x-resent).
* Those that come without such a mark come in the order in which they were published.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

Event = Mapping[str, Any]
NAMED: Final = 5


@dataclass
class Way:
    """One shovel or route, with one producer and one consumer."""

    sent: dict[str, int] = field(default_factory=dict)
    """Id → its number."""
    confirmed: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    """Received and acknowledged."""
    bare: list[str] = field(default_factory=list)
    """Received without a mark, in this order."""
    came: dict[str, bool] = field(default_factory=dict)
    """Id → whether it was marked when it came first."""

    def add(self, event: Event) -> None:
        kind, id = event["kind"], str(event.get("id", ""))
        if kind == "invoke":
            self.sent.setdefault(id, len(self.sent))
        elif kind == "ok":
            self.confirmed.add(id)
        elif kind == "nack":
            self.refused.add(id)
        elif kind == "ack":
            self.kept.add(id)
        elif kind == "receive":
            marked = bool(event["redelivered"] or event["resent"])
            self.came.setdefault(id, marked)
            self.bare += [] if marked else [id]

    def broken(self, drained: bool) -> dict[str, list[str]]:
        """Sentence → ids."""
        first = [id for id in self.bare if not self.came[id] and id in self.sent]
        order = list(dict.fromkeys(first))
        return {
            "confirmed and not arrived": sorted(self.confirmed - self.kept) if drained else [],
            "arrived and never published": sorted(self.came.keys() - self.sent.keys()),
            "had no queue of the route": sorted(self.refused),
            "came twice without a mark": sorted(id for id, count in Counter(self.bare).items() if count > 1),
            "overtaken, without a mark": [b for a, b in pairwise(order) if self.sent[b] < self.sent[a]],
        }


@dataclass
class Arrivals:
    """Takes events of any number of clients; those of one client in order."""

    ways: dict[str, Way] = field(default_factory=lambda: defaultdict(Way))
    _clients: dict[str, str] = field(default_factory=dict)

    def add(self, events: Iterable[Event]) -> Arrivals:
        for event in events:
            if event["kind"] == "begin" and "moved" in event:
                self._clients[event["client"]] = event["moved"]
            if event["client"] in self._clients:
                self.ways[self._clients[event["client"]]].add(event)
        return self

    def broken(self, drained: bool) -> list[str]:
        """The broken promises; `drained`: all queues were found empty."""
        return [
            f"{name}: {len(ids)} {what} ({' '.join(ids[:NAMED])}{' ...' if len(ids) > NAMED else ''})"
            for name, way in self.ways.items()
            for what, ids in way.broken(drained).items()
            if ids
        ]

    def counts(self) -> dict[str, dict[str, int]]:
        """For the report."""
        return {
            name: {"confirmed": len(way.confirmed), "arrived": len(way.came), "marked": sum(way.came.values())}
            for name, way in self.ways.items()
        }
