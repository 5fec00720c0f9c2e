"""The thread that writes a journal and watches its disk, and what the loop hears of it.                         Shell.

One commit takes all work that waits, so many turns of the loop share one sync when the disk is slow.  With
`journal-sync` other than `batch` what was written counts at once, and is synced later by this thread.  The disk counts
as full when it has no space for the segments after this one (`disk.RESERVE`): then publishers wait, and what is
consumed can still be written.
After any other error the process must end, since nothing may be confirmed any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from qpidd_py.option_values import SyncEvery
from qpidd_py.store.writer import SyncFailed, Work, Writer

MOST_WORK: Final = 10_000
"""Frames in one commit."""
LOOK: Final = 0.25
"""Seconds between two looks at the free space; the thread looks, since the question may take as long as the disk."""
RETRY: Final = 1.0
"""Seconds between two attempts on a full disk."""
FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


class JournalListener(Protocol):
    """What the loop hears; called in the loop's thread."""

    def written(self, number: int) -> None: ...

    def full(self, reason: str) -> None:
        """The disk takes no more; an empty reason: it does again."""
        ...

    def space(self, free: int, size: int) -> None:
        """Octets; every `LOOK` seconds while the disk answers."""
        ...

    def failed(self, error: OSError) -> None:
        """The disk has failed; nothing more is written."""
        ...


class JournalThread:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        writer: Writer,
        space: Callable[[], tuple[int, int]],
        told: JournalListener,
        sync: SyncEvery = SyncEvery(),  # noqa: B008 (immutable)
    ) -> None:
        """`space`: free octets, and octets of the file system.  Raises OSError."""
        self._every = sync.seconds
        self._synced = time.monotonic()
        self._loop = loop
        self._writer = writer
        self._space = space
        self._looked = float("-inf")
        self._tried = 0.0
        self._told = told
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._stopped = threading.Event()
        self._full = ""
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Work) -> None:
        self._queue.put(work)

    def stop(self, timeout: float) -> bool:
        """Write what waits; True if it is on disk within `timeout` seconds."""
        self._queue.put(None)
        self._thread.join(timeout)
        self._stopped.set()
        return not self._thread.is_alive()

    def _run(self) -> None:
        more = True
        while more:
            work, more = self._take()
            try:
                if work or (self._full and time.monotonic() - self._tried >= RETRY):
                    self._tried = time.monotonic()
                    self._call(self._told.written, self._commit(work))
                    self._reserve()
                self._sync(last=not more)
                if not work or not more:
                    self._mark()
                self._look()
            except OSError as error:
                self._call(self._told.failed, error)
                return

    def _take(self) -> tuple[list[Work], bool]:
        """What waits, or nothing after `LOOK` seconds; and whether more may come."""
        work: list[Work] = []
        try:
            item = self._queue.get(timeout=min(LOOK, self._every) if self._writer.unsynced else LOOK)
            while item is not None and len(work) < MOST_WORK:
                work.append(item)
                item = self._queue.get_nowait()
        except Empty:
            return work, True
        if item is not None:
            work.append(item)
        return work, item is not None

    def _sync(self, last: bool) -> None:
        """`last`: the broker ends, and a clean end keeps everything."""
        now = time.monotonic()
        if self._writer.unsynced and (last or now - self._synced >= self._every):
            self._writer.sync()
            self._synced = now

    def _mark(self) -> None:
        """Nothing came for `LOOK` seconds, or the broker ends."""
        try:
            self._writer.mark()
        except OSError as error:
            if error.errno not in FULL:
                raise

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= LOOK:
            self._looked = now
            with contextlib.suppress(OSError):  # the next write says what is wrong
                self._call(self._told.space, *self._space())

    def _commit(self, work: list[Work]) -> int:
        while True:
            try:
                return self._writer.commit(work, sync=not self._every)
            except OSError as error:
                work = []
                self._note(error)
                if not self._writer.release() and self._stopped.wait(RETRY):
                    raise

    def _reserve(self) -> None:
        try:
            self._writer.reserve()
        except OSError as error:
            self._note(error)
        else:
            self._say("")

    def _note(self, error: OSError) -> None:
        """Raises `error` if it is not that the disk is full."""
        if isinstance(error, SyncFailed) or error.errno not in FULL:
            raise error
        self._say(f"the disk of the journal is full: {error.strerror}")

    def _say(self, reason: str) -> None:
        if bool(reason) != bool(self._full):
            self._call(self._told.full, reason)
        self._full = reason

    def _call(self, what: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:
            """The loop is closed: the process ends."""
