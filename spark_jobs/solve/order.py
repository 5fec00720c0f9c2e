"""Facts of all nodes in one order: by corrected time, lifted so that no effect is before its cause (pure).

Causes are links between rows (`clock_pairs.links`: received after sent) and the order inside one process: `seq`, or
the lines of one daemon in one file.  An edge narrows both ends: the effect was not before the cause's earliest time,
the cause not after the effect's latest.  An edge that cannot hold (the cause surely later than the effect, or a circle)
is left out and told as a contradiction: a clock that was set, or a pair that is wrong.

Rows without ts_wall have no time; they come behind their predecessors, or first.  The result depends on the rows and
not on the order in which they are given.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import groupby, pairwise
from typing import Any

from spark_jobs.clocks.pairs import Link, place
from spark_jobs.clocks.segments import FOREVER, NEVER, Clocks
from spark_jobs.schema import MESSAGE_KINDS, Event


@dataclass(frozen=True)
class Contradiction:
    """`cause` should have been before `effect`; `by`: us that it was later at least, None if they are in a circle."""

    kind: str
    cause: Event
    effect: Event
    by: int | None

    def __str__(self) -> str:
        late = "" if self.by is None else f"but was at least {self.by / 1000:g} ms later"
        how = late or "and they are in a circle of causes"
        return f"{_named(self.cause)} should be before {_named(self.effect)} ({self.kind}), {how}"


@dataclass(frozen=True)
class Ordered:
    """`events`: copies, with ts_est, ts_lo and ts_hi."""

    events: Sequence[Event]
    contradictions: Sequence[Contradiction]


@dataclass(frozen=True, order=True)
class _Edge:
    tail: int
    head: int
    kind: str


def ordered(events: Iterable[Event], clocks: Clocks, links: Iterable[Link] = ()) -> Ordered:
    """`links`: between rows that are (the very objects) in `events`; others are left out."""
    given = list(events)
    rows = _sorted(given)
    index = {id(event): number for number, event in enumerate(rows)}
    edges = {
        _Edge(index[id(link.sent)], index[id(link.received)], link.kind)
        for link in links
        if id(link.sent) in index and id(link.received) in index
    }
    times = [clocks.correct(row) if row.get("ts_wall") is not None else (NEVER, NEVER, FOREVER) for row in rows]
    order = _Order(rows, times)
    order.add(sorted({*edges, *_of_processes(rows)}))
    return order.result()


class _Order:
    def __init__(self, rows: Sequence[Event], times: Sequence[tuple[int, int, int]]) -> None:
        self._rows = rows
        self._est = [est for est, _, _ in times]
        self._lo = [lo for _, lo, _ in times]
        self._hi = [hi for _, _, hi in times]
        self._out: dict[int, list[_Edge]] = defaultdict(list)
        self._contradictions: list[Contradiction] = []

    def add(self, edges: Sequence[_Edge]) -> None:
        """Those that can hold, all together; the bounds narrow."""
        possible = [edge for edge in edges if self._can_hold(edge)]
        for edge in possible:
            self._out[edge.tail].append(edge)
        way = self._way()
        for tail in way:
            self._out[tail] = [edge for edge in self._out[tail] if self._can_hold(edge)]
            for edge in self._out[tail]:
                self._lo[edge.head] = max(self._lo[edge.head], self._lo[tail])
        for tail in reversed(way):
            self._hi[tail] = min([self._hi[tail], *(self._hi[edge.head] for edge in self._out[tail])])
        for tail in way:
            self._est[tail] = min(max(self._est[tail], self._lo[tail]), self._hi[tail])
            for edge in self._out[tail]:
                self._est[edge.head] = max(self._est[edge.head], self._est[tail])

    def result(self) -> Ordered:
        """By estimate; causes first if estimates are the same."""
        self._contradictions.sort(key=lambda item: (_key(item.cause), _key(item.effect), item.kind))
        return Ordered([self._row(number) for number in self._way(self._est)], self._contradictions)

    def _row(self, number: int) -> Event:
        row = self._rows[number]
        if row.get("ts_wall") is None:
            return {**row, "ts_est": None, "ts_lo": None, "ts_hi": None}
        return {**row, "ts_est": self._est[number], "ts_lo": self._lo[number], "ts_hi": self._hi[number]}

    def _can_hold(self, edge: _Edge) -> bool:
        late = self._lo[edge.tail] - self._hi[edge.head]
        if late > 0:
            self._tell(edge, late)
        return late <= 0

    def _tell(self, edge: _Edge, late: int | None) -> None:
        self._contradictions.append(Contradiction(edge.kind, self._rows[edge.tail], self._rows[edge.head], late))

    def _way(self, ranks: Sequence[int] | None = None) -> list[int]:
        """All rows, tails before heads, else by rank and the rows' own key; edges that close a circle are told and
        left out."""
        missing = [0] * len(self._rows)
        for edges in self._out.values():
            for edge in edges:
                missing[edge.head] += 1
        rank = self._est if ranks is None else ranks
        ready = [(rank[number], number) for number in range(len(self._rows)) if not missing[number]]
        heapify(ready)
        way: list[int] = []
        done: set[int] = set()
        while len(way) < len(self._rows):
            if not ready:
                self._cut(missing, done)
                ready = [(rank[n], n) for n in range(len(self._rows)) if not missing[n] and n not in done]
            _, number = heappop(ready)
            way.append(number)
            done.add(number)
            for edge in self._out[number]:
                missing[edge.head] -= 1
                if not missing[edge.head]:
                    heappush(ready, (rank[edge.head], edge.head))
        return way

    def _cut(self, missing: list[int], done: set[int]) -> None:
        """Only rows in circles and behind them are left: the earliest row on a circle comes first."""
        first = min(number for number in range(len(missing)) if number not in done and self._reaches(number))
        for tail in sorted(self._out):
            for edge in [edge for edge in self._out[tail] if edge.head == first and tail not in done]:
                self._tell(edge, None)
                self._out[tail].remove(edge)
                missing[first] -= 1

    def _reaches(self, number: int) -> bool:
        """True if a path leads back to it."""
        seen: set[int] = set()
        ahead = [number]
        while ahead:
            for edge in self._out[ahead.pop()]:
                if edge.head == number:
                    return True
                if edge.head not in seen:
                    seen.add(edge.head)
                    ahead.append(edge.head)
        return False


def _of_processes(rows: Sequence[Event]) -> Iterable[_Edge]:
    """Each row and the next of its process.  A client's runs of messages are written when they end: not in order."""
    chains: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for number, row in enumerate(rows):
        attrs = row.get("attrs") or {}
        if row.get("kind") in MESSAGE_KINDS or row.get("kind") == "torn":
            continue
        if row.get("proc") and row.get("seq") is not None:
            chains["seq", row.get("node"), row["proc"], row.get("boot_id")].append((row["seq"], number))
        elif row.get("file") and row.get("line_no") is not None and attrs.get("pid"):
            chains["line", row["file"], attrs.get("daemon"), attrs["pid"]].append((row["line_no"], number))
    for chain in chains.values():
        for (seq, tail), (next_seq, head) in pairwise(sorted(chain)):
            if seq < next_seq:
                yield _Edge(tail, head, "process")


def _sorted(events: Iterable[Event]) -> list[Event]:
    """By `_key`, of which the text is made only where places are the same."""
    rows: list[Event] = []
    for _, of in groupby(sorted(events, key=place), key=place):
        same = list(of)
        rows += same if len(same) == 1 else sorted(same, key=_key)
    return rows


def _key(event: Event) -> tuple[Any, ...]:
    return (*place(event), json.dumps(event, sort_keys=True, default=str))


def _named(event: Event) -> str:
    where = f"{event['file']}:{event.get('line_no')}" if event.get("file") else str(event.get("proc") or "")
    return f"{event.get('kind')} of {event.get('node')} ({where})"
