"""Sets of replication ids as sorted, disjoint, closed ranges: what a joining backup holds and lacks.

The core has the same sets in C for the data path (`encode_ids`, `decode_ids`); these are for the cold decisions, where
a range set has few ranges: pruning another history and reporting progress.
"""

from __future__ import annotations

from collections.abc import Iterable

from ha.position import SEQUENCE_MASK, epoch_of, make

Ranges = list[tuple[int, int]]


def normalise(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sorted, disjoint and not touching."""
    result: Ranges = []
    for low, high in sorted(ranges):
        if high < low:
            continue
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result


def intersect(one: Ranges, other: Ranges) -> Ranges:
    """Of two normalised sets."""
    result: Ranges = []
    i = j = 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low <= high:
            result.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return result


def subtract(one: Ranges, other: Ranges) -> Ranges:
    """What is in `one` and not in `other`, both normalised."""
    result: Ranges = []
    j = 0
    for low, high in one:
        while j < len(other) and other[j][1] < low:
            j += 1
        k = j
        while k < len(other) and other[k][0] <= high:
            if low < other[k][0]:
                result.append((low, other[k][0] - 1))
            low = other[k][1] + 1
            k += 1
        if low <= high:
            result.append((low, high))
    return result


def count(ranges: Ranges) -> int:
    return sum(high - low + 1 for low, high in ranges)


def of_epochs(ranges: Ranges, epochs: Iterable[int]) -> Ranges:
    """The ids that were given out in these epochs."""
    whole = normalise((make(epoch, 0), make(epoch, SEQUENCE_MASK)) for epoch in epochs)
    return intersect(ranges, whole)


Lineage = dict[int, str]
"""Epoch -> id of the primary under which our content of that epoch was written."""


def foreign_epochs(mine: Lineage, primary: Lineage) -> set[int]:
    """Epochs whose ids mean other messages at the primary than here: both of us know the epoch, by another leader.

    Two brokers that were promoted at one moment may have claimed one epoch; then one id names two messages, and what
    was written under the losing claim must go before sets of ids are compared.  (Ids of epochs that the primary does
    not know at all need no care: the comparison itself drops them.)
    """
    return {epoch for epoch, leader in mine.items() if primary.get(epoch, leader) != leader}


def epochs_of(ranges: Ranges) -> set[int]:
    return {int(epoch) for low, high in ranges for epoch in (epoch_of(low), epoch_of(high))}
