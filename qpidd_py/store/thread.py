"""The thread that writes a journal, and what the loop hears of it.                                              Shell.

One commit takes all work that waits, so many turns of the loop share one sync when the disk is slow.  A full disk stops
it until there is space again; after any other error the process must end, since nothing may be confirmed any more.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from qpidd_py.store.writer import Work, Writer

MOST_WORK: Final = 10_000
"""Frames in one commit."""
RETRY: Final = 1.0
"""Seconds between two attempts on a full disk."""
FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


class Told(Protocol):
    """What the loop hears; called in the loop's thread."""

    def written(self, number: int) -> None: ...

    def full(self, reason: str) -> None:
        """The disk takes no more; an empty reason: it does again."""
        ...

    def failed(self, error: OSError) -> None:
        """The disk has failed; nothing more is written."""
        ...


class JournalThread:
    def __init__(self, loop: asyncio.AbstractEventLoop, writer: Writer, told: Told) -> None:
        self._loop = loop
        self._writer = writer
        self._told = told
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._stopped = threading.Event()
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
                number = self._commit(work)
            except OSError as error:
                self._call(self._told.failed, error)
                return
            self._call(self._told.written, number)

    def _take(self) -> tuple[list[Work], bool]:
        """What waits, at least one; and whether more may come."""
        work: list[Work] = []
        item = self._queue.get()
        try:
            while item is not None and len(work) < MOST_WORK:
                work.append(item)
                item = self._queue.get_nowait()
        except Empty:
            return work, True
        if item is not None:
            work.append(item)
        return work, item is not None

    def _commit(self, work: list[Work]) -> int:
        blocked = False
        while True:
            try:
                number = self._writer.commit(work)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                work, blocked = [], self._block(blocked, error)
                if self._stopped.wait(RETRY):
                    raise
            else:
                if blocked:
                    self._call(self._told.full, "")
                return number

    def _block(self, blocked: bool, error: OSError) -> bool:
        if not blocked:
            self._call(self._told.full, f"the journal's disk is full: {error.strerror}")
        return True

    def _call(self, what: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:
            """The loop is closed: the process ends."""
