"""Pages of queues, from a table that is made anew when it is asked for and too old.                             Shell.

The broker judges each request: who may not list the queues (of this virtual host) gets no page.  Each sight
(`management/sight.py`) has a table of its own, so that a page can only tell what its user sees at this moment.  One
thread asks for what has changed; meanwhile others show what there is, unless it is STALE.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from qpidd_py.cli.client_socket import ManagementSocket
from qpidd_py.http.door import SECONDS, Door, Problem, told
from qpidd_py.http.paging import Json, numbers
from qpidd_py.http.table import STALE, Table

TABLES: Final = 16
"""Of parts: those that were asked for last are kept.  That of all queues is always."""


class Queues:
    """Those of one server's broker."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._tables: OrderedDict[str, _Seen] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, door: Door, host: str | None, query: Mapping[str, str]) -> Json:
        """Raises Problem, QueryError."""
        numbers(query)
        with told(), door.open() as broker:
            broker.request("queue.count", {"vhost": host})
            overview = broker.request("broker.overview")
            seen = self._seen(overview["sight"])
            seen.refresh(broker)
        return seen.page(host, query, str(overview["name"]))

    def _seen(self, sight: str) -> _Seen:
        with self._lock:
            found = self._tables.pop(sight, None) or _Seen(sight, self._now)
            self._tables[sight] = found
            parts = [each for each in self._tables if each]
            if len(parts) > TABLES:
                del self._tables[parts[0]]
        return found


class _Seen:
    """All queues of one sight."""

    def __init__(self, sight: str, now: Callable[[], float]) -> None:
        self._sight, self._now = sight, now
        self._table = Table()
        self._shown = threading.Lock()
        self._asked = threading.Lock()

    def page(self, host: str | None, query: Mapping[str, str], node: str) -> Json:
        with self._shown:
            return self._table.page(host, query, node)

    def refresh(self, broker: ManagementSocket) -> None:
        """Raises Problem."""
        if not self._table.older(self._now()):
            return
        waits = self._table.older(self._now(), STALE)
        if not self._asked.acquire(waits, SECONDS if waits else -1):
            if waits:
                raise _unavailable(f"the queues were not listed within {SECONDS:g} s")
            return
        try:
            now = self._now()
            if self._table.older(now):
                self._take(broker.request("queue.census", {"vhost": None, **self._table.place}), now)
        finally:
            self._asked.release()

    def _take(self, parts: list[Json], now: float) -> None:
        if parts[-1]["sight"] != self._sight:
            raise _unavailable("the rights of this user have changed meanwhile")
        with self._shown:
            self._table.take(parts, now)


def _unavailable(reason: str) -> Problem:
    return Problem(503, "service_unavailable", reason)
