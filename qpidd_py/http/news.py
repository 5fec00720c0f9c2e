"""Tells those who wait for events that there are some: one connection to the broker, whatever the number of readers.
                                                                                                               Shell.

The broker takes 64 connections of tools and other brokers.  So while anybody waits, one connection follows the events,
with the login of one who waits: another one's when that one has gone or may not any more.  What it reads only says whom
to wake; a reader asks for itself then, and sees what its own user may.  If the broker is lost, all are told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from qpidd_py.cli.client_socket import Deadline, ManagementSocket
from qpidd_py.http.door import SECONDS, Door, Problem, told
from qpidd_py.management.events import METHOD

log = logging.getLogger(__name__)
Json = dict[str, Any]
LOOK: Final = 1.0
"""Seconds for which the broker waits for an event, and after which one who has gone away is noticed."""
RECENT: Final = 1000


class Place(NamedTuple):
    """How far the events were read."""

    history: str
    number: int

    @property
    def arguments(self) -> Json:
        return {"after": self.number, **({"history": self.history} if self.history else {})}


@dataclass(eq=False)
class Waiter:
    """One who waits; `woken` is done when there may be something."""

    door: Door
    place: Place
    takes: Callable[[str], bool]
    woken: asyncio.Future[None]

    def wake(self, problem: Problem | None = None) -> None:
        """`problem`: it would find the same if it asked."""
        if self.woken.done():
            return
        if problem is None:
            self.woken.set_result(None)
        else:
            self.woken.set_exception(problem)


class News:
    """Of one server; used by its loop only."""

    def __init__(self) -> None:
        self._waiters: set[Waiter] = set()
        self._place = Place("", 0)
        self._recent: deque[tuple[int, str]] = deque(maxlen=RECENT)
        """The last events that were read: number and name."""
        self._thread = ThreadPoolExecutor(1, "news")
        self._task: asyncio.Task[None] | None = None
        self._lost: Door | None = None
        """Whose connection has failed: it is tried once more."""

    async def wait(
        self, door: Door, place: Place, takes: Callable[[str], bool], until: float, over: Callable[[], bool]
    ) -> bool:
        """True if it is worth asking the broker for what comes behind this place.  `until`: of the monotonic clock;
        `over` is asked each second.  Raises Problem (503) if the broker is lost."""
        if self._task is None or self._task.done():
            self._place = place
            self._recent.clear()
            self._task = asyncio.create_task(self._follow())
        elif self._passed(place, takes):
            return True
        waiter = Waiter(door, place, takes, asyncio.get_running_loop().create_future())
        self._waiters.add(waiter)
        try:
            while not waiter.woken.done() and not over() and (left := until - time.monotonic()) > 0:
                await asyncio.wait([waiter.woken], timeout=min(LOOK, left))
            return waiter.woken.done() and waiter.woken.result() is None
        finally:
            self._waiters.discard(waiter)

    def _passed(self, place: Place, takes: Callable[[str], bool]) -> bool:
        """Something that is wanted was read before this one waited, or that is not known."""
        if place.history != self._place.history or self._place.number - len(self._recent) > place.number:
            return True
        return any(number > place.number and takes(name) for number, name in self._recent)

    async def end(self) -> None:
        self._wake(lambda _: True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _wake(self, whom: Callable[[Waiter], bool], problem: Problem | None = None) -> None:
        for waiter in filter(whom, self._waiters):
            waiter.wake(problem)

    @property
    def _asleep(self) -> list[Waiter]:
        return [waiter for waiter in self._waiters if not waiter.woken.done()]

    async def _follow(self) -> None:
        """While anybody waits."""
        await asyncio.sleep(0)
        while doors := [waiter.door for waiter in self._asleep]:
            door = self._lost if self._lost in doors else doors[0]
            try:
                await self._follow_as(door)
            except Problem as problem:
                self._failed(door, problem)
            except Exception:  # a defect: those who wait ask for themselves
                log.exception("events are not followed")
                self._wake(lambda _: True)

    def _failed(self, door: Door, problem: Problem) -> None:
        """The broker may have closed the connection because of its user only."""
        again = problem.status == 503 and self._lost is None
        if problem.status != 503:
            self._wake(lambda waiter: waiter.door == door)
        elif not again:
            self._wake(lambda _: True, problem)
        self._lost = door if again else None

    async def _follow_as(self, door: Door) -> None:
        """While one of this login waits.  Raises Problem."""
        loop = asyncio.get_running_loop()
        broker = await loop.run_in_executor(self._thread, door.open)
        try:
            while any(waiter.door == door for waiter in self._asleep):
                self._read(await loop.run_in_executor(self._thread, _asked, broker, self._place))
                self._lost = None
        finally:
            broker.close()

    def _read(self, answer: Json) -> None:
        events = answer["events"]
        anew = answer["missed"] or self._place.history not in ("", answer["history"])
        if anew:
            self._recent.clear()
        self._place = Place(answer["history"], events[-1]["number"] if events else answer["last"])
        self._recent.extend((each["number"], each["event"]) for each in events)
        for waiter in self._waiters:
            new = (each for each in events if each["number"] > waiter.place.number and waiter.takes(each["event"]))
            if anew or any(new):
                waiter.wake()


def _asked(broker: ManagementSocket, place: Place) -> Json:
    """In a thread."""
    with told():
        return broker.request(METHOD, {**place.arguments, "wait": LOOK}, Deadline(SECONDS))  # type: ignore[no-any-return]
