"""The verdict over a history (`record.py` says what is in it), by the definitions of Jepsen's `total-queue`.  Pure.

Multisets over message ids: A attempts, E confirmed, D dequeued.

    ok         = D intersect A            min(d, a)
    unexpected = D without any key of A   d                if a = 0
    duplicated = (D minus A) - unexpected max(0, d - a)    if a > 0
    lost       = E minus D                max(0, e - d)
    recovered  = ok minus E               max(0, min(d, a) - e)

An attempt is the first publish of an id; a second one of the same id is the client's own re-send.  A message is
dequeued when a consumer received and acknowledged it; a message that was received, could not be acknowledged and was
received again is one dequeue.

Findings beyond Jepsen's:
    unaccounted   confirmed and not dequeued, but the queues were not drained to their end: outcome unknown
    marked        a duplicate of which some delivery said `redelivered` or `x-resent`, or that its producer has re-sent
    repeated      a message that came from one queue without `redelivered` and `x-resent` oftener than it was attempted,
                  whether or not it was acknowledged
    torn          a transaction of which some messages were seen and others were not
    phantom       a message that was seen although its transaction cannot have been committed, or it had been refused or
                  returned and was not sent again
    returned      a message that was seen although it had been purged, or had no route (`rules.py`)
    removed       confirmed and not dequeued, from a queue with a rule (`queues.py`) that allows just this (`rules.py`)
    changed       a message that was received with a different body
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from testkit.rules import RuledQueue

Event = Mapping[str, Any]
NAMED: Final = 20
"""The number of ids that are named per kind of failure."""


@dataclass(frozen=True)
class Verdict:
    """Numbers of messages (`torn`: of transactions); `ids` names the first of each kind of failure."""

    attempted: int = 0
    confirmed: int = 0
    refused: int = 0
    unknown: int = 0
    received: int = 0
    lost: int = 0
    unaccounted: int = 0
    unexpected: int = 0
    duplicated: int = 0
    marked: int = 0
    unmarked: int = 0
    repeated: int = 0
    recovered: int = 0
    torn: int = 0
    phantom: int = 0
    changed: int = 0
    returned: int = 0
    removed: int = 0
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        wrong = self.lost, self.unaccounted, self.unexpected, self.torn, self.phantom, self.changed, self.returned
        return not any(wrong)


@dataclass
class History:
    """Takes events of any number of clients, in any order."""

    attempts: Counter[str] = field(default_factory=Counter)
    confirmed: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    dequeued: Counter[str] = field(default_factory=Counter)
    marked: set[str] = field(default_factory=set)
    bare: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Deliveries without a mark, by queue and id."""
    changed: set[str] = field(default_factory=set)
    transactions: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    confirms: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Client → moments of its confirms, µs."""
    never: set[str] = field(default_factory=set)
    """Refused or returned, and sent once."""
    ruled: dict[str, RuledQueue] = field(default_factory=dict)
    """Queues with a rule; and by the names of their clients:"""
    ruled_clients: dict[str, RuledQueue] = field(default_factory=dict)
    _queues: dict[str, str] = field(default_factory=dict)
    """Of the clients."""

    def add(self, events: Iterable[Event]) -> History:
        for event in events:
            handler = _HANDLERS.get(str(event["kind"]))
            if handler is not None:
                handler(self, event)
            if event.get("client") in self.ruled_clients:
                self.ruled_clients[event["client"]].add(event)
        return self

    def _begin(self, event: Event) -> None:
        self._queues[event["client"]] = event["queue"]
        if event.get("rule"):
            queue = self.ruled.setdefault(event["queue"], RuledQueue(event["rule"], event.get("limit", 0)))
            queue.remover = event["client"] if event.get("removes") else queue.remover
            self.ruled_clients[event["client"]] = queue

    def verdict(self, drained: bool = True) -> Verdict:
        """`drained`: everything that was in the queues at the end has been received."""
        removed = self.removed()
        missing = [id for id in self.missing() if id not in removed]
        strange = {id: self.dequeued[id] or 1 for id in self.seen if id not in self.attempts}
        double = {id: d - self.attempts[id] for id, d in self.dequeued.items() if d > self.attempts[id] > 0}
        ok = {id: min(d, self.attempts[id]) for id, d in self.dequeued.items()}
        repeated = sorted({id for (_, id), count in self.bare.items() if count > self.attempts[id] > 0})
        torn, phantom = self._torn(), sorted((self.aborted | self.never) & self.seen)
        returned = self._returned()
        marked = sum(count for id, count in double.items() if id in self.marked)
        return Verdict(
            attempted=self.attempts.total(),
            confirmed=len(self.confirmed),
            refused=len(self.refused - self.confirmed),
            unknown=len(self.unknown - self.confirmed - self.refused),
            received=sum(ok.values()),
            lost=len(missing) if drained else 0,
            unaccounted=0 if drained else len(missing),
            unexpected=sum(strange.values()),
            duplicated=sum(double.values()),
            marked=marked,
            unmarked=sum(double.values()) - marked,
            repeated=len(repeated),
            recovered=sum(count - (id in self.confirmed) for id, count in ok.items() if count),
            torn=len(torn),
            phantom=len(phantom),
            changed=len(self.changed),
            returned=len(returned),
            removed=len(removed),
            ids=_named(
                missing=missing,
                unexpected=sorted(strange),
                unmarked=sorted(id for id in double if id not in self.marked),
                repeated=repeated,
                torn=torn,
                phantom=phantom,
                changed=sorted(self.changed),
                returned=returned,
            ),
        )

    def missing(self) -> list[str]:
        """Confirmed and not dequeued."""
        return sorted(id for id in self.confirmed if not self.dequeued[id])

    def removed(self) -> set[str]:
        """Those of them that a queue's rule allows."""
        found: set[str] = set()
        for queue in self.ruled.values():
            found |= queue.lawful(id for id in queue.confirmed if not self.dequeued[id])
        return found

    def _returned(self) -> list[str]:
        return sorted(set[str]().union(*(queue.returned() for queue in self.ruled.values())))

    def _torn(self) -> list[str]:
        """All or nothing; a message received by a consumer that then lost its connection counts as seen."""
        return sorted(tx for tx, ids in self.transactions.items() if 0 < len(ids & self.seen) < len(ids))

    # ---- events ---------------------------------------------------------------------------------------------------

    def _invoke(self, event: Event) -> None:
        if event.get("again"):
            self.marked.add(event["id"])
        else:
            self.attempts[event["id"]] += 1
        if event.get("tx"):
            self.transactions[event["tx"]].add(event["id"])

    def _ok(self, event: Event) -> None:
        self.confirmed.add(event["id"])
        self.confirms[event["client"]].append(event["t"])

    def _nack(self, event: Event) -> None:
        self.refused.add(event["id"])
        if event.get("once"):
            self.never.add(event["id"])

    def _receive(self, event: Event) -> None:
        self.seen.add(event["id"])
        if event.get("redelivered") or event.get("resent"):
            self.marked.add(event["id"])
        else:
            self.bare[self._queues.get(event["client"], ""), event["id"]] += 1
        if event.get("changed"):
            self.changed.add(event["id"])

    def _ack(self, event: Event) -> None:
        self.dequeued[event["id"]] += 1


_HANDLERS: Final[dict[str, Callable[[History, Event], None]]] = {
    "begin": History._begin,
    "invoke": History._invoke,
    "ok": History._ok,
    "nack": History._nack,
    "unknown": lambda history, event: history.unknown.add(event["id"]),
    "abort": lambda history, event: history.aborted.add(event["id"]),
    "receive": History._receive,
    "ack": History._ack,
}


def _named(**found: list[str]) -> dict[str, tuple[str, ...]]:
    return {kind: tuple(ids[:NAMED]) for kind, ids in found.items() if ids}


def longest_pause(moments: Iterable[int], begin: int, end: int) -> float:
    """The longest time without any of the moments that touches `begin` to `end`, in seconds; arguments in µs.

    A pause that is still going on at `end` counts up to there."""
    inside = sorted({begin, end, *moments})
    pauses = (later - earlier for earlier, later in pairwise(inside) if later > begin and earlier < end)
    return max(pauses, default=0) / 1e6


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that so great a share of all does not exceed; 0 for none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
