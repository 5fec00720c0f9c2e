"""How management shows what a broker has: objects as JSON.

Octet strings that are UTF-8 text are shown as text, others as {"base64": ...}.
"""

import base64
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from qpidd_py.amqp.codec import decode_properties
from qpidd_py.broker.arguments import QUEUE_MODE
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_channel import ClientChannel
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.exchange import Binding, Exchange
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.core.channel import Consumer
from qpidd_py.errors import AmqpError
from qpidd_py.management.request import Json

_NO_FILE: Final = "this broker has no page file: see page-folder"
PEEK_BODY: Final = 64 << 10
"""Octets of a body that are shown; the rest is cut off and `cut` says so."""


def show_queue(queue: DeclaredQueue, broker: Broker) -> Json:
    core = queue.core
    return {
        "name": queue.name,
        "vhost": queue.host,
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "auto_delete": queue.auto_delete,
        "replicate": queue.level,
        "ready": core.ready,
        "unacked": core.unacked,
        "messages": core.ready + core.unacked,
        "bytes": core.bytes,
        "ready_bytes": core.ready_bytes,
        "consumers": core.consumer_count,
        "enqueued": core.enqueued,
        "dequeued": core.dequeued,
        "flow_stopped": core.watch is not None and core.watch.stopped,
        "alert": core.watch is not None and core.watch.alerting,
        **_show_window(queue),
        "arguments": to_json(queue.arguments),
        **show_queue_policies(queue, broker),
    }


def show_queue_policies(queue: DeclaredQueue, broker: Broker) -> Json:
    stays = queue.lazy and not broker.configurations.common.paged
    return _show_policies(queue, {QUEUE_MODE: _NO_FILE} if stays else {})


def _show_policies(thing: DeclaredQueue | Exchange, lacking: Mapping[str, str]) -> Json:
    """Which count, what they have changed, and what is not in force, with the reason."""
    effect, lies_out = thing.effect, lies_outside(thing) if thing.effect.ha else ""
    lacking = {**{name: lies_out for name in effect.ha if lies_out}, **lacking}
    changed = {name: value for name, value in effect.arguments.items() if value != thing.arguments.get(name)}
    found = {name: value for name, value in {**changed, **effect.ha}.items() if name not in lacking}
    return {
        "policy": effect.policy,
        "operator_policy": effect.operator,
        "effective": to_json(found),
        "not_in_force": lacking,
    }


def lies_outside(thing: DeclaredQueue | Exchange) -> str:
    """Why the `ha-mode` of a policy is not in force; empty if it is."""
    if thing.level == "all" or (isinstance(thing, Exchange) and thing.predeclared):
        return ""
    if isinstance(thing, DeclaredQueue) and thing.exclusive:
        return "a queue that ends with its connection is not replicated"
    return f"declared with qpid.replicate={thing.level}, or before the policy"


def _show_window(queue: DeclaredQueue) -> Json:
    """Of a queue that takes no message twice."""
    window = queue.core.window
    return {} if window is None else {"remembered": window.count, "duplicates": window.duplicates}


def _show_shadow(exchange: Exchange) -> Json:
    """Of an exchange that keeps its last message, or the keys of its messages."""
    if exchange.shadow is None:
        return {}
    return {"kept": exchange.shadow.core.ready} if exchange.initial else _show_window(exchange.shadow)


def show_exchange(exchange: Exchange, host: str) -> Json:
    return {
        "name": exchange.name,
        "vhost": host,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "predeclared": exchange.predeclared,
        "replicate": exchange.level,
        "bindings": exchange.size,
        **({} if exchange.waiting is None else {"delayed": exchange.waiting.core.ready}),
        **_show_shadow(exchange),
        **({} if exchange.numbers is None else {"numbered": exchange.numbers.last}),
        "arguments": to_json(exchange.arguments),
        **_show_policies(exchange, {}),
    }


def show_binding(binding: Binding, host: str) -> Json:
    return {
        "source": binding.source.name,
        "vhost": host,
        "destination": binding.destination.name,
        "destination_type": "exchange" if isinstance(binding.destination, Exchange) else "queue",
        "routing_key": to_json(binding.routing_key),
        "replicated": binding.position > 0,
        "arguments": to_json(dict(binding.arguments)),
    }


def show_message(
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


def show_whole(
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


def show_connection(connection: ClientConnection) -> Json:
    core = connection.core
    return {
        "number": connection.number,
        "peer": connection.peer,
        "state": connection.state.value,
        "user": connection.user,
        "vhost": connection.vhost.name,
        "admin": connection.client.admin,
        "link": connection.link is not None,
        "channels": len(connection.channels),
        "publisher": core.publisher,
        "received": core.received,
        "sent": core.sent,
        "backlog": core.backlog,
        "client_properties": to_json(dict(connection.client.properties)),
    }


def show_channel(channel: ClientChannel, connection: ClientConnection) -> Json:
    core = channel.core
    return {
        "connection": connection.number,
        "number": core.number,
        "peer": connection.peer,
        "user": connection.user,
        "vhost": connection.vhost.name,
        "confirm": core.confirming,
        "transactional": core.transactional,
        "prefetch": channel.prefetch,
        "global_prefetch": core.prefetch,
        "consumers": len(core.consumers),
        "unacked": core.outstanding,
        "unconfirmed": core.publish_tag - core.confirmed if core.confirming else 0,
        "active": core.active,
    }


def show_consumer(consumer: Consumer, connection: ClientConnection) -> Json:
    return {
        "queue": consumer.queue.name,
        "vhost": consumer.queue.host,
        "tag": to_json(consumer.tag),
        "connection": connection.number,
        "peer": connection.peer,
        "user": connection.user,
        "channel": consumer.channel.number,
        "acknowledges": not consumer.no_ack,
        "prefetch": consumer.prefetch,
        "unacked": consumer.unacked,
        "priority": consumer.priority,
        "active": not consumer.waits,
        "fencing_token": consumer.fencing_token,
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
