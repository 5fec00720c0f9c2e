"""The property list of AMQP: how it is read, and its single values (pure)."""

from __future__ import annotations

import functools
import logging
import struct
from dataclasses import dataclass
from typing import Any, TypeVar

from client_lib import content as contents

LOGGER = logging.getLogger("client_lib")
P = TypeVar("P")
HEAD = struct.Struct(">H")
_SHOWN = 40  # characters of a text


@dataclass(slots=True)
class Properties:
    """A property list that was read, with pika's names."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


def decode_properties(data: bytes, found: Any = None) -> Any:
    """Reads flags and values, as `Message.encode` writes them, into `found` or a new object.  Raises ValueError."""
    found = Properties() if found is None else found
    (flags,), at, size = HEAD.unpack_from(data), HEAD.size, len(data)
    for name, is_text in _flagged(flags):
        # texts here, which are most: a call for each is half of the time of a delivery's properties
        if is_text and at < size and (end := at + 1 + data[at]) <= size:
            value: Any = data[at + 1 : end].decode("utf-8", "backslashreplace")
            at = end
        else:
            value, at = contents.read_property(name, data, at)
        setattr(found, name, value)
    return found


@functools.lru_cache(256)
def _flagged(flags: int) -> list[tuple[str, bool]]:
    """The properties that are there, in their order, and whether they are short strings."""
    there = [name for index, name in enumerate(Properties.__slots__) if flags & 0x8000 >> index]
    return [(name, name not in ("headers", "delivery_mode", "priority", "timestamp")) for name in there]


def read_properties(payload: bytes, found: P) -> P:
    """As `decode_properties`, but what cannot be read is logged and left out: ending the connection would only cause a
    redelivery."""
    try:
        decode_properties(payload, found)
    except (ValueError, struct.error) as error:
        LOGGER.error("a message has properties that cannot be read: %s", error)
    return found


def short_string(text: str, name: str) -> bytes:
    """Its length in an octet, then UTF-8.  Raises TypeError, ValueError."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is {text!r}, expected str")
    octets = contents.utf8(text, name)
    if len(octets) > 255:
        raise ValueError(f"{name} has {len(octets)} octets, at most 255 are possible: {cut(text)!r}")
    return bytes((len(octets),)) + octets


def octet(value: int, name: str) -> bytes:
    if not isinstance(value, int) or not 0 <= value <= 255:
        raise ValueError(f"{name} is {value!r}, expected 0 to 255")
    return bytes((value,))


def seconds(timestamp: float) -> bytes:
    if isinstance(timestamp, bool) or not isinstance(timestamp, (int, float)) or not 0 <= timestamp < 1 << 63:
        raise ValueError(f"timestamp is {timestamp!r}, expected seconds since 1970")
    return struct.pack(">Q", int(timestamp))


def milliseconds(ttl: float) -> str:
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 0 <= ttl < 1 << 53:
        raise ValueError(f"ttl is {ttl!r}, expected seconds")
    return str(int(ttl * 1000))


def cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
