"""What a broker holds that the cluster may have lost: selection, records, lines of a salvage file.  Pure.

Theory.  A broker that joins a primary gives up what the primary does not have.  Nearly always that was consumed, or was
never confirmed.  It can be the only copy of a confirmed message only after a promotion that was not proven to be safe
(`ha-safety=availability`, by force, or a manager who promotes over a primary that lives); then it goes to a file
before it is dropped.  A message is put aside if all of this holds:

    outside     the primary's log has never held it (`difference.outside`): what it did hold, the cluster has consumed
    gone        the primary does not hold it now (it is asked: a gambler may have had it all the same)
    possibly confirmed, by one of three grades:
      confirmed     its id is not above `safe` when we were primary: we may have told its publisher so
      acknowledged  its id is not above the position up to which we told a primary that we hold all: it may have
      received      neither, but the primary, or one before it, took over with holes: what any broker got before that
                    may have been confirmed by those that are gone.  Never for ids that we have given out ourselves:
                    of those we know.

Why a base and not a mere comparison of ids: a broker that comes back after a fail-over nearly always holds messages
that were consumed meanwhile.  Without the base each of them would look like a loss.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from ha.model.difference import Lineage, Outside, outside
from ha.model.position import make, text
from qpidd_py.amqp.fields import Reader, Timestamp, encode_table_content
from qpidd_py.errors import InvariantError

FORMAT: Final = 1
"""Of salvage files."""
RECOVERED: Final = "x-recovered"
"""The header of a message that came out of a salvage file."""


class Grade(Enum):
    """How likely it is that a message was confirmed."""

    CONFIRMED = "confirmed"
    ACKNOWLEDGED = "acknowledged"
    RECEIVED = "received"


@dataclass(frozen=True)
class Promises:
    """What this broker has had a part in promising."""

    led: frozenset[int]
    """The epochs in which it was primary, since its process began; what it did before that it does not know."""
    safe: int
    """The highest position that it has called safe as primary."""
    acknowledged: int
    """Up to where it has told a primary that it holds everything."""

    def grade(self, id: int) -> Grade:
        """Of a message that is a suspect."""
        if id <= self.safe:
            return Grade.CONFIRMED
        return Grade.ACKNOWLEDGED if id <= self.acknowledged else Grade.RECEIVED


class Suspect(NamedTuple):
    """Ids that, where we hold them and the primary does not, have to be put aside."""

    low: int
    high: int
    foreign: bool
    """The primary need not be asked: under these ids it would hold other messages."""


def suspects(mine: Lineage, primary: Lineage, complete: int, promises: Promises) -> list[Suspect]:
    """Where to look for messages that the cluster may have lost; empty after every promotion that lost nothing.
    `complete`: see `difference.outside`."""
    found = (_suspect(item, promises) for item in outside(mine, primary, complete))
    return [suspect for suspect in found if suspect.low <= suspect.high]


def _suspect(item: Outside, promises: Promises) -> Suspect:
    high = min(item.high, max(promises.safe, promises.acknowledged))
    if item.gamble and item.epoch not in promises.led:
        high = item.high
    return Suspect(item.low, high, item.foreign)


# ---- a file ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Header:
    """Why there is a salvage file; its first line."""

    broker: str
    """Name of the broker that held the messages."""
    broker_id: str
    primary: str
    """Name of the primary that does not have them."""
    epoch: int
    """Of that primary."""
    messages: int
    """As many are put aside; a file that holds fewer was not finished."""


@dataclass(frozen=True)
class Record:
    """One message in one queue."""

    leader: str
    """Id of the broker that gave out `id`."""
    id: int
    queue: str
    grade: Grade
    redelivered: bool
    arrival: int
    """Milliseconds since 1970; 0 where the broker did not note it."""
    exchange: bytes
    routing_key: bytes
    header: bytes
    """The content header as the publisher sent it."""
    body: bytes


class SalvageError(ValueError):
    """A line is none of a salvage file."""


def encode_header(header: Header, time: str) -> bytes:
    """`time`: UTC as text."""
    return _line({"salvage": FORMAT, "time": time, **vars(header)})


def decode_header(line: bytes) -> tuple[Header, str]:
    """(header, time).  Raises SalvageError."""
    value = _object(line)
    try:
        if value["salvage"] != FORMAT:
            raise SalvageError(f"salvage file of format {value['salvage']!r}, expected {FORMAT}")
        broker, broker_id, primary = (str(value[name]) for name in ("broker", "broker_id", "primary"))
        return Header(broker, broker_id, primary, int(value["epoch"]), int(value["messages"])), str(value["time"])
    except (KeyError, TypeError, ValueError) as error:
        raise SalvageError(f"not the first line of a salvage file: {error}") from error


def encode_record(record: Record) -> bytes:
    value = {
        "leader": record.leader,
        "id": text(record.id),
        "queue": record.queue,
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
            str(value["leader"]),
            read_position(value["id"]),
            str(value["queue"]),
            Grade(value["grade"]),
            bool(value["redelivered"]),
            int(value["arrival"]),
            value["exchange"].encode("utf-8", "surrogateescape"),
            value["routing_key"].encode("utf-8", "surrogateescape"),
            base64.b64decode(value["header"], validate=True),
            base64.b64decode(value["body"], validate=True),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SalvageError(f"not a message of a salvage file: {error}") from error


def encode_end(messages: int) -> bytes:
    """The last line of a file that was finished."""
    return _line({"end": messages})


def is_end(line: bytes) -> bool:
    return line.startswith(b'{"end":') and line.rstrip().endswith(b"}")


def file_name(time: str, epoch: int, number: int) -> str:
    """`time` as YYYYMMDDTHHMMSSZ; `number` tells files of one second apart."""
    return f"{time}-{epoch}{f'-{number}' if number > 1 else ''}.jsonl"


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise SalvageError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise SalvageError(f"a JSON {type(value).__name__}, expected an object")
    return value


def read_position(value: str) -> int:
    """EPOCH.SEQUENCE.  Raises SalvageError."""
    epoch, _, sequence = value.partition(".")
    try:
        return make(int(epoch), int(sequence))
    except (ValueError, InvariantError) as error:
        raise SalvageError(f"not a position: {value!r:.40}") from error


# ---- bringing it back ------------------------------------------------------------------------------------------------

_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 1 << 15, 1 << 14, 1 << 13
_FLAGS_AT: Final = 12
"""Class (2 octets), weight (2) and body size (8) come before the property flags."""


def recovered_header(record: Record, broker: str, time: int) -> bytes:
    """The content header with one more entry in its table `headers`; nothing else is touched, and nothing re-encoded.

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
