"""The resource manager: sees that there is one primary; errs where a manager may err.

What is in the promise of `ha-safety=manager`, and so is done here:

* in a fresh cluster, one promotion at a time;
* promoting any broker at any time, the primary paused, cut off or busy, **if** the candidate can speak with another
  living member of the newest in-sync set than itself (the brokers themselves find out whether it may be);
* promoting a member of the newest set that can reach no other member, or no longer because that one died, **after**
  every other living member that it cannot reach was stopped (fenced), or while those are isolated from everybody and
  will be stopped before that ends.

What is not: promoting on a side without any reachable member of the in-sync set while such members live elsewhere
unfenced; leaving an isolated primary (a node without quorum) running for longer than `ha-isolation-wait`.  A manager
with quorum and fencing does neither.  Under `ha-safety=quorum` nothing is out: any promotion at any time, no fencing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.environment import Json
from ha.membership import InSync

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

POLL = 0.1


class Manager:
    """Monitors, promotes, fences, restarts."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.network = simulation.network
        self.rng = simulation.scheduler.rng
        self.calm = False
        self._missing_since: float | None = None
        self._wait = 0.0
        self._turn = 0
        self._isolated: dict[str, float] = {}
        self._doomed: dict[str, int] = {}
        self.scheduler.at(self.rng.uniform(0.01, 0.05), self._poll)

    def _poll(self) -> None:
        self.scheduler.at(POLL * self.rng.uniform(0.5, 1.0), self._poll)
        if self.simulation.settings.safety != "quorum":
            self._fence_isolated()
        if any(process.is_primary and self._answers(process) for process in self.simulation.brokers):
            self._missing_since = None
            return
        if self._missing_since is None:
            self._missing_since = self.scheduler.now
            self._wait = self.rng.choice((0.0, 0.05, 0.3, 0.8))
        if self.scheduler.now - self._missing_since >= self._wait:
            candidate = self._choose()
            if candidate is not None:
                self.promote(candidate)

    def _answers(self, process: BrokerProcess) -> bool:
        """Does the manager's monitor get an answer, and from the side that has the quorum?"""
        return process.running and not self._cut_off(process)

    def _choose(self) -> BrokerProcess | None:
        running = [process for process in self.simulation.brokers if process.running]
        if not running:
            return None
        self._turn += 1
        if self.rng.random() < 0.3 or self._turn % 5 == 0:
            return self.rng.choice(running)
        best = [process for process in running if process.node.whole and not self._cut_off(process)] or running
        return max(best, key=lambda process: (process.node.role.position, process.name))

    # ---- what it does ---------------------------------------------------------------------------------------------

    def promote(self, process: BrokerProcess) -> None:
        """Ask a broker to become primary, if a manager may."""
        if not process.running or not self._may(process):
            return
        self.scheduler.log("rm", f"promote {process.name}")
        process.run("admin", lambda: self._ask(process))

    def _ask(self, process: BrokerProcess) -> None:
        def reply(value: Json) -> None:
            self.scheduler.log("rm", f"{process.name}: {'promoted' if value['ok'] else value['error']}")

        process.node.request("ha.promote", {}, reply)

    def _may(self, process: BrokerProcess) -> bool:
        if self.simulation.settings.safety == "quorum":
            return True
        newest = self.simulation.history.newest()
        if not newest.version and any(other.alive and other.node.promoter for other in self.simulation.brokers):
            return False  # a fresh cluster has no set that could tell two claimants apart: one at a time
        others = [
            other
            for other in self.simulation.brokers
            if other is not process and other.alive and (self._counts(other, newest) or other.is_primary)
        ]
        if any(self._reaches(process, other) for other in others if self._counts(other, newest)):
            return True
        if others and not self._counts(process, newest):
            return False
        # They live, and the candidate cannot ask them: be sure that they confirm nothing more.
        isolated = [other for other in others if self._isolated_now(other) and self.rng.random() < 0.5]
        running = [other for other in self.simulation.brokers if other not in others]
        if not self.simulation.history.survivors(running):
            return False  # it would throw away the only copy
        for other in others:
            if other in isolated:
                self._doomed[other.name] = other.life
            else:
                self.scheduler.log("rm", f"fences {other.name}")
                self.stop(other)
        return True

    def witness_died(self) -> None:
        """A broker has died while another was being promoted: on whom it could rely has to be decided again."""
        for process in self.simulation.brokers:
            if process.running and process.node.promoter is not None and self.simulation.settings.safety != "quorum":
                self._may(process)

    def fence_doomed(self) -> None:
        """Somebody was promoted because these were isolated: that must not end while they run."""
        for process in self.simulation.brokers:
            life = self._doomed.pop(process.name, None)
            # If it is the only one left, then nobody has been promoted over it.
            if life == process.life and process.alive and self.simulation.history.survivors() != [process]:
                self.scheduler.log("rm", f"fences {process.name}, which was isolated")
                self.stop(process)

    def _counts(self, process: BrokerProcess, newest: InSync) -> bool:
        """In the newest set; in a fresh cluster everyone is."""
        return not newest.version or process.node.id in newest

    def _reaches(self, one: BrokerProcess, other: BrokerProcess) -> bool:
        if not other.running or not self.network.connected(one.name, other.name):
            return False
        # A path on which no answer comes within a step of a promotion is none.
        round_trip = self.network.slowness(one.name, other.name) + self.network.slowness(other.name, one.name)
        return round_trip < self.simulation.settings.promote_timeout / 2

    def stop(self, process: BrokerProcess) -> None:
        """Kill it; it comes back later."""
        process.kill(power=self.rng.random() < 0.5)
        self.restart_later(process)

    def restart_later(self, process: BrokerProcess) -> None:
        life = process.life

        def restart() -> None:
            if not process.alive and process.life == life:
                process.boot()

        self.scheduler.at(self.rng.choice((0.05, 0.3, 1.0)), restart)

    # ---- nodes without quorum -------------------------------------------------------------------------------------

    def _isolated_now(self, process: BrokerProcess) -> bool:
        """Can it exchange nothing with any other host that has power?"""
        others = [other for other in self.simulation.brokers if other is not process and other.powered]
        return bool(others) and not any(self.network.connected(process.name, other.name) for other in others)

    def _cut_off(self, process: BrokerProcess) -> bool:
        """On the losing side; of two that do not see each other the primary's side loses."""
        return self._isolated_now(process) and (len(self.simulation.brokers) > 2 or process.is_primary)

    def _fence_isolated(self) -> None:
        for process in self.simulation.brokers:
            alone = self.simulation.history.survivors() == [process]
            if not process.is_primary or alone or not self._isolated_now(process):
                self._isolated.pop(process.name, None)
                continue
            since = self._isolated.setdefault(process.name, self.scheduler.now + self.rng.uniform(0.1, 0.7))
            if self.scheduler.now >= since:
                self.scheduler.log("rm", f"stops {process.name}: no quorum")
                self._isolated.pop(process.name)
                self.stop(process)
