"""One seed: a cluster, its clients, a manager, faults; then repair, drain, and the last checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ha.settings import NodeSettings
from ha.status import State
from tests.simulator.clients import Architect, Client, Consumer, Producer, Worker
from tests.simulator.faults import Faults
from tests.simulator.history import History
from tests.simulator.manager import Manager
from tests.simulator.network import Network
from tests.simulator.process import BrokerProcess
from tests.simulator.scheduler import Scheduler, Violation

FAULT_TIME = 4.0
"""Virtual seconds in which faults begin."""
REPAIR_TIME = 20.0
"""Virtual seconds after the last fault in which the cluster must be active, everything delivered."""

SETTINGS = NodeSettings(
    name="",
    heartbeat=0.2,
    maintenance=1.0,
    backup_timeout=1.5,
    promote_timeout=0.2,
    isolation_wait=1.0,
    slice_size=4096,
)


class Simulation:
    """`run` raises Violation; `schedule()` then says how it came to it."""

    def __init__(self, seed: int, safety: str = "", faults: Sequence[str] = ()) -> None:
        """`safety` and the kinds of `faults` are the seed's choice by default."""
        self.seed = seed
        self.scheduler = Scheduler(seed)
        rng = self.scheduler.rng
        self.network = Network(self.scheduler)
        self.history = History(self)
        size = rng.choice((2, 3, 3, 3))
        safety = safety or ("quorum" if size == 3 and rng.random() < 0.3 else "manager")
        names = "abc"[:size]
        addresses = tuple(f"{name}:5672" for name in names)
        self.settings = replace(SETTINGS, safety=safety, brokers=addresses)
        self.brokers = [
            BrokerProcess(self, name, replace(self.settings, name=name, address=address))
            for name, address in zip(names, addresses, strict=True)
        ]
        self.by_address = {process.address: process for process in self.brokers}
        self.scheduler.log("", f"seed {seed}: {size} brokers, safety {safety}")
        self.consumers = [Consumer(self, "c1", "main"), Consumer(self, "c2", "fan2")]
        if rng.random() < 0.3:
            self.consumers.append(Consumer(self, "c3", "main"))
        self.clients: list[Client] = [
            Producer(self, "p1", rng.randint(5, 25)),
            Producer(self, "p2", rng.randint(1, 15)),
            Worker(self, "w1"),
            Architect(self, "q1", rng.randint(0, 6)),
            *self.consumers,
        ]
        self.manager = Manager(self)
        self.network.before_heal = self.manager.fence_doomed
        self.faults = Faults(self, FAULT_TIME, faults)
        self.repair_time = 0.0
        """Virtual seconds from the repair until everything was done."""
        for process in self.brokers:
            self.scheduler.at(rng.uniform(0.0, 0.02), process.boot)

    def run(self) -> None:
        """Raises Violation."""
        try:
            self._run()
        finally:
            self._end()

    def _run(self) -> None:
        scheduler = self.scheduler
        while scheduler.now < FAULT_TIME and scheduler.step():
            pass
        self.faults.stop()
        began = scheduler.now
        end = began + REPAIR_TIME
        while (why := self._unfinished()) and scheduler.now < end:
            wait = scheduler.now + 0.05
            while scheduler.now < wait:
                scheduler.step()
        if why:
            raise Violation(f"liveness: {REPAIR_TIME:g} s after the repair {why}")
        self.repair_time = scheduler.now - began
        (primary,) = [process for process in self.brokers if process.is_primary]
        self.history.check_end(primary)

    def _unfinished(self) -> str:
        """What is still to happen; empty when the cluster is whole and drained."""
        states = [process.node.state for process in self.brokers]
        if sorted(state.value for state in states) != sorted(["active"] + ["ready"] * (len(states) - 1)):
            return f"the states are {', '.join(state.value for state in states)}"
        (primary,) = [process for process in self.brokers if process.node.state is State.ACTIVE]
        for client in self.clients:
            if not client.finished:
                return f"{client.name} has not finished"
        for name in ("main", "work", "fan2"):
            queue = primary.broker.vhost.queues.get(name)
            if queue is not None and (queue.core.ready or queue.core.unacked):
                return f"queue {name} holds {queue.core.ready} ready and {queue.core.unacked} unacknowledged"
        position = primary.engine.position
        if any(process.node.role.position != position for process in self.brokers) or primary.engine.safe < position:
            return f"not everyone is at {position:#x}"
        return ""

    def _end(self) -> None:
        """Break the rings of references, so that engines go at once."""
        self.scheduler.stop()
        for process in self.brokers:
            process.forget()

    def schedule(self) -> str:
        return self.scheduler.schedule()
