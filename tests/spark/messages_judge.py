"""The outcome of every message in plain Python: the judge of the SQL in `spark_jobs.messages.query`, which has the
definitions (pure).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_jobs.messages.evidence import Brokers, Evidence, Process
from spark_jobs.messages.survivors import Undone
from spark_jobs.schema import EXPLAINED_BY, Event
from spark_jobs.solve.runs import expand, span

Clock = Callable[[Event], int]
_TAKES: Final = frozenset({"deliver", "ack", "reject", "release"})
_SENDS: Final = frozenset({"publish", "resend", "confirm", "nack", "return"})


def wall(event: Event) -> int:
    """The corrected time of a row if it has one, else as it was written; µs."""
    return int(event.get("ts_est") or event.get("ts_wall") or 0)


@dataclass(slots=True)
class Counts:
    """The rows of one message."""

    attempts: int = 0
    resends: int = 0
    confirms: int = 0
    refusals: int = 0
    delivers: int = 0
    redelivered: int = 0
    resent: bool = False  # a delivery said so
    acks: dict[str, int] = field(default_factory=dict)  # queue → dequeues
    taken: set[str] = field(default_factory=set)  # queues that delivered it
    confirmed_at: int | None = None
    dumped_at: int = 0
    queues: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()

    @property
    def confirmed(self) -> int:
        """e"""
        return min(self.confirms, max(self.attempts, 1))

    @property
    def dequeues(self) -> int:
        """d"""
        return max(self._by_queue, default=0)

    @property
    def duplicates(self) -> int:
        """Of something attempted."""
        return sum(max(0, acks - self.attempts) for acks in self._by_queue)

    @property
    def _by_queue(self) -> list[int]:
        acks = list(self.acks.values())
        return acks if len(self.taken) > 1 else [sum(acks)]


@dataclass(frozen=True)
class Verdict:
    """`verdict`: ok, recovered, duplicated, lost, unaccounted, explained, unexpected, refused (and never seen), unknown
    (not confirmed, never seen).  `cause`: of an explained one what EXPLAINED_BY says, of a duplicate how it is marked,
    else words.  `missing`, `duplicates`: how many."""

    producer: str
    number: int
    verdict: str
    cause: str
    counts: Counts
    missing: int = 0
    duplicates: int = 0
    recovered: int = 0

    @property
    def msg_id(self) -> str:
        return f"{self.producer}:{self.number}" if self.number else self.producer


@dataclass(frozen=True)
class Summary:
    """Sums over messages.  `unlogged`: of the unexpected, those whose producer's log is incomplete; `anonymous`: rows
    about messages without an id, which cannot be judged."""

    attempts: int = 0
    confirmed: int = 0
    ok: int = 0
    lost: int = 0
    unaccounted: int = 0
    explained: int = 0
    unexpected: int = 0
    unlogged: int = 0
    duplicated: int = 0
    redelivered: int = 0
    resend: int = 0
    unmarked: int = 0
    recovered: int = 0
    refused: int = 0
    unknown: int = 0
    resends: int = 0
    anonymous: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)
    """Of the explained."""

    @property
    def valid(self) -> bool:
        """Jepsen's `valid?`: nothing lost, nothing unexpected; unknown outcomes do not count."""
        return not self.lost and self.unexpected == self.unlogged


class MessageEvidence(Evidence):
    """What the logs say of one message."""

    def against(self, counts: Counts) -> str:
        """Why it may not be lost; empty if it is."""
        whys = []
        for queue in counts.queues or ("",):
            why, drained_at = self.of_queue(queue)
            if not why and counts.confirmed_at is not None and counts.confirmed_at > drained_at:
                why = "confirmed after its queue was drained"
            whys += [why] if why else []
        return min(whys, default="")

    def emptied(self, counts: Counts) -> bool:
        """True if one of its queues was drained after it was last seen there."""
        found = [self.of_queue(queue) for queue in counts.queues or ("",)]
        return any(not why and drained_at >= counts.dumped_at for why, drained_at in found)


class Judge:
    """Takes rows in any order, each once: all rows of the clients (those about messages alone have holes), and of the
    brokers those of the kinds in EXPLAINED_BY, and all that have a number.

    `drained`: everything that was in the queues at the end was taken, or was not; None: as the logs say.  `brokers`:
    what their logs say of other logs; None: as the rows are.  `undone`: removals that did not survive a fail-over
    and explain nothing (`survivors`)."""

    def __init__(
        self, drained: bool | None = None, clock: Clock = wall, brokers: Brokers | None = None,
        undone: Sequence[Undone] = (),
    ) -> None:  # fmt: skip
        self._undone = undone
        self.messages: dict[tuple[str, int], Counts] = defaultdict(Counts)
        self.anonymous = 0
        self._drained = drained
        self.known = brokers
        """What the brokers' logs say of other logs; None: as the rows are."""
        self._seen: dict[tuple[Any, ...], list[int]] = defaultdict(list)  # what brokers' lines say → their numbers
        self._clock = clock
        self._processes: dict[str, Process] = defaultdict(Process)
        self._senders: dict[str, set[str]] = defaultdict(set)  # producer → processes
        self._doubts: dict[str, str] = {}  # queue → kind of a row that says of no message what it did to it

    def add(self, rows: Iterable[Event]) -> Judge:
        for row in rows:
            if row.get("source") == "client":
                self._client(row)
                continue
            if row.get("source") == "broker" and row.get("seq") is not None and row["kind"] != "torn":
                self._seen[_seen(row)].append(row["seq"])
            if row["kind"] in EXPLAINED_BY and not any(one.has(row) for one in self._undone):
                self._broker(row)
        return self

    def brokers(self) -> Brokers:
        if self.known is not None:
            return self.known
        return Brokers.of(
            dict(zip(_SEEN, key, strict=True))
            | {"seqs": len(seqs), "seq_sum": sum(seqs), "seq_min": min(seqs), "seq_max": max(seqs)}
            for key, seqs in self._seen.items()
        )

    # ---- rows -------------------------------------------------------------------------------------------------------

    def _client(self, row: Event) -> None:
        kind, queue = row["kind"], row.get("queue") or ""
        name = row.get("proc") or row.get("client_id") or ""
        process = self._processes[name]
        process.client = row.get("client_id") or process.client
        if row.get("seq") is not None:
            process.seqs.add(row["seq"])
        if kind == "log_end":
            process.ended = True
        elif kind == "drain_end" and row.get("result") == "ok":
            process.drained[queue] = max(process.drained.get(queue, 0), self._clock(row))
        if kind in _TAKES:
            process.takes.add(queue)
        elif kind in _SENDS:
            process.sends = True
        else:
            return
        if row.get("producer") is None:
            self.anonymous += 1
            return
        if kind in _SENDS:
            self._senders[row["producer"]].add(name)
        self._count(row, kind, queue)

    def _count(self, row: Event, kind: str, queue: str) -> None:
        counter = _COUNTER.get("resend" if kind == "publish" and row.get("resend") else kind)
        again = bool(row.get("redelivered"))
        at = self._clock(row) + span(row) if kind == "confirm" else 0
        for number in range(row["pub_first"], row["pub_last"] + 1):
            message = self.messages[row["producer"], number]
            if kind == "deliver":
                message.taken.add(queue)
            if kind == "ack":
                message.acks[queue] = message.acks.get(queue, 0) + 1
            elif counter is not None:
                setattr(message, counter, getattr(message, counter) + 1)
            message.redelivered += again
            message.resent |= kind == "deliver" and bool(row.get("resend"))
            if kind in _SENDS and queue not in message.queues:
                message.queues += (queue,)
            if kind == "confirm" and (message.confirmed_at is None or at < message.confirmed_at):
                message.confirmed_at = at
            if kind in EXPLAINED_BY and kind not in message.causes:
                message.causes += (kind,)

    def _broker(self, row: Event) -> None:
        if row.get("producer") is None:
            if row.get("queue") and (row.get("attrs") or {}).get("count") != "0":
                self._doubts[row["queue"]] = min(row["kind"], self._doubts.get(row["queue"], row["kind"]))
            return
        for number in range(row["pub_first"], row["pub_last"] + 1):
            message = self.messages[row["producer"], number]
            if row["kind"] not in message.causes:
                message.causes += (row["kind"],)
            if row["kind"] == "queue_dump":
                message.dumped_at = max(message.dumped_at, self._clock(row))

    # ---- verdicts ---------------------------------------------------------------------------------------------------

    def verdicts(self) -> Iterator[Verdict]:
        """Of all messages, in the order of producers and numbers."""
        whole = MessageEvidence(self._processes, self._drained, self.brokers())
        for key in sorted(self.messages):
            counts = self.messages[key]
            if counts.attempts or counts.confirms or counts.delivers or counts.acks or counts.refusals:
                yield self._verdict(key, counts, whole)

    def _verdict(self, key: tuple[str, int], counts: Counts, evidence: MessageEvidence) -> Verdict:
        a, e, d = counts.attempts, counts.confirmed, counts.dequeues
        seen = sum(counts.acks.values()) or min(counts.delivers, 1)
        if e > d:
            verdict, cause = self._missing(counts, evidence)
            return Verdict(*key, verdict, cause, counts, missing=e - d)
        if a == 0 and seen:
            return Verdict(*key, "unexpected", self._origin(key[0], evidence), counts, duplicates=seen)
        recovered, duplicates = max(0, min(d, a) - e), counts.duplicates if a else 0
        if duplicates:
            return Verdict(*key, "duplicated", _mark(counts), counts, duplicates=duplicates, recovered=recovered)
        if d:
            return Verdict(*key, "recovered" if recovered else "ok", "", counts, recovered=recovered)
        verdict = "refused" if counts.refusals else "unknown"
        return Verdict(*key, verdict, "delivered, never acknowledged" if counts.delivers else "", counts)

    def _origin(self, producer: str, evidence: MessageEvidence) -> str:
        senders = self._senders.get(producer, ())
        if not senders:
            return evidence.gap
        return "" if all(self._processes[name].whole for name in senders) else "its producer's log is incomplete"

    def _missing(self, counts: Counts, evidence: MessageEvidence) -> tuple[str, str]:
        for cause in EXPLAINED_BY:
            if cause in counts.causes and not (cause == "queue_dump" and evidence.emptied(counts)):
                return "explained", cause
        doubt = min((self._doubts[queue] for queue in counts.queues if queue in self._doubts), default="")
        if doubt:
            return "unaccounted", f"{doubt} in its queue"
        why = evidence.against(counts)
        if why:
            return "unaccounted", why
        return "lost", "delivered, never acknowledged" if counts.delivers else ""

    def summary(self) -> Summary:
        sums: Counter[str] = Counter(anonymous=self.anonymous)
        causes: Counter[str] = Counter()
        for verdict in self.verdicts():
            counts = verdict.counts
            sums["attempts"] += counts.attempts
            sums["resends"] += counts.resends
            sums["confirmed"] += counts.confirmed
            sums["recovered"] += verdict.recovered
            if counts.attempts:
                sums["ok"] += min(counts.dequeues, counts.attempts)
            if verdict.verdict == "duplicated":
                sums[verdict.cause] += verdict.duplicates
            if verdict.verdict == "unexpected":
                sums["unlogged"] += verdict.duplicates if verdict.cause else 0
            if verdict.verdict == "explained":
                causes[verdict.cause] += verdict.missing
            if verdict.verdict in _SUMMED:
                sums[verdict.verdict] += verdict.missing or verdict.duplicates or 1
        return Summary(**sums, causes=dict(sorted(causes.items())))


_SEEN: Final = ("proc", "client", "begun", "base", "followed")


def _seen(row: Event) -> tuple[Any, ...]:
    kind, term = row["kind"], row.get("term")
    client = row.get("client_id") or "" if kind == "client_open" else None
    begun, base = (term, (row.get("attrs") or {}).get("base")) if kind == "promoted" else (None, None)
    return row.get("proc") or "", client, begun, base, term if kind == "state" and row.get("new") == "ready" else None


KNOWN: Final = Brokers(gap="")
"""All clients have logs."""


def judge(
    rows: Iterable[Event], drained: bool | None = None, clock: Clock = wall, brokers: Brokers | None = KNOWN
) -> Summary:
    """The sums over all rows; `Judge` has the messages, too."""
    return Judge(drained, clock, brokers).add(rows).summary()


_COUNTER: Final = {
    "publish": "attempts",
    "resend": "resends",
    "confirm": "confirms",
    "nack": "refusals",
    "return": "refusals",
    "deliver": "delivers",
}
_SUMMED: Final = frozenset(
    {"lost", "unaccounted", "explained", "unexpected", "duplicated", "refused", "unknown"}
)  # the others have sums of their own


def _mark(counts: Counts) -> str:
    if counts.redelivered:
        return "redelivered"
    return "resend" if counts.resends or counts.resent else "unmarked"


def as_dict(summary: Summary) -> dict[str, Any]:
    """For JSON."""
    return {**summary.__dict__, "causes": dict(summary.causes), "valid": summary.valid}


def expanded(events: Iterable[Event]) -> Iterator[Event]:
    """All of them, one row a message."""
    for event in events:
        yield from expand(event)
