"""The band of straight lines that fits between bounds from above and from below (pure).

Two clocks that run evenly differ by a line  d(t) = c + m t.  An observation one way says d(t_i) <= u_i, the other way
d(t_j) >= l_j; and |m| <= M, because no clock is worse.  The lines that keep all of it are a convex polygon in (m, c).
For one m the best c is  f(m) = min(u_i - m t_i)  from above and  g(m) = max(l_j - m t_j)  from below.  f is concave and
bends only at the slopes of the lower convex hull of the points (t_i, u_i), g is convex and bends at those of the upper
hull of (t_j, l_j): so the few points of the hulls are all that counts.

    upper(t) = max f(m) + m t,  lower(t) = min g(m) + m t   over the m with f(m) >= g(m)

Times and bounds are us; slopes us per us.  Floats: an error of 1e-3 us in a day is far below the 1 us that is allowed
for rounding (`ROUNDING`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Final

ROUNDING: Final = 1.0
Point = tuple[float, float]


def lower_hull(points: Iterable[Point]) -> list[Point]:
    """From left to right, the points that a string from below would touch."""
    hull: list[Point] = []
    for point in sorted(points):
        while hull and point[0] == hull[-1][0] and point[1] >= hull[-1][1]:
            break
        else:
            while len(hull) > 1 and _turns_down(hull[-2], hull[-1], point):
                hull.pop()
            hull.append(point)
    return hull


def _turns_down(first: Point, middle: Point, last: Point) -> bool:
    """True if the middle one is on or above the line between the others."""
    return (middle[1] - first[1]) * (last[0] - first[0]) >= (last[1] - first[1]) * (middle[0] - first[0])


@dataclass(frozen=True)
class ClockBand:
    """`above`, `below`: hulls; `steepest`: M."""

    above: Sequence[Point]
    below: Sequence[Point]
    steepest: float

    @staticmethod
    def of(uppers: Iterable[Point], lowers: Iterable[Point], steepest: float) -> ClockBand:
        """`uppers`: (t, u) with d(t) <= u; `lowers`: (t, l) with d(t) >= l."""
        upside_down = lower_hull((t, -value) for t, value in lowers)
        return ClockBand(lower_hull(uppers), [(t, -value) for t, value in upside_down], steepest)

    @cached_property
    def slopes(self) -> list[float]:
        """The feasible slopes where something bends, with the first and the last; empty if no line fits."""
        edges = [*_edges(self.above), *_edges(self.below)]
        inside = sorted({slope for slope in edges if abs(slope) < self.steepest})
        bends = [-self.steepest, *inside, self.steepest]
        room = [self._highest(slope) - self._lowest(slope) + ROUNDING for slope in bends]
        found = [slope for slope, gap in zip(bends, room, strict=True) if gap >= 0]
        for (left, gap), (right, other) in pairwise(zip(bends, room, strict=True)):
            if (gap < 0) != (other < 0):
                found.append(left + (right - left) * gap / (gap - other))
        return sorted(found)

    @property
    def feasible(self) -> bool:
        return bool(self.slopes)

    def upper(self, t: float) -> float:
        """Of all fitting lines the highest value at `t`; inf without bounds from above."""
        return max(self._highest(slope) + slope * t for slope in self.slopes) + ROUNDING

    def lower(self, t: float) -> float:
        """Of all fitting lines the lowest value at `t`; -inf without bounds from below."""
        return min(self._lowest(slope) + slope * t for slope in self.slopes) - ROUNDING

    def _highest(self, slope: float) -> float:
        return min((value - slope * t for t, value in self.above), default=inf)

    def _lowest(self, slope: float) -> float:
        return max((value - slope * t for t, value in self.below), default=-inf)


def _edges(hull: Sequence[Point]) -> list[float]:
    return [(right[1] - left[1]) / (right[0] - left[0]) for left, right in pairwise(hull)]
