"""Decides whether a confirmed message may be missing although no client acknowledged it, from the clients' histories.
Pure.

All times are µs of one monotonic clock; the clients share a machine.  A queue with a rule (`queues.py`) has one
producer that publishes on one channel, and one client that removes.  After a broken connection, each waits until
everything sent on the old one is done or never will be (`plain.py`, `fenced`).  What the removing client *sees* counts
if the same broker confirmed something afterwards: then it was the primary.

    limit   *displaced*: between its publish and the next time that the queue was seen empty, as many messages as the
            limit came that lay behind it.  (Each of them came or was displaced by as many that lie further behind.)
    purge   *purged*: a purge was under way or began after its publish, and it was answered, or its connection broke.
            A purge in doubt did not happen if a message that was confirmed before it is seen after it.
    route   *unroutable*: the binding was not known to be there all the time from publish to confirm.  An unbind in
            doubt did not happen if the binding is seen afterwards.
    auto    *under way*: the connection of the reader broke, and between two messages that came at most BUFFERS octets
            are missing.  More cannot have left the broker's socket.  The broker may write to it until the reader is
            connected again, and not longer: the reader is fenced, too.

The other way round: what was confirmed before a purge that was answered, or published while there was no binding, is
not seen afterwards (`returned`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from typing import Any, Final

from testkit.record import body_of

SEND_BUFFER: Final = 256 * 1024
RECEIVE_BUFFER: Final = 64 * 1024
"""Octets that the kernel of a host keeps of a TCP connection, at most: so much an auto-ack reader may lose."""
BUFFERS: Final = SEND_BUFFER + RECEIVE_BUFFER + 64 * 1024
"""Octets: the broker's kernel, the client's kernel, and what pika has read when it raises."""

Event = Mapping[str, Any]


@dataclass
class Purge:
    asked: float
    done: float = inf
    """From this moment on it has happened or never will."""
    answered: bool = False


@dataclass
class RuledQueue:
    """What its clients saw."""

    rule: str
    limit: int = 0
    remover: str = ""
    """The client whose connections matter."""
    invoked: dict[str, int] = field(default_factory=dict)
    confirmed: dict[str, int] = field(default_factory=dict)
    received: list[tuple[int, str]] = field(default_factory=list)
    seen: list[tuple[int, str]] = field(default_factory=list)
    """Received from a broker that confirmed something afterwards."""
    empties: list[tuple[int, int]] = field(default_factory=list)
    """(asked, known)"""
    purges: list[Purge] = field(default_factory=list)
    absent: list[tuple[float, float]] = field(default_factory=list)
    """When the binding may not have been there."""
    gone: list[tuple[int, int]] = field(default_factory=list)
    """When it certainly was not."""
    breaks: list[tuple[int, float]] = field(default_factory=list)
    """When its connection broke, as it saw it, and when it had the next one."""
    _unproved: list[tuple[int, str]] = field(default_factory=list)
    _unbinding: float | None = -inf
    _unbound: bool = True
    _gone: int | None = None

    def add(self, event: Event) -> None:
        handler = _HANDLERS.get(str(event["kind"]))
        if handler is not None:
            handler(self, event)

    def lawful(self, missing: Iterable[str]) -> set[str]:
        """Those that may be missing."""
        return _RULES[self.rule](self, sorted(missing, key=lambda id: self.invoked[id]))

    def returned(self) -> set[str]:
        """Those that came although they had been purged, or had no route."""
        purges = [purge for purge in self.purges if purge.answered]
        purged = {id for at, id in self.seen if any(self._before(id, purge) and at > purge.done for purge in purges)}
        stray = {id for _, id in self.received if any(self._within(id, span) for span in self.gone)}
        return purged | stray

    def _before(self, id: str, purge: Purge) -> bool:
        return self.confirmed.get(id, inf) <= purge.asked

    def _within(self, id: str, span: tuple[float, float]) -> bool:
        return span[0] <= self.invoked.get(id, -inf) and self.confirmed.get(id, inf) <= span[1]

    # ---- limit ----------------------------------------------------------------------------------------------------

    def displaced(self, missing: list[str]) -> set[str]:
        self.received.sort()
        self.empties.sort()
        return {id for id in missing if self._came_behind(id) >= self.limit}

    def _came_behind(self, id: str) -> int:
        """Messages behind it that came until the queue was empty; 0 when that was not seen."""
        end = next((known for asked, known in self.empties if asked >= self.confirmed[id]), 0)
        first = bisect_right(self.received, (self.invoked[id], ""))
        last = bisect_left(self.received, (end + 1, ""))
        return len({other for _, other in self.received[first:last] if self._behind(other, id)})

    def _behind(self, other: str, id: str) -> bool:
        return self.invoked.get(other, -1) > self.invoked[id]

    # ---- purge ----------------------------------------------------------------------------------------------------

    def purged(self, missing: list[str]) -> set[str]:
        latest = max((purge.done for purge in self.purges if not self._refuted(purge)), default=-inf)
        return {id for id in missing if self.invoked[id] < latest}

    def _refuted(self, purge: Purge) -> bool:
        return not purge.answered and any(
            at > purge.done and self.confirmed.get(id, inf) <= purge.asked for at, id in self.seen
        )

    # ---- route ----------------------------------------------------------------------------------------------------

    def unroutable(self, missing: list[str]) -> set[str]:
        spans = self.absent if self._unbinding is None else [*self.absent, (self._unbinding, inf)]
        return {
            id for id in missing if any(a <= self.confirmed[id] and self.invoked[id] <= b for a, b in spans)
        }  # fmt: skip

    def _ask_unbind(self, event: Event) -> None:
        self._unbinding, self._unbound = event["t"], False

    def _is_unbound(self, event: Event) -> None:
        self._unbound, self._gone = True, event["t"]

    def _ask_bind(self, event: Event) -> None:
        if self._gone is not None:
            self.gone.append((self._gone, event["t"]))
        self._gone = None

    def _is_bound(self, event: Event) -> None:
        if self._unbinding is not None and self._unbound:
            self.absent.append((self._unbinding, event["t"]))
        self._unbinding = self._gone = None

    # ---- auto -----------------------------------------------------------------------------------------------------

    def under_way(self, missing: list[str]) -> set[str]:
        """Each run of missing ones needs a broken connection of its own; more octets, more of them."""
        left, found = sorted(self.breaks), set()
        for run, until in self._runs(set(missing)):
            first, last = self.invoked[run[0]], self.invoked[run[-1]]
            wanted = -(-sum(len(body_of(id)) for id in run) // BUFFERS)
            spans = [(gone, back) for gone, back in left if first < back and gone <= until]
            mine = [*spans[: wanted - 1], *[span for span in spans[wanted - 1 :] if last < span[1]][:1]]
            if len(mine) == wanted:
                found.update(run)
                left = [span for span in left if span not in mine]
        return found

    def _runs(self, missing: set[str]) -> Iterator[tuple[list[str], float]]:
        """Missing ones between two that came, in the order of their publishing, and when one behind them came."""
        first: dict[str, int] = {}
        for at, id in sorted(self.received):
            first.setdefault(id, at)
        order = sorted(missing | (first.keys() & self.invoked.keys()), key=lambda id: self.invoked[id])
        until, found = inf, []
        for lost, ids in groupby(reversed(order), key=lambda id: id in missing):
            run = list(ids)[::-1]
            if lost:
                found.append((run, until))
            else:
                until = min(until, *(first[id] for id in run))
        return reversed(found)

    # ---- events ---------------------------------------------------------------------------------------------------

    def _receive(self, event: Event) -> None:
        self.received.append((event["t"], event["id"]))
        self._unproved.append((event["t"], event["id"]))

    def _empty(self, event: Event) -> None:
        self.empties.append((event["asked"], event["t"]))
        self.seen += self._unproved
        self._unproved = []

    def _answered(self, event: Event) -> None:
        self.purges[-1].done, self.purges[-1].answered = event["t"], True

    def _fact(self, event: Event) -> None:
        word = str(event["text"]).partition(" ")[0]
        if event["client"] != self.remover:
            return
        if word == "disconnected":
            self.breaks.append((event["t"], inf))
        elif word == "connected":
            self._unproved = []
            if self.breaks:
                self.breaks[-1] = (self.breaks[-1][0], min(self.breaks[-1][1], event["t"]))
            if self.purges and self.purges[-1].done == inf:
                self.purges[-1].done = event["t"]


_RULES: Final[dict[str, Callable[[RuledQueue, list[str]], set[str]]]] = {
    "limit": RuledQueue.displaced, "purge": RuledQueue.purged,
    "route": RuledQueue.unroutable, "auto": RuledQueue.under_way,
}  # fmt: skip
_HANDLERS: Final[dict[str, Callable[[RuledQueue, Event], None]]] = {
    "invoke": lambda queue, event: queue.invoked.update({event["id"]: event["t"]}),
    "ok": lambda queue, event: queue.confirmed.update({event["id"]: event["t"]}),
    "receive": RuledQueue._receive,
    "empty": RuledQueue._empty,
    "purge": lambda queue, event: queue.purges.append(Purge(event["t"])),
    "purged": RuledQueue._answered,
    "unbind": RuledQueue._ask_unbind,
    "unbound": RuledQueue._is_unbound,
    "bind": RuledQueue._ask_bind,
    "bound": RuledQueue._is_bound,
    "fact": RuledQueue._fact,
}
