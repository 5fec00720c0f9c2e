"""A received message that is sent on with the property list that it came with (pure).

The list is not decoded and written anew, so it goes on octet for octet, except for what is asked for, for a message id
where there is none, and for `x-resent` where the source has said redelivered: then a copy may have been sent on before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from client_lib.content import encode_table, read_property
from client_lib.core.resent import mark_resent
from client_lib.message import Message
from client_lib.properties import HEAD, Properties, octet, seconds, short_string

NAMES = tuple(Properties.__slots__)
"""Of the properties, in the order in which they are written."""
Headers = Callable[[dict[str, Any]], Mapping[str, Any]]


class Forwarded(Message):
    """Of `source`, a delivery that was not changed.  `properties`: those to set; `headers`: what makes the new ones of
    those that are there.  A sender without a routing key uses `subject`, which is that of the delivery.

    Raises ValueError for a property list that cannot be read."""

    __slots__ = ("_fields", "doubtful", "source")

    def __init__(
        self, source: Message, properties: Mapping[str, Any] | None = None, headers: Headers | None = None
    ) -> None:
        super().__init__(source.body)
        self.source, self.subject = source, source.routing_key
        self.doubtful = source.redelivered
        """A copy may have been sent on before."""
        fields = self._fields = dict(_split(source._payload))
        for name, value in (properties or {}).items():
            fields[name] = _written(name, value)
        if headers is not None:
            table = read_property("headers", fields["headers"], 0)[0] if "headers" in fields else {}
            fields["headers"] = encode_table(headers(table), "headers")
        self.id = fields.get("message_id", b"\0")[1:].decode("utf-8", "backslashreplace") or None

    def encode(self, message_id: str, *_: Any) -> bytes:
        """The property list."""
        fields = self._fields if self.id else {**self._fields, "message_id": short_string(message_id, "id")}
        flags = sum(0x8000 >> number for number, name in enumerate(NAMES) if name in fields)
        payload = HEAD.pack(flags) + b"".join(fields[name] for name in NAMES if name in fields)
        return mark_resent(payload) if self.doubtful else payload


def _split(payload: bytes) -> Iterator[tuple[str, bytes]]:
    """The properties with their octets.  Raises ValueError."""
    if len(payload) < HEAD.size:
        raise ValueError(f"a property list of {len(payload)} octets")
    (flags,), at = HEAD.unpack_from(payload), HEAD.size
    for number, name in enumerate(NAMES):
        if flags & 0x8000 >> number:
            _, end = read_property(name, payload, at)
            yield name, payload[at:end]
            at = end


def _written(name: str, value: Any) -> bytes:
    if name in ("delivery_mode", "priority"):
        return octet(value, name)
    return seconds(value) if name == "timestamp" else short_string(value, name)
