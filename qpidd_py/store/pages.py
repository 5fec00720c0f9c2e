"""The page file: segments of messages that do not fit into memory.                                           Shell.

The file has no name, so it is gone with the process, however that ends.  It is divided into slots of the size of a
segment; a larger segment takes several.  One thread writes and reads; a record that is needed at once is read by the
loop itself (`Paging`, `PageFile.fill`).
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from queue import PriorityQueue
from typing import TYPE_CHECKING, Final, Protocol

from qpidd_py.core import Page
from qpidd_py.option_values import Amount
from qpidd_py.store.space import least_free

if TYPE_CHECKING:
    from typing_extensions import Buffer

TEMPORARY: Final = Path("/var/tmp")
"""Not `/tmp`, which is often memory."""

STOP_TIME: Final = 1.0


class PageListener(Protocol):
    """What the loop hears."""

    def wrote(self, page: Page, error: OSError | None) -> None: ...

    def arrived(self, page: Page, error: OSError | None) -> None: ...


class PageFile:
    """Raises OSError when the folder cannot be written."""

    def __init__(self, folder: Path, slot_size: int, free_limit: Amount) -> None:
        """`free_limit`: the disk has at least so much left (disk-free-limit)."""
        self.folder = folder
        self._slot_size = slot_size
        self._free_limit = free_limit
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed with the broker)
        self._size = 0

    def write(self, page: Page) -> None:
        """Raises OSError."""
        page.checksum()
        for octets, at in self._pieces(page, page.place):
            self._make_room(at + len(octets))
            done = 0
            while done < len(octets):
                done += os.pwrite(self._file.fileno(), octets[done:], at + done)

    def fill(self, place: tuple[int, ...], buffer: Buffer) -> None:
        """Raises OSError."""
        for octets, at in self._pieces(buffer, place):
            done = 0
            while done < len(octets):
                got = os.preadv(self._file.fileno(), [octets[done:]], at + done)
                if not got:
                    raise OSError(errno.EIO, f"it ends before octet {at + len(octets)}")
                done += got

    def shrink(self, size: int) -> None:
        if size < self._size:
            self._size = size
            os.ftruncate(self._file.fileno(), size)

    def close(self) -> None:
        self._file.close()

    def _pieces(self, buffer: Buffer, place: tuple[int, ...]) -> list[tuple[memoryview, int]]:
        """What lies in each slot, and where that begins in the file."""
        view, size = memoryview(buffer), self._slot_size
        return [(view[n * size : (n + 1) * size], slot * size) for n, slot in enumerate(place)]

    def _make_room(self, end: int) -> None:
        if end > self._size:
            found = os.statvfs(self._file.fileno())
            least = least_free(self._free_limit, found.f_blocks * found.f_frsize)
            if found.f_bavail * found.f_frsize - (end - self._size) < least:
                raise OSError(errno.ENOSPC, f"less than {least >> 20} MiB would be free (disk-free-limit)")
            self._size = end


class PageThread:
    """Works on a page file, reads first.  Before `start` everything is done at once, by the caller."""

    def __init__(self, file: PageFile, slot_size: int) -> None:
        self._file = file
        self._slot_size = slot_size
        self.told: PageListener
        self._work: PriorityQueue[tuple[int, int, Callable[[], None] | None]] = PriorityQueue()
        self._numbers = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._guard: Callable[[Callable[[], None]], None]
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop, guard: Callable[[Callable[[], None]], None]) -> None:
        """`guard` runs a call that must not fail."""
        self._loop, self._guard = loop, guard
        self._thread.start()

    def stop(self) -> None:
        """Not longer than a disk should take that hangs."""
        if self._loop is not None:
            self._work.put((-1, 0, None))
            self._thread.join(STOP_TIME)
        if not self._thread.is_alive():
            self._file.close()

    def write(self, page: Page) -> None:
        self._do(2, lambda: self._report(self.told.wrote, page, self._file.write))

    def read(self, page: Page) -> None:
        self._do(0, lambda: self._report(self.told.arrived, page, self._read))

    def shrink(self, slots: int) -> None:
        # In its turn among the writes: a slot behind the end may be taken again by then.
        self._do(2, lambda: self._file.shrink(slots * self._slot_size))

    def _do(self, urgency: int, work: Callable[[], None]) -> None:
        if self._loop is None:
            work()
        else:
            self._work.put((urgency, next(self._numbers), work))

    def _read(self, page: Page) -> None:
        self._file.fill(page.place, page)
        page.checksum()

    def _report(self, tell: Callable[[Page, OSError | None], None], page: Page, work: Callable[[Page], None]) -> None:
        failed: OSError | None = None
        try:
            work(page)
        except OSError as error:
            failed = error
        if self._loop is None:
            tell(page, failed)
            return
        try:
            self._loop.call_soon_threadsafe(self._guard, lambda: tell(page, failed))
        except RuntimeError:
            """The loop is closed: the process ends."""

    def _run(self) -> None:
        while (work := self._work.get()[2]) is not None:
            work()
            del work  # or the last page would keep its slot
