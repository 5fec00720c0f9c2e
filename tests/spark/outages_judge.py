"""The outages of clients in plain Python: the judge of the SQL in `spark_jobs.outages.query`, which has the definitions
(pure).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from spark_jobs.options import SHORTEST
from spark_jobs.schema import Event
from spark_jobs.solve.runs import span
from tests.spark.messages_judge import wall

_SENDS: Final = frozenset({"publish", "resend"})
_AWAY: Final = frozenset({"connect", "connect_refused", "disconnected"})
_BACK: Final = frozenset({"connected", "log_end"})
_GO_AHEAD: Final = frozenset({"unblocked", "disconnected", "connected", "log_end"})
_LINK: Final = _AWAY | _BACK | {"blocked"} | _GO_AHEAD
_ANSWERS: Final = frozenset({"confirm", "nack", "return"})
_SETTLES: Final = frozenset({"ack", "reject", "release"})

Message = tuple[str, int]
Interval = tuple[int, int]
Link = tuple[int, int, str, bool]
"""(moment, seq, kind, planned) of a row about the connection"""


@dataclass(frozen=True, order=True)
class Outage:
    """[begin, end) µs; `why`: what did not come: confirm, deliver, connection, go-ahead (it was asked to pause), joined
    by `+`; `censored`: it had not come back when the log ended."""

    begin: int
    end: int
    client_id: str
    why: str
    censored: bool = False

    @property
    def length(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Union:
    """Of many outages; times in µs.  `most`: clients that were down at once, of how many."""

    any_down: int = 0
    all_down: int = 0
    client_us: int = 0
    most: int = 0
    clients: int = 0
    begin: int | None = None
    end: int | None = None


@dataclass
class _Client:
    """What one client did, as moments."""

    first: int
    last: int
    sent: dict[Message, int] = field(default_factory=dict)
    answered: dict[Message, int] = field(default_factory=dict)
    last_answer: int = 0
    delivered: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    queues: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    links: list[Link] = field(default_factory=list)


@dataclass
class _Queue:
    """`seen`: first delivered, or refused.  A message that came by an exchange was sent to another name than ours."""

    ids: set[Message] = field(default_factory=set)
    seen: dict[Message, int] = field(default_factory=dict)


class Windows:
    """Takes all rows of clients, in any order."""

    def __init__(self, shortest: int = SHORTEST, clock: Callable[[Event], int] = wall) -> None:
        self._shortest = shortest
        self._clock = clock
        self._clients: dict[str, _Client] = {}
        self._queues: dict[str, _Queue] = defaultdict(_Queue)
        self._sent: dict[Message, int] = {}
        self._confirmed: dict[Message, int] = {}

    def add(self, rows: Iterable[Event]) -> Windows:
        for row in rows:
            if row.get("source") == "client" and row["kind"] != "torn":
                begin = self._clock(row)
                client = self._clients.setdefault(row.get("client_id") or "", _Client(begin, begin))
                if row.get("producer") is None:
                    self._note(client, row, begin)
                else:
                    self._run(client, row, begin)
        return self

    def _run(self, client: _Client, row: Event, begin: int) -> None:
        """One message or many, spread evenly."""
        producer, first, count = row["producer"], row["pub_first"], row["pub_last"] - row["pub_first"] + 1
        length, kind, queue = span(row), row["kind"], self._queues[row.get("queue") or ""]
        for index in range(count):
            at = begin + length * index // max(1, count - 1)
            self._note(client, row, at)
            self._message(client, queue, kind, (producer, first + index), at)

    def _note(self, client: _Client, row: Event, at: int) -> None:
        kind = row["kind"]
        client.first, client.last = min(client.first, at), max(client.last, at)
        if kind == "deliver":
            client.delivered.append(at)
            client.queues.add(row.get("queue") or "")
        elif kind in _SETTLES:
            client.settled.append(at)
        elif kind in _LINK:
            client.links.append((at, row.get("seq") or 0, kind, bool(row.get("planned"))))
        elif kind == "drain_end" and row.get("result") == "ok":
            client.drained.add(row.get("queue") or "")

    def _message(self, client: _Client, queue: _Queue, kind: str, message: Message, at: int) -> None:
        if kind in _SENDS:
            _earliest(client.sent, message, at)
            _earliest(self._sent, message, at)
            queue.ids.add(message)
        elif kind in _ANSWERS:
            _earliest(client.answered, message, at)
            client.last_answer = max(client.last_answer, at)
        if kind == "confirm":
            _earliest(self._confirmed, message, at)
        if kind in ("deliver", "nack", "return"):
            _earliest(queue.seen, message, at)
            queue.ids.add(message)

    # ---- outages ----------------------------------------------------------------------------------------------------

    def outages(self, end: int | None = None) -> list[Outage]:
        """In the order of time; `end`: of the observation, by default the last row of all."""
        if not self._clients:
            return []
        horizon = max([client.last for client in self._clients.values()] + ([] if end is None else [end]))
        return sorted(
            outage for name in sorted(self._clients) for outage in self._of(name, self._clients[name], horizon)
        )

    def _of(self, name: str, client: _Client, horizon: int) -> list[Outage]:
        parts = [(*part, "confirm") for part in self._producer(client, horizon)]
        parts += [(*part, "deliver") for part in self._consumer(client, horizon)]
        parts += [(*part, "connection") for part in _between(client.links, _AWAY, _BACK, horizon)]
        if client.sent:
            parts += [(*part, "go-ahead") for part in _between(client.links, {"blocked"}, _GO_AHEAD, horizon)]
        last = self._limit(client, horizon)
        back = {at for at, _, kind, planned in client.links if planned or kind in ("connected", "unblocked")}
        back.update([client.last_answer], client.delivered)
        return [
            Outage(begin, end, name, why, end >= last and end not in back)
            for begin, end, why in _joined(parts)
            if end - begin >= self._shortest
        ]

    def _producer(self, client: _Client, horizon: int) -> list[Interval]:
        limit = self._limit(client, horizon)
        waits, answers = _waits(client.sent, client.answered, limit), sorted(client.answered.values())
        return [part for part in _standstills(waits, answers, self._shortest) if self._long(part)]

    def _consumer(self, client: _Client, horizon: int) -> list[Interval]:
        """Without the time before its first delivery, which concerns other consumers."""
        limit, delivered, settled = self._limit(client, horizon), sorted(client.delivered), sorted(client.settled)
        waits: list[Interval] = []
        for name in client.queues:
            coming = self._coming(name, horizon, bool(client.drained & {name, ""}))
            waits += [(begin, min(end, limit)) for begin, end in coming if end - begin >= self._shortest]
        found = [part for part in _standstills(sorted(waits), delivered, self._shortest) if part[0] >= delivered[0]]
        whole = [self._to_delivery(part, delivered) for part in found]
        return [part for part in (self._after_work(part, settled) for part in whole) if self._long(part)]

    def _to_delivery(self, part: Interval, delivered: Sequence[int]) -> Interval:
        """What waited may have been confirmed before the next one was sent: nothing came until that was delivered."""
        begin, end = part
        later = bisect_left(delivered, end)
        return (begin, delivered[later]) if later < len(delivered) and delivered[later] - end < self._shortest else part

    def _coming(self, name: str, horizon: int, drained: bool) -> list[Interval]:
        """The waits for the messages of a queue."""
        queue = self._queues[name]
        sent = {id: self._sent[id] for id in queue.ids if id in self._sent and (id in queue.seen or not drained)}
        done = {id: max(at, self._confirmed.get(id, at)) for id, at in queue.seen.items()}
        return _waits(sent, done, horizon)

    def _after_work(self, part: Interval, settled: Sequence[int]) -> Interval:
        begin, end = part
        inside = settled[bisect_right(settled, begin) : bisect_left(settled, end)]
        return (inside[-1], end) if inside and inside[-1] - begin >= self._shortest else part

    def _long(self, part: Interval) -> bool:
        return part[1] - part[0] >= self._shortest

    def _limit(self, client: _Client, horizon: int) -> int:
        """A client that ended cleanly waits for nothing."""
        return client.last if any(kind == "log_end" for _, _, kind, _ in client.links) else horizon

    # ---- sums -------------------------------------------------------------------------------------------------------

    def union(self, outages: Iterable[Outage], begin: int | None = None, end: int | None = None) -> Union:
        """The sweep; of the outages only what lies in [begin, end)."""
        cut = [_cut((outage.begin, outage.end), begin, end) for outage in outages]
        lives = [_cut(life, begin, end) for life in self._lives(end)]
        return sweep([part for part in cut if part], [life for life in lives if life])

    def _lives(self, end: int | None) -> list[Interval]:
        horizon = max([client.last for client in self._clients.values()] + ([] if end is None else [end]), default=0)
        return [(client.first, self._limit(client, horizon)) for client in self._clients.values()]


def sweep(parts: Iterable[Interval], lives: Sequence[Interval]) -> Union:
    """`parts`: down times, of which no two of one client overlap; `lives`: when each client existed."""
    steps: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for index, intervals in enumerate((parts, lives)):
        for begin, end in intervals:
            steps[begin][index] += 1
            steps[end][index] -= 1
    moments = sorted(steps)
    down = alive = any_down = all_down = client_us = most = 0
    busy: list[int] = []
    for moment, later in pairwise([*moments, moments[-1] if moments else 0]):
        down, alive = down + steps[moment][0], alive + steps[moment][1]
        any_down += (later - moment) * (down > 0)
        all_down += (later - moment) * (down >= alive > 0)
        client_us += (later - moment) * down
        most = max(most, down)
        busy += [moment, later] if down else []
    return Union(any_down, all_down, client_us, most, len(lives), min(busy, default=None), max(busy, default=None))


def _waits(sent: Mapping[Message, int], answered: Mapping[Message, int], limit: int) -> list[Interval]:
    """From each send until its answer, in the order of sending; until `limit` if nothing sent later was answered."""
    found: list[Interval] = []
    next_answer = limit
    for at, message in sorted(((at, message) for message, at in sent.items()), reverse=True):
        answer = answered.get(message)
        # an interpolated answer may precede an interpolated send
        end = next_answer if answer is None else max(at, answer)
        next_answer = next_answer if answer is None else min(next_answer, end)
        found.append((at, end))
    found.reverse()
    return found


def _standstills(waits: Iterable[Interval], answers: Sequence[int], slack: int) -> list[Interval]:
    """The time in which something is waited for, cut at each answer; all in order.  Two parts with less than `slack`
    between them, and no answer, are one."""
    parts: list[Interval] = []
    for begin, end in merged(waits):
        inside = answers[bisect_right(answers, begin) : bisect_left(answers, end)]
        for part in pairwise([begin, *inside, end]):
            if parts and part[0] - parts[-1][1] < slack and not _any_in(answers, parts[-1][1], part[0]):
                part = (parts.pop()[0], part[1])
            parts.append(part)
    return parts


def _any_in(moments: Sequence[int], first: int, last: int) -> bool:
    return bisect_left(moments, first) < bisect_right(moments, last)


def merged(parts: Iterable[Interval]) -> list[Interval]:
    """The union of intervals that are in order, as intervals that do not touch."""
    found: list[Interval] = []
    for begin, end in parts:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif begin < end:
            found.append((begin, end))
    return found


def _between(links: Iterable[Link], begins: AbstractSet[str], ends: AbstractSet[str], horizon: int) -> list[Interval]:
    """From a row of the one kinds to the next of the other; what the client has asked for itself ends it, too."""
    parts: list[Interval] = []
    since: int | None = None
    for at, _, kind, planned in sorted(links):
        if since is None and kind in begins and not planned:
            since = at
        elif since is not None and (kind in ends or planned):
            parts.append((since, at))
            since = None
    return parts if since is None else [*parts, (since, horizon)]


def _joined(parts: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, set[str]]] = []
    for begin, end, why in sorted(parts):
        if found and begin <= found[-1][1]:
            before = found.pop()
            found.append((before[0], max(before[1], end), before[2] | {why}))
        else:
            found.append((begin, end, {why}))
    return [(begin, end, "+".join(sorted(why))) for begin, end, why in found]


def _cut(part: Interval, begin: int | None, end: int | None) -> Interval | None:
    low = part[0] if begin is None else max(part[0], begin)
    high = part[1] if end is None else min(part[1], end)
    return (low, high) if low < high else None


def _earliest(moments: dict[Message, int], message: Message, at: int) -> None:
    moments[message] = min(at, moments.get(message, at))
