"""Where a node's clock was set: from its own two clocks, and from observations that no steady clock allows (pure).

**Wall against monotonic.**  CLOCK_MONOTONIC is never set, and NTP slews both clocks alike, so wall minus mono of one
boot is constant except for steps.  One reading may be late (the process lost the CPU between its two looks), so a
step counts if the next readings agree.  A reboot begins a new segment: the clock may have been set meanwhile.

**Contradictions.**  If no straight lines fit to the observations (a band is empty, or bounds around a cycle of nodes
add up to less than 0), something is not steady.  The shortest stretch of time that has such a contradiction holds a
step.  Whose it is: that node's whose split lets the lines go on furthest.  A single observation whose removal repairs
more than any split is a wrong pair, and dropped.  Both are told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from statistics import median
from typing import Final

from spark_jobs.clocks.band import ClockBand
from spark_jobs.schema import Event

SMALLEST: Final = 5_000
"""us: smaller jumps of wall against mono are taken for late readings."""
AGREEING: Final = 3
UNEVEN: Final = 5e-4
"""us per us that wall and mono of a made-up or virtual clock may run apart without a step"""
READING: Final = 2_000
"""us: of a step that wall and mono show"""
TOLERANCE: Final = 1e-3
"""us: around a cycle, of floats"""
REBOOT: Final = "reboot"
Vertex = tuple[str, int]
"""(node, segment)"""


@dataclass(frozen=True)
class Break:
    """Of `node`'s clock.  Rows with ts_wall < lo are before, > hi behind; between them either (us).

    `boot`, `mono`: the last reading before and the first behind, if known.  `axis`: the same stretch on the common
    time axis, if it was found by a contradiction, with `walls`: what the clock showed in the observations at its ends.
    `jump`: us, forward is positive, give or take `jump_error`."""

    node: str
    lo: int
    hi: int
    why: str
    jump: int | None = None
    boot: str = ""
    mono: tuple[int, int] | None = None
    axis: tuple[float, float] | None = None
    walls: tuple[int | None, int | None] = (None, None)
    jump_error: int = 0


@dataclass(frozen=True)
class Seen:
    """An observation on the common axis: offset(receiver) - offset(sender) <= bound at `x`."""

    x: float
    sender: Vertex
    receiver: Vertex
    bound: float
    number: int


def steps_of(events: Iterable[Event]) -> list[Break]:
    """All steps and reboots that the nodes' own rows show."""
    boots: dict[str, dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event.get("ts_mono") is not None and event.get("ts_wall") is not None and event.get("node"):
            boots[event["node"]][event.get("boot_id") or ""].append(event)
    found: list[Break] = []
    for node, of in boots.items():
        for boot, rows in of.items():
            found += _jumps(node, boot, sorted((row["ts_mono"], row["ts_wall"]) for row in rows))
        found += _reboots(node, of)
    return sorted(found, key=lambda item: (item.node, item.lo, item.hi))


def _jumps(node: str, boot: str, readings: Sequence[tuple[int, int]]) -> list[Break]:
    levels = [wall - mono for mono, wall in readings]
    found: list[Break] = []
    begin = 0
    for index in range(1, len(levels)):
        earliest = max(begin, index - 2 * AGREEING)
        known, after = median(levels[earliest:index]), levels[index : index + AGREEING]
        span = readings[min(index + AGREEING, len(levels)) - 1][0] - readings[earliest][0]
        smallest = SMALLEST + span * UNEVEN
        if min(abs(level - known) for level in after) >= smallest >= max(after) - min(after):
            error = round(READING + span * UNEVEN)
            found.append(_break(node, boot, readings[index - 1], readings[index], round(median(after) - known), error))
            begin = index
    return found


def _break(node: str, boot: str, last: tuple[int, int], first: tuple[int, int], jump: int, jump_error: int) -> Break:
    """Between two readings (mono, wall); a writer between them may have shown more or less by their distance."""
    gap = first[0] - last[0]
    lo, hi = sorted((first[1] - gap, last[1] + gap))
    return Break(node, lo, hi, "wall against monotonic", jump, boot, (last[0], first[0]), jump_error=jump_error)


def _reboots(node: str, boots: dict[str, list[Event]]) -> list[Break]:
    spans = sorted(
        (min(row["ts_wall"] for row in rows), max(row["ts_wall"] for row in rows))
        for boot, rows in boots.items()
        if boot not in ("", "unknown")
    )
    found = []
    for (begin, end), (next_begin, next_end) in pairwise(spans):
        if begin < next_begin and end < next_end:  # else two machines share the name: no order between their boots
            found.append(Break(node, min(end + 1, next_begin), max(end, next_begin - 1), REBOOT))
    return found


def bands(seen: Iterable[Seen], steepest: float) -> dict[tuple[Vertex, Vertex], ClockBand]:
    """Of each unordered pair: offset(second) - offset(first)."""
    above: dict[tuple[Vertex, Vertex], list[tuple[float, float]]] = defaultdict(list)
    below: dict[tuple[Vertex, Vertex], list[tuple[float, float]]] = defaultdict(list)
    for item in seen:
        if item.sender < item.receiver:
            above[item.sender, item.receiver].append((item.x, item.bound))
        else:
            below[item.receiver, item.sender].append((item.x, -item.bound))
    return {key: ClockBand.of(above[key], below[key], steepest) for key in sorted({*above, *below})}


def weights(of: dict[tuple[Vertex, Vertex], ClockBand], x: float) -> dict[tuple[Vertex, Vertex], float]:
    """offset(v) - offset(u) <= weights[u, v] at `x`."""
    found = {}
    for (first, second), band in of.items():
        found[first, second], found[second, first] = band.upper(x), -band.lower(x)
    return {edge: weight for edge, weight in found.items() if weight < inf}


def distances(edges: dict[tuple[Vertex, Vertex], float], start: Vertex) -> dict[Vertex, float]:
    """Bellman and Ford: the tightest bound of offset(v) - offset(start); `edges` have no negative cycle."""
    found = {start: 0.0}
    for _ in range(len({vertex for edge in edges for vertex in edge})):
        changed = False
        for (tail, head), weight in edges.items():
            if tail in found and found[tail] + weight < found.get(head, inf) - TOLERANCE:
                found[head], changed = found[tail] + weight, True
        if not changed:
            break
    return found


def negative_cycle(edges: dict[tuple[Vertex, Vertex], float]) -> set[Vertex]:
    """The vertices of one; empty if there is none."""
    distance = dict.fromkeys(sorted({vertex for edge in edges for vertex in edge}), 0.0)
    before: dict[Vertex, Vertex] = {}
    last = None
    for _ in range(len(distance) + 1):
        last = None
        for (tail, head), weight in edges.items():
            if distance[tail] + weight < distance[head] - TOLERANCE:
                distance[head], before[head], last = distance[tail] + weight, tail, head
        if last is None:
            return set()
    assert last is not None
    for _ in distance:
        last = before[last]
    cycle = {last}
    while (last := before[last]) not in cycle:
        cycle.add(last)
    return cycle


def contradiction(seen: Sequence[Seen], steepest: float, knots: int = 5) -> set[Vertex]:
    """Vertices whose offsets cannot all be straight lines; empty if they can."""
    if not seen:
        return set()
    of = bands(seen, steepest)
    for pair, band in of.items():
        if not band.feasible:
            return set(pair)
    if len({vertex for pair in of for vertex in pair}) < 3:
        return set()
    first, last = min(item.x for item in seen), max(item.x for item in seen)
    for index in range(knots):
        if cycle := negative_cycle(weights(of, first + (last - first) * index / (knots - 1))):
            return cycle
    return set()


def first_clash(seen: Sequence[Seen], steepest: float) -> tuple[int, int] | None:
    """The shortest stretch (indices, inclusive) of those that end first; `seen` by x."""
    if not contradiction(seen, steepest):
        return None
    end = _bisect(len(seen), lambda count: bool(contradiction(seen[:count], steepest)))
    begin = end - _bisect(end, lambda count: bool(contradiction(seen[end - count : end], steepest)))
    return begin, end - 1


def _bisect(most: int, holds: Callable[[int], bool]) -> int:
    """The least number in 1..most for which it holds; it holds for `most` and for all above the first."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
