"""Reads a journal: where it ends, where it begins, and its frames.                              Pure over `disk.Disk`.

Every octet is checked, from the first segment to the last frame.  What does not pass is one of two things:

  torn   it is behind everything that was ever acknowledged: the write before a crash.  It is cut off.
  rot    it was on disk once: a frame behind it says so (`layout.py`, durable), the next segment does, or the mark.
         Confirmed messages are lost.  A journal with rot is not read in silence as one that ends earlier: `Damaged`.

Reading changes nothing, so a crash meanwhile changes nothing either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from qpidd_py.core import frame_length
from qpidd_py.errors import LinkError
from qpidd_py.store.disk import Disk
from qpidd_py.store.layout import (
    ENVELOPE_MAGIC,
    ENVELOPE_SIZE,
    FRAME_HEADER,
    HEADER_SIZE,
    MARK,
    Envelope,
    FormatError,
    Kind,
    SegmentHeader,
    decode_envelope,
    decode_header,
    decode_mark,
    generation_of,
    is_torn,
    may_be_new,
    segment_name,
)
from qpidd_py.store.writer import JournalEnd

_POSITION: Final = Struct("<8xQ")
_KIND_AT: Final = 28
HEAD: Final = Struct("<IQ")
CARRY: Final = Struct("<I")
TAKEN: Final = Struct("<Q")
QUEUE: Final = Struct("<I")
"""At the beginning of DROP and MERGE."""
_MAGIC: Final = ENVELOPE_MAGIC.to_bytes(4, "little")


class Damaged(Exception):
    """Rot, or files that are missing: confirmed messages may be lost."""


class Frame(NamedTuple):
    number: int
    kind: int
    position: int
    """Of the last operation in it."""
    octets: bytes
    """With its header."""

    @property
    def body(self) -> bytes:
        return self.octets[FRAME_HEADER:]

    @property
    def carry(self) -> int:
        """Number of the carry, of a frame that has one.  Raises LinkError."""
        return self.first(CARRY)

    @property
    def head(self) -> tuple[int, int]:
        """Number of the carry, and the generation where the journal begins.  Raises LinkError."""
        carry, generation = self._numbers(HEAD)
        return carry, generation

    def first(self, layout: Struct) -> int:
        """The number with which its body begins.  Raises LinkError."""
        return self._numbers(layout)[0]

    def _numbers(self, layout: Struct) -> tuple[int, ...]:
        if len(self.body) < layout.size:
            raise LinkError(f"frame {self.number} of kind {self.kind} has {len(self.body)} octets")
        return layout.unpack_from(self.body)


@dataclass
class SegmentFile:
    generation: int
    first: int
    last: int = 0
    """Number of its last frame."""
    octets: int = HEADER_SIZE
    """Up to the end of its last frame."""


@dataclass
class Found:
    """A journal that can be read."""

    segments: list[SegmentFile] = field(default_factory=list)
    end: JournalEnd = field(default_factory=JournalEnd)
    head: int = 1
    """Generation of the segment where the journal begins."""
    carry: int = 0
    """Number of the last carry that was completed."""
    carries: int = 0
    """The highest number of a carry."""
    taken: set[int] = field(default_factory=set)
    """Numbers of the DIFFERENCE frames whose differences are complete."""
    torn: bool = False
    """A frame was being written when the broker ended; it was never acknowledged."""

    @property
    def octets(self) -> int:
        return sum(segment.octets for segment in self.segments)


def scan(disk: Disk, progress: Callable[[int, int], None] = lambda done, of: None, found: Found | None = None) -> Found:
    """Check the whole journal; `progress` is called with (segments done, of all).

    `found` is filled meanwhile: after Damaged it has what can be read.  Raises Damaged, FormatError, OSError."""
    generations = _generations(disk)
    found = found or Found()
    memory = bytearray()
    for done, generation in enumerate(generations):
        disk.read(segment_name(generation), memory)
        _scan_segment(memory, generation, found, last=generation == generations[-1])
        progress(done + 1, len(generations))
    _check_begin(found)
    _check_mark(disk, found)
    return found


def settle(disk: Disk) -> None:
    """Before `scan`, of a journal that goes on: what its writer has not synced may be in the cache only, and everything
    from here on relies on it.  The other segments were synced before the last one began.  Raises OSError."""
    if generations := _generations(disk):
        disk.settle(segment_name(generations[-1]))


def _generations(disk: Disk) -> list[int]:
    return sorted(g for name in disk.names() if (g := generation_of(name)) is not None)


def frames(disk: Disk, found: Found) -> Iterator[Frame]:
    """Every frame from the head to the end, in order."""
    memory = bytearray()
    for segment in found.segments:
        if segment.generation >= found.head:
            disk.read(segment_name(segment.generation), memory)
            for number, at, length in _places(memory, segment):
                yield _frame(memory, number, at, length)


def _places(data: bytearray, segment: SegmentFile) -> Iterator[tuple[int, int, int]]:
    at = HEADER_SIZE
    for number in range(segment.first, segment.last + 1):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        yield number, at + ENVELOPE_SIZE, length
        at += ENVELOPE_SIZE + length


def _frame(data: bytearray, number: int, at: int, length: int) -> Frame:
    octets = bytes(memoryview(data)[at : at + length])
    return Frame(number, octets[_KIND_AT], _POSITION.unpack_from(octets)[0], octets)


def _scan_segment(data: bytearray, generation: int, found: Found, last: bool) -> None:
    name = segment_name(generation)
    try:
        header = decode_header(data)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from error
    if header is not None and header.generation == generation:
        _check_follows(header, found)
        segment = SegmentFile(generation, header.first, header.first - 1)
        found.segments.append(segment)
        found.end = JournalEnd(header.first - 1, header.previous, generation)
        _scan_frames(data, segment, found)
    elif not may_be_new(data):
        raise Damaged(f"{name}: it does not begin as a segment of a journal does")
    elif not last:
        raise Damaged(f"{name}: its header is damaged, and segments follow it")
    if last:
        _check_tail(name, data, generation, found)


def _check_follows(header: SegmentHeader, found: Found) -> None:
    end = found.end
    if found.segments and header.generation != end.generation + 1:
        found.segments.clear()  # all before the head, or `_check_begin` finds that the head is missing
    if found.segments and (header.first, header.previous) != (end.number + 1, end.checksum):
        where = f"{segment_name(end.generation)}, octet {found.segments[-1].octets}"
        raise Damaged(f"{where}: frames {end.number + 1} to {header.first - 1} were on disk and are damaged")


def _scan_frames(data: bytearray, segment: SegmentFile, found: Found) -> None:
    while (envelope := _next(data, segment, found.end)) is not None:
        at = segment.octets + ENVELOPE_SIZE
        found.end = JournalEnd(envelope.number, envelope.checksum, segment.generation)
        segment.last = envelope.number
        segment.octets = at + envelope.length
        _note(data, at, envelope, found)


def _next(data: bytearray, segment: SegmentFile, end: JournalEnd) -> Envelope | None:
    envelope = decode_envelope(data, segment.octets)
    if envelope is None or envelope.generation != segment.generation:
        return None
    if (envelope.number, envelope.previous) != (end.number + 1, end.checksum):
        return None
    whole = frame_length(data, segment.octets + ENVELOPE_SIZE) == envelope.length
    return envelope if whole else None


def _note(data: bytearray, at: int, envelope: Envelope, found: Found) -> None:
    kind = data[at + _KIND_AT]
    if kind not in (Kind.HEAD, Kind.CARRIED, Kind.BASE, Kind.TAKEN):
        return
    frame = _frame(data, envelope.number, at, min(envelope.length, FRAME_HEADER + HEAD.size))
    try:
        if kind == Kind.TAKEN:
            found.taken.add(frame.first(TAKEN))
            return
        if kind == Kind.HEAD:
            found.carry, found.head = frame.head
        found.carries = max(found.carries, frame.carry)
    except LinkError as error:
        raise Damaged(f"{segment_name(envelope.generation)}: {error}") from error


def _check_tail(name: str, data: bytearray, generation: int, found: Found) -> None:
    """Raises Damaged if a frame behind the end proves that something before it was on disk."""
    segments, end = found.segments, found.end
    octets = segments[-1].octets if segments and segments[-1].generation == generation else 0
    found.torn = is_torn(data, octets, generation, end.number + 1)
    at = data.find(_MAGIC, octets)
    while at >= 0:
        envelope = decode_envelope(data, at)
        if envelope is not None and envelope.generation == generation and envelope.durable > end.number:
            what = f"frames {end.number + 1} to {envelope.durable} were on disk and are damaged"
            raise Damaged(f"{name}, octet {octets}: {what}")
        at = data.find(_MAGIC, at + 1)


def _check_begin(found: Found) -> None:
    generations = [segment.generation for segment in found.segments]
    if generations and found.head not in generations:
        raise Damaged(f"{segment_name(found.head)}, where the journal begins, is missing or damaged")


def _check_mark(disk: Disk, found: Found) -> None:
    marked, end = _marked(disk), found.end
    if marked > end.number:
        where = f"{segment_name(end.generation)}, octet {found.segments[-1].octets}: " if found.segments else ""
        raise Damaged(f"{where}frames {end.number + 1} to {marked} were on disk and are damaged, says the mark")


def _marked(disk: Disk) -> int:
    memory = bytearray()
    if MARK in disk.names():
        disk.read(MARK, memory)
    return decode_mark(memory)
