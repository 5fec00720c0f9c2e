"""Quantiles of a few dozen values, with an interval that also takes in how well each value is known (pure).

A quantile is the exact one, interpolated linearly between neighbours (type 7: Spark's `percentile`, DuckDB's
`quantile_cont`).  Its interval is that of the bootstrap: what the quantile of n values drawn again with replacement is
in the middle 95 % of cases.  The r-th smallest of such a draw is the value at place ceil(n U), where U is the r-th
smallest of n numbers from (0, 1), so U is drawn from its own (beta) distribution, and n values need not be drawn.

Each value has bounds (the clocks' error): the lower end of the interval is taken from the lower bounds, the upper one
from the upper ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

COVERED: Final = 0.95
SMALLEST: Final = 5
"""Fewer values have no interval: a draw of them would only repeat them."""


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of values in order, at least one."""
    return _between(ordered, *_place(len(ordered), share))


def interval(
    lower: Sequence[float], upper: Sequence[float], share: float, seed: int, resamples: int
) -> tuple[float, float] | None:
    """Of the quantile of values with these bounds, each list in order; None for fewer than SMALLEST."""
    if len(lower) < SMALLEST:
        return None
    drawn = _draws(len(lower), share, seed, resamples)
    weight = _place(len(lower), share)[2]
    least = sorted(_between(lower, low, high, weight) for low, high in drawn)
    most = sorted(_between(upper, low, high, weight) for low, high in drawn)
    tail = (1 - COVERED) / 2
    return quantile(least, tail), quantile(most, 1 - tail)


def firm(number: int, share: float) -> bool:
    """True if a value is expected beyond the quantile; otherwise it is hardly more than the greatest value."""
    return number * (1 - share) >= 1


def _place(number: int, share: float) -> tuple[int, int, float]:
    """(place below, place above, weight of the latter), from 0."""
    height = (number - 1) * share
    low = math.floor(height)
    return low, min(low + 1, number - 1), height - low


def _between(ordered: Sequence[float], low: int, high: int, weight: float) -> float:
    return ordered[low] + (ordered[high] - ordered[low]) * weight if weight else ordered[low]


@lru_cache(maxsize=1024)
def _draws(number: int, share: float, seed: int, resamples: int) -> tuple[tuple[int, int], ...]:
    """Places of the two neighbours in the ordered values, for each draw."""
    chance = random.Random(f"{seed} {number} {share}")
    rank = _place(number, share)[0] + 1
    found = []
    for _ in range(resamples):
        one = chance.betavariate(rank, number - rank + 1)
        left = number - rank
        other = 1 - (1 - one) * chance.random() ** (1 / left) if left else one
        found.append((_index(one, number), _index(other, number)))
    return tuple(found)


def _index(uniform: float, number: int) -> int:
    return min(number, max(1, math.ceil(uniform * number))) - 1
