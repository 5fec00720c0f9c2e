"""All queues of the broker, in few octets each, for pages in any order.                                          Pure.

`take` gets what has changed (`management/census.py`).  A page is put into order here, so it costs the broker nothing;
the last ORDERS orders are kept until something changes.  Equal ones stay in the order of virtual hosts and names.
Rates are made when they are looked at, over the last WINDOW to thrice as long: by `rates.py`, for all queues each time
that something is taken, they would take longer than all the rest.
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
from qpidd_py.http.rates import LONGEST, SHORTEST, WINDOW, put
from qpidd_py.management.census import AUTO_DELETE, DURABLE, EXCLUSIVE, NO_POLICIES

LOOKED_AT: Final = 20_000
"""Queues a second: a table of more than these is older than a second when it is made anew."""
STALE: Final = 10.0
"""Seconds: an older one is not shown while a new one is made."""
ORDERS: Final = 16
_ROW: Final = struct.Struct("<IIQQQQQQ")
_STOPPED: Final = 1 << 31
_REST: Final = 2 * WINDOW
"""Seconds after its last change from which on a queue has no rates."""
Counts = tuple[int, ...]
"""Number, consumers, ready, unacked, bytes, ready_bytes, enqueued, dequeued."""
_RATED: Final[tuple[Callable[[Counts], int], ...]] = (
    lambda counts: counts[2] + counts[3],
    lambda counts: counts[2],
    lambda counts: counts[3],
    lambda counts: counts[6],
    lambda counts: counts[7],
)
"""What has rates, as in `rates.GROUPS`."""
Json = dict[str, Any]


class Row:
    """One queue."""

    __slots__ = ("before", "between", "changed", "counts", "host", "known", "name", "newer", "then")

    def __init__(self, host: str, name: str, known: Sequence[Any]) -> None:
        flags, arguments, policies = known
        self.host, self.name, self.known = host, name, (flags, arguments, policies or NO_POLICIES)
        self.counts: Counts = ()
        self.changed = -_REST
        self.then = self.newer = 0.0
        self.before: Counts = ()
        """Rates count from then; and from the newer moment, when that is WINDOW old."""
        self.between: Counts = ()

    def count(self, counts: Counts, now: float, at: float) -> None:
        """They are these now, and were others when it was looked `at` the queues last."""
        if not self.counts or now - at > LONGEST:
            self.before = self.between = counts
            self.then = self.newer = now
        elif at - self.changed > _REST:
            self.before = self.between = self.counts
            self.then = self.newer = at
        elif now - self.newer >= WINDOW:
            is_long = now - self.newer >= 2 * WINDOW
            self.then, self.before = (at, self.counts) if is_long else (self.newer, self.between)
            self.newer, self.between = now, counts
        if self.counts:
            self.changed = now
        self.counts = counts

    def rate(self, number: int, at: float) -> float:
        """A second, of `_RATED`."""
        if at - self.changed > _REST:
            return 0.0
        then, before = (self.newer, self.between) if at - self.newer >= WINDOW else (self.then, self.before)
        passed, rated = at - then, _RATED[number]
        return round((rated(self.counts) - rated(before)) / passed, 2) if passed >= SHORTEST else 0.0

    def item(self) -> Json:
        """As in `queue.list`."""
        flags, arguments, policies = self.known
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
            **policies,
        }

    def shown(self, at: float, node: str = "") -> Json:
        found = views.queue(self.item(), node)
        put("queue", found, [self.rate(number, at) for number in range(len(_RATED))])
        return found


_COLUMNS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "name": attrgetter("name"),
    "vhost": attrgetter("host"),
    "durable": lambda row: bool(row.known[0] & DURABLE),
    "exclusive": lambda row: bool(row.known[0] & EXCLUSIVE),
    "auto_delete": lambda row: bool(row.known[0] & AUTO_DELETE),
    "type": lambda row: str(row.known[1].get("x-queue-type", "classic")),
    "state": lambda row: "flow" if row.counts[1] & _STOPPED else "running",
    "policy": lambda row: str(row.known[2]["policy"] or None),
    "messages": lambda row: row.counts[2] + row.counts[3],
    "messages_ready": lambda row: row.counts[2],
    "messages_unacknowledged": lambda row: row.counts[3],
    "message_bytes": lambda row: row.counts[4],
    "message_bytes_ready": lambda row: row.counts[5],
    "consumers": lambda row: row.counts[1] & ~_STOPPED,
    "message_stats.publish": lambda row: row.counts[6],
    "message_stats.deliver_get": lambda row: row.counts[7],
}
"""What is sorted by often, without the whole view."""
_RATES: Final[Sequence[str]] = (
    "messages_details.rate",
    "messages_ready_details.rate",
    "messages_unacknowledged_details.rate",
    "message_stats.publish_details.rate",
    "message_stats.deliver_get_details.rate",
)
"""The names of `_RATED`."""


class Table:
    """Of one broker; for one thread at a time."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._in_order: list[Row] | None = []
        """By virtual host and name; None: queues have come or gone."""
        self._orders: OrderedDict[tuple[Any, ...], tuple[list[Row], int]] = OrderedDict()
        self._changed = 0.0
        """When something was other than before; rates go on to change for _REST."""
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
        if changed or end["numbers"] is not None:
            self._changed = now
        if now - self._changed <= _REST + WINDOW:
            self._orders.clear()
        if end["numbers"] is not None:
            self._keep(frozenset(number for (number,) in struct.iter_unpack("<I", b64decode(end["numbers"]))))
        sound = sound and len(self._rows) == end["total"]
        self._history, self._last, self._at = end["history"] if sound else "", end["last"], now

    def page(self, host: str | None, query: Mapping[str, str], node: str) -> Json:
        """Raises QueryError."""
        found, total = self._ordered(host, query)
        return page_of(found, total, query, lambda row: row.shown(self._at, node))

    def _clear(self) -> None:
        self._rows.clear()
        self._in_order = None

    def _take_part(self, part: Json, now: float) -> bool:
        """False for numbers of a queue that was never named."""
        for number, host, name, *known in json.loads(part["named"]):
            self._rows[number] = Row(host, name, known)
            self._in_order = None
        for counts in _ROW.iter_unpack(b64decode(part["rows"])):
            row = self._rows.get(counts[0])
            if row is None:
                return False
            row.count(counts, now, self._at)
        return True

    def _keep(self, numbers: frozenset[int]) -> None:
        for number in self._rows.keys() - numbers:
            del self._rows[number]
        self._in_order = None

    def _ordered(self, host: str | None, query: Mapping[str, str]) -> tuple[list[Row], int]:
        """Those that are wanted, and how many there are besides, of the virtual host or (None) of all."""
        key = (host, *(query.get(name, "") for name in ("name", "use_regex", "sort", "sort_reverse")))
        found = self._orders.pop(key, None)
        if found is None:
            rows = [row for row in self._by_name() if host in (None, row.host)]
            fits = matcher(query)
            found = _sorted([row for row in rows if fits(row.name)], query, self._at), len(rows)
        self._orders[key] = found
        if len(self._orders) > ORDERS:
            self._orders.popitem(last=False)
        return found

    def _by_name(self) -> list[Row]:
        if self._in_order is None:
            self._in_order = sorted(self._rows.values(), key=attrgetter("host", "name"))
        return self._in_order


def _sorted(rows: list[Row], query: Mapping[str, str], at: float) -> list[Row]:
    wanted, reverse = query.get("sort", ""), query.get("sort_reverse") == "true"
    if not wanted:
        return rows[::-1] if reverse else rows
    if (column := _COLUMNS.get(wanted)) is not None:
        return sorted(rows, key=column, reverse=reverse)
    if wanted in _RATES:
        number = _RATES.index(wanted)
        return sorted(rows, key=lambda row: row.rate(number, at), reverse=reverse)
    if not rows or wanted.partition(".")[0] not in rows[0].shown(at):
        return rows
    return sorted(rows, key=lambda row: order(field(row.shown(at), wanted)), reverse=reverse)
