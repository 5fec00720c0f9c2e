"""The journal of a simulated broker: the real one, on a disk in memory, and a writer's thread that takes its time.

The disk belongs to the machine and outlives the process.  When that dies, what it had handed over may be written in
part; when the host loses its power, what was not synced is gone in any sectors (`tests/support/memory_disk.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from ha.backup.backup import Backup
from ha.model.content import Content
from qpidd_py.broker.broker import Broker
from qpidd_py.core import Engine
from qpidd_py.errors import EXIT_DISK, LinkError
from qpidd_py.store.journal import Journal
from qpidd_py.store.layout import FormatError
from qpidd_py.store.recovery import Damaged, Found, frames, scan, settle
from qpidd_py.store.replay import Replay
from qpidd_py.store.writer import Work, Writer
from tests.simulator.checks import readable
from tests.simulator.scheduler import Violation
from tests.support.memory_disk import MemoryDisk, PowerCut

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess

LATEST = 5
"""At one of so many steps of a commit a process dies."""


class SimulatedJournal:
    """Of one life of a process."""

    def __init__(self, process: BrokerProcess, disk: MemoryDisk, segment: int, seconds: float) -> None:
        """`segment`: octets; `seconds`: how long a commit takes, at most.  Raises Violation."""
        self._process = process
        self._disk = disk
        self._seconds = seconds
        self._work: list[Work] = []
        self._busy = False
        configuration = process.broker.configurations
        self._hangs_until = 0.0
        self._begun_at = 0
        self._settled: Callable[[], None] = lambda: None
        self._changes = False
        try:
            found = self._read()
            self._replay = Replay(process.engine, configuration, found)
            self._replay.apply(frames(self._disk, found))
        except (FormatError, LinkError) as error:
            raise Violation(f"I21: the journal of {process.name} cannot be read: {error}") from error
        self._found = found
        self._writer = Writer(self._disk, found.end)
        soon = lambda call: process.after(0.0, call)  # noqa: E731
        self.journal = Journal(process.engine, configuration, found, self._submit, soon, segment)

    def _read(self) -> Found:
        settle(self._disk)
        try:
            return scan(self._disk)
        except Damaged as error:
            if self._process.content is not None:
                raise Violation(f"I21: the journal of {self._process.name} is damaged: {error}") from error
        # It is kept next to the new one.  (Where it is the only one, an administrator moves it away.)
        self._process.platter = self._disk = MemoryDisk()
        return Found()

    def begin(self) -> None:
        """As `ha.plugin.begin_journal` and `Store.begin_as_member` do.  Raises Violation."""
        node = self._process.node
        if self._replay.note or self._process.engine.position:
            try:
                node.restore(Content.decode(self._replay.note))
            except LinkError as error:  # the product refuses to start
                raise Violation(f"I21: the journal of {self._process.name} cannot be read: {error}") from error
            self._process.simulation.history.counts["restored, whole" if node.local.whole else "restored"] += 1
        self.journal.on_durable = node.durable
        self.journal.note(node.local.content.encode())
        self._process.engine.on_applied = self.journal.batch
        self.journal.start(self._replay)
        self._begun_at = self.journal.handed

    @property
    def named(self) -> bool:
        """The disk has the note with the name of this run."""
        return self.journal.durable >= self._begun_at

    def when_settled(self, call: Callable[[], None]) -> None:
        """As `Store.settled`: call it when the disk has whose content this is."""
        if self.named:
            call()
        else:
            self._settled = call

    def hang(self, seconds: float) -> None:
        """No commit ends meanwhile."""
        self._hangs_until = self._process.scheduler.now + seconds

    def _submit(self, work: Work) -> None:
        self._work.append(work)
        self._later()

    def _later(self) -> None:
        if not self._busy:
            self._busy = True
            self._process.after(self._process.rng.uniform(0.0, self._seconds), self._commit)

    def _commit(self) -> None:
        if (left := self._hangs_until - self._process.scheduler.now) > 0:
            self._process.after(left, self._commit)
            return
        work, self._work = self._work, []
        try:
            number = self._writer.commit(work)
        except OSError as error:
            self._process.end(f"the journal cannot be written: {error}", EXIT_DISK)
            return
        self._process.after(self._process.rng.uniform(0.0, self._seconds / 4), lambda: self._written(number))

    def _written(self, number: int) -> None:
        self._busy = False
        if self._work:
            self._later()
        self.journal.written(number)
        if number >= self._begun_at:
            settled, self._settled = self._settled, lambda: None
            settled()
        self._compare()

    def _compare(self) -> None:
        """When a backup has taken over other content, its disk has what the engine holds.  Raises Violation."""
        process, journal = self._process, self.journal
        if not self._changes or not journal.complete or journal.waiting:
            self._changes = self._changes or not journal.complete
            return
        self._changes = False
        if isinstance(process.node.role, Backup):
            process.simulation.history.counts["contents compared with the disk"] += 1
            again = Broker(engine=Engine())
            found = scan(self._disk)
            Replay(again.engine, again.configurations, found).apply(frames(self._disk, found))
            there, here = content(again), content(process.broker)
            # What it cannot read is on disk all the same.
            if (there != here) if not process.engine.pool.rotten else (there[::2] != here[::2]):
                raise Violation(f"I22: the journal of {process.name} has {there!r:.500}, it holds {here!r:.500}")

    def die(self, rng: Random, power: bool) -> None:
        """What was handed over is on its way."""
        if rng.random() < 0.5:
            self._disk.cut_after = rng.randint(1, LATEST)
            with contextlib.suppress(PowerCut, OSError):  # in the middle
                self._writer.commit(self._work)
        if power:
            self._disk.power_cut(rng)
        else:
            self._disk.kill()


def content(broker: Broker) -> tuple[int, Any, Any]:
    """What is in the log of this broker: its position, the messages, the configuration."""
    queues = [queue for queue in broker.engine.queues.values() if queue.replicated]
    messages = {queue.number: [(id, body) for id, _, *_, body in readable(queue)] for queue in queues}
    return broker.engine.position, messages, sorted(broker.configurations.snapshot())
