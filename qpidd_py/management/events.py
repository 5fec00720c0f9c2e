"""The request for events (`broker/events.py`), which may wait for them: what `qpid-printevents` asks.            Pure.

    event.list  {after, history, limit=200, wait=0}  -> {history, last, missed, events: [{number, time, event, ...}]}

* `after`: the number of the last event that was seen; without it: only the number of the last event is answered.  With
  another `history` (the broker has begun anew) all events count that there are.  `missed`: how many are forgotten.
* `wait`: seconds, at most WAIT_MAX, for the first event, if there is none yet.  Events of GATHER seconds come together.
* A connection has one request that waits: the next one ends it.  So a slow reader costs one answer.
* The user's right is looked at again when a request has waited.
* SLICE answers are made in one turn, so that many who wait do not stop the broker.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.events import Event
from qpidd_py.management.request import Forbidden, Json, Reply, RequestError, text
from qpidd_py.management.rights import check_request
from qpidd_py.management.turns import Defer

METHOD: Final = "event.list"
LIMIT: Final = 200
"""Events in an answer."""
WAIT_MAX: Final = 30.0
GATHER: Final = 0.05
SLICE: Final = 4
AGAIN: Final = 0.5
"""Seconds between two looks at those whose time may be over."""


class Waiter(NamedTuple):
    """One request."""

    asker: ClientConnection | None
    reply: Reply
    after: int
    limit: int
    until: float


class EventRequests:
    """Of one broker."""

    def __init__(self, broker: Broker, defer: Defer | None) -> None:
        """Without `defer` none waits."""
        self._broker = broker
        self._events = broker.events
        self._defer = defer
        self._waiting: dict[ClientConnection, Waiter] = {}
        self._due: deque[Waiter] = deque()
        """Those that get their answer now."""
        self._scheduled = False
        self._events.begin(f"{broker.clocks()[0]:x}", lambda: broker.clocks()[0])

    def list(self, arguments: Json, reply: Reply, asker: ClientConnection | None) -> None:
        """Answers now or later.  Raises RequestError."""
        limit, wait = number_of(arguments, "limit", LIMIT, 1, LIMIT), number_of(arguments, "wait", 0, 0, WAIT_MAX)
        after = number_of(arguments, "after", self._events.last, 0, 1 << 62)
        if text(arguments, "history", self._events.history) != self._events.history:
            after = 0
        waiter = Waiter(asker, reply, min(int(after), self._events.last), int(limit), self._now() + wait)
        if asker is not None and (before := self._waiting.pop(asker, None)) is not None:
            self._answer(before)
        if "after" not in arguments or waiter.after < self._events.last or not wait or not (asker and self._defer):
            self._answer(waiter)
            return
        self._waiting[asker] = waiter
        self._events.on_news = self._news
        self._look_later()

    def _now(self) -> float:
        return self._broker.clocks()[1] / 1e6

    def _answer_late(self, waiter: Waiter) -> None:
        """Dropped if its connection has ended."""
        try:
            check_request(waiter.asker, METHOD, {})
        except Forbidden as error:
            waiter.reply({"ok": False, "error": str(error), "code": error.code})
        else:
            self._answer(waiter)

    def _answer(self, waiter: Waiter) -> None:
        missed, found = self._events.after(waiter.after, waiter.limit)
        known = {"history": self._events.history, "last": self._events.last, "missed": missed}
        waiter.reply({"ok": True, "result": {**known, "events": [shown(*each) for each in found]}})

    def _news(self) -> None:
        if self._defer is not None:
            self._defer(GATHER, self._tell)

    def _tell(self) -> None:
        self._due.extend(self._waiting.values())
        self._waiting.clear()
        self._answer_some()

    def _answer_some(self) -> None:
        for _ in range(min(SLICE, len(self._due))):
            self._answer_late(self._due.popleft())
        if self._due and self._defer is not None:
            self._defer(0.0, self._answer_some)

    def _look_later(self) -> None:
        if self._defer is not None and not self._scheduled:
            self._scheduled = True
            self._defer(AGAIN, self._look)

    def _look(self) -> None:
        self._scheduled = False
        now = self._now()
        for asker, waiter in list(self._waiting.items()):
            if not asker.opened or waiter.until <= now:
                self._due.append(self._waiting.pop(asker))
        self._answer_some()
        if self._waiting:
            self._look_later()


def shown(number: int, event: Event) -> Json:
    wall, name, fields = event
    return {"number": number, "time": wall, "event": name, **fields}


def number_of(arguments: Json, name: str, default: int, least: int, most: float) -> float:
    """Raises RequestError."""
    value: Any = arguments.get(name, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise RequestError(f"{name} is {value!r:.40}, wanted a number from {least} to {most:g}")
    return value
