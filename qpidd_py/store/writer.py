"""Writes frames to segments, in order; what it reports is on disk.                              Pure over `disk.Disk`.

    work ──▶ envelopes ──▶ one write for each run of frames in a segment ──▶ one sync ──▶ number of the last frame

With `journal-sync` other than `batch` the sync comes later (`sync`), and what is reported outlives the process only.

Invariants: a frame is written once all before it were handed to the disk; the next segment begins when the last one is
synced; a segment is dropped when everything handed in before the order to drop it is synced.
After ENOSPC of a write `commit` may be called again with more work, and goes on where it stopped.  After a failed sync,
for whatever reason, the page cache may have dropped what it should have written: nothing is written any more.
The mark is never ahead of what is on disk.
Who may call: one thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from qpidd_py.store.disk import Disk
from qpidd_py.store.layout import (
    ENVELOPE_SIZE,
    FRAME_HEADER,
    HEADER_SIZE,
    MARK,
    SegmentHeader,
    checksum_of,
    encode_envelope,
    encode_header,
    encode_mark,
    segment_name,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(frozen=True)
class Roll:
    """The next frame begins the segment of this generation."""

    generation: int
    size: int
    """Octets to allocate for it."""


@dataclass(frozen=True)
class Drop:
    """The segment of this generation is not needed any more."""

    generation: int


Work: TypeAlias = "Buffer | Roll | Drop"
"""A frame, or an order that takes effect behind the frames before it."""


@dataclass(frozen=True)
class JournalEnd:
    """The end of a journal."""

    number: int = 0
    """Of the last frame."""
    checksum: int = 0
    """Of its envelope."""
    generation: int = 0
    """Of the segment that has it."""


class SyncFailed(OSError):
    """What was written since the last sync may be lost, although it can be read back."""


class Writer:
    """The end of one journal."""

    def __init__(self, disk: Disk, end: JournalEnd) -> None:
        """What the disk has up to `end` must be synced.  The first work is a `Roll`."""
        self._disk = disk
        self._work: deque[Work] = deque()
        self._number, self._checksum = end.number, end.checksum
        self._generation = 0
        self._offset = 0
        self._buffers: list[Buffer] = []
        self._octets = 0
        self._size = 0
        self._failed: SyncFailed | None = None
        self.durable = end.number
        """Number of the last frame on disk: each later frame says so, and damage up to there is no torn end."""
        self._marked = 0
        self.unsynced = False
        """Something was written since the last sync."""
        self.unreserved = 0
        """Octets that the next segment needs and that are not reserved; 0 if they are."""

    def commit(self, work: Iterable[Work], sync: bool = True) -> int:
        """Put all of it on disk, or hand it to the system; the number of the last frame.  Raises SyncFailed, again and
        again, and OSError."""
        if self._failed is not None:
            raise self._failed
        self._work.extend(work)
        while self._work:
            item = self._work[0]
            if isinstance(item, Roll):
                self.sync()
                self._begin(item)
            elif isinstance(item, Drop):
                self.sync()
                self._disk.recycle(segment_name(item.generation))
            else:
                self._add(item)
            self._work.popleft()
        self._write()
        if sync:
            self.sync()
        return self._number

    def sync(self) -> None:
        """What was written is on disk when this returns.  Raises SyncFailed and OSError."""
        self._write()
        if not self.unsynced:
            return
        try:
            self._disk.sync(segment_name(self._generation))
        except OSError as error:
            self._failed = SyncFailed(error.errno, error.strerror)
            raise self._failed from error
        self.unsynced, self.durable = False, self._number

    def mark(self) -> None:
        """Say how far everything is on disk, for when no frame follows that would.  Raises OSError."""
        if self._marked < self.durable and self._failed is None:
            self._disk.keep(MARK, encode_mark(self.durable))
            self._marked = self.durable

    def reserve(self) -> None:
        """Take the space of the next segments, so that what is consumed can be written when the disk is full.  Raises
        OSError."""
        if self.unreserved:
            self._disk.reserve(self.unreserved)
            self.unreserved = 0

    def release(self) -> bool:
        """Let the present segment grow at the cost of the reserve; False if there is none.  Raises OSError."""
        self.unreserved = self._size
        return self._disk.release()

    def _begin(self, roll: Roll) -> None:
        self._disk.create(segment_name(roll.generation), roll.size)
        self.unreserved = self._size = roll.size
        self._generation, self._offset = roll.generation, 0
        header = encode_header(SegmentHeader(roll.generation, self._number + 1, self._checksum))
        self._buffers, self._octets = [header], HEADER_SIZE

    def _add(self, frame: Buffer) -> None:
        view = memoryview(frame)
        self._number += 1
        head = bytes(view[:FRAME_HEADER])
        envelope = encode_envelope(head, view.nbytes, self._generation, self._number, self.durable, self._checksum)
        self._checksum = checksum_of(envelope)
        self._buffers += (envelope, view)
        self._octets += ENVELOPE_SIZE + view.nbytes

    def _write(self) -> None:
        if self._buffers:
            self._disk.write(segment_name(self._generation), self._offset, self._buffers)
            self.unsynced = True
            self._offset += self._octets
            self._buffers, self._octets = [], 0
