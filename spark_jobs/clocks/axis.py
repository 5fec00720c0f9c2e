"""Observations on one time axis, given the breaks that are known (pure).

The axis is the clock of the root: the reference's segment with most observations, its first reading as origin.  Where
on the axis an observation lies is needed to about a second for the search of steps, and later to less than the error
of its sender's clock, which changes a bound by no more than drift times that.  So rough, constant offsets come first:
along the strongest pairs, each the middle of the shortest delays both ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from spark_jobs.clocks.pairs import Observation
from spark_jobs.clocks.steps import Break, Seen, Vertex

FAR: Final = 1_000_000.0
"""us that a rough offset may be off where messages went one way only"""


@dataclass(frozen=True)
class Layout:
    """The breaks of all clocks, each node's in the order of time."""

    breaks: tuple[Break, ...] = ()

    def of(self, node: str) -> list[Break]:
        return [item for item in self.breaks if item.node == node]

    def count(self, node: str) -> int:
        return len(self.of(node)) + 1

    def segment(self, node: str, wall: int, x: float | None = None, coarse: int = 0) -> int | None:
        """The segment of a reading; None if a break may be on either side of it.  `coarse`: us that x may be early."""
        number = 0
        for item in self.of(node):
            if item.axis is not None:
                if x is None:
                    return None
                place, (lo, hi) = x, item.axis
                behind, before = place >= hi, place + coarse <= lo
            else:
                behind, before = wall > item.hi, wall < item.lo
            if behind == before:
                return None
            number += behind
        return number


@dataclass(frozen=True)
class ClockAxis:
    """`rough`: offsets of vertices, us; `seen`: the observations that can be used, by x (from the origin)."""

    layout: Layout
    root: Vertex
    origin: int
    rough: dict[Vertex, float]
    seen: Sequence[Seen]


def axis_of(
    found: Sequence[Observation], layout: Layout, reference: str, steepest: float, suspect: str | None = None
) -> ClockAxis:
    """`found` without those that were dropped; `steepest`: us per us; `suspect`: a node whose clock may have been set,
    so that others tell the time where they can."""
    doubtful = {item.node for item in layout.breaks if item.axis} | {suspect}
    origin = min((item.sent for item in found), default=0)
    tells = _teller(doubtful, reference)
    placed = _placed(found, layout, tells, _Rough({}, {}))
    root = _root(placed, reference)
    rough = _Rough({}, {})
    for _ in range(2):
        rough = _rough(found, placed, layout, root, doubtful)
        placed = _placed(found, layout, tells, rough)
    span = max((item.sent for item in found), default=0) - origin
    seen = []
    for number, (sender, receiver, x) in placed.items():
        item = found[number]
        told = sender if tells(item) else receiver
        unsure = 0.0 if told == root else rough.errors.get(told, FAR) + steepest * span
        seen.append(Seen(x - origin, sender, receiver, item.bound + steepest * unsure, number))
    seen += _known_jumps(layout, rough, origin)
    return ClockAxis(layout, root, origin, rough.offsets, sorted(seen, key=lambda item: (item.x, item.number)))


@dataclass(frozen=True)
class _Rough:
    """us, of the vertices that are connected with the root"""

    offsets: dict[Vertex, float]
    errors: dict[Vertex, float]


Placed = dict[int, tuple[Vertex, Vertex, float]]
"""Number of an observation -> sender, receiver, absolute time on the axis"""


def _teller(doubtful: Collection[str | None], reference: str) -> Callable[[Observation], bool]:
    """True if an observation's sender gives its time, otherwise its receiver does.  The reference comes first, then
    nodes without breaks that contradictions found, since readings do not show on which side of such a break they are.
    Either is correct: bounds hold at any moment between sending and receiving."""

    def rank(node: str) -> tuple[bool, bool]:
        return node in doubtful, node != reference

    return lambda item: rank(item.sender) <= rank(item.receiver)


def _placed(
    found: Sequence[Observation], layout: Layout, tells: Callable[[Observation], bool], rough: _Rough
) -> Placed:
    placed: Placed = {}
    coarse = resolutions(found)
    for number, item in enumerate(found):
        node, wall = (item.sender, item.sent) if tells(item) else (item.receiver, item.received)
        early = coarse.get(node, 1) - 1
        segment = layout.segment(node, wall, wall - rough.offsets.get((node, 0), 0.0), early)
        if segment is None:
            continue
        x = wall - rough.offsets.get((node, segment), 0.0)
        sender = layout.segment(item.sender, item.sent, x, early)
        receiver = layout.segment(item.receiver, item.received, x, early)
        if sender is not None and receiver is not None:
            placed[number] = (item.sender, sender), (item.receiver, receiver), x
    return placed


def resolutions(found: Sequence[Observation]) -> dict[str, int]:
    """us, of each node's stamps: the least slack of what it received."""
    least: dict[str, int] = {}
    for item in found:
        least[item.receiver] = min(item.slack, least.get(item.receiver, item.slack))
    return least


def _root(placed: Placed, reference: str) -> Vertex:
    counts = Counter(vertex for ends in placed.values() for vertex in ends[:2] if vertex[0] == reference)
    return min(counts, key=lambda vertex: (-counts[vertex], vertex), default=(reference, 0))


def _rough(
    found: Sequence[Observation], placed: Placed, layout: Layout, root: Vertex, doubtful: Collection[str | None]
) -> _Rough:
    """From the root along pairs with observations both ways, most first; then along the others."""
    least: dict[tuple[Vertex, Vertex], int] = {}
    counts: Counter[frozenset[Vertex]] = Counter()
    for number, (sender, receiver, _) in placed.items():
        bound = found[number].bound
        least[sender, receiver] = min(bound, least.get((sender, receiver), bound))
        counts[frozenset((sender, receiver))] += 1
    for item, before, after in _jumps(layout):
        least[before, after], least[after, before] = item, -item
        counts[frozenset((before, after))] += 1
    offsets, errors = {root: 0.0}, {root: 0.0}
    while True:
        ways = [
            (
                (after, before) not in least or (before, after) not in least,
                before[0] in doubtful,
                -counts[pair],
                before,
                after,
            )
            for pair in counts
            for before in pair
            for after in pair - {before}
            if before in offsets and after not in offsets
        ]
        if not ways:
            return _Rough(offsets, errors)
        one_way, _, _, before, after = min(ways)
        high, low = least.get((before, after)), least.get((after, before))
        middle, error = (_both(high, low), FAR) if one_way else ((high - low) / 2, abs(high + low) / 2)  # type: ignore[operator]
        offsets[after], errors[after] = offsets[before] + middle, errors[before] + error


def _both(high: int | None, low: int | None) -> float:
    """Of the bound that there is."""
    return float(high if high is not None else -(low or 0))


def _jumps(layout: Layout) -> list[tuple[int, Vertex, Vertex]]:
    """Known ones: (us, segment before, segment behind)."""
    return [
        (item.jump, (node, number), (node, number + 1))
        for node in sorted({item.node for item in layout.breaks})
        for number, item in enumerate(layout.of(node))
        if item.jump is not None
    ]


def _known_jumps(layout: Layout, rough: _Rough, origin: int) -> list[Seen]:
    """Both segments are of one clock: what CLOCK_MONOTONIC says about the step binds them."""
    found = []
    for jump, before, after in _jumps(layout):
        item = layout.of(before[0])[before[1]]
        if before in rough.offsets:
            x = item.lo - rough.offsets[before] - origin
            found.append(Seen(x, before, after, jump + item.jump_error, -1))
            found.append(Seen(x, after, before, item.jump_error - jump, -1))
    return found
