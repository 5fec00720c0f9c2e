"""Messages in pika's form: its property objects are sent and received unchanged."""

from __future__ import annotations

import operator
from typing import Any

import pika
from pika.adapters.blocking_connection import ReturnedMessage
from pika.amqp_object import AMQPObject

from client_lib.content import check_depth
from client_lib.core.outbox import Entry
from client_lib.core.window import Window
from client_lib.errors import Returned
from client_lib.message import RESENT_HEADER, Message, unread
from client_lib.properties import read_properties

MOST = 255  # octets of a message id
_heads: dict[tuple[str | None, int], bytes] = {}
_rare = operator.attrgetter(
    *("content_encoding", "headers", "priority", "correlation_id", "reply_to", "expiration", "timestamp", "type"),
    *("user_id", "app_id", "cluster_id"),
)
_NONE = (None,) * 11
Deliver = pika.spec.Basic.Deliver
_NAMES = frozenset(vars(pika.BasicProperties()))
_values_of = vars(AMQPObject)["__dict__"].__get__
"""The attributes of an object of pika, whatever its class says they are."""


def _head(given: Any) -> bytes | None:
    """The beginning of the property list, up to the message id, of properties as most messages have them."""
    kind, mode = given.content_type, given.delivery_mode
    if _rare(given) != _NONE or not (kind is None or type(kind) is str) or type(mode) is not int:
        return None
    found = _heads.get((kind, mode))
    if found is None:
        if len(_heads) >= MOST:
            _heads.clear()
        encoded = pika.BasicProperties(content_type=kind, delivery_mode=mode, message_id="").encode()
        found = _heads[kind, mode] = b"".join(encoded)[:-1]
    return found


class Outgoing(Message):
    """What was given to `basic_publish`.  The property object is the caller's: it is copied before it is changed."""

    __slots__ = ("given", "mandatory", "told")

    def __init__(self, exchange: str, routing_key: str, body: bytes | str, given: Any, mandatory: bool) -> None:
        super().__init__(body.encode() if isinstance(body, str) else body)
        self.given = pika.BasicProperties() if given is None else given
        self.id = self.given.message_id
        self.exchange, self.routing_key, self.mandatory = exchange, routing_key, mandatory
        self.told = False
        """Its return went to the program's callbacks, so it is not raised."""

    def encode(self, message_id: str, resent: bool = False, *_: Any) -> bytes:
        simple = not resent and type(message_id) is str and len(message_id) <= MOST and message_id.isascii()
        head = _head(self.given) if simple else None
        if head is not None:
            return head + bytes((len(message_id),)) + message_id.encode()
        if self.given.headers:
            check_depth(self.given.headers, "headers")
        return b"".join(self.sent(message_id, resent).encode())

    def sent(self, message_id: str | None, resent: bool = False) -> Any:
        """The property object that goes over the wire."""
        properties = type(self.given)()
        properties.__dict__.update(self.given.__dict__)
        properties.message_id = message_id
        if resent:
            properties.headers = {**(properties.headers or {}), RESENT_HEADER: True}
        return properties

    def returned(self, reason: Returned) -> Any:
        method = pika.spec.Basic.Return(reason.reply_code, reason.reply_text, self.exchange, self.routing_key)
        return ReturnedMessage(method, self.sent(self.id), self.body)


def publish_entry(window: Window, message: Outgoing, message_id: str) -> Entry:
    """One publish; the message has exchange and routing key.  Raises what pika's encoder raises."""
    message.id = message_id
    return window._worker.publishing.entry(
        message=message,
        owner=window,
        exchange=message.exchange,
        routing_key=message.routing_key,
        mandatory=message.mandatory,
        payload=message.encode(message_id),
        body=message.body,
        message_id=message_id,
    )


class UnreadProperties(pika.BasicProperties):  # type: ignore[misc]
    """Of a delivery: read from their octets when one of them is asked for; reading them twice at a time is harmless."""

    __slots__ = ("_octets",)

    _octets: bytes | None

    def __getattr__(self, name: str) -> Any:
        """Called for a name without a value."""
        if name not in _NAMES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._read()
        return object.__getattribute__(self, name)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """Pika compares, shows and copies by it."""
        self._read()
        values: dict[str, Any] = _values_of(self)
        return values

    def _read(self) -> None:
        octets = getattr(self, "_octets", None)
        if octets is not None:
            values = _values_of(self)
            for name, value in vars(read_properties(octets, pika.BasicProperties())).items():
                values.setdefault(name, value)  # what the program has set meanwhile stays
            self._octets = None


class Incoming(Message):
    """A delivery: `method` and `given` are pika's objects of this delivery, not shared.  Of one that was not read yet
    they are made when it is handed out."""

    __slots__ = ("consumer_tag", "given", "method")

    consumer_tag: str

    def __init__(self, method: Any, properties: Any, body: bytes) -> None:
        super().__init__(body)
        self.id, self.properties = properties.message_id, properties.headers or {}
        self.redelivered = method.redelivered
        self.exchange, self.routing_key = method.exchange, method.routing_key
        self.method, self.given = method, properties

    @classmethod
    def unread(
        cls, consumer_tag: str, redelivered: bool, exchange: str, routing_key: str, payload: bytes, body: bytes
    ) -> Incoming:
        message = unread(cls, exchange, routing_key, redelivered, payload, body)
        message.consumer_tag, message.method, message.given = consumer_tag, None, None
        return message

    def _read(self) -> dict[str, Any]:
        given = self._pikas()
        said = {"durable": True, "id": given.message_id, "properties": given.headers or {}}
        return {**dict.fromkeys(self._LATER), **said}

    def _pikas(self) -> Any:
        given = self.given
        if given is None:
            given = self.given = object.__new__(UnreadProperties)
            given._octets = self._payload
        return given

    @property
    def wants_answer(self) -> bool:
        return self._delivery is not None and not self._delivery.subscription.no_ack

    def numbered(self, delivery_tag: int) -> tuple[Any, Any, bytes]:
        """The arguments of a callback; the broker's delivery tag is replaced by ours."""
        method = self.method
        if method is None:
            method = Deliver(self.consumer_tag, delivery_tag, self.redelivered, self.exchange, self.routing_key)
            self.method = method
        method.delivery_tag = delivery_tag
        return method, self._pikas(), self.body
