"""The corrected time of every row, for the big queries.

A clock's correction is piecewise linear in what the clock shows.  `pieces` draws it with as few lines as do, `timed`
is the query.  A node whose clock is right or unknown has no piece: its time is used as written.

A clock that was set back shows a time twice.  Rows of a boot in which CLOCK_MONOTONIC told the step are on the side of
it that their ts_mono says; all others are divided in the middle of what is uncertain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from spark_jobs.clocks.segments import FOREVER, NEVER, Clocks, ClockSegment
from spark_jobs.clocks.steps import REBOOT, Break

RIGHT: Final = 2_000
"""µs: a clock that is off by less counts as right."""
STRAIGHT: Final = 100
"""µs: the lines are that near to the correction."""
PIECES: Final = (
    "cluster string, node string, w0 bigint, w1 bigint, boot string, m0 bigint, m1 bigint, except_boots string, "
    "offset_us bigint, slope double"
)
Row = dict[str, Any]
Place = tuple[Row, int, int]
"""(columns that say on which clock, ts_wall from, until)"""
Point = tuple[int, int]
"""(ts_wall, offset), µs"""


def pieces(clocks: Clocks, cluster: str = "") -> list[Row]:
    """Rows of PIECES: at ts_wall in [w0, w1) the clock is ahead by offset_us + slope * (ts_wall - w0); with `boot` only
    rows of that boot with ts_mono in [m0, m1), else only those that are not of `except_boots`."""
    found: list[Row] = []
    for node, segments in clocks.segments.items():
        curves = [_points(segment) for segment in segments]
        if all(abs(offset) <= RIGHT for curve in curves for _, offset in curve):
            continue
        breaks = [item for item in clocks.breaks if item.node == node]
        for curve, where in zip(curves, _places(breaks), strict=True):
            lines = [{**place, **line} for place, begin, end in where for line in _lines(curve, begin, end)]
            found += [{"cluster": cluster, "node": node, **line} for line in lines]
    return found


def _places(breaks: Sequence[Break]) -> list[list[Place]]:
    """Of each segment, so that no row is in two: on the wall clock, and on monotonic clocks that told its ends.

    Those are left alone if there is another step, of which they know nothing."""
    told = {item.boot for item in breaks if item.mono}
    if any(item.why != REBOOT and not (item.mono and item.boot) for item in breaks):
        told = set()
    walls = {"boot": "", "m0": NEVER, "m1": FOREVER, "except_boots": " ".join(sorted(told))}
    cuts = accumulate(((item.lo + item.hi) // 2 + 1 for item in breaks), max)
    places: list[list[Place]] = [[(walls, begin, end)] for begin, end in pairwise([NEVER, *cuts, FOREVER])]
    for boot in sorted(told):
        inside = [number for number, item in enumerate(breaks) if item.boot == boot and item.mono]
        ends = accumulate((item.mono[1] for item in breaks if item.boot == boot and item.mono), max)
        for number, (begin, end) in zip(
            [inside[0], *(n + 1 for n in inside)], pairwise([NEVER, *ends, FOREVER]), strict=True
        ):
            places[number].append(({"boot": boot, "m0": begin, "m1": end, "except_boots": ""}, NEVER, FOREVER))
    return places


def timed(events: str, found: Iterable[Row]) -> str:
    """All rows, with ts_est (µs).  View `clock_pieces`: `found`, of which boots are only asked if one of them is told:
    this is the dearest join of all, and half as dear by one number as by two names.  (floor: Spark rounds by way of
    decimal numbers.)"""
    boots = """
  and case when k.boot <> '' then v.boot_id = k.boot and v.ts_mono >= k.m0 and v.ts_mono < k.m1
    else v.ts_mono is null or coalesce(v.boot_id, '') = '' or instr(k.except_boots, v.boot_id) = 0 end"""
    told = boots if any(piece["boot"] or piece["except_boots"] for piece in found) else ""
    return f"""
select v.*, v.ts_wall - coalesce(k.offset_us + cast(floor((v.ts_wall - k.w0) * k.slope + 0.5) as bigint), 0) as ts_est
from {events} as v
left join (select *, xxhash64(cluster, node) as clock from clock_pieces) as k
  on k.clock = xxhash64(coalesce(v.cluster, ''), v.node) and v.ts_wall >= k.w0 and v.ts_wall < k.w1{told}"""


def _points(segment: ClockSegment) -> list[Point]:
    """As `Clocks.correct` has it; empty if the clock is unknown."""
    found = []
    for x, lo, hi in segment.knots:
        wall = round(x + (lo + hi) / 2) if abs(lo + hi) < FOREVER else x
        earliest, latest = segment.interval(wall, 1)
        if earliest > NEVER or latest < FOREVER:
            known = [moment for moment in (earliest, latest) if NEVER < moment < FOREVER]
            est = (earliest + latest) // 2 if len(known) == 2 else known[0]
            found.append((wall, wall - est))
    return sorted(found)


def _lines(curve: Sequence[Point], begin: int, end: int) -> Iterable[Row]:
    """From `begin` to `end`; beyond the first and the last point the offset stays as it is."""
    if not curve:
        return
    corners = [curve[0], *_corners(curve)]
    starts: list[tuple[int, int, float]] = [(begin, curve[0][1], 0.0)]
    for (wall, offset), (next_wall, next_offset) in pairwise(corners):
        starts.append((wall, offset, (next_offset - offset) / (next_wall - wall)))
    starts.append((corners[-1][0], corners[-1][1], 0.0))
    for (wall, offset, slope), next_wall in zip(starts, [start[0] for start in starts[1:]] + [end], strict=True):
        low, high = max(wall, begin), min(next_wall, end)
        if low < high:
            yield {"w0": low, "w1": high, "offset_us": offset + round(slope * (low - wall)), "slope": slope}


def _corners(curve: Sequence[Point]) -> Iterable[Point]:
    """Of each line the last point that it reaches without leaving the points between by more than STRAIGHT."""
    first = 0
    while first < len(curve) - 1:
        last = first + 1
        while last + 1 < len(curve) and _is_straight(curve[first : last + 2]):
            last += 1
        yield curve[last]
        first = last


def _is_straight(points: Sequence[Point]) -> bool:
    (wall, offset), (last_wall, last_offset) = points[0], points[-1]
    if last_wall == wall:
        return True
    slope = (last_offset - offset) / (last_wall - wall)
    return all(abs(offset + slope * (at - wall) - value) <= STRAIGHT for at, value in points)
