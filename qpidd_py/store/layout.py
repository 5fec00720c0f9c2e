"""The octets of a journal: names of segment files, their headers, and the envelopes of the frames in them.    Pure.

A journal is a run of *frames*, numbered from 1 without gaps, in *segments* (files) with consecutive *generations*.  A
frame is a frame of the replication link (`core/batch.pyx`: header with length, position and checksum over all of it)
behind an envelope.

Layout (little endian).
  segment file "%016x.journal" (the generation):
      magic 16 octets, format u32, 4 spare, generation u64, number of its first frame u64, checksum u32 of the last
      envelope before it (0 at the beginning of the journal), checksum u32
  file "mark":
      magic 8 octets, number u64 up to which everything was on disk, 4 spare, checksum u32
  envelope:
      magic u32, length of the frame u32, generation u64, number u64, durable u64, checksum of the previous envelope
      u32, checksum u32

The checksum of an envelope covers its other fields and the checksum of the frame.  So a file that was used before may
hold anything: what is left of an earlier generation, of another frame, or of a tail that was cut off does not pass.
`durable` is the number up to which everything was on disk when this frame was written: what is damaged at or below it
was lost after it had been acknowledged (rot), what is damaged above it was never acknowledged (a torn tail).  The mark
says the same of the last frames, which no frame follows.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from typing import Final, NamedTuple

from qpidd_py.core import crc32c
from qpidd_py.core.batch import HEADER_SIZE as LINK_HEADER

FORMAT: Final = 2
READ: Final = (1, 2)
"""Formats that are read.  1 has no differences (`Kind.DIFFERENCE`)."""
MAGIC: Final = b"qpidd journal\r\n\0"
_HEADER: Final = struct.Struct("<16sI4xQQI")
_ENVELOPE: Final = struct.Struct("<IIQQQI")
_CHECKSUM: Final = struct.Struct("<I")
MARK: Final = "mark"
_MARK: Final = struct.Struct("<8sQ4x")
_MARK_MAGIC: Final = b"QJMARK1\n"
ENVELOPE_MAGIC: Final = 0x314C4A51  # "QJL1"
HEADER_SIZE: Final = _HEADER.size + _CHECKSUM.size
ENVELOPE_SIZE: Final = _ENVELOPE.size + _CHECKSUM.size
FRAME_HEADER: Final = LINK_HEADER
_CRC_AT: Final = 24  # of the frame, in its own header
_NAME: Final = re.compile(r"([0-9a-f]{16})\.journal")
SPARE: Final = re.compile(r"spare-[0-9]+")


class Kind(IntEnum):
    """Kinds of frames in a journal.  Numbers below 32 mean the same on a replication link."""

    BATCH = 1
    SLICE = 4
    SNAPSHOT = 5
    """The configuration, at the beginning of a segment."""
    DROP = 7
    MERGE = 8
    CARRIED = 32
    """Messages of earlier segments once more: number of the carry u32, records."""
    HEAD = 33
    """The carry is complete: its number u32, the generation u64 where the journal begins from now on."""
    BASE = 34
    """What follows continues the content that the carry of this number (u32) brings, and no other."""
    NOTE = 35
    """Of a member of a cluster: whose content this is.  The last one counts."""
    DIFFERENCE = 36
    """From here on to the next TAKEN or GIVEN_UP the frames change the content to another one.  Together they count if
    there is a TAKEN of this frame's number, else none of them does."""
    TAKEN = 37
    """The number u64 of the DIFFERENCE that is complete."""
    GIVEN_UP = 38
    """A run has ended within a DIFFERENCE; what follows continues the content before it."""
    ADOPTED = 39
    """In a DIFFERENCE: the configuration of the other content."""


class Envelope(NamedTuple):
    length: int
    generation: int
    number: int
    durable: int
    previous: int
    """Checksum of the envelope before it."""
    checksum: int


class SegmentHeader(NamedTuple):
    generation: int
    first: int
    """Number of its first frame."""
    previous: int
    """Checksum of the last envelope before it."""


class FormatError(Exception):
    """A segment of a format that this version does not read."""


def segment_name(generation: int) -> str:
    return f"{generation:016x}.journal"


def generation_of(name: str) -> int | None:
    """None if `name` is not that of a segment."""
    match = _NAME.fullmatch(name)
    return int(match[1], 16) if match else None


def encode_header(header: SegmentHeader) -> bytes:
    octets = _HEADER.pack(MAGIC, FORMAT, *header)
    return octets + _CHECKSUM.pack(crc32c(octets))


def decode_header(data: bytes | bytearray) -> SegmentHeader | None:
    """None if `data` does not begin with the whole header of a segment.  Raises FormatError."""
    if len(data) < HEADER_SIZE or not data.startswith(MAGIC):
        return None
    octets, (checksum,) = bytes(data[: _HEADER.size]), _CHECKSUM.unpack_from(data, _HEADER.size)
    if crc32c(octets) != checksum:
        return None
    _, version, *fields = _HEADER.unpack(octets)
    if version not in READ:
        expected = " or ".join(map(str, READ))
        raise FormatError(f"journal format {version}, expected {expected}: it was written by another version of qpidd")
    return SegmentHeader(*fields)


def may_be_new(data: bytes | bytearray) -> bool:
    """True if `data` may be a segment whose header was never written, or written in part."""
    return all(found in (0, wanted) for found, wanted in zip(data, MAGIC, strict=False))


def encode_envelope(head: bytes, length: int, generation: int, number: int, durable: int, previous: int) -> bytes:
    """The envelope of a frame of `length` octets that begins with `head` (its header is enough)."""
    octets = _ENVELOPE.pack(ENVELOPE_MAGIC, length, generation, number, durable, previous)
    return octets + _CHECKSUM.pack(crc32c(octets + head[_CRC_AT : _CRC_AT + 4]))


def checksum_of(envelope: bytes) -> int:
    checksum: int = _CHECKSUM.unpack_from(envelope, _ENVELOPE.size)[0]
    return checksum


def decode_envelope(data: bytes | bytearray, at: int) -> Envelope | None:
    """The envelope at `at`; None if there is none that its checksum confirms.  The frame itself is not checked."""
    if at + ENVELOPE_SIZE + _CRC_AT + 4 > len(data):
        return None
    magic, length, generation, number, durable, previous = _ENVELOPE.unpack_from(data, at)
    (checksum,) = _CHECKSUM.unpack_from(data, at + _ENVELOPE.size)
    frame = at + ENVELOPE_SIZE
    covered = data[at : at + _ENVELOPE.size] + data[frame + _CRC_AT : frame + _CRC_AT + 4]
    if magic != ENVELOPE_MAGIC or crc32c(bytes(covered)) != checksum:
        return None
    return Envelope(length, generation, number, durable, previous, checksum)


def encode_mark(number: int) -> bytes:
    octets = _MARK.pack(_MARK_MAGIC, number)
    return octets + _CHECKSUM.pack(crc32c(octets))


def decode_mark(data: bytes | bytearray) -> int:
    """0 if it is none: one that was cut off while it was written says nothing."""
    if len(data) != _MARK.size + _CHECKSUM.size:
        return 0
    octets, (checksum,) = bytes(data[: _MARK.size]), _CHECKSUM.unpack_from(data, _MARK.size)
    magic, number = _MARK.unpack(octets)
    return int(number) if (magic, checksum) == (_MARK_MAGIC, crc32c(octets)) else 0


def is_torn(data: bytes | bytearray, at: int, generation: int, number: int) -> bool:
    """True if a frame with this number was written at `at`, at least in part."""
    if at + ENVELOPE_SIZE > len(data):
        return False
    magic, _, found, counted, *_ = _ENVELOPE.unpack_from(data, at)
    return (magic, found, counted) == (ENVELOPE_MAGIC, generation, number)
