"""The management requests of a broker, independent of the transport (door).

A request is a method name and a JSON object; the answer is `{"ok": true, "result": ...}` or
`{"ok": false, "error": text}`, passed to a callback, because requests to HA may take a while.

A long list is answered in parts, in turns of their own: `{"ok": true, "result": [...], "more": true}`, and the last one
without `more`.

    broker.info   {}                        name, version, counters, positions of the log, why publishers are blocked
    queue.list    {}                        one object per queue; lists are sorted while they are short (SORTED)
    queue.peek    {queue, limit=10}         the first messages, which stay where they are; bodies beyond 64 KiB cut off,
                                            as many as come to 1 MiB.  Not those of another connection's exclusive queue
    queue.peek    {queue, limit, after}     the first messages behind a position (0: from the beginning), in order of
                                            position, whole, for browsing: as many as come to 1 MiB, but at least one;
                                            `header` is the content header's payload, `body` the body, both in base64.
                                            Handed out ones are among them.  Positions grow, through fail-overs, too;
                                            one that this broker never reached (it has begun anew) counts as 0
    exchange.list {}                        one object per exchange
    binding.list  {}                        one object per binding
    session.list  {}                        one object per connection
    queue.move, queue.purge, queue.delete   see `changes`; answered when the change is safe
    ha.*          passed on to the HA plug-in

Octet strings that are UTF-8 text are shown as text, others as {"base64": ...}.
"""

import base64
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

from qpidd_py.amqp.codec import decode_properties
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.exchange import Binding, Exchange
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.core.queue import Queue
from qpidd_py.errors import AmqpError
from qpidd_py.management.changes import Changes
from qpidd_py.management.request import Json, Reply, RequestError

log = logging.getLogger(__name__)

PEEK_LIMIT = 1000
"""Messages in one answer."""
PEEK_BODY = 64 << 10
"""Octets of a body that are shown; the rest is cut off and `cut` says so."""
BROWSE_OCTETS = 1 << 20
"""Octets of headers and bodies in one answer to a peek; a single larger message is answered alone."""
PART_OCTETS = 1 << 16
"""Octets of one part of a list, approximately."""
SORTED = 10_000
"""Objects of a list that is sorted."""
BROWSE_SLICE = 16
"""Messages taken from the core at a time."""
SHOWN = 64
"""Characters of a name from a peer in an answer."""
POSITION_MAX = (1 << 64) - 1


class Management:
    """The core; one per broker."""

    def __init__(self, broker: Broker, version: str = "") -> None:
        self.broker = broker
        self.version = version or str(broker.server_properties.get("version", ""))
        self._methods: Mapping[str, Callable[[Json], Any]] = {
            "broker.info": self._broker_info,
        }
        self._lists: Mapping[str, Callable[[], Iterator[Json]]] = {
            "queue.list": self._queue_list,
            "exchange.list": self._exchange_list,
            "binding.list": self._binding_list,
            "session.list": self._session_list,
        }
        changes = Changes(broker)
        self._changes, self._move = changes.methods, changes.move

    def work(self, method: str, arguments: Json, reply: Reply, asker: ClientConnection | None) -> Iterator[None]:
        """Answers a request, one slice with each step: `reply` is called for each part, the last one now or later.
        Never raises because of the request's content.  `asker` may see what is exclusive to it, a courier all."""
        try:
            if method.startswith("ha."):
                self._ha_request(method, arguments, reply, asker.user if asker is not None else "")
            elif method in self._lists:
                yield from _in_parts(self._lists[method](), reply)
            elif method == "queue.peek":
                reply({"ok": True, "result": self._queue_peek(arguments, asker)})
            elif method in self._methods:
                reply({"ok": True, "result": self._methods[method](arguments)})
            elif method == "queue.move":
                self._when_safe(method, (yield from self._move(arguments)), reply)
            elif method in self._changes:
                self._when_safe(method, self._changes[method](arguments), reply)
            else:
                raise RequestError(f"unknown method {method[:SHOWN]!r}")
        except RequestError as error:
            reply({"ok": False, "error": str(error)})
        except AmqpError as error:
            reply({"ok": False, "error": error.reply_text})

    def request(self, method: str, arguments: Json, reply: Reply) -> None:
        """The same in one go."""
        for _ in self.work(method, arguments, reply, None):
            pass

    def _when_safe(self, method: str, change: tuple[Json, int], reply: Reply) -> None:
        result, position = change

        def answer(safe: bool) -> None:
            doubt = f"{method}: this broker has been deposed meanwhile; the change may be lost"
            reply({"ok": True, "result": result} if safe else {"ok": False, "error": doubt})

        self.broker.engine.when_safe(position, answer)

    def _ha_request(self, method: str, arguments: Json, reply: Reply, user: str) -> None:
        hooks = self.broker.hooks
        if hooks is None:
            raise RequestError(f"HA module is not loaded on broker at {self.broker.name}")
        if not hooks.request(method, arguments, reply, user):
            raise RequestError(f"unknown method {method!r}")

    # ---- the methods

    def _broker_info(self, _: Json) -> Json:
        engine, vhost = self.broker.engine, self.broker.vhost
        return {
            "name": self.broker.name,
            "product": self.broker.server_properties.get("product", ""),
            "version": self.version,
            "pid": os.getpid(),
            "backup": self.broker.passive,
            "ha": self.broker.hooks is not None,
            "epoch": engine.epoch,
            "position": engine.position,
            "safe": engine.safe,
            "published": engine.published,
            "delivered": engine.delivered,
            "waiting_confirms": engine.waiting_confirms,
            "blocked": self.broker.blocked,
            "alarms": self.broker.alarms,
            "paged": self.broker.paging() if self.broker.paging is not None else None,
            "queues": len(vhost.queues),
            "exchanges": len(vhost.exchanges),
            "sessions": len(self.broker.connections),
        }

    def _queue_list(self) -> Iterator[Json]:
        queues = self.broker.vhost.queues
        return (_show_queue(queue) for queue in _sorted(queues.values(), lambda each: each.name))

    def _queue_peek(self, arguments: Json, asker: ClientConnection | None) -> list[Json]:
        name, limit = arguments.get("queue"), arguments.get("limit", 10)
        if not isinstance(name, str) or name not in self.broker.vhost.queues:
            raise RequestError(f"no queue {name!r}")
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise RequestError(f"limit {limit!r}, wanted a number from 1 to {PEEK_LIMIT}")
        queue = self.broker.vhost.queues[name]
        if queue.exclusive and queue.owner is not asker and not self._is_courier(asker):
            raise RequestError(f"queue {name!r} is exclusive to another connection")
        core, limit = queue.core, min(limit, PEEK_LIMIT)
        if "after" in arguments:
            after = _position(arguments["after"])
            return _browse(core, after if after <= self.broker.engine.sequence else 0, limit)
        return [_show_message(*message) for message in core.glance(limit, PEEK_BODY, BROWSE_OCTETS)]

    def _is_courier(self, asker: ClientConnection | None) -> bool:
        return asker is not None and asker.user in self.broker.couriers

    def _exchange_list(self) -> Iterator[Json]:
        exchanges = self.broker.vhost.exchanges
        return (_show_exchange(exchange) for exchange in _sorted(exchanges.values(), lambda each: each.name))

    def _binding_list(self) -> Iterator[Json]:
        exchanges = _sorted(self.broker.vhost.exchanges.values(), lambda each: each.name)
        bindings = (_sorted(exchange.bindings.values(), lambda each: each.key) for exchange in exchanges)
        return (_show_binding(binding) for several in bindings for binding in several)

    def _session_list(self) -> Iterator[Json]:
        return (_show_connection(each) for each in _sorted(self.broker.connections, lambda each: each.number))


T = TypeVar("T")


def _sorted(items: Iterable[T], key: Callable[[T], Any]) -> list[T]:
    """A copy, since objects come and go while it is shown; sorting a long one would take too long."""
    found = list(items)
    return sorted(found, key=key) if len(found) <= SORTED else found


def _in_parts(items: Iterator[Json], reply: Reply) -> Iterator[None]:
    part: list[Json] = []
    octets = 0
    for item in items:
        part.append(item)
        octets += len(json.dumps(item))
        if octets >= PART_OCTETS:
            reply({"ok": True, "result": part, "more": True})
            part, octets = [], 0
            yield
    reply({"ok": True, "result": part})


def _show_queue(queue: DeclaredQueue) -> Json:
    core = queue.core
    return {
        "name": queue.name,
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "auto_delete": queue.auto_delete,
        "replicate": queue.level,
        "ready": core.ready,
        "unacked": core.unacked,
        "messages": core.ready + core.unacked,
        "bytes": core.bytes,
        "consumers": core.consumer_count,
        "enqueued": core.enqueued,
        "dequeued": core.dequeued,
        "arguments": to_json(queue.arguments),
    }


def _show_exchange(exchange: Exchange) -> Json:
    return {
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "predeclared": exchange.predeclared,
        "replicate": exchange.level,
        "bindings": len(exchange.bindings),
        "arguments": to_json(exchange.arguments),
    }


def _show_binding(binding: Binding) -> Json:
    return {
        "source": binding.source.name,
        "destination": binding.destination.name,
        "destination_type": "exchange" if isinstance(binding.destination, Exchange) else "queue",
        "routing_key": to_json(binding.routing_key),
        "replicated": binding.position > 0,
        "arguments": to_json(dict(binding.arguments)),
    }


def _show_message(
    position: int, redelivered: bool, exchange: bytes, routing_key: bytes, header: bytes, body: bytes, size: int
) -> Json:
    return {
        "position": position,
        "redelivered": redelivered,
        "exchange": to_json(exchange),
        "routing_key": to_json(routing_key),
        "properties": _show_properties(header),
        "size": size,
        "cut": size > PEEK_BODY,
        "body": to_json(body if size <= PEEK_BODY else _cut(body)),
    }


def _position(after: Any) -> int:
    if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after < POSITION_MAX:
        raise RequestError(f"after {after!r}, wanted a position, or 0")
    return after


def _browse(core: Queue, after: int, limit: int) -> list[Json]:
    """In slices, so that a long queue of large messages is not copied and then cut off."""
    shown: list[Json] = []
    room = BROWSE_OCTETS
    while len(shown) < limit:
        found = core.read(after + 1, POSITION_MAX, min(limit - len(shown), BROWSE_SLICE), max(room, 1))
        for position, redelivered, _, exchange, routing_key, header, body in found:
            room -= len(header) + len(body)
            if room < 0 and shown:
                return shown
            shown.append(_show_whole(position, redelivered, exchange, routing_key, header, body))
            after = position
        if not found:
            break
    return shown


def _show_whole(
    position: int, redelivered: bool, exchange: bytes, routing_key: bytes, header: bytes, body: bytes
) -> Json:
    return {
        "position": position,
        "redelivered": redelivered,
        "exchange": to_json(exchange),
        "routing_key": to_json(routing_key),
        "header": base64.b64encode(header).decode(),
        "body": base64.b64encode(body).decode(),
    }


def _cut(body: bytes) -> bytes:
    """The beginning, without half a UTF-8 character at its end, so that a text does not look binary."""
    for end in range(PEEK_BODY, PEEK_BODY - 4, -1):
        try:
            body[:end].decode()
        except UnicodeDecodeError:
            continue
        return body[:end]
    return body


def _show_properties(header: bytes) -> Any:
    try:
        return to_json(decode_properties(header))
    except AmqpError as error:
        # Headers are not checked on arrival; a malformed header must not hide its message.
        return {"unreadable": error.reply_text}


def _show_connection(connection: ClientConnection) -> Json:
    core = connection.core
    return {
        "number": connection.number,
        "peer": connection.peer,
        "state": connection.state.value,
        "user": connection.user,
        "admin": connection.admin,
        "link": connection.link is not None,
        "channels": len(connection.channels),
        "publisher": core.publisher,
        "received": core.received,
        "sent": core.sent,
        "backlog": core.backlog,
        "client_properties": to_json(dict(connection.client_properties)),
    }


def to_json(value: Any) -> Any:
    """Values of field tables and octet strings as JSON."""
    match value:
        case None | bool() | int() | float() | str():
            return _plain(value)
        case bytes() | bytearray():
            return _show_octets(bytes(value))
        case Mapping():
            return {str(name): to_json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [to_json(inner) for inner in value]
        case datetime():
            return value.isoformat()
        case Decimal():
            return str(value)
    return repr(value)


def _plain(value: bool | int | float | str | None) -> Any:
    if isinstance(value, str) and not value.isascii():
        # Short strings with octets that are no UTF-8 come as surrogate escapes, which are no JSON.
        return _show_octets(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def _show_octets(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
