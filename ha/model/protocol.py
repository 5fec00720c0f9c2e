"""The replication protocol above the core's frames, without I/O.

A link is an AMQP connection of a backup to the primary that has switched, after `connection.open-ok`, to frames with
the core's 32 octet header (kind, position, length, checksum).  The frames of one link, `>` from the backup:

    > CONTROL hello      who I am, my ballot, my position, whether I am whole, my replication level
    < CONTROL welcome    who I am, my ballot, my lineage (epoch, leader, base of each epoch)
    > LACK ...           for some queues: ids that I hold and that you may lack (only after an unsafe promotion)
    < LACK               for each of them: the ids that are lacking; the backup salvages these before it goes on
    > HELD ...           one for each replicated queue: its number, its uid, the ids that I hold
    > CONTROL held-end
    < CONTROL cut        the end of the log at this moment, the in-sync set; BATCH frames follow from here on, live
    < SNAPSHOT           the configuration at the cut
    < DROP, SLICE..., MERGE    for each queue, between live batches
    > CREDIT             for each SLICE: that many are applied; the primary keeps a few of them under way
    < CONTROL caught-up
    > CONTROL complete   all of that is applied
    > ACK                for each read of BATCH frames: everything from the cut up to this position is applied
    < LOGINS             digests of passwords that are right, if the backup's hello has `logins` (`logins.py`)
    CONTROL alive        < another process of this id wants its link, > the same number: this one lives (`twins.py`)
    CONTROL still-there  > after a pause of the backup, < the same number: it has not been given up
    HEARTBEAT            both ways, when nothing else was sent for half an interval, and once a second: the sender's
                         wall clock (`clock_readings.py`)
    CONTROL limited      > it is at a limit of its own (memory), with the reason; an empty reason: not any more
    CONTROL refused      either way, before closing: why; with `twin`: the backup's process must end

Every number is little endian, as in the core's header.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from ha.model.position import LAST_EPOCH
from qpidd_py.amqp.json_object import read_object
from qpidd_py.errors import LinkError

VERSION: Final = 3

ADMIN: Final = "qpid.ha-admin"
BACKUP: Final = "qpid.ha-backup"
REPLICA: Final = "qpid.ha-replica"
"""Client properties that mark what a connection is for: a tool's, a link, a follower of single queues."""


class Kind(IntEnum):
    """Kinds of frames; the core handles BATCH itself."""

    BATCH = 1
    CONTROL = 2
    ACK = 3
    SLICE = 4
    SNAPSHOT = 5
    HELD = 6
    DROP = 7
    MERGE = 8
    HEARTBEAT = 9
    CREDIT = 10
    LACK = 11
    LOGINS = 12


_HELD = struct.Struct("<IQ")
_NUMBER = struct.Struct("<I")


def encode_control(op: str, **fields: Any) -> bytes:
    return json.dumps({"op": op, **fields}, separators=(",", ":")).encode()


def decode_control(body: bytes) -> tuple[str, dict[str, Any]]:
    """(op, fields).  Raises LinkError."""
    try:
        value = read_object(body)
    except ValueError as error:
        raise LinkError(f"control frame: {error}") from error
    if not isinstance(value.get("op"), str):
        raise LinkError(f"control frame without op: {bytes(body[:80])!r}")
    return value.pop("op"), value


KEYS: Final = 1 << 31
"""Added to the number of a queue that remembers keys, in a HELD frame: the messages whose keys the backup knows."""


def encode_held(number: int, uid: int, ids: bytes) -> bytes:
    return _HELD.pack(number, uid) + ids


def decode_held(body: bytes) -> tuple[int, int, bytes]:
    """(number, uid, id set).  Raises LinkError."""
    if len(body) < _HELD.size:
        raise LinkError(f"held frame of {len(body)} octets, expected {_HELD.size} or more")
    number, uid = _HELD.unpack_from(body)
    return number, uid, bytes(body[_HELD.size :])


def encode_drop(number: int, ids: bytes) -> bytes:
    return _NUMBER.pack(number) + ids


def decode_drop(body: bytes) -> tuple[int, bytes]:
    """(number, id set).  Raises LinkError."""
    return decode_merge(body[:4]), bytes(body[4:])


def encode_merge(number: int) -> bytes:
    return _NUMBER.pack(number)


def decode_merge(body: bytes) -> int:
    """Queue number.  Raises LinkError."""
    if len(body) != _NUMBER.size:
        raise LinkError(f"queue number of {len(body)} octets, expected {_NUMBER.size}")
    number: int = _NUMBER.unpack(body)[0]
    return number


NUMBER_MAX: Final = (1 << 64) - 1
"""Of positions, and of every other number between brokers."""
TEXT_MAX: Final = 1024
"""Characters of a name, an address or a reason."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def need(fields: Mapping[str, Any], name: str, kind: type, most: int = NUMBER_MAX) -> Any:
    """A field of a control frame, a request or a file.  Raises LinkError when it is missing, of another type, or a
    number that is not in 0..most."""
    value = fields.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise LinkError(f"field {name}: found {value!r:.60}, expected {kind.__name__}")
    if isinstance(value, int) and not 0 <= value <= most:
        raise LinkError(f"field {name}: found {value!r:.60}, expected 0 to {most}")
    return value


def need_epoch(fields: Mapping[str, Any], name: str = "epoch") -> int:
    epoch: int = need(fields, name, int, LAST_EPOCH)
    return epoch


def need_text(fields: Mapping[str, Any], name: str) -> str:
    """As `short_text`, and it may not be missing."""
    need(fields, name, str)
    return short_text(fields, name)


def short_text(fields: Mapping[str, Any], name: str) -> str:
    """A name, an address or the like; empty if it is missing.  Raises LinkError when it is no text, or too long."""
    value = fields.get(name, "")
    if not is_short_text(value):
        raise LinkError(f"field {name}: found {value!r:.60}, expected a text of at most {TEXT_MAX} characters")
    text: str = value
    return text


def is_short_text(value: object) -> bool:
    """True if it can be shown, sent and stored: not too long, and no half of a surrogate pair."""
    return isinstance(value, str) and len(value) <= TEXT_MAX and not _SURROGATE.search(value)
