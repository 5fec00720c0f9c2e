"""What a run with faults must keep, and whether it did.  Pure.

Three witnesses, none of whom has to be believed alone:

* the *application*: its calls and callbacks (invoke, ok, receive, ack ...: see `testkit.record`);
* the *library*: its event log (publish, resend, confirm, disconnected ...), runs unfolded;
* the *audit*: queues into which the broker has put a copy of all that it took, read at the end by bare pika.

Rules, each with the name under which `Report.problems` tells of its breach:

    lost         confirmed and never received, or not in the audit; `unexpected`: received and never sent
    changed      another body than the one that was sent
    settled      what was sent is confirmed once, refused, or said to be unsettled; nothing else is settled
    repentant    the library re-sends what it has reported as confirmed
    copies       the audit has an id more often than it was sent and re-sent, by the library's own word
    unmarked     a second copy in the audit without `x-resent`; or one that a receiver which drops duplicates handed
                 out, and that says neither `redelivered` nor `x-resent`
    order        the audit's first copies of one sender are not in the order of its sends; nor is what a receiver
                 that is alone on its queue got, but for what says `redelivered` or `x-resent` (what a silently
                 dead connection has had comes later)
    again        a receiver got an id more often than the audit has it, and neither a fail-over of the receiver that
                 had it before nor the flag `redelivered` explains it (of two that are noted within SLACK, the one
                 without the flag came first, if its receiver lost its connection then); nor, where the broker may take
                 a message for one queue and refuse it for another (`uneven`), that the library has sent it again and
                 one says so
    torn         the audit has some messages of a transaction and not others; `phantom`: any of an aborted one
    filtered     a receiver that drops duplicates handed an id out twice, though the second says what it is
    late         close() took longer than it may
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from testkit.judge import History

Event = Mapping[str, Any]
NAMED: Final = 5
"""So many ids of a breach are named."""
ANSWERS: Final = ("ok", "nack", "abort", "unknown")
SLACK: Final = 500_000
"""µs between the moment in which a message was taken from the library and that in which the application noted it."""


@dataclass(frozen=True)
class Copy:
    """One message in an audit queue."""

    id: str
    resent: bool
    body: bytes = field(default=b"", compare=False, repr=False)


@dataclass
class Evidence:
    """Of one run.  Message ids are SENDER:number, numbers ascend."""

    application: list[Event] = field(default_factory=list)
    library: list[Event] = field(default_factory=list)
    """In the order of `seq` for each client."""
    audit: list[Copy] = field(default_factory=list)
    unsettled: dict[str, int] = field(default_factory=dict)
    """Sender → what unsettled() said at the end."""
    filtered: set[str] = field(default_factory=set)
    """Receivers that drop duplicates."""
    alone: set[str] = field(default_factory=set)
    """Receivers that are alone on their queues."""
    uneven: bool = False
    """The broker may take a message for one of its queues and refuse it for another: RabbitMQ does, with basic.nack,
    while a queue has no leader.  Then the library sends it again, and the first queue has it twice, in either order:
    what a dead node had sent to the queue's leader may be read behind what the library has sent to another node."""
    closed: list[tuple[str, float, float]] = field(default_factory=list)
    """Client, seconds that close() took, seconds that it may take."""


@dataclass(frozen=True)
class Report:
    """`problems` is empty for a run in which everything was kept."""

    sent: int
    confirmed: int
    received: int
    resent: int
    duplicates: int
    """Second copies that reached applications; of these `twice_taken` were taken twice by the broker."""
    twice_taken: int
    losses: int
    """Connections lost."""
    problems: tuple[str, ...]

    def line(self) -> str:
        return (
            f"sent {self.sent}, confirmed {self.confirmed}, received {self.received}, re-sent {self.resent}, "
            f"duplicates {self.duplicates} (twice at the broker {self.twice_taken}), connections lost {self.losses}"
        )


def unfold(event: Event) -> Iterator[str]:
    """The message ids an event of the library speaks of."""
    first = event.get("msg_id")
    if first is None:
        return
    last = (event.get("attrs") or {}).get("last", first)
    prefix, _, number = first.rpartition(":")
    if last == first or not number.isdigit():
        yield first
        return
    for each in range(int(number), int(last.rpartition(":")[2]) + 1):
        yield f"{prefix}:{each}"


class Judge:
    """Counts everything once; each rule then looks at the counts."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.history = History().add(evidence.application)
        self.resends: Counter[str] = Counter()
        self.repentant: list[str] = []
        self.losses: dict[str, list[int]] = defaultdict(list)
        self.copies = Counter(copy.id for copy in evidence.audit)
        self._read_library()

    def _read_library(self) -> None:
        confirmed: set[str] = set()
        for event in self.evidence.library:
            kind = event["kind"]
            if kind == "disconnected" and not event.get("planned"):
                self.losses[event["client_id"]].append(event["ts_mono"])
            elif kind == "confirm":
                confirmed.update(unfold(event))
            elif kind == "resend":
                for id in unfold(event):
                    self.resends[id] += 1
                    if id in confirmed:
                        self.repentant.append(id)

    def of(self, kind: str) -> Iterator[Event]:
        return (event for event in self.evidence.application if event["kind"] == kind)

    # ---- rules: what each yields are the offenders ------------------------------------------------------------------

    def lost(self) -> Iterator[str]:
        yield from self.history.missing()
        yield from (f"{id} (audit)" for id in sorted(self.history.confirmed) if not self.copies[id])

    def unexpected(self) -> Iterator[str]:
        yield from sorted((self.history.seen | set(self.copies)) - set(self.history.attempts))

    def changed(self) -> Iterator[str]:
        yield from sorted(self.history.changed)

    def settled(self) -> Iterator[str]:
        answers = Counter(event["id"] for kind in ANSWERS for event in self.of(kind))
        yield from (f"{id} {count} times" for id, count in answers.items() if count > 1)
        yield from (f"{id} was not sent" for id in answers if id not in self.history.attempts)
        open_ids = Counter(id.rpartition(":")[0] for id in self.history.attempts if id not in answers)
        for sender in sorted(open_ids.keys() | self.evidence.unsettled.keys()):
            found, said = open_ids[sender], self.evidence.unsettled.get(sender, 0)
            if found != said:
                yield f"{sender}: {found} without an answer, unsettled() said {said}"

    def copied(self) -> Iterator[str]:
        for id, count in self.copies.items():
            allowed = self.history.attempts[id] + self.resends[id]
            if count > allowed > 0:
                yield f"{id}: {count} for {allowed}"

    def unmarked(self) -> Iterator[str]:
        seen: set[str] = set()
        for copy in self.evidence.audit:
            if copy.id in seen and not copy.resent:
                yield copy.id
            seen.add(copy.id)
        yield from (f"{event['id']} by {event['client']}" for event in self.unfiltered() if not _marked(event))

    def disordered(self) -> Iterator[str]:
        yield from _disordered("audit", (copy.id for copy in self.evidence.audit))
        for receiver in sorted(self.evidence.alone):
            mine = (event for event in self.of("receive") if event["client"] == receiver)
            fresh = (event for event in mine if not _marked(event))
            yield from _disordered(receiver, (event["id"] for event in fresh))

    def again(self) -> Iterator[str]:
        receives: dict[str, list[Event]] = defaultdict(list)
        for event in self.of("receive"):
            receives[event["id"]].append(event)
        for id, events in receives.items():
            strange = sum(not self._explained(*pair) for pair in pairwise(events))
            if strange > max(0, self.copies[id] - 1):
                shown = (
                    f"{each['client']} {'re' if each.get('redelivered') else ''}delivered {each['t']}"
                    for each in events
                )
                yield f"{id}: {len(events)} times, {self.copies[id]} in the audit ({', '.join(shown)})"

    def _explained(self, earlier: Event, later: Event) -> bool:
        marked = earlier.get("resent") or later.get("resent")
        sent_again = self.evidence.uneven and marked and self.resends[later["id"]]
        if later.get("redelivered") or sent_again:
            return True
        losses = self.losses.get(earlier["client"], ())
        return any(earlier["t"] - SLACK <= loss <= later["t"] for loss in losses) or self._noted_late(earlier, later)

    def _noted_late(self, marked: Event, first: Event) -> bool:
        """`first` was delivered before `marked`, and noted behind it: its receiver was losing its connection, of which
        the broker knew already."""
        losses = self.losses.get(first["client"], ())
        return (
            bool(marked.get("redelivered"))
            and marked["client"] != first["client"]
            and first["t"] - marked["t"] <= SLACK
            and any(marked["t"] - SLACK <= loss <= first["t"] + SLACK for loss in losses)
        )

    def torn(self) -> Iterator[str]:
        for transaction, ids in sorted(self.history.transactions.items()):
            if 0 < (found := sum(id in self.copies for id in ids)) < len(ids):
                yield f"{transaction}: {found} of {len(ids)}"

    def phantom(self) -> Iterator[str]:
        yield from sorted(self.history.aborted & self.copies.keys())

    def filtered_twice(self) -> Iterator[str]:
        return (f"{event['id']} by {event['client']}" for event in self.unfiltered() if _marked(event))

    def unfiltered(self) -> Iterator[Event]:
        """What a receiver that drops duplicates handed out again."""
        handed_out: set[tuple[str, str]] = set()
        for event in self.of("receive"):
            key = (event["client"], event["id"])
            if key in handed_out and event["client"] in self.evidence.filtered:
                yield event
            handed_out.add(key)

    def late(self) -> Iterator[str]:
        for client, took, allowed in self.evidence.closed:
            if took > allowed:
                yield f"{client}: {took:.1f} s, {allowed:.1f} s allowed"

    # ---- verdict ----------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        rules: Sequence[tuple[str, Iterable[str]]] = (
            ("lost", self.lost()),
            ("unexpected", self.unexpected()),
            ("changed", self.changed()),
            ("settled", self.settled()),
            ("repentant", self.repentant),
            ("copies", self.copied()),
            ("unmarked", self.unmarked()),
            ("order", self.disordered()),
            ("again", self.again()),
            ("torn", self.torn()),
            ("phantom", self.phantom()),
            ("filtered", self.filtered_twice()),
            ("late", self.late()),
        )
        receives = sum(1 for _ in self.of("receive"))
        return Report(
            sent=self.history.attempts.total(),
            confirmed=len(self.history.confirmed),
            received=receives,
            resent=self.resends.total(),
            duplicates=receives - len(self.history.seen),
            twice_taken=self.copies.total() - len(self.copies),
            losses=sum(map(len, self.losses.values())),
            problems=tuple(_problem(name, list(found)) for name, offenders in rules if (found := list(offenders))),
        )


def judge(evidence: Evidence) -> Report:
    """What the evidence says."""
    return Judge(evidence).report()


def _problem(name: str, offenders: list[str]) -> str:
    more = f" and {len(offenders) - NAMED} more" if len(offenders) > NAMED else ""
    return f"{name}: {', '.join(offenders[:NAMED])}{more}"


def _marked(event: Event) -> bool:
    return bool(event.get("redelivered") or event.get("resent"))


def _disordered(where: str, ids: Iterable[str]) -> Iterator[str]:
    """First copies of each sender must come in the order of their numbers."""
    last: dict[str, int] = defaultdict(int)
    seen: set[str] = set()
    for id in ids:
        if id in seen:
            continue
        seen.add(id)
        sender, _, number = id.rpartition(":")
        if int(number) < last[sender]:
            yield f"{id} after {sender}:{last[sender]} ({where})"
        last[sender] = max(last[sender], int(number))
