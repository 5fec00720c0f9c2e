"""`/api/ha/events`: the numbered events of the broker, for readers that may wait for the next one.             Shell.

    GET /api/ha/events?since=N&history=H&type=ha.*&limit=200&wait=20

Each request asks the broker as any other does, with its own login.  One that waits holds nothing at the broker: `News`
says when to ask again, so the broker judges the rights at the time of the answer.  READERS wait at a time; more are
refused (429).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, Final, Protocol

from qpidd_py.http.door import Door, Problem, told
from qpidd_py.http.event_query import Query, Wanted, wanted
from qpidd_py.http.gate import Gate
from qpidd_py.http.news import News, Place
from qpidd_py.management.events import METHOD

PATH: Final = "/api/ha/events"
Json = dict[str, Any]
READERS: Final = 100
PAUSE: Final = 0.25
"""Seconds between two questions of one reader."""


class Ask(Protocol):
    """A connection to the broker."""

    def request(self, method: str, arguments: Json) -> Any: ...


class Reading:
    """What one request has found until now."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._found: deque[Json] = deque(maxlen=wanted.limit)
        self._missed = self._last = 0
        self._next, self._history = wanted.since or 0, wanted.history

    @property
    def done(self) -> bool:
        """Something is wanted of what was found."""
        return bool(self._found or self._missed)

    @property
    def place(self) -> Place:
        return Place(self._history, self._next)

    def answer(self) -> Json:
        known = {"history": self._history, "last": self._last, "next": self._next, "missed": self._missed}
        return {**known, "events": list(self._found)}

    def read(self, broker: Ask) -> None:
        """Up to the event that is the last one now, or the limit.  Blocks; raises Problem."""
        with told():
            if self._wanted.since is None and not self._wanted.types:
                self._next = max(0, broker.request(METHOD, {})["last"] - self._wanted.limit)
            end: int | None = None
            while end is None or (self._next < end and not self._full):
                self._take(broker.request(METHOD, self.place.arguments))
                end = self._last if end is None else end
        if self._wanted.since is None:
            self._missed = 0  # of those nobody has asked for any

    @property
    def _full(self) -> bool:
        """Without a beginning the newest ones replace the others."""
        return self._wanted.since is not None and len(self._found) >= self._wanted.limit

    def _take(self, answer: Json) -> None:
        self._history, self._last = answer["history"], answer["last"]
        self._missed += answer["missed"]
        events: Sequence[Json] = answer["events"]
        for each in events:
            if self._full:
                return
            self._next = each["number"]
            if self._wanted.takes(each["event"]):
                self._found.append(each)
        if not events:
            self._next = self._last


class Readers:
    """Those of one server."""

    def __init__(self, pool: Executor, gate: Gate) -> None:
        self._pool, self._gate = pool, gate
        self._news = News()
        self._waiting = 0
        self._ended = False

    async def end(self, _: object = None) -> None:
        """All that wait are answered now."""
        self._ended = True
        await self._news.end()

    async def answer(self, door: Door, query: Query, address: str, gone: Callable[[], bool]) -> Json:
        """Raises Problem, QueryError."""
        asked = wanted(query)
        until, reading = time.monotonic() + asked.wait, Reading(asked)
        await self._read(reading, door, address)
        if asked.wait and not reading.done:
            with self._place():
                over = lambda: self._ended or gone()  # noqa: E731
                while not reading.done and await self._news.wait(door, reading.place, asked.takes, until, over):
                    await self._read(reading, door, address)
                    await asyncio.sleep(0 if reading.done else PAUSE)
        return reading.answer()

    async def _read(self, reading: Reading, door: Door, address: str) -> None:
        def read() -> None:
            with door.open() as broker:
                reading.read(broker)

        async with self._gate.passed(door.target.login, address):
            await asyncio.get_running_loop().run_in_executor(self._pool, read)

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._waiting >= READERS:
            raise Problem(429, "too_many_requests", f"{self._waiting} readers wait for events, which are all")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
