"""What a resource manager may do: the promise on which each mode of `ha-safety` rests.

`manager` without a registry:

* in a fresh cluster, one promotion at a time;
* promoting any broker at any time, the primary paused, cut off or busy, **if** the candidate can speak with another
  living member of the newest in-sync set than itself (the brokers themselves find out whether it may be);
* promoting a member of the newest set that can reach no other member, or no longer because that one died, **after**
  every other living member that it cannot reach was stopped (fenced), or while those are isolated from everybody and
  will be stopped before that ends.

What is not: promoting on a side without any reachable member of the in-sync set while such members live elsewhere
unfenced; promoting a broker that is to be fenced because another one was promoted; leaving an isolated primary (a node
without quorum) running for longer than `ha-isolation-wait`.  A manager with quorum and fencing does none of these.

`availability`: one promotion at a time, of a whole member of the last primary's in-sync set, which knows or hears of
that set if it was restarted, after every primary was stopped, and everybody that the candidate does not reach.

`quorum`, and `manager` with a registry: nothing is out; any promotion at any time, by two managers at once, no fencing.
`gamble` is the same with `availability`, to see what then is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ha.model.membership import InSync
from qpidd_py.core import reading
from tests.simulator.checks import contents, usurped
from tests.simulator.scenario import FORGIVING

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

RESTART = (0.05, 0.3, 1.0)
"""Seconds after which a stopped broker is started again."""


class Rules:
    """Judges, and fences where that is a condition."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.network = simulation.network
        self.history = simulation.history
        self.rng = simulation.scenario.rng("rules")
        scenario = simulation.scenario
        self.fences = scenario.mode not in (*FORGIVING, "gamble") and not scenario.option("unfenced", False)
        self.replaced = False
        """Has a disk been lost?"""
        self._isolated: dict[str, float] = {}
        self._doomed: dict[str, int] = {}

    # ---- promotion ------------------------------------------------------------------------------------------------

    def may_promote(self, process: BrokerProcess) -> bool:
        """Fences whom it must."""
        if not self.fences:
            return True
        if self.simulation.scenario.mode == "availability":
            return self._may_replace(process)
        if self._is_doomed(process):
            return False
        brokers, newest = self.simulation.brokers, self.history.newest
        if not newest.version and any(other.alive and other.node.promoter for other in brokers):
            return False  # a fresh cluster has no set that could tell two claimants apart: one at a time
        others = [
            other
            for other in brokers
            if other is not process and other.alive and (self._counts(other, newest) or other.is_primary)
        ]
        if any(self._reaches(process, other) for other in others if self._counts(other, newest)):
            return True
        if not self._counts(process, newest):
            return False
        if not others:
            return True  # it is the last one that counts, whole or after a total failure
        # They live, and the candidate cannot ask them: be sure that they confirm nothing more.
        isolated = [other for other in others if self._waits_to_be_fenced(other)]
        if not self.history.survivors([other for other in brokers if other not in others]):
            return False  # it would throw away the only copy
        for other in others:
            if other in isolated:
                self._doomed[other.name] = other.life
            else:
                self._fence([other])
        return True

    def _may_replace(self, process: BrokerProcess) -> bool:
        """With `availability` only the manager sees to it that there is one primary, and that it holds all."""
        others = [other for other in self.simulation.brokers if other is not process and other.alive]
        if process.is_primary:
            return True
        if any(other.running and other.node.promoter for other in others):
            return False
        survivors = self.history.survivors()
        if not survivors and not all(other in others or other is process for other in self.simulation.members):
            return False  # a total failure: a broker that was there may know what this one does not
        if survivors and process not in survivors:
            return False
        if not survivors and self.history.holders():
            return False  # a whole member of the newest set comes back with its disk
        heard = [process, *(other for other in others if self._reaches(process, other))]
        known = max(other.node.local.persisted.in_sync.key for other in heard)
        if survivors and process.node.local.before and known < self.history.newest.key:
            return False  # it was away when that set was made, which need not list it, and it is not told
        self._fence(other for other in others if other.is_primary or not self._reaches(process, other))
        return True

    def promoted(self, process: BrokerProcess) -> None:
        """Who was lost in the middle of a promotion may not go on next to it, where that is for the manager to see."""
        if self.simulation.liveness.shuns(process):
            self.scheduler.at(0.0, self.simulation.liveness.stop_shunned)
        elif self.fences and self.simulation.scenario.mode == "availability":
            self._fence(
                other
                for other in self.simulation.brokers
                if other is not process and other.alive and not self._reaches(process, other)
            )

    def _fence(self, processes: Iterable[BrokerProcess]) -> None:
        for process in processes:
            self.scheduler.log("rm", f"fences {process.name}")
            self.stop(process)

    def _is_doomed(self, process: BrokerProcess) -> bool:
        """Was another one promoted because this one will be fenced?"""
        return self._doomed.get(process.name) == process.life

    def _waits_to_be_fenced(self, process: BrokerProcess) -> bool:
        """It confirms nothing meanwhile, because it waits before it shrinks the set."""
        return self.isolated(process) and self.rng.random() < 0.5

    def witness_died(self) -> None:
        """A broker has died while another was being promoted: on whom it could rely has to be decided again."""
        if not self.fences or self.simulation.scenario.mode == "availability":
            return
        for process in self.simulation.brokers:
            if process.running and process.node.promoter is not None:
                self.may_promote(process)

    def _counts(self, process: BrokerProcess, newest: InSync) -> bool:
        """In the newest set; in a fresh cluster everyone is."""
        return not newest.version or (process.node.local.id in newest and not usurped(process, newest))

    def _reaches(self, one: BrokerProcess, other: BrokerProcess) -> bool:
        if not other.running or not self.network.connected(one.name, other.name):
            return False
        if other.address not in one.node.local.cluster.others():
            return False  # it does not know that there is such a broker
        # A path on which no answer comes within a step of a promotion is none.
        round_trip = self.network.slowness(one.name, other.name) + self.network.slowness(other.name, one.name)
        late = max(one.write_seconds, other.write_seconds) + max(0.0, other.busy_until - self.scheduler.now)
        return round_trip + 2 * late < self.simulation.settings.promote_timeout / 2

    def force(self) -> None:
        """Without the disk of a broker its cluster may wait for it for ever: then an administrator has to decide."""
        if not self.replaced or any(process.is_primary for process in self.simulation.brokers):
            return
        whole = self.history.survivors() or self.simulation.members
        best = max(whole, key=lambda process: (process.node.local.whole, process.node.role.position))
        if best.node.promoter is None:
            self.history.counts["forced"] += 1
            self.scheduler.log("rm", f"an administrator promotes {best.name} by force")
            best.run("admin", lambda: best.handle("ha.promote", {"force": True}, lambda value: None))

    def give_up(self) -> None:
        """An administrator whose brokers all wait for messages that their primary cannot read (docs/runbook.md): with a
        journal it is restarted, without one the queues are purged."""
        primary = next((each for each in self.simulation.members if each.is_primary and each.node.local.hole), None)
        others = [each for each in self.simulation.members if each is not primary]
        if primary is None or any(each.node.local.whole or not each.running for each in others):
            return
        if primary.journal is not None:
            self.stop(primary, power=False)
        else:
            primary.run("admin", lambda: self._purge(primary))

    def _purge(self, process: BrokerProcess) -> None:
        engine = process.engine
        for queue, _ in reading.rotten_queues(engine):
            self.history.counts["purged of rot"] += 1
            self.scheduler.log("rm", f"an administrator purges {queue.name}")
            self.history.given_up(queue.name, contents(process).get(queue.name, {}))
            engine.purge(queue)

    # ---- stopping -------------------------------------------------------------------------------------------------

    def stop(self, process: BrokerProcess, power: bool | None = None, after: float = 0.0) -> None:
        """Kill it; it comes back later."""
        if not process.alive:
            return
        process.kill(power=self.rng.random() < 0.5 if power is None else power)
        self.restart_later(process, after or self.rng.choice(RESTART))

    def restart_later(self, process: BrokerProcess, after: float) -> None:
        life = process.life

        def restart() -> None:
            if not process.alive and process.life == life and not process.buried:
                process.boot()

        self.scheduler.at(after, restart)

    def may_kill(self, process: BrokerProcess) -> bool:
        """Not the last one that holds everything, except in a scenario with total failures."""
        scenario = self.simulation.scenario
        total = scenario.option("total", False) or scenario.option("journal", {})
        return process.alive and (total or self.history.survivors() not in ([process], []))

    # ---- nodes without quorum -------------------------------------------------------------------------------------

    def _others(self, process: BrokerProcess) -> list[BrokerProcess]:
        """Hosts with power; a spare that was never started is none."""
        return [other for other in self.simulation.brokers if other is not process and other.powered and other.life]

    def isolated(self, process: BrokerProcess) -> bool:
        """Can it exchange nothing with any other host?"""
        others = self._others(process)
        return bool(others) and not any(self.network.connected(process.name, other.name) for other in others)

    def cut_off(self, process: BrokerProcess) -> bool:
        """On the losing side; of two halves the primary's loses.  A core has the quorum, whatever hosts there are."""
        if self.simulation.liveness.trusts(process):
            return False
        others = self._others(process)
        reached = [other for other in others if self.network.connected(process.name, other.name)]
        side, all_hosts = 1 + len(reached), 1 + len(others)
        return 2 * side < all_hosts or (2 * side == all_hosts and process.is_primary)

    def fence_isolated(self) -> None:
        """A primary without quorum is stopped after a while."""
        if not self.fences:
            return
        for process in self.simulation.brokers:
            alone = self.history.survivors() == [process]
            if not process.is_primary or alone or not self.cut_off(process):
                self._isolated.pop(process.name, None)
                continue
            since = self._isolated.setdefault(process.name, self.scheduler.now + self.rng.uniform(0.1, 0.7))
            if self.scheduler.now >= since:
                self.scheduler.log("rm", f"stops {process.name}: no quorum")
                self._isolated.pop(process.name)
                self.stop(process)

    def fence_doomed(self) -> None:
        """Somebody was promoted because these were isolated: that must not end while they run."""
        for process in self.simulation.brokers:
            life = self._doomed.pop(process.name, None)
            # If it is the only one left, then no broker has been promoted over it.
            if life == process.life and process.alive and self.history.survivors() != [process]:
                self.scheduler.log("rm", f"fences {process.name}, which was isolated")
                self.stop(process)
