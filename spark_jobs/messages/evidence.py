"""Completeness of the logs as evidence of a loss: whether a missing log could show that a message was taken (pure).

`messages.query` has the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

EARLY: Final = "confirmed before the log of a broker begins"
FOREVER: Final = 2**62
"""µs"""


@dataclass
class Process:
    """What one process wrote, as evidence."""

    seqs: set[int] = field(default_factory=set)
    takes: set[str] = field(default_factory=set)
    drained: dict[str, int] = field(default_factory=dict)
    sends: bool = False
    ended: bool = False
    holes: bool = False  # given by a query that counted, instead of `seqs`

    @property
    def whole(self) -> bool:
        """It ended in order, and no number is missing."""
        return self.ended and not self.holes and (not self.seqs or len(self.seqs) == max(self.seqs))

    def drained_at(self, queue: str) -> int | None:
        return max((self.drained[name] for name in (queue, "") if name in self.drained), default=None)


@dataclass(frozen=True)
class Brokers:
    """`gap`: why their logs are not complete; empty if they are.  `since`: µs, when the last one begins of those that
    lack their beginning."""

    gap: str = ""
    since: int | None = None

    @staticmethod
    def of(rows: Iterable[Mapping[str, Any]]) -> Brokers:
        """Of a row for each process: proc, seqs (how many), seq_sum, seq_min, seq_max, first_ts (µs)."""
        gap, since = "", None
        for row in sorted(rows, key=lambda row: str(row["proc"])):
            first, last = row["seq_min"], row["seq_max"]
            if row["seqs"] != last - first + 1 or 2 * row["seq_sum"] != (first + last) * row["seqs"]:
                gap = gap or f"the log of {row['proc']} is incomplete"
            elif first > 1 and row["first_ts"] is not None:
                since = max(since or 0, row["first_ts"])
        return Brokers(gap, since)


class Evidence:
    """Says whether a missing log could show that a missing message was taken."""

    def __init__(self, processes: Mapping[str, Process], drained: bool | None, brokers: Brokers | None = None) -> None:
        self._processes = processes
        self.drained = drained
        self.brokers = brokers or Brokers()
        self._takers = sorted(name for name, process in processes.items() if process.takes or process.drained)
        self._strangers = sorted(
            name
            for name, process in processes.items()
            if not (process.takes or process.drained or process.sends or process.whole)
        )
        self._known: dict[str, tuple[str, int]] = {}

    def of_queue(self, queue: str) -> tuple[str, int]:
        """Why its logs are not complete, and when it was drained; µs."""
        if self.drained is not None:
            return "" if self.drained else "its queue was not drained", FOREVER
        if queue not in self._known:
            self._known[queue] = self._look(queue)
        return self._known[queue]

    def _look(self, queue: str) -> tuple[str, int]:
        if self.brokers.gap:
            return self.brokers.gap, 0
        if self._strangers:
            return f"the log of {self._strangers[0]} is incomplete", 0
        if not self._takers:
            return "there is no log of a consumer", 0
        takers = [name for name in self._takers if self._touches(name, queue)]
        moments = []
        for name in takers or self._takers:  # a consumer that names no such queue may have got it through an exchange
            process = self._processes[name]
            queues = {queue} if takers else process.takes | process.drained.keys()
            ends = [process.drained_at(taken) for taken in queues]
            if not process.whole:
                return f"the log of {name} is incomplete", 0
            if None in ends:
                return f"{name} has not drained its queue", 0
            moments += [end for end in ends if end is not None]
        return "", max(moments)

    def _touches(self, name: str, queue: str) -> bool:
        process = self._processes[name]
        return queue in process.takes or queue in process.drained
