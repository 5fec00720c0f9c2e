"""How long until it is over, when some of it never was (pure): Kaplan and Meier's estimate.

Of an incident that had not recovered when its logs ended, it is known that it took at least that long.  To leave it
out makes a fleet look better than it is.  S(t), the share that is not over after t, falls at each end by 1 / (number of
those that were still going on).  Its interval is Greenwood's on the log-log scale, which stays between 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

_Z: Final = 1.959964
"""Of the normal distribution: 95 % in the middle."""


@dataclass(frozen=True)
class Step:
    """After `at` (us) the share `open` is not over, within [low, high]; `at_risk` were still going on just before."""

    at: int
    open: float
    low: float
    high: float
    at_risk: int


def curve(times: Iterable[tuple[int, bool]]) -> list[Step]:
    """`times`: (us, is it over?), where an open one is known to have taken so long at least.  Steps by time."""
    ordered = sorted(times, key=lambda item: (item[0], not item[1]))
    at_risk, share, variance = len(ordered), 1.0, 0.0
    found = []
    for at, group in groupby(ordered, key=lambda item: item[0]):
        ends = [over for _, over in group]
        over = sum(ends)
        if over:
            share *= 1 - over / at_risk
            variance += over / (at_risk * (at_risk - over)) if at_risk > over else math.inf
            found.append(Step(at, share, *_limits(share, variance), at_risk))
        at_risk -= len(ends)
    return found


def _limits(share: float, variance: float) -> tuple[float, float]:
    if share <= 0:
        return 0.0, 0.0
    width = _Z * math.sqrt(variance) / abs(math.log(share))
    return share ** math.exp(width), share ** math.exp(-width)


def reached(steps: Sequence[Step], share: float) -> int | None:
    """us after which that share was over; None if it never came to that."""
    return next((step.at for step in steps if step.open <= 1 - share + 1e-12), None)
