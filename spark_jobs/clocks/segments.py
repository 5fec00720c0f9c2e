"""Every node's clock as a row of segments with bounds of its offset, and corrected times (pure).

A clock is cut into *segments* at steps and reboots (`clocks.steps`).  Within one its offset to the reference clock is
between bounds that are known at some moments (knots).  A line that is between bounds at two knots is between them in
between, too; beyond the last knot the bounds open with the greatest drift.  A clock that nothing connects to the
reference is unknown: its bounds are NEVER and FOREVER, never 0.

Times are us.  ts_est = ts_wall - offset.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, floor, inf
from typing import Any, Final

from spark_jobs.clocks.pairs import stamp_error
from spark_jobs.clocks.steps import Break
from spark_jobs.schema import Event

NEVER: Final = -(1 << 62)
FOREVER: Final = 1 << 62
REFERENCE: Final = "the reference"
"""A note."""
MAX_DRIFT_PPM: Final = 200.0
"""Two quartzes of 100 ppm each; ntpd slews by 500 at most, and only what is left then looks like a step."""
Knot = tuple[int, float, float]
"""(us on the axis, least and greatest offset)"""


@dataclass(frozen=True)
class ClockSegment:
    """Of one node's clock: `begin` and `end` are on it (ts_wall), knots are on the axis."""

    node: str
    number: int
    begin: int
    end: int
    knots: tuple[Knot, ...] = ()
    steepest: float = MAX_DRIFT_PPM / 1e6
    evidence: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def bounds(self, x: float) -> tuple[float, float]:
        """Least and greatest offset at a time of the axis."""
        if not self.knots:
            return -inf, inf
        index = bisect_right(self.knots, x, key=lambda knot: knot[0])
        if index in (0, len(self.knots)):
            at, lo, hi = self.knots[0 if index == 0 else -1]
            more = abs(x - at) * self.steepest
            return lo - more, hi + more
        (left, lo, hi), (right, next_lo, next_hi) = self.knots[index - 1], self.knots[index]
        share = (x - left) / (right - left)
        return _mixed(lo, next_lo, share), _mixed(hi, next_hi, share)

    def interval(self, wall: int, error: int = 0) -> tuple[int, int]:
        """When it was on the axis, as ts_wall says: at the earliest and the latest."""
        lo, hi = self._solved(wall, 1), self._solved(wall, 0)
        return (NEVER if lo == -inf else floor(lo), FOREVER if hi == inf else ceil(hi) + error)

    def _solved(self, wall: int, side: int) -> float:
        """x + offset(x) = wall: offsets change by less than 1/1000 of the time, so few rounds do."""
        low, high = self.bounds(wall)
        x = wall - (low + high) / 2 if abs(low) < inf and abs(high) < inf else float(wall)
        for _ in range(4):
            offset = self.bounds(x)[side]
            if abs(offset) == inf:
                return -offset
            if x == wall - offset:
                break
            x = wall - offset
        return x

    def line(self) -> tuple[float, float, float]:
        """(offset at the first knot, us per us, greatest error in us up to the last)."""
        if not self.knots or any(abs(lo) == inf or abs(hi) == inf for _, lo, hi in self.knots):
            return 0.0, 0.0, inf
        (t0, lo, hi), (t1, last_lo, last_hi) = self.knots[0], self.knots[-1]
        start, end = (lo + hi) / 2, (last_lo + last_hi) / 2
        slope = (end - start) / (t1 - t0) if t1 > t0 else 0.0
        lines = [(start + slope * (t - t0), low, high) for t, low, high in self.knots]
        return start, slope, max(max(value - low, high - value) for value, low, high in lines)

    def row(self) -> dict[str, Any]:
        """Of the table `clock_segments`; offset and error are None if unknown."""
        offset, slope, error = self.line()
        known = error < inf
        return {
            "node": self.node,
            "segment": self.number,
            "t0": self.begin,
            "t1": self.end,
            "offset_us": round(offset) if known else None,
            "drift_ppm": round(slope * 1e6, 3) if known else None,
            "err_us": ceil(error) if known else None,
            "evidence": {kind: str(count) for kind, count in sorted(self.evidence.items())},
            "notes": "; ".join(self.notes),
            "band": json.dumps([[t, _finite(lo), _finite(hi)] for t, lo, hi in self.knots]),
            "max_drift_ppm": self.steepest * 1e6,
        }


@dataclass(frozen=True)
class Clocks:
    """`dropped`: observations that contradict all others, in words."""

    reference: str
    segments: Mapping[str, Sequence[ClockSegment]]
    breaks: Sequence[Break] = ()
    dropped: Sequence[str] = ()

    def correct(self, event: Event) -> tuple[int, int, int]:
        """(ts_est, ts_lo, ts_hi): on the reference's clock.  Raises ValueError without ts_wall."""
        wall = event.get("ts_wall")
        if wall is None:
            raise ValueError(f"{event.get('file')}:{event.get('line_no')}: {event.get('kind')} has no ts_wall")
        segments = self._segments(event, wall)
        intervals = [segment.interval(wall, stamp_error(event)) for segment in segments]
        lo, hi = min(item[0] for item in intervals), max(item[1] for item in intervals)
        if lo > NEVER and hi < FOREVER:
            return (lo + hi) // 2, lo, hi
        return lo if lo > NEVER else hi if hi < FOREVER else wall, lo, hi

    def rows(self) -> list[dict[str, Any]]:
        return [segment.row() for node in sorted(self.segments) for segment in self.segments[node]]

    def _segments(self, event: Event, wall: int) -> Sequence[ClockSegment]:
        """The one, or those that it may be in."""
        all_ = self.segments.get(event.get("node") or "")
        if not all_:
            return [ClockSegment("", 0, wall, wall)]
        first, last = 0, 0
        for item in (item for item in self.breaks if item.node == event["node"]):
            side = _side(item, event, wall)
            first, last = first + (side == 1), last + (side >= 0)
        return all_[first : last + 1]

    @staticmethod
    def from_rows(rows: Iterable[Mapping[str, Any]], breaks: Sequence[Break] = ()) -> Clocks:
        """Of the table; rows in any order.  Without the breaks (steps told by CLOCK_MONOTONIC) times near a step are
        uncertain by it."""
        segments: dict[str, list[ClockSegment]] = defaultdict(list)
        reference = ""
        for row in sorted(rows, key=lambda row: (row["node"], row["segment"])):
            knots = tuple(
                (t, -inf if lo is None else lo, inf if hi is None else hi) for t, lo, hi in json.loads(row["band"])
            )
            notes = tuple(filter(None, row["notes"].split("; ")))
            evidence = {kind: int(count) for kind, count in row["evidence"].items()}
            span = (row["t0"], row["t1"])
            segments[row["node"]].append(
                ClockSegment(row["node"], row["segment"], *span, knots, row["max_drift_ppm"] / 1e6, evidence, notes)
            )
            reference = row["node"] if REFERENCE in notes else reference
        return Clocks(reference, segments, tuple(breaks) or _between(segments))


def of_moment(rows: Iterable[Mapping[str, Any]], moment: int) -> list[Mapping[str, Any]]:
    """Of rows of the table those that were solved together, nearest to a moment (µs): a table of several eras has of
    each node a segment 0 for each of them."""
    runs: dict[str, list[list[Mapping[str, Any]]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["t0"], row["segment"])):
        if not row["segment"] or not runs[row["node"]]:
            runs[row["node"]].append([])
        runs[row["node"]][-1].append(row)

    def away(run: Sequence[Mapping[str, Any]]) -> int:
        return max(int(run[0]["t0"]) - moment, moment - max(int(row["t1"]) for row in run), 0)

    return [row for of in runs.values() for row in min(of, key=away)]


def _side(item: Break, event: Event, wall: int) -> int:
    """-1 before the break, 1 behind it, 0 unknown."""
    mono = event.get("ts_mono")
    if item.mono and mono is not None and item.boot == (event.get("boot_id") or ""):
        return -1 if mono <= item.mono[0] else 1 if mono >= item.mono[1] else 0
    return -1 if wall < item.lo else 1 if wall > item.hi else 0


def _between(segments: Mapping[str, Sequence[ClockSegment]]) -> tuple[Break, ...]:
    """Breaks as far as the ends of segments tell."""
    return tuple(
        Break(node, after.begin, before.end, "step") for node, of in segments.items() for before, after in pairwise(of)
    )


def _mixed(one: float, other: float, share: float) -> float:
    """Unbounded if either end is."""
    return one if abs(one) == inf else other if abs(other) == inf else one + (other - one) * share


def _finite(value: float) -> float | None:
    return None if abs(value) == inf else round(value, 3)
