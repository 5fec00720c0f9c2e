"""Requests of routes that follow bindings (`shovel/follower.py`).

At the destination, by the `qpid-shovel` beside it:

route.bindings  {exchange}      [binding]: all of an exchange, in parts
route.changes   {exchange, history="", after=0}  -> {history, last, changes: [change], tag, type}
                                the changes behind a number; `changes` null: begin with route.bindings, then ask with
                                this history and number.  A change that comes before its binding is listed is harmless
At the source, by a route's own login:

route.paths     {exchange}      -> {tag, type, paths: [path] or null}: this broker's tag, and the ways by which messages
                                come here by its own routes, as qpid-shovel has reported them; null: it has not yet
queue.bindings  {queue, exchange, offset=0}      [binding]: a page of PAGE, those between these two

binding: {destination, to_exchange, key, arguments}, a change has `added`, too, and no key stands for all keys; key and
arguments (a field table) are in base64.  A path is tags with commas between them, from the origin to here.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from qpidd_py.amqp.fields import encode_table
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.exchange import Binding, Exchange
from qpidd_py.broker.followed import Change, Followed
from qpidd_py.broker.parameters import FOLLOWS, local_host
from qpidd_py.management.events import number_of
from qpidd_py.management.hosts import host_of
from qpidd_py.management.parameters import ParameterRequests
from qpidd_py.management.request import Json, NotFound, NotPrimary, RequestError, text
from qpidd_py.security.entries import HOST

PAGE: Final = 500
KINDS: Final = ("direct", "topic", "fanout", "headers")
_UNTOLD: Final = (
    "this broker has no federation tag: set federation-tag, or ha-cluster-name, to the same value on each member"
)


class RouteRequests:
    """Of one broker."""

    def __init__(self, broker: Broker, parameters: ParameterRequests) -> None:
        self._broker, self._parameters = broker, parameters
        self.objects: Mapping[str, Callable[[Json], Iterator[Json]]] = {"route.bindings": self._bindings}
        self.methods: Mapping[str, Callable[[Json], Any]] = {
            "route.changes": self._changes,
            "route.paths": self._paths,
            "queue.bindings": self._of_queue,
        }

    def _bindings(self, arguments: Json) -> Iterator[Json]:
        for part in self._exchange(arguments).parts():
            yield from map(_shown, list(part))

    def _changes(self, arguments: Json) -> Json:
        self._check_primary()
        exchange = self._exchange(arguments)
        followed, known = exchange.followed, text(arguments, "history", "")
        if followed is None:
            followed = exchange.followed = Followed(f"{self._broker.clocks()[0]:x}")
        found = None
        if known == followed.history:
            found = followed.after(int(number_of(arguments, "after", 0, 0, 1 << 62)), PAGE)
        last = followed.last if found is None else int(arguments.get("after", 0)) + len(found)
        said = {"history": followed.history, "last": last, "tag": self._tag(arguments), "type": exchange.type}
        return {**said, "changes": None if found is None else [_shown_change(each) for each in found]}

    def _paths(self, arguments: Json) -> Json:
        self._check_primary()
        exchange = self._exchange(arguments)
        paths: list[str] | None = []
        for name, uid, value in self._parameters.shovels():
            if not value.get(FOLLOWS) or value.get("dest-exchange") != exchange.name:
                continue
            if local_host(value["dest-uri"]) == text(arguments, "vhost", HOST):
                reported = self._parameters.paths(name, uid)
                paths = None if reported is None or paths is None else paths + reported
        return {"tag": self._tag(arguments), "type": exchange.type, "paths": paths}

    def _of_queue(self, arguments: Json) -> list[Json]:
        exchange = self._exchange(arguments)
        queue = host_of(self._broker, arguments).queues.get(name := text(arguments, "queue"))
        if queue is None:
            raise NotFound(f"no queue {name[:64]!r}")
        offset = int(number_of(arguments, "offset", 0, 0, 1 << 62))
        return [_shown(each) for each in islice(exchange.tables.get(queue, {}).values(), offset, offset + PAGE)]

    def _exchange(self, arguments: Json) -> Exchange:
        found = host_of(self._broker, arguments).exchanges.get(name := text(arguments, "exchange"))
        if found is None:
            raise NotFound(f"no exchange {name[:64]!r}")
        if found.type not in KINDS:
            raise RequestError(f"exchange {name[:64]!r} is of type {found.type}, no route follows its bindings")
        return found

    def _tag(self, arguments: Json) -> str:
        """Each virtual host has its own."""
        tag, host = self._broker.federation_tag, text(arguments, "vhost", HOST)
        if not tag:
            raise RequestError(_UNTOLD)
        return tag if host == HOST else f"{tag}/{host.encode().hex()}"

    def _check_primary(self) -> None:
        if self._broker.passive:
            raise NotPrimary("routes are at work beside the primary, and this broker is a backup")


def _shown(binding: Binding) -> Json:
    key = binding.key
    return _json(key[1], key[2], binding.routing_key, binding.arguments)


def _shown_change(change: Change) -> Json:
    return {"added": change.added, **_json(*change[1:])}


def _json(to_exchange: bool, destination: str, key: bytes | None, arguments: Mapping[str, Any]) -> Json:
    return {
        "destination": destination.encode("utf-8", "surrogateescape").hex(),
        "to_exchange": to_exchange,
        "key": None if key is None else b64encode(key).decode(),
        "arguments": b64encode(encode_table(arguments)).decode(),
    }
