"""Sets of replication ids as sorted, disjoint, closed ranges: what a joining backup holds and lacks.

The core has the same sets in C for the data path (`encode_ids`, `decode_ids`).  These are for rare decisions with few
ranges: dropping messages of another history, and reporting progress.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ha.model.position import SEQUENCE_MASK, epoch_of, make
from qpidd_py.errors import LinkError

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
    """The ids that were assigned in these epochs."""
    whole = normalise((make(epoch, 0), make(epoch, SEQUENCE_MASK)) for epoch in epochs)
    return intersect(ranges, whole)


class Origin(NamedTuple):
    """How an epoch began."""

    leader: str
    """Id of the broker that claimed it."""
    base: int = 0
    """The leader held the whole log up to this position when it took over; 0 when its log may have had holes."""


Lineage = dict[int, Origin]
"""Epoch -> leader and base under which our content of that epoch was written."""


def lineage_to_json(lineage: Lineage) -> list[list[object]]:
    return [[epoch, origin.leader, origin.base] for epoch, origin in lineage.items()]


def lineage_from_json(value: object) -> Lineage:
    """Raises LinkError when a peer sent something else."""
    lineage: Lineage = {}
    for entry in value if isinstance(value, list) else [value]:
        match entry:
            case [int(epoch), str(leader), int(base)]:
                lineage[epoch] = Origin(leader, base)
            case _:
                raise LinkError(f"not an epoch, its leader and its base: {entry!r:.80}")
    return lineage


def foreign_epochs(mine: Lineage, primary: Lineage) -> set[int]:
    """Epochs whose ids name other messages at the primary than here: both know the epoch, with different leaders.

    Two brokers that are promoted at the same time may claim the same epoch.  Then one id names two messages, and what
    was written under the losing claim must be dropped before sets of ids are compared.  (Ids of epochs that the
    primary does not know are dropped by the comparison itself.)
    """
    return {epoch for epoch, origin in mine.items() if primary.get(epoch, origin).leader != origin.leader}


class Outside(NamedTuple):
    """Ids assigned in one epoch that the primary's log never held, as far as the lineages show."""

    epoch: int
    low: int
    high: int
    foreign: bool
    """The primary does not share the epoch: a message that it holds under such an id is a different one."""
    gamble: bool
    """This primary, or an earlier one, took over without the whole log: what it lacked is not known."""


def outside(mine: Lineage, primary: Lineage, complete: int) -> list[Outside]:
    """The ids that we may hold and that are outside the primary's history.

    `complete` is the epoch of the last primary with which we were complete (our own epoch, if we were primary later):
    what we hold of that epoch and of earlier ones was in that primary's log.

    An id is in the history if we share its epoch, and if it lies below the base of every later epoch of theirs with
    which we were not complete.  Such a message was in the log of the present primary; if it is no longer there, it was
    consumed.
    """
    news = {e: origin for e, origin in primary.items() if e > complete or _leader(mine, e) != origin.leader}
    return [found for epoch in sorted(mine) if (found := _outside(epoch, mine, primary, news)) is not None]


def _outside(epoch: int, mine: Lineage, primary: Lineage, news: Lineage) -> Outside | None:
    foreign = _leader(primary, epoch) != mine[epoch].leader
    bases = [origin.base for later, origin in news.items() if later > epoch or (later == epoch and foreign)]
    if not foreign and not bases:
        return None
    limit = min(bases, default=0)
    low = make(epoch, 0) if foreign else max(make(epoch, 0), limit + 1)
    high = make(epoch, SEQUENCE_MASK)
    return Outside(epoch, low, high, foreign, limit == 0) if low <= high else None


def shared(mine: Lineage, primary: Lineage, position: int) -> int:
    """Up to where our log was that of the primary, given that we held all of ours up to `position`; 0 if not known.

    An epoch with one leader was written once: who holds a part of it has what the leader had before it, too."""
    for epoch in sorted((e for e in mine if e <= epoch_of(position)), reverse=True):
        if _leader(primary, epoch) == mine[epoch].leader:
            ours = [origin.base for later, origin in mine.items() if epoch < later <= epoch_of(position)]
            theirs = [origin.base for later, origin in primary.items() if later > epoch]
            return min([position, *ours, *theirs])
    return 0


def _leader(lineage: Lineage, epoch: int) -> str:
    origin = lineage.get(epoch)
    return origin.leader if origin is not None else ""
