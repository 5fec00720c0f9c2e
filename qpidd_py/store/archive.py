"""The lines of an archive: configuration and messages of a broker, for people and for `qpid-ha restore`.         Pure.

    header    {"archive": 1, "time", "broker", "position", "messages": has it any?, "damage": what could not be read}
              archive 2: with other virtual hosts than `/`; objects and messages of these have "vhost"
    object    {"object": "queue.declare" | "exchange.declare" | "bind" | "setting.put", ...,
               "operation": the field table, base64}
    message   {"id", "queue", "redelivered", "arrival", "exchange", "routing_key", "properties", "header", "body", ...}
    end       {"end": messages, "objects": number, "sha256": of all lines before}

Objects come in the order in which they were made, messages of one queue in the order of their ids.  `operation` and
`header` are what counts when the archive is restored; what stands next to them is for people.  A message has the fields
of a line in a salvage file, so tools for those read it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from qpidd_py.amqp.codec import decode_properties
from qpidd_py.amqp.fields import FieldError, decode_operation
from qpidd_py.amqp.json_object import read_object
from qpidd_py.errors import AmqpError, QpiddError
from qpidd_py.security.entries import HOST

FORMAT: Final = 1
WITH_HOSTS: Final = 2
"""The format of an archive with other virtual hosts than `/`: older versions would restore all to `/`."""
DECLARE_QUEUE: Final = "queue.declare"
DECLARE_EXCHANGE: Final = "exchange.declare"
PUT_SETTING: Final = "setting.put"
OBJECTS: Final = (DECLARE_QUEUE, DECLARE_EXCHANGE, "bind", PUT_SETTING)
"""Operations of a snapshot of the configuration that are part of an archive."""
_SEQUENCE: Final = (1 << 48) - 1


class ArchiveError(QpiddError):
    """It is no archive, or not a whole one."""


@dataclass(frozen=True)
class Header:
    """Where an archive comes from."""

    time: str
    """UTC."""
    broker: str
    position: str
    """EPOCH.SEQUENCE: it holds what the broker held there."""
    messages: bool
    """False: only the configuration."""
    damage: str = ""
    """What could not be read of a journal; empty if it was whole."""
    hosts: bool = False
    """Whether there are other virtual hosts than `/`."""


class Message(NamedTuple):
    """One message in one queue."""

    queue: str
    id: int
    redelivered: bool
    arrival: int
    """Milliseconds since 1970; 0 if the broker did not record it."""
    exchange: bytes
    routing_key: bytes
    header: bytes
    """The content header as the publisher sent it."""
    body: bytes
    leader: str = ""
    """Id of the broker that assigned `id`; empty if it is not known."""
    host: str = HOST
    """The virtual host of the queue."""


class End(NamedTuple):
    """The last line."""

    messages: int
    objects: int
    sha256: str


def encode_header(header: Header) -> bytes:
    said = {name: value for name, value in vars(header).items() if name != "hosts"}
    return _line({"archive": WITH_HOSTS if header.hosts else FORMAT, **said})


def decode_header(line: bytes) -> Header:
    """Raises ArchiveError."""
    value = decode_line(line)
    found = value.get("archive")
    if not isinstance(found, int) or isinstance(found, bool):
        raise ArchiveError("not an archive of qpidd: the first line says something else")
    if found > WITH_HOSTS:
        text = f"archive of format {found}, this version reads up to {WITH_HOSTS}: a newer version wrote it"
        raise ArchiveError(text)
    try:
        time, broker, position = (str(value[name]) for name in ("time", "broker", "position"))
        damage, hosts = str(value.get("damage", "")), found == WITH_HOSTS
        return Header(time, broker, position, bool(value["messages"]), damage, hosts)
    except KeyError as error:
        raise ArchiveError(f"the first line has no {error}") from error


def encode_object(payload: bytes) -> bytes:
    """`payload`: an operation of `Configuration.snapshot`.  Raises FieldError."""
    operation = decode_operation(payload)
    shown = {"object": operation.pop("op"), **operation}
    return _line({**shown, "operation": base64.b64encode(payload).decode()})


def decode_object(value: Mapping[str, Any]) -> dict[str, Any]:
    """The operation.  Raises ArchiveError."""
    try:
        operation: dict[str, Any] = decode_operation(_octets(value, "operation"))
    except FieldError as error:
        raise ArchiveError(f"not an object of an archive: {error}") from error
    if operation.get("op") not in OBJECTS:
        raise ArchiveError(f"operation {operation.get('op')!r:.60}, expected {', '.join(OBJECTS)}")
    return operation


def encode_message(message: Message) -> bytes:
    try:
        properties: Any = decode_properties(message.header)
    except AmqpError as error:
        properties = {"unreadable": error.reply_text}
    value = {
        "id": position_text(message.id),
        "queue": message.queue,
        **({} if message.host == HOST else {"vhost": message.host}),
        "redelivered": message.redelivered,
        "arrival": message.arrival,
        "exchange": message.exchange.decode("utf-8", "surrogateescape"),
        "routing_key": message.routing_key.decode("utf-8", "surrogateescape"),
        "properties": properties,
        "header": base64.b64encode(message.header).decode(),
        "body": base64.b64encode(message.body).decode(),
        "leader": message.leader,
        "grade": "received",
    }
    return _line(value)


def decode_message(value: Mapping[str, Any]) -> Message:
    """Raises ArchiveError."""
    return Message(
        _field(value, "queue", str),
        _position(_field(value, "id", str)),
        _field(value, "redelivered", bool),
        _field(value, "arrival", int),
        _short(value, "exchange"),
        _short(value, "routing_key"),
        _octets(value, "header"),
        _octets(value, "body"),
        _field({"leader": "", **value}, "leader", str),
        _field({"vhost": HOST, **value}, "vhost", str),
    )


def _field(value: Mapping[str, Any], name: str, kind: type) -> Any:
    found = value.get(name)
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise ArchiveError(f"field {name} of a line: found {found!r:.60}, expected {kind.__name__}")
    return found


def _octets(value: Mapping[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(_field(value, name, str), validate=True)
    except ValueError as error:
        raise ArchiveError(f"field {name} of a line: {error}") from error


def _short(value: Mapping[str, Any], name: str) -> bytes:
    """Any octets, those that are no UTF-8 as surrogate escapes."""
    try:
        octets: bytes = _field(value, name, str).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ArchiveError(f"field {name} of a line is no text") from None
    return octets


def _position(text: str) -> int:
    epoch, _, sequence = text.partition(".")
    if not (epoch.isdecimal() and sequence.isdecimal() and len(text) < 30):
        raise ArchiveError(f"field id of a line: found {text!r:.60}, expected EPOCH.SEQUENCE")
    return int(epoch) << 48 | int(sequence)


def encode_end(end: End) -> bytes:
    return _line({"end": end.messages, "objects": end.objects, "sha256": end.sha256})


def decode_end(value: Mapping[str, Any]) -> End | None:
    """None for another line."""
    if "end" not in value:
        return None
    messages, objects = _field(value, "end", int), _field({"objects": 0, **value}, "objects", int)
    return End(messages, objects, str(value.get("sha256", "")))


def decode_line(line: bytes) -> dict[str, Any]:
    """Raises ArchiveError."""
    try:
        return read_object(line)
    except ValueError as error:
        raise ArchiveError(f"not a line of an archive: {error}") from error


def position_text(position: int) -> str:
    return f"{position >> 48}.{position & _SEQUENCE}"


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=_plain).encode() + b"\n"


def _plain(value: Any) -> str:
    """Values of field tables that are no JSON."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes | bytearray) else str(value)
