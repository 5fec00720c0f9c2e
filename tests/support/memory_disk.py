"""A disk in memory that loses what was not synced, as disks do: any sectors of it, in any order, one of them torn."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence

from typing_extensions import Buffer

from qpidd_py.store.disk import RESERVE

SECTOR = 512


class PowerCut(Exception):
    """The process ends here."""


class MemoryDisk:
    """`disk.Disk`.  `files` is what the process sees, `_platter` what a power cut leaves."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self._platter: dict[str, bytearray] = {}
        self._pending: list[tuple[str, int, bytes]] = []
        self._spares: list[bytearray] = []
        self._forgotten: dict[str, bytearray] = {}
        self.cut_after = 0
        """Operations until the power is cut; 0: it is not."""
        self.room = 1 << 30
        """Octets that files may take."""
        self.syncs = 0
        self.sync_error = 0
        """The error number of the next sync; what was to be synced is dropped, as a page cache does."""

    def names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str, memory: bytearray) -> None:
        memory[:] = self.files[name]

    def create(self, name: str, size: int) -> None:
        if not self._spares:
            self._allocate(size)
        content = self._spares.pop()
        self._forgotten.clear()
        self._operation()
        self.files[name], self._platter[name] = content, bytearray(content)

    def write(self, name: str, offset: int, buffers: Sequence[Buffer]) -> None:
        data = b"".join(bytes(buffer) for buffer in buffers)
        self._put(self.files[name], offset, data)
        self._pending.append((name, offset, data))
        self._operation()

    def sync(self, name: str) -> None:
        self._operation()
        self.syncs += 1
        if self.sync_error:
            number, self.sync_error = self.sync_error, 0
            self._pending = [found for found in self._pending if found[0] != name]
            raise OSError(number, os.strerror(number))
        for pending in [found for found in self._pending if found[0] == name]:
            self._put(self._platter[name], *pending[1:])
            self._pending.remove(pending)

    def keep(self, name: str, content: bytes) -> None:
        """A power cut may leave any part of it."""
        self.files.setdefault(name, bytearray())
        self._platter.setdefault(name, bytearray())
        self.write(name, 0, [content])
        self.sync(name)

    def settle(self, name: str) -> None:
        self.sync(name)
        self.files[name] = bytearray(self._platter[name])

    def recycle(self, name: str) -> None:
        self._operation()
        self._pending = [found for found in self._pending if found[0] != name]
        self._forgotten[name] = self._platter.pop(name)
        self._spares.append(self.files.pop(name))

    def reserve(self, size: int) -> None:
        while len(self._spares) < RESERVE:
            self._allocate(size)

    def release(self) -> bool:
        if self._spares:
            self.room += len(self._spares.pop())
            return True
        return False

    def _allocate(self, size: int) -> None:
        if size > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= size
        self._spares.append(bytearray(size))

    def copy(self) -> MemoryDisk:
        """Of what the process sees."""
        other = MemoryDisk()
        other.files = {name: bytearray(content) for name, content in self.files.items()}
        other._platter = {name: bytearray(content) for name, content in self.files.items()}
        return other

    def harden(self, name: str) -> None:
        """What the process sees of this file is on the platter."""
        self._platter[name] = bytearray(self.files[name])

    # ---- faults ---------------------------------------------------------------------------------------------------

    def rot(self, name: str, at: int, bits: int) -> None:
        for files in (self.files, self._platter):
            files[name][at] ^= bits

    def kill(self) -> None:
        """The process ends, the machine goes on: the page cache is kept."""
        self.cut_after = self.sync_error = 0

    def power_cut(self, rng: random.Random) -> None:
        """What was not synced is on the platter in part."""
        share = rng.choice((0.0, 0.5, 0.9, 1.0))
        for name, offset, data in self._pending:
            self._tear(self._platter[name], offset, data, share, rng)
        for name, content in self._forgotten.items():
            if rng.random() < 0.5:
                self._platter[name] = content
        self.files = {name: bytearray(content) for name, content in self._platter.items()}
        self._pending, self._forgotten, self._spares, self.cut_after, self.sync_error = [], {}, [], 0, 0

    def _tear(self, content: bytearray, offset: int, data: bytes, share: float, rng: random.Random) -> None:
        at = 0
        while at < len(data):
            size = min(SECTOR - (offset + at) % SECTOR, len(data) - at)
            if rng.random() < share:
                whole = size if rng.random() < 0.9 else rng.randrange(size + 1)
                self._put(content, offset + at, data[at : at + whole])
            at += size

    def _operation(self) -> None:
        if self.cut_after:
            self.cut_after -= 1
            if not self.cut_after:
                raise PowerCut

    @staticmethod
    def _put(content: bytearray, offset: int, data: bytes) -> None:
        if len(content) < offset:
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data
