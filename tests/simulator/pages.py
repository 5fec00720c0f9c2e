"""The page file of a broker in the simulation: a disk that keeps all that may leave memory, from each tick on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.paged import MemoryPages

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess


class SimulatedPages:
    def __init__(self, process: BrokerProcess, seconds: float) -> None:
        """`seconds`: of a read."""
        self._counts = process.simulation.history.counts
        self._pages = MemoryPages(process.engine)
        self._pages.paging.on_wanted = lambda: process.after(seconds, self._arrive)

    def tick(self) -> None:
        left = self._pages.left
        self._pages.everything()
        self._counts["segments paged"] += self._pages.left - left

    def _arrive(self) -> None:
        read = self._pages.read
        self._pages.arrive()
        self._counts["segments read ahead"] += self._pages.read - read
