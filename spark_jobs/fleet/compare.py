"""Tests whether two groups of measured times differ, with few false alarms (pure).

* What counts of two values is only which of them is greater *for certain*: a value is an interval (the clocks' error;
  up to infinity for what never ended), and two that overlap are a tie.  The score of a value is how many are certainly
  less than it, minus how many are certainly greater (Gehan's generalised Wilcoxon test).
* The sum of one group's scores is compared with that of groups drawn by chance.  Values are compared, and drawn, within
  their stratum only (cluster and kind of incident): more partitions than last month, or a new cluster with slow disks,
  do not make a fail-over slower.
* p = (1 + draws at least as extreme) / (1 + draws), two-sided; drawing ends early when it is clear that p is large
  (Besag and Clifford 1991).  Of several tests, Holm's correction holds the chance of *any* false alarm at alpha.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

ENOUGH: Final = 50
"""Draws as extreme as what was found, after which no more are made."""
_BATCH: Final = 500
Numbers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"


@dataclass(frozen=True)
class Value:
    """`low` <= the true one <= `high`; `stratum`: with what it may be compared."""

    low: float
    high: float = math.inf
    stratum: Hashable = ""


def scores(values: Sequence[Value]) -> list[int]:
    """How many are certainly less, minus how many are certainly greater."""
    lows, highs = sorted(value.low for value in values), sorted(value.high for value in values)
    return [bisect_left(highs, value.low) - (len(lows) - bisect_right(lows, value.high)) for value in values]


def difference(
    before: Sequence[Value], after: Sequence[Value], seed: int, draws: int = 10_000
) -> tuple[float, int] | None:
    """(p, direction): direction 1 if those after are greater, -1 if less, 0 if neither is.

    None: no stratum has both."""
    groups = [_Stratum.of(*sides) for sides in alike(before, after)]
    if not groups:
        return None
    found = sum(group.found for group in groups)
    return _tested(groups, found, seed, draws)


def alike(before: Sequence[Value], after: Sequence[Value]) -> list[tuple[list[Value], list[Value]]]:
    """Both sides of each stratum that has both."""
    strata: dict[Hashable, tuple[list[Value], list[Value]]] = defaultdict(lambda: ([], []))
    for side, values in enumerate((before, after)):
        for value in values:
            strata[value.stratum][side].append(value)
    return [sides for _, sides in sorted(strata.items(), key=str) if all(sides)]


def trend(values: Sequence[Value], seed: int, draws: int = 10_000) -> tuple[float, int]:
    """(p, direction) of values in order of time: 1 if they grow."""
    strata: dict[Hashable, list[Value]] = defaultdict(list)
    for value in values:
        strata[value.stratum].append(value)
    lines = [_TableLine.of(of) for _, of in sorted(strata.items(), key=str)]
    found = sum(float((line.scores * line.places).sum()) for line in lines)
    return _tested(lines, found, seed, draws)


def holm(found: Iterable[float]) -> list[float]:
    """Each p of several tests, corrected so that alpha holds for all of them together."""
    listed = list(found)
    corrected, worst = [0.0] * len(listed), 0.0
    for place, index in enumerate(sorted(range(len(listed)), key=lambda index: listed[index])):
        worst = max(worst, min(1.0, (len(listed) - place) * listed[index]))
        corrected[index] = worst
    return corrected


@dataclass(frozen=True)
class _Stratum:
    scores: Numbers
    number: int
    found: float

    @staticmethod
    def of(before: Sequence[Value], after: Sequence[Value]) -> _Stratum:
        # by the size of the stratum: else the largest one alone would decide
        every = np.array(scores([*after, *before]), dtype=np.float64) / (len(before) + len(after))
        return _Stratum(every, len(after), float(every[: len(after)].sum()))

    def drawn(self, chance: np.random.Generator, times: int) -> Numbers:
        order = np.argsort(chance.random((times, len(self.scores))), axis=1)[:, : self.number]
        return np.asarray(self.scores[order].sum(axis=1))


@dataclass(frozen=True)
class _TableLine:
    """`places` in time, around 0."""

    scores: Numbers
    places: Numbers

    @staticmethod
    def of(values: Sequence[Value]) -> _TableLine:
        middle = (len(values) - 1) / 2
        places = np.array([place - middle for place in range(len(values))], dtype=np.float64)
        return _TableLine(np.array(scores(values), dtype=np.float64), places)

    def drawn(self, chance: np.random.Generator, times: int) -> Numbers:
        order = np.argsort(chance.random((times, len(self.scores))), axis=1)
        return np.asarray((self.scores[order] * self.places).sum(axis=1))


def _tested(groups: Sequence[_Stratum | _TableLine], found: float, seed: int, draws: int) -> tuple[float, int]:
    """(p, direction) of the sum over all groups, against sums that are drawn."""
    chance = np.random.default_rng(seed)
    extreme = made = 0
    while made < draws and extreme < ENOUGH:
        times = min(_BATCH, draws - made)
        totals = np.zeros(times)
        for group in groups:
            totals += group.drawn(chance, times)
        # what is equal but for rounding is as extreme
        extreme += int((np.abs(totals) >= abs(found) - 1e-9).sum())
        made += times
    return (1 + extreme) / (1 + made), (found > 1e-9) - (found < -1e-9)
