"""A page of the queues or connections, one queue, or the totals: what it costs to ask every second does not depend on
how many there are to show.

    queue.page    {offset=0, limit=100, sort="name", reverse=false, name=""}
                                            queues whose names contain `name`, in this order -> {"queues": [as in
                                            `queue.list`], "matched": number, "total": number}
    queue.info    {queue}                   one of `queue.list`
    queue.totals  {}                        sums over all queues, of all virtual hosts that the asker sees
    session.page  {offset=0, limit=100, name=""}
                                            connections of clients whose peer or user contains `name`, by number ->
                                            {"sessions": [as in `session.list`], "matched": number, "total": number}
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Mapping
from operator import itemgetter
from typing import Any, Final, TypeVar

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.management.hosts import host_of, hosts_of
from qpidd_py.management.request import Json, NotFound, RequestError, flag, text
from qpidd_py.management.shown import show_connection, show_queue
from qpidd_py.management.sight import sight_of

DEEPEST: Final = 10_000
"""Objects that are put into order, at most."""
LOOKS: Final = 1000
"""Objects that are looked at in a slice."""
SORTS: Final[Mapping[str, Callable[[DeclaredQueue], int]]] = {
    "name": lambda queue: 0,  # among equals the names decide
    "messages": lambda queue: queue.core.ready + queue.core.unacked,
    "ready": lambda queue: queue.core.ready,
    "unacked": lambda queue: queue.core.unacked,
    "bytes": lambda queue: queue.core.bytes,
    "ready_bytes": lambda queue: queue.core.ready_bytes,
    "consumers": lambda queue: queue.core.consumer_count,
    "enqueued": lambda queue: queue.core.enqueued,
    "dequeued": lambda queue: queue.core.dequeued,
}
_SUMS: Final = ("messages", "ready", "unacked", "bytes", "ready_bytes", "consumers", "enqueued", "dequeued")
Answer = Generator[None, None, Json]
T = TypeVar("T")


class Pages:
    """Of one broker.  Each request is a generator (`turns.py`)."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._connections = broker, broker.connections
        self.methods: Mapping[str, Callable[[Json], Answer]] = {
            "queue.page": self._page,
            "queue.info": self._info,
            "queue.totals": self._totals,
            "session.page": self._sessions,
        }

    def _page(self, arguments: Json) -> Answer:
        first, last = _bounds(arguments)
        name, reverse = text(arguments, "name", "").lower(), flag(arguments, "reverse")
        sort = text(arguments, "sort", "name")
        if (key := SORTS.get(sort)) is None:
            raise RequestError(f"sort {sort[:64]!r}, wanted one of {', '.join(SORTS)}")
        pick = heapq.nlargest if reverse and sort == "name" else heapq.nsmallest
        sign, queues = -1 if reverse else 1, self._queues(arguments)
        found, matched = yield from _picked(
            queues, lambda each: name in each.name.lower(), lambda each: (sign * key(each), each.name), pick, last
        )
        shown = [show_queue(queue, self._broker) for queue in found[first:] if not queue.core.deleted]
        return {"queues": shown, "matched": matched, "total": len(queues)}

    def _queues(self, arguments: Json) -> list[DeclaredQueue]:
        return [queue for vhost in hosts_of(self._broker, arguments) for queue in vhost.queues.values()]

    def _info(self, arguments: Json) -> Answer:
        yield from ()
        queue = host_of(self._broker, arguments).queues.get(name := text(arguments, "queue"))
        if queue is None:
            raise NotFound(f"no queue {name[:64]!r}")
        return show_queue(queue, self._broker)

    def _totals(self, arguments: Json) -> Answer:
        queues, sums = self._queues({**arguments, "vhost": None}), dict.fromkeys(_SUMS, 0)
        for start in range(0, len(queues), LOOKS):
            some = queues[start : start + LOOKS]
            for name in _SUMS:
                sums[name] += sum(map(SORTS[name], some))
            yield
        return {"queues": len(queues), **sums}

    def _sessions(self, arguments: Json) -> Answer:
        first, last = _bounds(arguments)
        name = text(arguments, "name", "").lower()
        seen = sight_of(arguments).sees
        clients = [each for each in self._connections if each.link is None and seen(each.vhost.name, each.user)]
        found, matched = yield from _picked(
            clients,
            lambda each: name in each.peer.lower() or name in each.user.lower(),
            lambda each: each.number,
            heapq.nsmallest,
            last,
        )
        shown = [show_connection(each) for each in found[first:]]
        return {"sessions": shown, "matched": matched, "total": len(clients)}


def _picked(
    items: list[T], fits: Callable[[T], bool], order: Callable[[T], Any], pick: Callable[..., Any], last: int
) -> Generator[None, None, tuple[list[T], int]]:
    """The `last` first ones that fit, and how many fit.  Each is asked for its order once: that changes meanwhile."""
    found: list[tuple[Any, T]] = []
    matched = 0
    for start in range(0, len(items), LOOKS):
        some = [(order(each), each) for each in items[start : start + LOOKS] if fits(each)]
        matched += len(some)
        found = pick(last, found + some, key=itemgetter(0))
        yield
    return [each for _, each in found], matched


def _bounds(arguments: Json) -> tuple[int, int]:
    """Where the page begins and ends.  Raises RequestError."""
    first, limit = arguments.get("offset", 0), arguments.get("limit", 100)
    for name, value, least in (("offset", first, 0), ("limit", limit, 1)):
        if type(value) is not int or not least <= value <= DEEPEST:
            raise RequestError(f"{name} {value!r:.80}, wanted a number from {least} to {DEEPEST}")
    if first + limit > DEEPEST:
        raise RequestError(f"offset {first} and limit {limit}, wanted {DEEPEST} together, or less")
    return first, first + limit
