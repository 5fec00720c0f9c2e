"""The journal of a running broker: read at the start, written by a thread, closed at the end.                 Shell."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

from qpidd_py.broker.broker import Broker
from qpidd_py.errors import EXIT_DISK, ConfigError, InvariantError, LinkError
from qpidd_py.logrules import log_notice
from qpidd_py.option_values import Amount, SyncEvery
from qpidd_py.store.disk import Folder
from qpidd_py.store.journal import Journal
from qpidd_py.store.layout import FormatError
from qpidd_py.store.mark import EVERY as MARKS
from qpidd_py.store.mark import NAME as MARK
from qpidd_py.store.mark import read_mark, write_mark
from qpidd_py.store.progress import Progress
from qpidd_py.store.recovery import Damaged, Found, Frame, frames, scan, settle
from qpidd_py.store.replay import Replay, continue_alone
from qpidd_py.store.space import SpaceWatch
from qpidd_py.store.thread import JournalThread
from qpidd_py.store.writer import Writer

log = logging.getLogger(__name__)

NAME: Final = "journal"
STOP_TIME: Final = 5.0
"""Seconds that the last commit may take at a clean stop."""
PATIENCE: Final = 1.0
"""Seconds that the first commit may take without a word in the log."""
CAUSE: Final = "journal"
SPACE: Final = "disk"


class Store:
    """The journal of a broker: `read`, `open`, then `begin`, or `begin_as_member` for a member of a cluster."""

    def __init__(
        self,
        broker: Broker,
        data_dir: Path,
        segment_size: int,
        free_limit: Amount,
        sync: SyncEvery = SyncEvery(),  # noqa: B008 (immutable)
        applied: Callable[[], None] = lambda: None,
    ) -> None:
        """`applied` is called after each frame that is read."""
        self._broker = broker
        self._space = SpaceWatch(free_limit)
        self._sync = sync
        self._on_applied = applied
        self._segment_size = segment_size
        self._path = data_dir / NAME
        self._replay = Replay(broker.engine, broker.configurations, Found())
        self._found: Found | None = None
        self._thread: JournalThread | None = None
        self._begun = False
        self._settled = asyncio.Event()
        self.damaged = ""
        """The damage of the journal that was set aside; empty if it was none."""
        self.damage = ""
        """Why the journal cannot be read; then nothing of it was."""
        self.facts: dict[str, object] = {}
        """What was read; empty if there was no journal."""
        self._marker = data_dir / MARK
        self.progress = Progress()
        """Of `read`."""

    def read(self) -> None:
        """Read the journal into the broker, which has no client yet.  Raises ConfigError, and Interrupted."""
        began = time.monotonic()
        try:
            self._folder = Folder(self._path)
            found = self._read()
            self._note_facts(found, time.monotonic() - began)
        except (FormatError, LinkError, OSError) as error:
            raise self._unusable(error) from error
        except Damaged as error:
            self.damage, found = str(error), Found()
        self._found = found

    def _note_facts(self, found: Found, seconds: float) -> None:
        if found.segments:
            queues = self._broker.engine.queues.values()
            self.facts = {"messages": sum(queue.ready for queue in queues), "queues": len(queues)}
            self.facts |= {"frames": self._replay.frames, "octets": found.octets}
            self.facts |= {"seconds": f"{seconds:.3f}", "torn": "yes" if found.torn else "no"}

    @property
    def mark(self) -> int:
        """The position up to which this journal had come once; it is behind it if the folder is an older copy."""
        return read_mark(self._marker)

    def _unusable(self, error: object) -> ConfigError:
        how = "`qpidd-journal verify` says what can be read; nothing was changed"
        return ConfigError(f"the journal {self._path} cannot be used: {error}; {how}")

    def __str__(self) -> str:
        return str(self._path)

    @property
    def syncs_first(self) -> bool:
        """What counts is on disk."""
        return not self._sync.seconds

    @property
    def found(self) -> bool:
        """It is not empty.  Of one whose first write was not completed there is only a header."""
        return bool(self.note or self._broker.engine.position)

    @property
    def note(self) -> bytes:
        """What a member of a cluster has written of this content; empty if there is none."""
        return self._replay.note

    def set_aside(self) -> Path:
        """Begin an empty journal; the damaged one stays, in another folder.  Raises ConfigError."""
        aside = next(path for n in count(1) if not (path := self._path.with_name(f"{NAME}.damaged-{n}")).exists())
        try:
            self._path.rename(aside)
            self._folder = Folder(self._path)
        except OSError as error:
            raise self._unusable(error) from error
        self.damaged, self.damage = self.damage, ""
        return aside

    def open(
        self,
        loop: asyncio.AbstractEventLoop,
        guard: Callable[[Callable[[], None]], None],
        fail: Callable[[str, int], None],
    ) -> None:
        """Begin to write.  `guard` runs a call that must not fail; `fail` ends the process with an exit code."""
        if self._found is None:
            raise InvariantError(f"the journal {self} would be written before it was read")

        def soon(call: Callable[[], None]) -> None:
            loop.call_soon(guard, call)

        self._full = ""
        self._loop = loop
        self._guard = guard
        self._fail = fail
        self._thread = JournalThread(loop, Writer(self._folder, self._found.end), self._folder.space, self, self._sync)
        self.journal = Journal(
            self._broker.engine,
            self._broker.configurations,
            self._found,
            self._thread.submit,
            soon,
            self._segment_size,
            self._fell_behind,
        )
        self._broker.figures["journal"] = self.journal.shown
        self._thread.start()

    def begin(self) -> None:
        """Continue as a broker outside a cluster, if no member has begun.  Raises ConfigError for damage."""
        if self._begun:
            return
        if self.damage:
            raise self._unusable(self.damage)
        if self.mark > self._broker.engine.position:
            log.error("the journal is older than %s: it is a copy, and lacks what came after", self._marker)
        continue_alone(self._broker)
        self._broker.engine.on_batch = self.journal.batch
        self.journal.start(self._replay)
        self._marks()
        if self.note:
            # What follows is the history of no cluster: a member must not continue it.
            self.journal.note(b"")
        self._broker.vhosts.on_restarted()

    def begin_as_member(self, note: bytes, on_durable: Callable[[int], None]) -> None:
        """Continue under the rules of a cluster; batches come from its node.  `note`: whose content this is."""
        self._begun = True
        self.journal.on_durable = on_durable
        self.journal.note(note)
        self._broker.engine.on_applied = self.journal.batch
        self.journal.start(self._replay)
        self._begun_at = self.journal.handed
        self._marks()

    async def settled(self) -> None:
        """Returns when the disk has whose content this is, or is full.  Before that no set may list this run: after a
        power cut its journal would look like an older copy (`ha.model.content`)."""
        if not self._begun:
            return
        try:
            await asyncio.wait_for(self._settled.wait(), PATIENCE)
        except TimeoutError:
            log.error("the disk of the journal %s does not answer; this broker takes part when it does", self)
            await self._settled.wait()

    def _marks(self) -> None:
        """Write a mark, and again."""
        if self.journal.complete:
            self._loop.run_in_executor(None, write_mark, self._marker, self.journal.position)
        self._loop.call_later(MARKS, self._marks)

    def stop(self) -> None:
        """Write what waits, and close the journal."""
        if self._thread is None:
            return
        complete = self.journal.complete
        self._broker.engine.flush()
        if not self._thread.stop(STOP_TIME):
            log.error("the journal's last commit takes longer than %g s; what it has was not confirmed", STOP_TIME)
        elif complete:
            write_mark(self._marker, self.journal.position)

    # ---- what the thread tells (`thread.JournalListener`) ---------------------------------------------------

    def written(self, number: int) -> None:
        self._guard(lambda: self.journal.written(number))
        if self._begun and number >= self._begun_at:
            self._settled.set()

    def full(self, reason: str) -> None:
        self._full, self.journal.full = reason, bool(reason)
        self._broker.limit(CAUSE, reason)
        if reason:
            self._settled.set()
            log.error("%s; publishers wait", reason)
        else:
            log_notice(log, "the disk of the journal has space again")

    def _fell_behind(self, behind: bool) -> None:
        """Nothing is read from publishers while what they send would only wait in memory, here or at a backup."""
        wait = f"{self.journal.waiting >> 20} MiB wait for the disk of the journal" if behind else ""
        self._broker.limit("journal is behind", wait, tell=False)

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
        self.progress.begin("check the journal", "segments")
        try:
            settle(self._folder)
            found = scan(self._folder, self.progress.at)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise Damaged(f"a part of it cannot be read: {error}") from error
        if found.torn:
            log.warning("the journal ends with a frame that was not written completely, and never acknowledged")
        self.progress.begin("read the journal", "frames")
        self._replay = Replay(self._broker.engine, self._broker.configurations, found)
        self._replay.apply(self._applied(self.progress.frames(frames(self._folder, found), found.end.number)))
        if found.segments:
            queues = self._broker.engine.queues.values()
            text = "the journal is read: %d messages in %d queues, %d frames, %d segments"
            messages = sum(queue.ready for queue in queues)
            log_notice(log, text, messages, len(queues), self._replay.frames, len(found.segments))
        return found

    def _applied(self, found: Iterable[Frame]) -> Iterator[Frame]:
        for frame in found:
            yield frame
            self._on_applied()
