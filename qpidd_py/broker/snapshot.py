"""The configuration in octets: position u64, length u32 and operation, for each (little endian).  Pure."""

from __future__ import annotations

import struct
from typing import Final

from qpidd_py.errors import LinkError

_RECORD: Final = struct.Struct("<QI")


def encode_snapshot(records: list[tuple[int, bytes]]) -> bytes:
    return b"".join(_RECORD.pack(position, len(payload)) + payload for position, payload in records)


def decode_snapshot(body: bytes) -> list[tuple[int, bytes]]:
    """Raises LinkError."""
    records: list[tuple[int, bytes]] = []
    at = 0
    while at < len(body):
        if at + _RECORD.size > len(body):
            raise LinkError(f"snapshot: record head at {at} of {len(body)}")
        position, length = _RECORD.unpack_from(body, at)
        at += _RECORD.size
        if at + length > len(body):
            raise LinkError(f"snapshot: record of {length} octets at {at} of {len(body)}")
        records.append((position, bytes(body[at : at + length])))
        at += length
    return records
