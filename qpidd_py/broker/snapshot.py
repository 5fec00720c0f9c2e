"""The configuration in octets: position u64, length u32 and operation, for each (little endian).  Pure.

`Records` keeps it encoded, since a joining backup and each segment of the journal get all of it at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from qpidd_py.errors import LinkError

_RECORD: Final = struct.Struct("<QI")


class Records:
    """The operations that made what there is, by position; those at position 0 are not kept."""

    def __init__(self) -> None:
        self._records: dict[int, bytes] = {}
        self._last = 0
        self._in_order = True

    def put(self, position: int, payload: bytes) -> None:
        if position:
            self._in_order = self._in_order and (position > self._last or position in self._records)
            self._last = max(self._last, position)
            self._records[position] = _RECORD.pack(position, len(payload)) + payload

    def drop(self, position: int) -> None:
        self._records.pop(position, None)

    def payload(self, position: int) -> bytes | None:
        record = self._records.get(position)
        return None if record is None else record[_RECORD.size :]

    def encoded(self, first: bytes, positions: Iterable[int] | None = None) -> bytes:
        """In order, behind the operation `first`, which has no position; only those at `positions`, if given."""
        head = _RECORD.pack(0, len(first)) + first
        if positions is not None:
            return b"".join([head, *(self._records[position] for position in sorted(positions))])
        if not self._in_order:
            self._records = dict(sorted(self._records.items()))
            self._in_order = True
        return b"".join([head, *self._records.values()])


def encode_snapshot(records: list[tuple[int, bytes]]) -> bytes:
    pack = _RECORD.pack
    return b"".join([part for position, payload in records for part in (pack(position, len(payload)), payload)])


def decode_snapshot(body: bytes) -> list[tuple[int, bytes]]:
    """Raises LinkError."""
    return list(read_snapshot(bytes(body)))


def read_snapshot(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The same one by one."""
    unpack, head, end, at = _RECORD.unpack_from, _RECORD.size, len(body), 0
    while at < end:
        if at + head > end:
            raise LinkError(f"snapshot: record head at {at} of {end}")
        position, length = unpack(body, at)
        at += head
        if at + length > end:
            raise LinkError(f"snapshot: record of {length} octets at {at} of {end}")
        yield position, body[at : at + length]
        at += length
