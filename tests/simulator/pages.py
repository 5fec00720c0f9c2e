"""The page file of a broker in the simulation: a disk that keeps all that may leave memory, from each tick on.

It may rot: what is read back next is not what was written.  As in `qpidd_py.broker.pager`, the broker is told before
who waits for it goes on, and who is called for it looks again now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.paged import MemoryPages

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess


class SimulatedPages:
    def __init__(self, process: BrokerProcess, seconds: float) -> None:
        """`seconds`: of a read."""
        self.rots = 0
        """So many of the next pages that are read back are damaged."""
        self._process = process
        self._history = process.simulation.history
        self._pages = MemoryPages(process.engine)
        self._pages.on_rot = self._found
        self._pages.paging.on_wanted = lambda: process.after(seconds, self._arrive)
        self._rotten = 0

    def tick(self) -> None:
        left = self._pages.left
        self._pages.everything()
        self._history.counts["segments paged"] += self._pages.left - left
        if self._rotten:
            self._look()
            self._pages.paging.look_again()

    def _arrive(self) -> None:
        read = self._pages.read
        self._pages.begin_reads()
        if self.rots and self._others_hold():
            self.rots -= self._pages.damage(self.rots)
        self._pages.arrive()
        self._history.counts["segments read ahead"] += self._pages.read - read

    def _others_hold(self) -> bool:
        return any(other is not self._process for other in self._history.survivors())

    def _found(self) -> None:
        self._history.counts["pages rotten"] += 1
        self._process.scheduler.log(self._process.name, "a page cannot be read back")
        self._look()
        self._history.fewer()

    def _look(self) -> None:
        rotten = self._process.engine.pool.rotten
        if rotten != self._rotten:
            self._rotten = rotten
            self._process.broker.damaged("a page cannot be read back" if rotten else "")
