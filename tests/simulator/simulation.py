"""One scenario: a cluster, its clients, managers, faults; then repair, drain, and the last checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ha.model.settings import NodeSettings
from ha.model.status import State
from tests.simulator import topology
from tests.simulator.architects import Architect, Vandal
from tests.simulator.checks import queues
from tests.simulator.clients import Client
from tests.simulator.consumers import Consumer, Getter, Hermit, Hoarder, Reader, Worker
from tests.simulator.coverage import Pair
from tests.simulator.faults import CLIENTS_DO, Faults
from tests.simulator.follower import Follower
from tests.simulator.history import History
from tests.simulator.liveness import Liveness
from tests.simulator.manager import Manager
from tests.simulator.network import Network
from tests.simulator.process import BrokerProcess, Clock
from tests.simulator.producers import Producer
from tests.simulator.registry import Registry
from tests.simulator.rules import Rules
from tests.simulator.scenario import Action, Scenario
from tests.simulator.scheduler import Scheduler, Violation
from tests.simulator.score_manager import ScoreManager
from tests.simulator.tap import Tap

REPAIR_TIME = 20.0
"""Virtual seconds after the last fault in which the cluster must be active, everything delivered."""
NAMES = "abcdefgh"
FORCE_AFTER = 5.0
"""Virtual seconds after which an administrator helps, if disks were lost."""
SCORED_WITHIN = 4.0
"""Virtual seconds after the last fault in which a manager that goes by scores has found a primary."""

SETTINGS = NodeSettings(
    name="",
    heartbeat=0.2,
    maintenance=1.0,
    backup_timeout=1.5,
    promote_timeout=0.2,
    isolation_wait=1.0,
    isolation_timeout=1.0,
    relocate_timeout=1.0,
    registry_timeout=0.3,
    slice_size=4096,
)
KINDS: Mapping[str, Callable[[Any, Mapping[str, Any]], Client | Follower]] = {
    "producer": Producer,
    "consumer": Consumer,
    "reader": Reader,
    "getter": Getter,
    "hoarder": Hoarder,
    "worker": Worker,
    "hermit": Hermit,
    "architect": Architect,
    "follower": Follower,
    "vandal": Vandal,
}


class Simulation:
    """`run` raises Violation; `schedule()` then says how it came to it."""

    def __init__(self, scenario: Scenario, tap: Tap | None = None) -> None:
        self.scenario = scenario
        self.tap = tap or Tap()
        self.tap.begin(self)
        self.scheduler = Scheduler(scenario.seed)
        self.network = Network(self.scheduler, scenario.rng)
        self.network.reset_share = scenario.option("resets", 0.0)
        self.network.search(scenario.option("search", {}))
        self.settings = _settings(scenario)
        self.pairs: set[Pair] = set()
        """What came to a broker in which state (`coverage.py`)."""
        self.history = History(self)
        spares: int = scenario.option("spares", 0)
        self.brokers = [self._broker(name) for name in NAMES[: scenario.brokers + spares]]
        """Spares included."""
        self.by_name = {process.name: process for process in self.brokers}
        self.by_address = {process.address: process for process in self.brokers}
        self.scheduler.log("", f"seed {scenario.seed}: {scenario.brokers} brokers, {scenario.mode}")
        self.topology = topology.greeting(tuple(scenario.option("queues", ())))
        self.liveness = Liveness(self)
        self.rules = Rules(self)
        self.registry = Registry(self)
        kind = ScoreManager if scenario.option("scores", False) else Manager
        self.managers: list[Manager] = [
            kind(self, f"rm{number or ''}") for number in range(scenario.option("managers", 1))
        ]
        self.network.before_heal = self.rules.fence_doomed
        self.faults = Faults(self)
        self.clients = [KINDS[fields["kind"]](self, fields) for fields in scenario.clients]
        self.repair_time = 0.0
        """Virtual seconds from the repair until everything was done."""
        self.core_time = 0.0
        """Virtual seconds from the repair of the core until it served."""
        self._begin()

    def _broker(self, name: str) -> BrokerProcess:
        clock = Clock.of(self.scenario.option("clocks", {}).get(name, ()))
        return BrokerProcess(self, name, replace(self.settings, name=name, address=f"{name}:5672"), clock)

    def _begin(self) -> None:
        rng = self.scenario.rng("start")
        for process in self.brokers[: self.scenario.brokers]:
            self.scheduler.at(rng.uniform(0.0, 0.02), process.boot)
        by_name = {client.name: client for client in self.clients}
        assert len(by_name) == len(self.clients), "two clients have one name"
        for action in self.scenario.actions:
            if action.do in CLIENTS_DO:
                client = by_name.get(action.fields["who"])
                if client is not None:
                    self.scheduler.at(action.at, partial(client.told, action.do, action.fields))
            else:
                self.scheduler.at(action.at, partial(self._do, action))

    @property
    def members(self) -> list[BrokerProcess]:
        """The brokers that the cluster has now, as its newest set says: without a copy that is in it and has no address
        of its own."""
        newest = self.history.newest
        # A gambler may promote over the primary that has added a member, and take that one over without its list.
        addresses = {*(newest.brokers or self._configured()), *(member.address for member in newest.members)}
        return [process for process in self.brokers if process.address in addresses - {""}]

    def _configured(self) -> tuple[str, ...]:
        """A set without a list has that of the configuration with which its leader was started."""
        leaders = [each for each in self.brokers if each.life and each.node.local.id == self.history.newest.leader]
        return leaders[0].node.local.settings.brokers if leaders else self.settings.brokers

    def news(self, process: BrokerProcess) -> None:
        """A broker has another state or another promotion score."""
        for manager in self.managers:
            manager.news(process)

    def _do(self, action: Action) -> None:
        self.faults.do(action)

    def run(self) -> None:
        """Raises Violation."""
        try:
            self._run()
        finally:
            self._end()

    def _run(self) -> None:
        scheduler = self.scheduler
        scheduler.run_until(self.scenario.duration)
        self.liveness.run()
        self.faults.stop()
        began = scheduler.now
        while why := self._unfinished():
            if scheduler.now > began + SCORED_WITHIN:
                self._check_scores()
            if scheduler.now > began + REPAIR_TIME:
                raise Violation(f"liveness: {REPAIR_TIME:g} s after the repair {why}")
            if scheduler.now > began + FORCE_AFTER:
                self.rules.force()
                self.rules.give_up()
            scheduler.run_until(scheduler.now + 0.05)
        self.repair_time = scheduler.now - began
        (primary,) = [process for process in self.members if process.is_primary]
        self.tap.end()
        self.history.judge.check_end(primary)

    def _check_scores(self) -> None:
        """Without its disk a broker is another one, and the cluster may wait for the old one until somebody decides."""
        missing = self.scenario.option("scores", False) and not any(process.is_primary for process in self.brokers)
        if missing and not self.rules.replaced:
            found = ", ".join(f"{process.name} {process.node.candidacy.score}" for process in self.members)
            raise Violation(f"liveness: {SCORED_WITHIN:g} s after the repair there is no primary; scores: {found}")

    def _unfinished(self) -> str:
        """What is still to happen; empty when the cluster is whole and drained, and not in the middle of a turn."""
        if not (why := self._unfinished_now()):
            self.scheduler.run_until(self.scheduler.now + 0.005 + 10 * self.brokers[0].late_timers)
            why = self._unfinished_now()
        return why

    def _unfinished_now(self) -> str:
        if any(not process.alive for process in self.members):
            return "a member does not run"
        states = [process.node.local.state for process in self.members]
        if sorted(state.value for state in states) != sorted(["active"] + ["ready"] * (len(states) - 1)):
            return f"the states are {', '.join(state.value for state in states)}"
        (primary,) = [process for process in self.members if process.node.local.state is State.ACTIVE]
        for client in self.clients:
            if not client.finished:
                return f"{client.name} has not finished"
        for process in self.members:
            if process.engine.pool.rotten:
                return f"{process.name} holds what it cannot read"
        return self._undrained(primary) or self._unequal(primary)

    def _undrained(self, primary: BrokerProcess) -> str:
        drained = {client.fields["queue"] for client in self.clients if "queue" in client.fields}
        drained |= {"brief", "patient", topology.LATER}
        if any(client.fields["kind"] == "worker" for client in self.clients):
            drained.add("work")
        homes = set(self.history.homes.values())
        for queue in queues(primary):
            if queue.name in drained and (queue.core.ready or queue.core.unacked):
                return f"queue {queue.name} holds {queue.core.ready} ready and {queue.core.unacked} unacknowledged"
            left = queue.name.startswith("own.") and queue.name not in homes
            if left and (queue.exclusive or (queue.delay is not None and not queue.waits_for_its_first_user)):
                return f"queue {queue.name} is there, and its client is gone"
        return ""

    def _unequal(self, primary: BrokerProcess) -> str:
        position = primary.engine.position
        if primary.engine.unlogged:
            return f"{primary.name} has dequeued what is not in the log yet"
        if any(process.node.role.position != position for process in self.members) or primary.engine.safe < position:
            return f"not everyone is at {position:#x}"
        return ""

    def _end(self) -> None:
        """Break the rings of references, so that engines go at once."""
        self.scheduler.stop()
        for process in self.brokers:
            process.forget()

    def schedule(self) -> str:
        return self.scheduler.schedule()


def _settings(scenario: Scenario) -> NodeSettings:
    addresses = tuple(f"{name}:5672" for name in NAMES[: scenario.brokers])
    registry = scenario.mode == "registry"
    safety = {"registry": "manager", "gamble": "availability"}.get(scenario.mode, scenario.mode)
    settings: Mapping[str, Any] = scenario.option("settings", {})
    return replace(SETTINGS, safety=safety, registry=registry, brokers=addresses, **settings)
