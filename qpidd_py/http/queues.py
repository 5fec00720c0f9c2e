"""Pages of queues, from a table that is made anew when it is asked for and too old.                             Shell.

The broker judges each request: who may not list the queues (of this virtual host) gets no page.  One thread asks for
what has changed; meanwhile others show what there is, unless it is STALE.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from qpidd_py.cli.client_socket import ManagementSocket
from qpidd_py.http.door import SECONDS, Door, Problem, told
from qpidd_py.http.paging import Json, numbers
from qpidd_py.http.table import STALE, Table


class Queues:
    """Those of one server's broker."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._table = Table()
        self._shown = threading.Lock()
        self._asked = threading.Lock()

    def page(self, door: Door, host: str | None, query: Mapping[str, str]) -> Json:
        """Raises Problem, QueryError."""
        numbers(query)
        with told(), door.open() as broker:
            broker.request("queue.count", {"vhost": host})
            node = str(broker.request("broker.info")["name"])
            self._refresh(broker)
        with self._shown:
            return self._table.page(host, query, node)

    def _refresh(self, broker: ManagementSocket) -> None:
        if not self._table.older(self._now()):
            return
        waits = self._table.older(self._now(), STALE)
        if not self._asked.acquire(waits, SECONDS if waits else -1):
            if waits:
                raise Problem(503, "service_unavailable", f"the queues were not listed within {SECONDS:g} s")
            return
        try:
            now = self._now()
            if self._table.older(now):
                parts = broker.request("queue.census", {"vhost": None, **self._table.place})
                with self._shown:
                    self._table.take(parts, now)
        finally:
            self._asked.release()
