"""The resource manager's registry: the brokers' entries, in a store that is linearizable but far away.

Writing and reading take effect one after the other, at some instant between the call and its answer; or, when no answer
came in time, at some instant or never.  A broker reaches it only while it can talk to most of the other hosts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from ha.environment import Exchanged
from ha.membership import HaState
from ha.registry_worker import merged
from tests.simulator.scheduler import Call

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation


class Registry:
    """The store, and the way to it."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._rng = simulation.scenario.rng("registry")
        self._entries: dict[str, str] = {}
        self._number = 0
        self._written: dict[str, int] = {}
        """Number of the last call of each process: what one writes takes effect in order, or not at all."""
        self.down = False
        self.slowness = 0.0
        """Seconds that each way takes in addition, at most twice that."""
        self.loses_answers = False

    def repair(self) -> None:
        self.down, self.slowness, self.loses_answers = False, 0.0, False

    def exchange(
        self, process: BrokerProcess, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]
    ) -> None:
        life = process.life
        over: list[bool] = []
        self._number += 1
        number = self._number
        text = None if state is None else json.dumps(state.to_json())

        def finish(exchanged: Exchanged) -> None:
            if not over:
                over.append(True)
                done(exchanged)

        def answer(exchanged: Exchanged) -> None:
            if not self.loses_answers and self._reaches(process):
                process._run("registry", life, lambda: finish(exchanged))

        def read() -> None:
            entries = tuple(HaState.from_json(json.loads(entry)) for entry in self._entries.values())
            gone = self._gone()
            self._later(lambda: answer(Exchanged(entries, gone=gone)))

        def arrive() -> None:
            if not self._reaches(process):
                return
            if text is not None and state is not None and self._written.get(process.name, 0) < number:
                self._written[process.name] = number
                # Two brokers may have one identity, and so one entry; as in the real ones, it never goes back.
                old, new = self._entries.get(state.id), HaState.from_json(json.loads(text))
                both = merged(HaState.from_json(json.loads(old)) if old else None, new)
                self._entries[state.id] = json.dumps(both.to_json())
                # It is on record, in force or not: from now on nobody else is sure to hold what was confirmed.
                self._simulation.history.persisted(state)
            self._later(read)

        process.after(timeout, lambda: finish(Exchanged(error="the registry does not answer")))
        process.when_free(lambda: self._later(arrive))

    def _gone(self) -> frozenset[str]:
        """Where a manager fences, a node without power is a fenced one."""
        if not self._simulation.scenario.option("fencing", False):
            return frozenset()
        brokers = self._simulation.brokers
        there = {process.state.id for process in brokers if process.life and process.powered}
        return frozenset(process.state.id for process in brokers if process.life and not process.powered) - there

    def _later(self, call: Call) -> None:
        delay = self._rng.uniform(0.0002, 0.004) + self.slowness * self._rng.uniform(0.0, 2.0)
        self._scheduler.at(delay, call)

    def _reaches(self, process: BrokerProcess) -> bool:
        """It runs on most hosts: whoever talks to most of them talks to it."""
        liveness = self._simulation.liveness
        if self.down or not process.powered or liveness.shuns(process):
            return False
        if liveness.trusts(process):
            return True
        hosts = self._simulation.brokers
        reached = [
            other
            for other in hosts
            if other is process
            or (other.powered and self._simulation.network.connected(process.name, other.name))
        ]
        powered = [other for other in hosts if other.powered]
        return 2 * len(reached) > len(powered) or (2 * len(reached) == len(powered) and hosts[0] in reached)
