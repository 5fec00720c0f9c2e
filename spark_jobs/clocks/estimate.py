"""Offset and drift of every node's clock, with bounds of the error (pure).

The common time axis is the reference clock's: the node's with the most observations (of those that agree about the
hour), or a given one.  A clock is a row of *segments*, cut at steps and reboots (`clocks.steps`); within one it
differs from the reference by an unknown straight line, which `clocks.band` bounds for each pair of clocks.  At
some moments (knots) the bounds of all pairs together are difference constraints, and the shortest paths
from and to the reference are the tightest bounds that follow.  A line that is between bounds at two knots is between
them in between, too; beyond the last knot the bounds open with the greatest drift.

So what is stated is proven, if observations are right (nothing is received before it was sent, give or take its
slack), clocks run evenly between the steps that were found, and no two differ by more than `max_drift_ppm`.  A step
that fits into the bounds leaves no trace but in ts_mono; few and coarse observations hide many.  A clock that nothing
connects to the reference is unknown: its bounds are NEVER and FOREVER, never 0.

Times are us.  ts_est = ts_wall - offset.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, floor, inf
from typing import Any, Final

from spark_jobs.clocks.axis import ClockAxis, Layout
from spark_jobs.clocks.pairs import Observation, stamp_error
from spark_jobs.clocks.search import Search
from spark_jobs.clocks.steps import Break, Vertex, bands, distances, steps_of, weights
from spark_jobs.schema import Event

NEVER: Final = -(1 << 62)
FOREVER: Final = 1 << 62
AGREE: Final = 50_000
"""us between two clocks that are kept right by one service, at most."""
QUARTER: Final = 900_000_000
"""us: all zones differ by multiples of it."""
NEAR_QUARTER: Final = 60_000_000
"""us: a clock that is this near to whole quarters of an hour (but not to 0) is right, and its zone wrong."""
KNOTS: Final = 16
TRIED: Final = 4
"""Nodes that are tried as reference if the first one finds contradictions."""
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
            knots = tuple((t, -inf if lo is None else lo, inf if hi is None else hi) for t, lo, hi in _band(row))
            notes = tuple(filter(None, row["notes"].split("; ")))
            evidence = {kind: int(count) for kind, count in row["evidence"].items()}
            span = (row["t0"], row["t1"])
            segments[row["node"]].append(
                ClockSegment(row["node"], row["segment"], *span, knots, row["max_drift_ppm"] / 1e6, evidence, notes)
            )
            reference = row["node"] if REFERENCE in notes else reference
        return Clocks(reference, segments, tuple(breaks) or _between(segments))


REFERENCE: Final = "the reference"


def solve(
    found: Sequence[Observation],
    events: Iterable[Event] = (),
    reference: str | None = None,
    max_drift_ppm: float = MAX_DRIFT_PPM,
) -> Clocks:
    """The clocks of all nodes in `found` and `events`; `events` show steps (ts_mono) and how long clocks were read.

    Another reference is taken if `reference` was set at a time that only contradictions show: `Clocks.reference`.
    Raises ValueError for a reference that no row names.
    """
    rows = [event for event in events if event.get("ts_wall") is not None and event.get("node")]
    found = sorted(found)
    spans = _spans(found, rows)
    if reference is not None and reference not in spans:
        raise ValueError(f"reference clock {reference!r} wrote nothing; known: {', '.join(sorted(spans))}")
    if not spans:
        return Clocks(reference or "", {})
    steps = steps_of(rows)
    clocks = _solved(found, spans, steps, reference or _busiest(found, spans), max_drift_ppm)
    if reference is None and (better := _majority(clocks, found)) is not None:
        clocks = _solved(found, spans, steps, better, max_drift_ppm)
    if not any(item.axis for item in clocks.breaks) and not clocks.dropped:
        return clocks
    # if the measure itself was set, all others seem to have been: fewer repairs are the likelier story
    others = sorted(set(spans) - {clocks.reference}, key=lambda node: (-_count(found, node), node))[:TRIED]
    stories = [clocks, *(_solved(found, spans, steps, node, max_drift_ppm) for node in others)]
    best = min(stories, key=lambda story: len(story.breaks) + len(story.dropped))
    if any(item.axis and item.node == best.reference for item in best.breaks):
        best = _solved(found, spans, steps, _steady(best, found), max_drift_ppm)
    return best


def _steady(clocks: Clocks, found: Sequence[Observation]) -> str:
    """Instead of a reference that was itself set at an unknown time: the busiest node that was not."""
    nodes = set(clocks.segments) - {item.node for item in clocks.breaks}
    inside = [item for item in found if {item.sender, item.receiver} & nodes]
    return _busiest(inside, nodes) if nodes else clocks.reference


def _solved(
    found: Sequence[Observation],
    spans: Mapping[str, tuple[int, int]],
    steps: Sequence[Break],
    reference: str,
    max_drift_ppm: float,
) -> Clocks:
    search = Search(found, Layout(tuple(steps)), reference, max_drift_ppm / 1e6)
    search.run()
    axis = search.axis
    lines = bands(axis.seen, search.steepest)
    inner = _knots(axis, spans)
    edges = [(x, weights(lines, x)) for x in inner]
    reverse = [(x, {(head, tail): weight for (tail, head), weight in of.items()}) for x, of in edges]
    above = [(x, distances(of, axis.root)) for x, of in edges]
    below = [(x, distances(of, axis.root)) for x, of in reverse]
    segments = {
        node: [_segment((node, number), spans, search, axis, above, below) for number in range(axis.layout.count(node))]
        for node in spans
    }
    clocks = Clocks(reference, segments, axis.layout.breaks, tuple(search.dropped))
    return _walled(clocks)


def _segment(
    vertex: Vertex,
    spans: Mapping[str, tuple[int, int]],
    search: Search,
    axis: ClockAxis,
    above: Sequence[tuple[float, dict[Vertex, float]]],
    below: Sequence[tuple[float, dict[Vertex, float]]],
) -> ClockSegment:
    knots = tuple(
        (round(x) + axis.origin, -lows.get(vertex, inf), highs.get(vertex, inf))
        for (x, highs), (_, lows) in zip(above, below, strict=True)
        if vertex in highs or vertex in lows
    )
    evidence = Counter[str]()
    for item in axis.seen:
        if item.number >= 0 and vertex in (item.sender, item.receiver):
            evidence[search.found[item.number].kind] += search.found[item.number].count
    node, number = vertex
    notes = [REFERENCE] if vertex == axis.root else []
    notes += [search.notes[item] for item in axis.layout.of(node)[:number][-1:] if item in search.notes]
    steepest = 0.0 if vertex == axis.root else search.steepest
    whole = ClockSegment(node, number, *spans[node], knots, steepest, dict(evidence), tuple(notes))
    return replace(whole, notes=(*whole.notes, *_remarks(whole)))


def _remarks(segment: ClockSegment) -> list[str]:
    """Notes that a reader needs."""
    if not segment.knots:
        return ["unknown: nothing connects it with the reference"]
    offset, _, error = segment.line()
    if error == inf:
        return ["unknown: bounded from one side only"]
    quarters = round(offset / QUARTER)
    if quarters and abs(offset - quarters * QUARTER) <= NEAR_QUARTER:
        return [f"zone: {quarters / 4:+g} h (the rest is {(offset - quarters * QUARTER) / 1000:+.0f} ms)"]
    return []


def _walled(clocks: Clocks) -> Clocks:
    """Segments with their ends on the node's own clock; breaks of contradictions, too."""
    breaks = [_on_wall(item, clocks) if item.axis else item for item in clocks.breaks]
    segments = {}
    for node, of in clocks.segments.items():
        cuts = [item for item in breaks if item.node == node]
        begins = [of[0].begin, *(item.lo for item in cuts)]
        ends = [*(item.hi for item in cuts), of[-1].end]
        jumps = [_jump(cut, of[index], of[index + 1]) for index, cut in enumerate(cuts)]
        segments[node] = [
            replace(one, begin=begin, end=end, notes=(*one.notes, *(jumps[index - 1 : index] if index else ())))
            for index, (one, begin, end) in enumerate(zip(of, begins, ends, strict=True))
        ]
    return replace(clocks, segments=segments, breaks=tuple(breaks))


def _on_wall(item: Break, clocks: Clocks) -> Break:
    """What the node's clock showed at most before, and at least behind."""
    assert item.axis is not None
    of = clocks.segments[item.node]
    number = [other for other in clocks.breaks if other.node == item.node].index(item)
    before, behind = of[number], of[number + 1]
    first, last = item.axis
    # a message that was under way when the clock was set is placed by its other end
    if item.walls[0] is not None:
        first = min(first, item.walls[0] - before.bounds(first)[1])
    if item.walls[1] is not None:
        last = max(last, item.walls[1] - behind.bounds(last)[0])
    latest, earliest = last + before.bounds(last)[1], first + behind.bounds(first)[0]
    if abs(latest) == inf or abs(earliest) == inf:
        return replace(item, lo=NEVER, hi=FOREVER)
    return replace(item, lo=floor(min(latest, earliest)), hi=ceil(max(latest, earliest)))


def _jump(cut: Break, before: ClockSegment, behind: ClockSegment) -> str:
    """In words."""
    at = cut.axis[1] if cut.axis else cut.hi
    (lo, hi), (next_lo, next_hi) = before.bounds(at), behind.bounds(at)
    if cut.jump is not None:
        size: float = cut.jump
    elif abs(lo) < inf and abs(hi) < inf and abs(next_lo) < inf and abs(next_hi) < inf:
        size = (next_lo + next_hi - lo - hi) / 2
    else:
        return cut.why
    quarters = round(size / QUARTER)
    zone = " (a change of its zone)" if quarters and abs(size - quarters * QUARTER) < NEAR_QUARTER else ""
    return f"{cut.why}: {'step of ' if cut.why != 'reboot' else ''}{size / 1e6:+.3f} s{zone}"


def _side(item: Break, event: Event, wall: int) -> int:
    """-1 before the break, 1 behind it, 0 unknown."""
    mono = event.get("ts_mono")
    if item.mono and mono is not None and item.boot == (event.get("boot_id") or ""):
        return -1 if mono <= item.mono[0] else 1 if mono >= item.mono[1] else 0
    return -1 if wall < item.lo else 1 if wall > item.hi else 0


def _knots(axis: ClockAxis, spans: Mapping[str, tuple[int, int]]) -> list[float]:
    """Evenly over the time of the observations."""
    times = [item.x for item in axis.seen] or [0.0]
    first, last = min(times), max(times)
    return sorted({float(round(first + (last - first) * index / KNOTS)) for index in range(KNOTS + 1)})


def _spans(found: Sequence[Observation], rows: Sequence[Event]) -> dict[str, tuple[int, int]]:
    """The first and the last reading of each node's clock."""
    readings = [(item.sender, item.sent) for item in found] + [(item.receiver, item.received) for item in found]
    spans: dict[str, tuple[int, int]] = {}
    for node, wall in readings + [(row["node"], row["ts_wall"]) for row in rows]:
        first, last = spans.get(node, (wall, wall))
        spans[node] = (min(first, wall), max(last, wall))
    return dict(sorted(spans.items()))


def _busiest(found: Sequence[Observation], nodes: Iterable[str]) -> str:
    return min(nodes, key=lambda node: (-_count(found, node), node))


def _count(found: Sequence[Observation], node: str) -> int:
    return sum(item.count for item in found if node in (item.sender, item.receiver))


def _majority(clocks: Clocks, found: Sequence[Observation]) -> str | None:
    """A better reference if more clocks agree, within their errors, with each other than with the chosen one."""
    known = {node: of[0].line() for node, of in clocks.segments.items()}
    spans = {node: (at - error - AGREE, at + error + AGREE) for node, (at, _, error) in known.items() if error < inf}
    groups = [[node for node, (low, high) in spans.items() if low <= at <= high] for at, _ in spans.values()]
    most = max(groups, key=len, default=[])
    if len(most) <= max((len(group) for group in groups if clocks.reference in group), default=0):
        return None
    return _busiest([item for item in found if {item.sender, item.receiver} & set(most)], most)


def _between(segments: Mapping[str, Sequence[ClockSegment]]) -> tuple[Break, ...]:
    """Breaks as far as the ends of segments tell."""
    return tuple(
        Break(node, after.begin, before.end, "step") for node, of in segments.items() for before, after in pairwise(of)
    )


def _band(row: Mapping[str, Any]) -> list[tuple[int, float | None, float | None]]:
    return [(t, lo, hi) for t, lo, hi in json.loads(row["band"])]


def _mixed(one: float, other: float, share: float) -> float:
    """Unbounded if either end is."""
    return one if abs(one) == inf else other if abs(other) == inf else one + (other - one) * share


def _finite(value: float) -> float | None:
    return None if abs(value) == inf else round(value, 3)
