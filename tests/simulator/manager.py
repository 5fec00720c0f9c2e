"""The resource manager: sees that there is one primary.  It is slow, it errs, and there may be two of it.

What it may do at all is in `rules.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.model.environment import Json

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

POLL = 0.1
"""Seconds between two looks, at most."""


class Manager:
    """Monitors and promotes."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.rules = simulation.rules
        self.name = name
        self.rng = simulation.scenario.rng(f"manager {name}")
        self._missing_since: float | None = None
        self._wait = 0.0
        self._turn = 0
        self.scheduler.at(self.rng.uniform(0.01, 0.05), self._poll)

    def news(self, process: BrokerProcess) -> None:
        """A broker has another state or another promotion score; this manager asks for itself."""

    def died(self, process: BrokerProcess) -> None:
        """A process has ended."""

    def _poll(self) -> None:
        self.scheduler.at(POLL * self.rng.uniform(0.5, 1.0), self._poll)
        self.rules.fence_isolated()
        if any(self._serves(process) for process in self.simulation.brokers):
            self._missing_since = None
            return
        if self._missing_since is None:
            self._missing_since = self.scheduler.now
            self._wait = self.rng.choice((0.0, 0.05, 0.3, 0.8))
        if self.scheduler.now - self._missing_since >= self._wait and not self._is_patient():
            candidate = self._choose()
            if candidate is not None:
                self.promote(candidate)

    def _is_patient(self) -> bool:
        """A promotion is under way.  That of a core waits for it; others may promote a second broker meanwhile."""
        brokers = self.simulation.brokers
        return self.simulation.liveness.under_way and any(each.running and each.node.promoter for each in brokers)

    def _serves(self, process: BrokerProcess) -> bool:
        """An isolated primary says that it has no score any more."""
        return process.is_primary and process.node.candidacy.score is not None and self._answers(process)

    def _answers(self, process: BrokerProcess) -> bool:
        """Does the monitor get an answer, and from the side that has the quorum?"""
        return process.running and not self.rules.cut_off(process) and not self.simulation.liveness.shuns(process)

    def _choose(self) -> BrokerProcess | None:
        enrolled = self.simulation.history.enrolled
        running = [process for process in self.simulation.brokers if process.running and process.address in enrolled]
        # A primary that does not serve has to be replaced: by another one, if there is one.
        running = [process for process in running if not process.is_primary] or running
        if not running:
            return None
        self._turn += 1
        if self.rng.random() < 0.3 or self._turn % 5 == 0:
            return self.rng.choice(running)
        best = [
            process for process in running if process.node.local.whole and not self.rules.cut_off(process)
        ] or running
        return max(best, key=lambda process: (process.node.role.position, process.name))

    def promote(self, process: BrokerProcess) -> None:
        promote(self.simulation, process, self.name)


def may_be_asked(simulation: Simulation, process: BrokerProcess) -> bool:
    """Is it there, of the cluster, and may a manager promote it now?  Fences whom it must."""
    enrolled = process.running and process.address in simulation.history.enrolled
    return enrolled and not simulation.liveness.shuns(process) and simulation.rules.may_promote(process)


def promote(simulation: Simulation, process: BrokerProcess, who: str, force: bool = False) -> None:
    """Ask a broker to become primary, if a manager may."""
    if not may_be_asked(simulation, process):
        return
    simulation.scheduler.log(who, f"promote {process.name}")

    def reply(value: Json) -> None:
        simulation.scheduler.log(who, f"{process.name}: {'promoted' if value['ok'] else value['error']}")

    arguments: Json = {"force": True} if force else {}
    process.run("admin", lambda: process.handle("ha.promote", arguments, reply))
