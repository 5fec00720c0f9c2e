"""Completeness of the logs as evidence of a loss: whether a missing log could show that a message was taken (pure).

`messages.query` has the rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_jobs.messages.survivors import EPOCH_BITS, number

NO_BROKER: Final = "no broker's log says which clients there were"
NAMELESS: Final = "a client without a name was connected and may have taken it"
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
    client: str = ""
    holes: bool = False  # given by a query that counted, instead of `seqs`

    @property
    def whole(self) -> bool:
        """It ended in order, and no number is missing."""
        return self.ended and not self.holes and (not self.seqs or len(self.seqs) == max(self.seqs))

    def drained_at(self, queue: str) -> int | None:
        return max((self.drained[name] for name in (queue, "") if name in self.drained), default=None)


@dataclass(frozen=True)
class Brokers:
    """What the brokers' logs say about which logs there must be.

    `gap`: why they cannot say it; empty if they can.  `clients`: that have connected, by name; "": one without."""

    gap: str = NO_BROKER
    clients: frozenset[str] = frozenset()

    @staticmethod
    def of(rows: Iterable[Mapping[str, Any]]) -> Brokers:
        """Of the rows of `query.brokers` of one cluster."""
        found = list(rows)
        logs: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for row in found:
            logs[row["proc"]].append(row)
        gaps = [text for name in sorted(logs) if (text := _gap(name, logs[name]))]
        gaps += [f"the log of the primary of epoch {epoch} is missing" for epoch in _missing(found)]
        clients = frozenset(row["client"] for row in found if row["client"] is not None)
        return Brokers(gaps[0] if gaps else "" if found else NO_BROKER, clients)


def _gap(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    count, total = (sum(row[column] for row in rows) for column in ("seqs", "seq_sum"))
    first, last = min(row["seq_min"] for row in rows), max(row["seq_max"] for row in rows)
    if count != last - first + 1 or 2 * total != (first + last) * count:
        return f"the log of {name} is incomplete"
    return "" if first == 1 else f"the log of {name} lacks its beginning"


def _missing(rows: Iterable[Mapping[str, Any]]) -> list[int]:
    """Epochs of which others know that no primary's log begins."""
    begun, known = set(), set()
    for row in rows:
        begun |= {row["begun"]}
        known |= {row["followed"], number(row["base"]) >> EPOCH_BITS}
    return sorted(epoch for epoch in known - begun if epoch)


class Evidence:
    """Says whether a missing log could show that a missing message was taken.

    `gap`: why a client may have no log here; empty if each has one."""

    def __init__(self, processes: Mapping[str, Process], drained: bool | None, brokers: Brokers) -> None:
        self._processes = processes
        self.drained = drained
        self.gap = brokers.gap or _absent(brokers.clients - {process.client for process in processes.values()})
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
        if self.gap:
            return self.gap, 0
        if self._strangers:
            return f"the log of {self._strangers[0]} is incomplete", 0
        if not self._takers:
            return "there is no log of a consumer", 0
        takers = [name for name in self._takers if self._touches(name, queue)]
        moments = []
        for name in takers or self._takers:  # all clients are known: one of these got it through an exchange, or none
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


def _absent(clients: frozenset[str]) -> str:
    """Why clients that have no log may have taken something; empty if there are none."""
    if not clients:
        return ""
    first = min(clients)
    return f"there is no log of the client {first}" if first else NAMELESS
