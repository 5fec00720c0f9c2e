"""What the paths of the API do that is more than a list: declare, bind, publish, get, import.                Shell."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnsupportedAMQPFieldException

from qpidd_py.amqp.codec import SPECIFIED
from qpidd_py.cli import definitions
from qpidd_py.errors import ReplyCode
from qpidd_py.http.door import Door, bad_request

Json = dict[str, Any]
GET_MAX: Final = 1000
"""Messages of one `get`."""


def exchange_name(name: str) -> str:
    """Of one that a path names: the default exchange is called amq.default there."""
    return "" if name == "amq.default" else name


def wanted(body: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """A field of the body; raises Problem for a value of another type, or one that lacks."""
    try:
        return definitions.field(body, name, kind, default)
    except definitions.DefinitionError as error:
        raise bad_request(str(error)) from None


def is_new(channel: BlockingChannel, passive: Callable[[BlockingChannel], object]) -> bool:
    """Whether what would be declared is not there: in a channel of its own, which ends if it is not."""
    try:
        with channel.connection.channel() as other:
            passive(other)
    except ChannelClosedByBroker as error:
        if error.reply_code != ReplyCode.NOT_FOUND:
            raise
        return True
    return False


def declare_queue(channel: BlockingChannel, body: Mapping[str, Any], name: str) -> None:
    channel.queue_declare(
        name,
        durable=wanted(body, "durable", bool, True),
        auto_delete=wanted(body, "auto_delete", bool, False),
        arguments=wanted(body, "arguments", dict, {}),
    )


def declare_exchange(channel: BlockingChannel, body: Mapping[str, Any], name: str) -> None:
    channel.exchange_declare(
        name,
        wanted(body, "type", str, "direct"),
        durable=wanted(body, "durable", bool, True),
        auto_delete=wanted(body, "auto_delete", bool, False),
        internal=wanted(body, "internal", bool, False),
        arguments=wanted(body, "arguments", dict, {}),
    )


def bind(channel: BlockingChannel, source: str, kind: str, destination: str, body: Mapping[str, Any]) -> None:
    key, arguments = wanted(body, "routing_key", str, ""), wanted(body, "arguments", dict, {})
    if kind == "queue":
        channel.queue_bind(destination, source, key, arguments)
    else:
        channel.exchange_bind(destination, source, key, arguments)


def unbind(channel: BlockingChannel, found: Mapping[str, Any]) -> None:
    ends, arguments = (found["destination"], found["source"], found["routing_key"]), found["arguments"]
    if found["destination_type"] == "queue":
        channel.queue_unbind(*ends, arguments)
    else:
        channel.exchange_unbind(*ends, arguments)


def publish(channel: BlockingChannel, exchange: str, body: Mapping[str, Any]) -> Json:
    """Confirmed; `routed` is False when no queue wanted it."""
    key, encoding = wanted(body, "routing_key", str), wanted(body, "payload_encoding", str, "string")
    payload = decoded(wanted(body, "payload", str), encoding)
    properties = wanted(body, "properties", dict, {})
    unknown = sorted(set(properties) - set(SPECIFIED))
    if unknown:
        raise bad_request(f"property {unknown[0]!r:.60}, wanted some of {', '.join(SPECIFIED)}")
    channel.confirm_delivery()
    try:
        made = pika.BasicProperties(**properties)
        channel.basic_publish(exchange_name(exchange), key, payload, made, mandatory=True)
    except pika.exceptions.UnroutableError:
        return {"routed": False}
    except (
        TypeError,
        ValueError,
        AttributeError,
        AssertionError,
        struct.error,
        UnsupportedAMQPFieldException,
    ) as error:
        raise bad_request(f"properties: {error}") from None
    return {"routed": True}


def decoded(payload: str, encoding: str) -> bytes:
    """Raises Problem."""
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise bad_request(f"payload_encoding {encoding!r:.60}, wanted string or base64")
    try:
        return base64.b64decode(payload, validate=True)
    except ValueError as error:
        raise bad_request(f"payload: {error}") from None


def get(channel: BlockingChannel, queue: str, body: Mapping[str, Any]) -> list[Json]:
    """Messages as `ackmode` says: ack or reject, requeue_true or requeue_false."""
    mode, count = wanted(body, "ackmode", str), _count(body)
    if mode not in ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"):
        raise bad_request(f"ackmode {mode!r:.60}, wanted ack_ or reject_, requeue_true or requeue_false")
    encoding, most = wanted(body, "encoding", str, "auto"), wanted(body, "truncate", int, 1 << 31)
    found, last = [], 0
    for _ in range(count):
        method, properties, payload = channel.basic_get(queue)
        if method is None:
            break
        last = method.delivery_tag
        found.append(_message(method, properties, payload, encoding, most))
    if last and mode == "ack_requeue_false":
        channel.basic_ack(last, multiple=True)
    elif last:
        channel.basic_nack(last, multiple=True, requeue=mode.endswith("_true"))
    return found


def _count(body: Mapping[str, Any]) -> int:
    found = body.get("count", 1)
    if isinstance(found, str) and found.isascii() and found.isdecimal():
        found = int(found)  # as rabbitmqadmin sends it
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= GET_MAX:
        raise bad_request(f"count {found!r:.60}, wanted 1 to {GET_MAX}")
    return found


def _message(method: Any, properties: pika.BasicProperties, payload: bytes, encoding: str, most: int) -> Json:
    shown, how = base64.b64encode(payload[:most]).decode(), "base64"
    if encoding == "auto":
        try:
            shown, how = payload[:most].decode(), "string"
        except UnicodeDecodeError:
            pass
    values = {name: getattr(properties, name) for name in SPECIFIED}
    return {
        "payload_bytes": len(payload),
        "redelivered": method.redelivered,
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        "message_count": method.message_count,
        "properties": {name: value for name, value in values.items() if value is not None} or [],
        "payload": shown,
        "payload_encoding": how,
    }


def import_definitions(door: Door, content: Mapping[str, Any]) -> None:
    """All or, where something cannot be had, nothing; what is refused on the way stops it there."""
    try:
        plan = definitions.plan(content, lambda: [item["name"] for item in door.ask("vhost.list")])
    except definitions.DefinitionError as error:
        raise bad_request(str(error)) from None
    if plan.requests:
        door.ask_all([(order.method, order.arguments) for order in plan.requests])
    for vhost, items in plan.declared.items():
        door.on_channel(partial(_make_all, items=items), vhost)


def _make_all(channel: BlockingChannel, items: list[Json]) -> None:
    for item in items:
        _make(channel, item)


def _make(channel: BlockingChannel, item: Mapping[str, Any]) -> None:
    if item["what"] == "queue":
        declare_queue(channel, item, wanted(item, "name", str))
    elif item["what"] == "exchange":
        declare_exchange(channel, item, wanted(item, "name", str))
    else:
        ends = [wanted(item, name, str) for name in ("source", "destination_type", "destination")]
        bind(channel, ends[0], ends[1], ends[2], item)
