"""All queues of the broker, in few octets each, for pages in any order.                                          Pure.

`take` gets what has changed (`management/census.py`).  A page is put into order here, so it costs the broker nothing;
the last ORDERS orders are kept until something changes.  Equal ones stay in the order of virtual hosts and names.
Rates are counted for queues whose numbers change, over the last WINDOW to twice as long (`rates.py`).
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from qpidd_py.http import views
from qpidd_py.http.paging import field, matcher, order, page_of
from qpidd_py.http.rates import WINDOW, Rates, put
from qpidd_py.management.census import AUTO_DELETE, DURABLE, EXCLUSIVE

LOOKED_AT: Final = 20_000
"""Queues a second: a table of more than these is older than a second when it is made anew."""
STALE: Final = 10.0
"""Seconds: an older one is not shown while a new one is made."""
ORDERS: Final = 16
_ROW: Final = struct.Struct("<IIQQQQQQ")
_STOPPED: Final = 1 << 31
_NO_RATES: Final = (0.0,) * 5
Json = dict[str, Any]


class Row:
    """One queue."""

    __slots__ = ("counts", "host", "known", "name", "rates")

    def __init__(self, host: str, name: str, known: Sequence[Any]) -> None:
        self.host, self.name, self.known = host, name, known
        self.counts: tuple[int, ...] = ()
        """Number, consumers, ready, unacked, bytes, ready_bytes, enqueued, dequeued."""
        self.rates: Sequence[float] = _NO_RATES

    def item(self) -> Json:
        """As in `queue.list`."""
        flags, arguments, policy, operator, effective = self.known
        _, consumers, ready, unacked, octets, ready_octets, enqueued, dequeued = self.counts
        return {
            "name": self.name,
            "vhost": self.host,
            "durable": bool(flags & DURABLE),
            "exclusive": bool(flags & EXCLUSIVE),
            "auto_delete": bool(flags & AUTO_DELETE),
            "ready": ready,
            "unacked": unacked,
            "messages": ready + unacked,
            "bytes": octets,
            "ready_bytes": ready_octets,
            "consumers": consumers & ~_STOPPED,
            "enqueued": enqueued,
            "dequeued": dequeued,
            "flow_stopped": bool(consumers & _STOPPED),
            "arguments": arguments,
            "policy": policy,
            "operator_policy": operator,
            "effective": effective,
        }

    def shown(self, node: str = "") -> Json:
        found = views.queue(self.item(), node)
        put("queue", found, self.rates)
        return found


_COLUMNS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "name": attrgetter("name"),
    "vhost": attrgetter("host"),
    "durable": lambda row: bool(row.known[0] & DURABLE),
    "exclusive": lambda row: bool(row.known[0] & EXCLUSIVE),
    "auto_delete": lambda row: bool(row.known[0] & AUTO_DELETE),
    "type": lambda row: str(row.known[1].get("x-queue-type", "classic")),
    "state": lambda row: "flow" if row.counts[1] & _STOPPED else "running",
    "policy": lambda row: str(row.known[2] or None),
    "messages": lambda row: row.counts[2] + row.counts[3],
    "messages_ready": lambda row: row.counts[2],
    "messages_unacknowledged": lambda row: row.counts[3],
    "message_bytes": lambda row: row.counts[4],
    "message_bytes_ready": lambda row: row.counts[5],
    "consumers": lambda row: row.counts[1] & ~_STOPPED,
    "message_stats.publish": lambda row: row.counts[6],
    "message_stats.deliver_get": lambda row: row.counts[7],
    "messages_details.rate": lambda row: row.rates[0],
    "messages_ready_details.rate": lambda row: row.rates[1],
    "messages_unacknowledged_details.rate": lambda row: row.rates[2],
    "message_stats.publish_details.rate": lambda row: row.rates[3],
    "message_stats.deliver_get_details.rate": lambda row: row.rates[4],
}
"""What is sorted by often, without the whole view."""


class Table:
    """Of one broker; for one thread at a time."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._in_order: list[Row] | None = []
        """By virtual host and name; None: queues have come or gone."""
        self._orders: OrderedDict[tuple[Any, ...], tuple[list[Row], int]] = OrderedDict()
        self._rates = Rates()
        self._active: dict[int, float] = {}
        """Those with rates: when their numbers changed last."""
        self._history, self._last, self._at = "", 0, 0.0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def place(self) -> Json:
        """The arguments with which to ask for what has changed."""
        return {"history": self._history, "after": self._last, "known": len(self._rows)}

    def older(self, now: float, seconds: float = 0.0) -> bool:
        """Than these; otherwise, than it should be."""
        return not self._history or now - self._at > (seconds or len(self._rows) / LOOKED_AT)

    def take(self, parts: Sequence[Json], now: float) -> None:
        """What has changed; `now` in seconds."""
        *changed, end = parts
        if end["history"] != self._history:
            self._clear()
        sound = all(self._take_part(part, now) for part in changed)
        if end["numbers"] is not None:
            self._keep(frozenset(number for (number,) in struct.iter_unpack("<I", b64decode(end["numbers"]))))
        sound = sound and len(self._rows) == end["total"]
        self._history, self._last, self._at = end["history"] if sound else "", end["last"], now
        if changed or end["numbers"] is not None or self._active:
            self._orders.clear()
        self._count_rates(now)

    def page(self, host: str | None, query: Mapping[str, str], node: str) -> Json:
        """Raises QueryError."""
        found, total = self._ordered(host, query)
        return page_of(found, total, query, lambda row: row.shown(node))

    def _clear(self) -> None:
        self._rows.clear()
        self._active.clear()
        self._in_order, self._rates = None, Rates()

    def _take_part(self, part: Json, now: float) -> bool:
        """False for numbers of a queue that was never named."""
        for number, host, name, *known in json.loads(part["named"]):
            self._rows[number] = Row(host, name, known)
            self._active.pop(number, None)
            self._in_order = None
        for counts in _ROW.iter_unpack(b64decode(part["rows"])):
            row = self._rows.get(counts[0])
            if row is None:
                return False
            if row.counts and counts[0] not in self._active:
                self._rates.of(counts[0], _rated(row), self._at)
            if row.counts:
                self._active[counts[0]] = now
            row.counts = counts
        return True

    def _keep(self, numbers: frozenset[int]) -> None:
        for number in self._rows.keys() - numbers:
            del self._rows[number]
            self._active.pop(number, None)
        self._in_order = None

    def _count_rates(self, now: float) -> None:
        for number, changed in list(self._active.items()):
            row = self._rows[number]
            if now - changed > 2 * WINDOW:
                del self._active[number]
                row.rates = _NO_RATES
            else:
                row.rates = self._rates.of(number, _rated(row), now)

    def _ordered(self, host: str | None, query: Mapping[str, str]) -> tuple[list[Row], int]:
        """Those that are wanted, and how many there are besides, of the virtual host or (None) of all."""
        key = (host, *(query.get(name, "") for name in ("name", "use_regex", "sort", "sort_reverse")))
        found = self._orders.pop(key, None)
        if found is None:
            rows = [row for row in self._by_name() if host in (None, row.host)]
            fits = matcher(query)
            found = _sorted([row for row in rows if fits(row.name)], query), len(rows)
        self._orders[key] = found
        if len(self._orders) > ORDERS:
            self._orders.popitem(last=False)
        return found

    def _by_name(self) -> list[Row]:
        if self._in_order is None:
            self._in_order = sorted(self._rows.values(), key=attrgetter("host", "name"))
        return self._in_order


def _sorted(rows: list[Row], query: Mapping[str, str]) -> list[Row]:
    wanted, reverse = query.get("sort", ""), query.get("sort_reverse") == "true"
    if not wanted:
        return rows[::-1] if reverse else rows
    if (column := _COLUMNS.get(wanted)) is not None:
        return sorted(rows, key=column, reverse=reverse)
    if not rows or wanted.partition(".")[0] not in rows[0].shown():
        return rows
    return sorted(rows, key=lambda row: order(field(row.shown(), wanted)), reverse=reverse)


def _rated(row: Row) -> tuple[int, ...]:
    """Of `rates.GROUPS`."""
    _, _, ready, unacked, _, _, enqueued, dequeued = row.counts
    return ready + unacked, ready, unacked, enqueued, dequeued
