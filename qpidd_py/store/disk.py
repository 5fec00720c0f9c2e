"""The folder of a journal: what the journal needs of a disk, and real files.                                  Shell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from qpidd_py.store.layout import SPARE

if TYPE_CHECKING:
    from typing_extensions import Buffer

MOST_BUFFERS: Final = 512  # of one call of writev; Linux takes 1,024
RESERVE: Final = 2
"""Segments whose space is taken in advance: one for what is consumed on a full disk, one to carry what still waits."""
SPARES: Final = 4


class Disk(Protocol):
    """Files in one folder.  Every method raises OSError."""

    def names(self) -> list[str]: ...

    def read(self, name: str, memory: bytearray) -> None:
        """Make `memory` the content of the file.

        The caller gives the same memory for one file after the other: a system that has to find fresh memory for each
        takes half of the processor time of reading a journal."""
        ...

    def create(self, name: str, size: int) -> None:
        """A file of at least `size` octets, with any content; the name is on disk when this returns."""
        ...

    def write(self, name: str, offset: int, buffers: Sequence[Buffer]) -> None:
        """On disk after the next `sync`, and in any order before."""
        ...

    def sync(self, name: str) -> None: ...

    def keep(self, name: str, content: bytes) -> None:
        """A small file with this content, written in place; on disk when this returns."""
        ...

    def settle(self, name: str) -> None:
        """What `read` finds from now on is on disk.  A sync that has failed may have left in the cache what is not."""
        ...

    def recycle(self, name: str) -> None:
        """The file is not needed any more; `create` may use its space."""
        ...

    def reserve(self, size: int) -> None:
        """Take the space that the next `RESERVE` calls of `create` need."""
        ...

    def release(self) -> bool:
        """Give back the space of one reserved segment, for one that has outgrown its size; False if there is none."""
        ...


class Folder:
    """Real files.  Space is taken before it is written; a recycled file is overwritten in place, which is faster than
    anything that allocates (no metadata has to be synced with the data)."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path = path
        path.mkdir(mode=0o700, exist_ok=True)
        self._open: dict[str, int] = {}
        self._made = 0

    def __str__(self) -> str:
        return str(self._path)

    def names(self) -> list[str]:
        return sorted(os.listdir(self._path))

    def read(self, name: str, memory: bytearray) -> None:
        with open(self._path / name, "rb", buffering=0) as file:
            _resize(memory, os.fstat(file.fileno()).st_size)
            _fill(memory, file)

    def create(self, name: str, size: int) -> None:
        if not self._spares():
            self._allocate(size)
        os.rename(self._path / self._spares()[0], self._path / name)
        self._sync_folder()

    def write(self, name: str, offset: int, buffers: Sequence[Buffer]) -> None:
        descriptor = self._descriptor(name)
        left = [memoryview(buffer) for buffer in buffers]
        while left:
            done = os.pwritev(descriptor, left[:MOST_BUFFERS], offset)
            offset += done
            left = _after(left, done)

    def sync(self, name: str) -> None:
        os.fdatasync(self._descriptor(name))

    def keep(self, name: str, content: bytes) -> None:
        new = not (self._path / name).exists()
        descriptor = os.open(self._path / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, content, 0)
            os.fsync(descriptor) if new else os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        if new:
            self._sync_folder()

    def settle(self, name: str) -> None:
        descriptor = os.open(self._path / name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def recycle(self, name: str) -> None:
        descriptor = self._open.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)
        if len(self._spares()) < SPARES:
            os.rename(self._path / name, self._path / self._new_spare())
        else:
            os.unlink(self._path / name)

    def reserve(self, size: int) -> None:
        while len(self._spares()) < RESERVE:
            self._allocate(size)

    def release(self) -> bool:
        for name in self._spares()[:1]:
            os.unlink(self._path / name)
            return True
        return False

    def space(self) -> tuple[int, int]:
        """Octets that can be written: free ones, and segments kept for reuse; and the size of the file system.  Raises
        OSError."""
        found = os.statvfs(self._path)
        spare = sum((self._path / name).stat().st_size for name in self._spares())
        return found.f_bavail * found.f_frsize + spare, found.f_blocks * found.f_frsize

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _allocate(self, size: int) -> None:
        name = self._new_spare()
        descriptor = os.open(self._path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            os.fsync(descriptor)
        except OSError:
            os.unlink(self._path / name)
            raise
        finally:
            os.close(descriptor)

    def _spares(self) -> list[str]:
        return [found for found in self.names() if SPARE.fullmatch(found)]

    def _new_spare(self) -> str:
        taken = set(self.names())
        while (name := f"spare-{self._made}") in taken:
            self._made += 1
        return name

    def _descriptor(self, name: str) -> int:
        if name not in self._open:
            self.close()  # only the last segment is written
            self._open[name] = os.open(self._path / name, os.O_WRONLY | os.O_CLOEXEC)
        return self._open[name]

    def _sync_folder(self) -> None:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _after(buffers: list[memoryview], done: int) -> list[memoryview]:
    """What is left of `buffers` when `done` octets of them are written."""
    at = 0
    while at < len(buffers) and done >= buffers[at].nbytes:
        done -= buffers[at].nbytes
        at += 1
    rest = buffers[at:]
    if done:
        rest[0] = rest[0].cast("B")[done:]
    return rest


def _resize(memory: bytearray, size: int) -> None:
    del memory[size:]
    memory.extend(bytes(size - len(memory)))


def _fill(memory: bytearray, file: FileIO) -> None:
    """A file that is shorter than it was is read to its end."""
    at = 0
    with memoryview(memory) as view:
        while found := file.readinto(view[at:]):
            at += found
    del memory[at:]
