"""The bindings of one exchange of this cluster, and the ways to it, for all routes that follow them.             Shell.

The broker beside this program is asked for what has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from client_lib import MessagingError
from qpidd_py.broker.parameters import local_host
from qpidd_py.cli.client_socket import BrokerError
from qpidd_py.cli.output import describe
from qpidd_py.shovel.beside import Broker, Json
from qpidd_py.shovel.bound import destination_of, read_bound
from qpidd_py.shovel.federation import Bindings, Path, Ways

INTERVAL: Final = 0.25
"""Seconds between two looks at the bindings here."""
GATHER: Final = 0.02
"""Seconds between two looks while there is something new."""
AGAIN: Final = 1.0
"""Seconds until the broker is asked again, if it does not answer."""
PATIENCE: Final = 10.0
"""Seconds for which a route waits until the others to this exchange have heard of their sources, too."""


class NotOurs(MessagingError):
    """The source cannot have routes that follow bindings."""


class Place(NamedTuple):
    """Where a route leads to."""

    host: str
    exchange: str


def place_of(value: Mapping[str, Any]) -> Place:
    return Place(local_host(value["dest-uri"]) or "", value["dest-exchange"])


class Here:
    """See the head of this module."""

    def __init__(self, broker: Broker, place: Place) -> None:
        """`broker`: nobody else asks it."""
        self.bindings, self.routes = Bindings(), set[str]()
        self.type = self.tag = self.trouble = ""
        self._broker, self._place = broker, place
        loop = asyncio.get_running_loop()
        self.ways = Ways("", loop.time)
        self._until = loop.time() + PATIENCE
        self._changed = asyncio.Event()
        self._history, self._last = "", 0
        self.task = asyncio.create_task(self._follow())

    async def ready(self) -> None:
        """The bindings are known."""
        while not self._history or self.trouble:
            if self.trouble:
                raise NotOurs(f"the bindings here: {self.trouble}")
            await self.change()

    async def change(self) -> None:
        await self._changed.wait()

    async def settled(self) -> None:
        """All ways are known, or it is time to begin without some."""
        loop = asyncio.get_running_loop()
        while (left := self._until - loop.time()) > 0 and not all(map(self.ways.heard, self.routes)):
            await within(self.change(), left)

    def hear(self, route: str, source: str, paths: list[Path] | None, excluded: Iterable[str]) -> None:
        fresh = not self.ways.heard(route)
        self.ways.hear(route, source, paths, list(excluded))
        if fresh:
            self._wake()

    def forget(self, route: str) -> None:
        """It was deleted."""
        self.routes.discard(route)
        self.ways.forget(route)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        self._broker.close()

    async def _follow(self) -> None:
        while True:
            try:
                news = await self._look()
                self.trouble = ""
            except (BrokerError, OSError) as error:
                news, self.trouble = True, describe(error)
            if news:
                self._wake()
                await asyncio.sleep(AGAIN if self.trouble else GATHER)
            else:
                await asyncio.sleep(INTERVAL)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _look(self) -> bool:
        """Whether there was anything new."""
        found = await self._ask("route.changes", history=self._history, after=self._last)
        if found["tag"] != self.tag:
            self.tag, self.type = found["tag"], found["type"]
            self.ways = Ways(self.tag, asyncio.get_running_loop().time)
        if found["changes"] is None:
            listed = await self._ask("route.bindings")
            self.bindings.replace(read_bound(each) for each in listed)
        else:
            for each in found["changes"]:
                self._apply(each)
        self._history, self._last = found["history"], found["last"]
        return bool(found["changes"] is None or found["changes"])

    async def _ask(self, method: str, **arguments: Any) -> Any:
        where = {"vhost": self._place.host, "exchange": self._place.exchange}
        return await asyncio.to_thread(self._broker.ask, method, {**where, **arguments})

    def _apply(self, change: Json) -> None:
        if change["key"] is None:
            self.bindings.lose(destination_of(change))
        elif change["added"]:
            self.bindings.add(*read_bound(change))
        else:
            self.bindings.remove(*read_bound(change))


async def within(waiting: Any, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        pass
