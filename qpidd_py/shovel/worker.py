"""Runs the shovels of a broker while it is the primary.                                                         Shell.

Each second it tells its broker how they do, and gets the parameters in return (`management/parameters.py`).  A broker
that refuses (a backup) or does not answer has no shovels here: their runs end, and the messages that were on their way
go to the worker of the next primary.  Two workers at a time, beside an old primary that is cut off and a new one, may
move a message twice, and lose none.

A shovel that fails is begun anew after `reconnect-delay`, which doubles as long as nothing was moved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from client_lib import MessagingError
from qpidd_py.broker.parameters import FOLLOWS, SHOVEL
from qpidd_py.cli.client_socket import BrokerError, RequestRefused
from qpidd_py.cli.output import describe
from qpidd_py.errors import ReplyCode
from qpidd_py.shovel.beside import Broker, Json
from qpidd_py.shovel.federation import Path
from qpidd_py.shovel.here import Here, Place, place_of
from qpidd_py.shovel.run import Run, take_down

log = logging.getLogger(__name__)

INTERVAL: Final = 1.0
"""Seconds between two requests."""
DELAY: Final = 1.0
"""Seconds: `reconnect-delay` unless it is given."""
DELAY_MAX: Final = 60.0
PATHS_MAX: Final = 40_000
"""Characters, of all routes to an exchange, in a report."""
SHOWN: Final = 200
"""Characters of a reason or an address in a report."""


class Key(NamedTuple):
    """A parameter; one that is set again is another one."""

    host: str
    name: str
    uid: int
    restarts: int = 0
    """Another number: the same parameter is to begin anew."""


class Shovel:
    """One parameter: runs again and again."""

    def __init__(
        self, key: Key, value: Mapping[str, Any], broker: Broker, moved: int = 0, here: Here | None = None
    ) -> None:
        """`moved`: before it was restarted; `here`: of a route that follows bindings."""
        self.key, self.value, self._broker, self._here = key, value, broker, here
        self.done = False
        """It has moved what `src-delete-after` says; the parameter is to be cleared."""
        self._delay = float(value.get("reconnect-delay", DELAY))
        self._run: Run | None = None
        self._moved, self._reason = moved, ""
        self.task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        delay = self._delay
        while True:
            run = Run(self.key.name, self.key.host, self.value, self._broker.address, self._moved, self._here)
            before, self._run = self._moved, run
            try:
                await run.move()
                self.done = True
                log.info("shovel %s: done, %d messages were moved", self.key.name, run.moved)
                return
            except (MessagingError, ValueError, OSError) as error:
                self._ended(describe(error), delay)
            except Exception as error:  # a defect: the other shovels go on
                log.exception("shovel %s: failed", self.key.name)
                self._ended(describe(error), delay)
            finally:
                self._moved, self._run = run.moved, None
            delay = self._delay if self._moved > before else delay
            await asyncio.sleep(delay)
            delay = max(self._delay, min(delay * 2, DELAY_MAX))

    def _ended(self, reason: str, delay: float) -> None:
        if reason != self._reason:
            log.warning("shovel %s: ended, begins again in %g s: %s", self.key.name, delay, reason)
        self._reason = reason

    @property
    def moved(self) -> int:
        return self._moved if self._run is None else self._run.moved

    def report(self) -> Json:
        run = self._run
        known: Json = {**self.key._asdict(), "vhost": self.key.host, "moved": self.moved}
        if self._here is not None and self._here.ways.heard(self.key.name):
            known["paths"] = list(_fitting(self._here.ways.told(self.key.name), PATHS_MAX // len(self._here.routes)))
        if run is None:
            return {**known, "state": "terminated", "reason": _short(self._reason)}
        ends = {"source": _short(run.place(0)), "destination": _short(run.place(1)), "pending": run.pending}
        if run.running:
            return {**known, **ends, "state": "running"}
        return {**known, **ends, "state": "starting", "reason": _short(run.trouble or self._reason)}


def _short(text: str) -> str:
    """All reports together are one request, whose size is limited."""
    return text.encode("ascii", "backslashreplace").decode()[:SHOWN]


def _fitting(paths: Iterable[Path], room: int) -> Iterator[str]:
    for path in map(",".join, paths):
        room -= len(path) + 4
        if room < 0:
            return
        yield path


class Worker:
    """All shovels of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shovels: dict[Key, Shovel] = {}
        self._here: dict[Place, Here] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._trouble = ""

    async def serve(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(INTERVAL)
        finally:
            await self._follow([])
            await self._leave()

    async def _look(self) -> None:
        backup = False
        try:
            for key in [key for key, shovel in self._shovels.items() if shovel.done]:
                await self._clear(key)
            shovels = [shovel.report() for shovel in self._shovels.values()]
            wanted, trouble = await asyncio.to_thread(self._broker.report, shovels), ""
        except (BrokerError, OSError) as error:
            backup = isinstance(error, RequestRefused) and error.code == ReplyCode.CONNECTION_FORCED
            wanted, trouble = [], "" if backup else describe(error)
        if trouble and trouble != self._trouble:
            log.warning("no shovels run: %s", trouble)
        self._trouble = trouble
        deposed = not wanted and (trouble or backup)
        ended = await self._follow([item for item in wanted if item["component"] == SHOVEL])
        if not deposed:
            self._take_down(ended)

    async def _clear(self, key: Key) -> None:
        try:
            await asyncio.to_thread(self._broker.clear, *key[:3])
        except RequestRefused as error:
            if error.code == ReplyCode.CONNECTION_FORCED:
                raise
            log.info("shovel %s: %s", key.name, error)  # it was cleared, or set anew

    async def _follow(self, items: list[Json]) -> list[Shovel]:
        """Begins the shovels that do not run; ends, and returns, those that are none of these."""
        wanted = {_key(item): item.get("value", {}) for item in items}
        ended = [self._shovels.pop(key) for key in list(self._shovels) if key not in wanted]
        for shovel in ended:
            shovel.task.cancel()
            log.info("shovel %s: ends", shovel.key.name)
        if ended:
            await asyncio.wait([shovel.task for shovel in ended])
        moved = {shovel.key[:3]: shovel.moved for shovel in ended}
        fresh = {key: wanted[key] for key in wanted.keys() - self._shovels.keys()}
        await self._look_here([*(each.value for each in self._shovels.values()), *fresh.values()])
        for key, value in fresh.items():
            log.info("shovel %s: begins", key.name)
            here = self._here[place_of(value)] if value.get(FOLLOWS) else None
            if here is not None:
                here.routes.add(key.name)
            self._shovels[key] = Shovel(key, value, self._broker, moved.get(key[:3], 0), here)
        return ended

    async def _look_here(self, values: Iterable[Mapping[str, Any]]) -> None:
        """At the bindings of these shovels' exchanges, and at no others."""
        places = {place_of(value) for value in values if value.get(FOLLOWS)}
        for place in self._here.keys() - places:
            await self._here.pop(place).end()
        for place in places - self._here.keys():
            self._here[place] = Here(self._broker.another(), place)

    def _take_down(self, ended: Iterable[Shovel]) -> None:
        """Queues of routes that were deleted."""
        used = {each.value.get("src-exchange-queue") for each in self._shovels.values()}
        for shovel in ended:
            place = place_of(shovel.value) if shovel.value.get(FOLLOWS) else None
            if place is None or shovel.value["src-exchange-queue"] in used:
                continue
            if (here := self._here.get(place)) is not None:
                here.forget(shovel.key.name)
            task = asyncio.create_task(take_down(shovel.key.name, shovel.value))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _leave(self) -> None:
        if self._leaving:
            await asyncio.wait(list(self._leaving), timeout=INTERVAL)


def _key(item: Json) -> Key:
    return Key(item["vhost"], item["name"], item["uid"], item.get("restarts", 0))
