"""Offset and drift of every node's clock, with bounds of the error (pure).

The common time axis is the reference clock's: the node's with the most observations (of those that agree about the
hour), or a given one.  Within a segment (`clocks.segments`) a clock differs from the reference by an unknown straight
line, which `clocks.band` bounds for each pair of clocks.  At some moments (knots) the bounds of all pairs together are
difference constraints, and the shortest paths from and to the reference are the tightest bounds that follow.

So what is stated is proven, if observations are right (nothing is received before it was sent, give or take its
slack), clocks run evenly between the steps that were found, and no two differ by more than `max_drift_ppm`.  A step
that fits into the bounds leaves no trace but in ts_mono; few and coarse observations hide many.

Times are us.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor, inf
from typing import Final

from spark_jobs.clocks.axis import ClockAxis, Layout
from spark_jobs.clocks.pairs import Observation
from spark_jobs.clocks.search import Search
from spark_jobs.clocks.segments import FOREVER, MAX_DRIFT_PPM, NEVER, REFERENCE, Clocks, ClockSegment
from spark_jobs.clocks.steps import Break, Vertex, bands, distances, steps_of, weights
from spark_jobs.schema import Event

AGREE: Final = 50_000
"""us between two clocks that are kept right by one service, at most."""
QUARTER: Final = 900_000_000
"""us: all zones differ by multiples of it."""
NEAR_QUARTER: Final = 60_000_000
"""us: a clock that is this near to whole quarters of an hour (but not to 0) is right, and its zone wrong."""
KNOTS: Final = 16
TRIED: Final = 4
"""Nodes that are tried as reference if the first one finds contradictions."""


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
    inner = _knots(axis)
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


def _knots(axis: ClockAxis) -> list[float]:
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
