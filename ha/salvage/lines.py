"""Encodes and decodes the lines of a salvage file, and the header of a restored message.  Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from ha.model.position import make, text
from ha.model.protocol import need, need_epoch
from ha.model.salvaged import HOST, Grade, Header, Record
from qpidd_py.amqp.fields import Reader, Timestamp, encode_table_content
from qpidd_py.amqp.json_object import read_object
from qpidd_py.errors import InvariantError, LinkError

FORMAT: Final = 1
"""Format version of salvage files."""
WITH_HOSTS: Final = 2
"""That of files with messages of other virtual hosts than `/`: older versions would restore them to `/`."""
RECOVERED: Final = "x-recovered"
"""Name of the header that marks a message as restored from a salvage file."""


class SalvageError(ValueError):
    """A line does not belong to a salvage file."""


def encode_header(header: Header, time: str) -> bytes:
    """`time`: UTC as text."""
    said = {name: value for name, value in vars(header).items() if name != "hosts"}
    return _line({"salvage": WITH_HOSTS if header.hosts else FORMAT, "time": time, **said})


def decode_header(line: bytes) -> tuple[Header, str]:
    """(header, time).  Raises SalvageError."""
    value = _object(line)
    try:
        if value["salvage"] not in (FORMAT, WITH_HOSTS):
            raise SalvageError(f"salvage file of format {value['salvage']!r:.60}, expected {FORMAT} or {WITH_HOSTS}")
        broker, broker_id, primary, when = (
            need(value, name, str) for name in ("broker", "broker_id", "primary", "time")
        )
        epoch, messages = need_epoch(value), need(value, "messages", int)
        return Header(broker, broker_id, primary, epoch, messages, value["salvage"] == WITH_HOSTS), when
    except KeyError as error:
        raise SalvageError(f"not the first line of a salvage file: it has no {error}") from error
    except (ValueError, LinkError) as error:
        raise SalvageError(f"not the first line of a salvage file: {error}") from error


def encode_record(record: Record) -> bytes:
    value = {
        "leader": record.leader,
        "id": text(record.id),
        "queue": record.queue,
        **({} if record.host == HOST else {"vhost": record.host}),
        "grade": record.grade.value,
        "redelivered": record.redelivered,
        "arrival": record.arrival,
        "exchange": record.exchange.decode("utf-8", "surrogateescape"),
        "routing_key": record.routing_key.decode("utf-8", "surrogateescape"),
        "header": base64.b64encode(record.header).decode(),
        "body": base64.b64encode(record.body).decode(),
    }
    return _line(value)


def decode_record(line: bytes) -> Record:
    """Raises SalvageError."""
    value = _object(line)
    try:
        return Record(
            need(value, "leader", str),
            read_position(need(value, "id", str)),
            need(value, "queue", str),
            Grade(value.get("grade")),
            need(value, "redelivered", bool),
            need(value, "arrival", int),
            need(value, "exchange", str).encode("utf-8", "surrogateescape"),
            need(value, "routing_key", str).encode("utf-8", "surrogateescape"),
            base64.b64decode(need(value, "header", str), validate=True),
            base64.b64decode(need(value, "body", str), validate=True),
            need({"vhost": HOST, **value}, "vhost", str),
        )
    except (ValueError, LinkError) as error:
        raise SalvageError(f"not a message of a salvage file: {error!s:.200}") from error


def encode_end(messages: int) -> bytes:
    """The last line of a finished file."""
    return _line({"end": messages})


def is_end(line: bytes) -> bool:
    return line.startswith(b'{"end":') and line.rstrip().endswith(b"}")


def file_name(time: str, epoch: int, number: int) -> str:
    """`time` as YYYYMMDDTHHMMSSZ; `number` distinguishes files of one second."""
    return f"{time}-{epoch}{f'-{number}' if number > 1 else ''}.jsonl"


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _object(line: bytes) -> dict[str, Any]:
    try:
        return read_object(line)
    except ValueError as error:
        raise SalvageError(f"not a line of a salvage file: {error}") from error


def read_position(value: str) -> int:
    """EPOCH.SEQUENCE.  Raises SalvageError."""
    epoch, _, sequence = value.partition(".")
    try:
        return make(int(epoch), int(sequence))
    except (ValueError, InvariantError) as error:
        raise SalvageError(f"not a position: {value!r:.40}") from error


# ---- restoring -------------------------------------------------------------------------------------------------------

_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 1 << 15, 1 << 14, 1 << 13
_FLAGS_AT: Final = 12
"""Class (2 octets), weight (2) and body size (8) come before the property flags."""


def recovered_header(record: Record, broker: str, time: int) -> bytes:
    """The content header with one more entry in its table `headers`; the other octets are copied unchanged.

    Raises `FieldError` for a content header that cannot be read.  `time`: seconds since 1970, when it was put aside."""
    told = {
        "id": text(record.id),
        "time": Timestamp(time),
        "broker": broker,
        "exchange": record.exchange,
        "routing-key": record.routing_key,
    }
    entry = encode_table_content({RECOVERED: told})
    reader = Reader(record.header, _FLAGS_AT)
    flags = reader.short()
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & flag:
            reader.shortstr()
    start = reader.offset
    table = reader.longstr() if flags & _HEADERS else b""
    inside = table + entry
    before = record.header[:_FLAGS_AT] + (flags | _HEADERS).to_bytes(2, "big") + record.header[_FLAGS_AT + 2 : start]
    return before + len(inside).to_bytes(4, "big") + inside + record.header[reader.offset :]
