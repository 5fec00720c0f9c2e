"""The journal of a running broker: read at the start, written by a thread, closed at the end.                 Shell."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from qpidd_py.broker.broker import Broker
from qpidd_py.errors import ConfigError, LinkError
from qpidd_py.logrules import log_notice
from qpidd_py.options import Amount
from qpidd_py.store.disk import Folder
from qpidd_py.store.journal import Journal
from qpidd_py.store.layout import FormatError, segment_name
from qpidd_py.store.recovery import Damaged, Found, Frame, frames, scan
from qpidd_py.store.replay import restore
from qpidd_py.store.space import SpaceWatch
from qpidd_py.store.thread import JournalThread
from qpidd_py.store.writer import Writer

log = logging.getLogger(__name__)

EXIT_DISK: Final = 4
"""Exit code of a broker whose journal cannot be written any more (`qpidd_py.__main__`)."""
NAME: Final = "journal"
STOP_TIME: Final = 5.0
"""Seconds that the last commit may take at a clean stop."""
REPORT: Final = 1.0
"""Seconds between two lines on the progress of reading."""
CAUSE: Final = "journal"
SPACE: Final = "disk"


class Store:
    """The journal of a broker outside a cluster."""

    def __init__(self, broker: Broker, data_dir: Path, segment_size: int, free_limit: Amount) -> None:
        """Reads the journal into `broker`, which has no client yet.  Raises ConfigError."""
        self._broker = broker
        self._space = SpaceWatch(free_limit)
        self._segment_size = segment_size
        path = data_dir / NAME
        try:
            self._folder = Folder(path)
            self._found = self._read()
        except (Damaged, FormatError, LinkError) as error:
            how = "`qpidd-journal verify` says what can be read; nothing was changed"
            raise ConfigError(f"the journal {path} cannot be used: {error}; {how}") from error
        except OSError as error:
            raise ConfigError(f"the journal {path} cannot be used: {error}") from error

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        guard: Callable[[Callable[[], None]], None],
        fail: Callable[[str, int], None],
    ) -> None:
        """Begin to write.  `guard` runs a call that must not fail; `fail` ends the process with an exit code."""

        def soon(call: Callable[[], None]) -> None:
            loop.call_soon(guard, call)

        self._full = ""
        self._guard = guard
        self._fail = fail
        self._thread = JournalThread(loop, Writer(self._folder, self._found.end), self._folder.space, self)
        self.journal = Journal(
            self._broker.engine,
            self._broker.vhost.configuration,
            self._found,
            self._thread.submit,
            soon,
            self._segment_size,
            self._fell_behind,
        )
        self._thread.start()
        self.journal.start()
        self._broker.vhost.on_restarted()

    def stop(self) -> None:
        """Write what waits, and close the journal."""
        self._broker.engine.flush()
        if not self._thread.stop(STOP_TIME):
            log.error("the journal's last commit takes longer than %g s; what it has was not confirmed", STOP_TIME)

    # ---- what the thread tells (`thread.Told`) --------------------------------------------------------------------

    def written(self, number: int) -> None:
        self._guard(lambda: self.journal.written(number))

    def full(self, reason: str) -> None:
        self._full = reason
        self._broker.limit(CAUSE, reason)
        if reason:
            log.error("%s; publishers wait", reason)
        else:
            log_notice(log, "the disk of the journal has space again")

    def _fell_behind(self, behind: bool) -> None:
        """Nothing is read from publishers while what they send would only wait in memory."""
        self._broker.engine.throttle(behind, "journal is behind")

    def space(self, free: int, size: int) -> None:
        if self._space.look(free, size):
            self._broker.limit(SPACE, self._space.reason)
            log_notice(log, "%s", self._space.reason or "there is space for the journal again")
        if self._full or self._space.reason:
            self._guard(self.journal.relieve)

    def failed(self, error: OSError) -> None:
        self._fail(f"the journal {self._folder} cannot be written: {error}; nothing is confirmed any more", EXIT_DISK)

    # ---- reading --------------------------------------------------------------------------------------------------

    def _read(self) -> Found:
        progress = Progress("check the journal")
        found = scan(self._folder, progress.segment)
        if found.torn:
            log.warning("the journal ends with a frame that was not written completely, and never acknowledged")
        if found.segments:
            # Some of it may be in the page cache only, and everything from here on relies on it.
            self._folder.sync(segment_name(found.end.generation))
        progress = Progress("read the journal")
        read = restore(self._broker, found.carry, progress.frames(frames(self._folder, found), found.end.number))
        if found.segments:
            queues = self._broker.engine.queues.values()
            text = "the journal is read: %d messages in %d queues, %d frames, %d segments"
            log_notice(log, text, sum(queue.ready for queue in queues), len(queues), read, len(found.segments))
        return found


class Progress:
    """Says once a second how far a long reading is."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = self._said = time.monotonic()

    def frames(self, found: Iterable[Frame], last: int) -> Iterator[Frame]:
        for frame in found:
            if frame.number % 1000 == 0:
                self.segment(frame.number, last)
            yield frame

    def segment(self, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self._said >= REPORT:
            self._said = now
            left = (now - self._began) / done * (of - done)
            log_notice(log, "%s: %d of %d, %.0f s remain", self._what, done, of, left)
