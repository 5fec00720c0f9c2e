"""The outcome of every message, by Jepsen's definitions, and the outages of clients.  Pure.

The history is what clients logged themselves (see `client_lib/events.py`), independent of the brokers.

Counting (Jepsen's `total-queue` checker): multisets over message ids, A attempts, E confirmed, D dequeued.

    ok         = D intersect A            min(d, a)
    unexpected = D without any key of A   d                if a = 0
    duplicated = (D minus A) - unexpected max(0, d - a)    if a > 0
    lost       = E minus D                max(0, e - d)
    recovered  = ok minus E               max(0, min(d, a) - e)

An attempt is the *first* send of an id: a re-send of the same id after a fail-over is the client's own and would hide a
duplicate.  A dequeue is a delivery that the consumer acknowledged; one that was delivered, not acknowledged and
delivered again is one dequeue.  Two more distinctions than Jepsen makes: what was confirmed and not delivered is *lost*
only when the queues were drained to their end, else *unaccounted*; and a duplicate is *marked* when some delivery of it
said `redelivered` or the producer had re-sent it (both are allowed by at-least-once), otherwise *unmarked*.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Numbers of messages; `lost_ids` and `unexpected_ids` name the first few."""

    attempts: int = 0
    confirmed: int = 0
    delivered: int = 0
    lost: int = 0
    unaccounted: int = 0
    unexpected: int = 0
    duplicated: int = 0
    unmarked: int = 0  # of the duplicated
    recovered: int = 0
    resent: int = 0
    lost_ids: tuple[str, ...] = ()
    unexpected_ids: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        return not (self.lost or self.unexpected or self.unaccounted)


@dataclass
class History:
    """Gathers events of any number of clients, in any order."""

    attempts: Counter[str] = field(default_factory=Counter)
    confirmed: Counter[str] = field(default_factory=Counter)
    dequeued: Counter[str] = field(default_factory=Counter)
    marked: set[str] = field(default_factory=set)
    resent: int = 0
    drained: set[str] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)
    progress: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # µs of confirms and deliveries

    def add(self, events: Iterable[Event]) -> "History":
        for event in events:
            handler = _HANDLERS.get(str(event.get("kind")))
            if handler is not None:
                handler(self, event)
        return self

    def verdict(self, first: int = 10) -> Verdict:
        drained = bool(self.consumers) and self.consumers <= self.drained
        missing = {name: e - self.dequeued[name] for name, e in self.confirmed.items() if e > self.dequeued[name]}
        strange = {name: d for name, d in self.dequeued.items() if name not in self.attempts}
        double = {name: d - self.attempts[name] for name, d in self.dequeued.items() if d > self.attempts[name] > 0}
        ok = {name: min(d, self.attempts[name]) for name, d in self.dequeued.items()}
        return Verdict(
            attempts=self.attempts.total(),
            confirmed=self.confirmed.total(),
            delivered=sum(ok.values()),
            lost=sum(missing.values()) if drained else 0,
            unaccounted=0 if drained else sum(missing.values()),
            unexpected=sum(strange.values()),
            duplicated=sum(double.values()),
            unmarked=sum(count for name, count in double.items() if name not in self.marked),
            recovered=sum(max(0, n - self.confirmed[name]) for name, n in ok.items()),
            resent=self.resent,
            lost_ids=tuple(sorted(missing)[:first]),
            unexpected_ids=tuple(sorted(strange)[:first]),
        )

    def _publish(self, event: Event) -> None:
        if event.get("resend") or event["kind"] == "resend":
            self.resent += 1
            self.marked.add(event["msg_id"])
        else:
            self.attempts[event["msg_id"]] += 1

    def _confirm(self, event: Event) -> None:
        self.confirmed[event["msg_id"]] = 1  # a second confirm of a re-sent id is the same fact
        self.progress[event["client_id"]].append(event["ts_mono"])

    def _deliver(self, event: Event) -> None:
        self.consumers.add(event["client_id"])
        if event.get("redelivered"):
            self.marked.add(event["msg_id"])
        self.progress[event["client_id"]].append(event["ts_mono"])

    def _ack(self, event: Event) -> None:
        self.dequeued[event["msg_id"]] += 1

    def _drain_end(self, event: Event) -> None:
        if event.get("result") == "ok":
            self.drained.add(event["client_id"])


_HANDLERS = {
    "publish": History._publish,
    "resend": History._publish,
    "confirm": History._confirm,
    "deliver": History._deliver,
    "ack": History._ack,
    "drain_end": History._drain_end,
}


def outage(times: Iterable[int], begin: int, end: int) -> float | None:
    """The longest pause of a client, in ms, of those that touch `begin` to `end`; None when it never came back.

    All arguments in µs of one monotonic clock; `times` are the moments of progress.
    """
    ordered = sorted(times)
    if not ordered or ordered[-1] < begin:
        return None
    longest = 0
    for earlier, later in pairwise(ordered):
        if later >= begin and earlier <= end:
            longest = max(longest, later - earlier)
    return longest / 1000
