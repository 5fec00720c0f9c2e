"""The resource manager's registry: the brokers' entries, in a store that is linearizable but far away.

Writing and reading take effect one after the other, at some instant between the call and its answer; or, when no answer
came in time, at some instant or never.  A broker reaches it only while it can talk to most of the other hosts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ha.model.environment import Exchanged
from ha.model.membership import HaState
from ha.registry.file import FileRegistry, Lives, decode
from ha.registry.worker import RegistryError, merged
from tests.simulator.disk import Disk, Killed
from tests.simulator.pacemaker import Pacemaker
from tests.simulator.scheduler import Call, Violation

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

NAME: Final = "registry.json"
FILE_FAULTS: Final = ("full", "sync", "names")
"""Of `Disk`: what a write of a whole file meets."""
DIES: Final = 0.02
"""Share of the writes to the file in which the writing process dies, while there are faults."""
STEPS: Final = 4


class SharedFile(FileRegistry):
    """The real store of `ha-registry=file`, on a simulated disk that all brokers share; one for each life of a process.

    Exchanges are events of the simulation, one after the other, so nothing has to be locked."""

    def __init__(self, disk: Disk, lives: Lives) -> None:
        super().__init__(Path(NAME), lives, disk)
        self._disk = disk

    def _octets(self) -> bytes | None:
        return self._disk.seen(NAME)

    @contextmanager
    def _locked(self, deadline: float) -> Iterator[None]:
        yield


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
        self.disk = Disk()
        self._is_file: bool = simulation.scenario.option("registry file", False)
        self._files: dict[tuple[str, int], SharedFile] = {}
        option = simulation.scenario.option("pacemaker", {})
        self.pacemaker = Pacemaker(simulation, option) if option else None

    def repair(self) -> None:
        self.down, self.slowness, self.loses_answers = False, 0.0, False
        self.disk.fault = ""
        if self.pacemaker is not None:
            self.pacemaker.repair()

    def exchange(
        self, process: BrokerProcess, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]
    ) -> None:
        if self.pacemaker is not None:
            self.pacemaker.exchange(process, state, timeout, done)
            return
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
            if self._is_file:
                exchanged = self._exchange_file(process, life, state, number)
                if exchanged is not None:
                    self._later(lambda: answer(exchanged))
                return
            if text is not None and state is not None and self._written.get(process.name, 0) < number:
                self._written[process.name] = number
                # Two brokers may have one identity, and so one entry; as in the real ones, it never goes back.
                old, new = self._entries.get(state.id), HaState.from_json(json.loads(text))
                both = merged(HaState.from_json(json.loads(old)) if old else None, new)
                self._entries[state.id] = json.dumps(both.to_json())
                # It is on record, in force or not: from now on no other broker is sure to hold what was confirmed.
                self._simulation.history.persisted(state)
            self._later(read)

        process.after(timeout, lambda: finish(Exchanged(error="the registry does not answer")))
        process.when_free(lambda: self._later(arrive))

    def _exchange_file(self, process: BrokerProcess, life: int, state: HaState | None, number: int) -> Exchanged | None:
        """None when it is not made any more, or the process has died in it."""
        if process.life != life or not process.alive:
            return None
        if state is not None and self._written.get(process.name, 0) > number:
            return None
        self._written[process.name] = number
        store = self._files.setdefault((process.name, life), SharedFile(self.disk, self))
        self._simulation.history.counts["exchanges by file"] += 1
        try:
            self._endanger(process, state)
            exchanged = store.exchange(state, 0.0)
        except Killed:
            self._simulation.faults.died(process)
            exchanged = None
        except (OSError, RegistryError) as error:
            exchanged = Exchanged(error=str(error))
        self.disk.crash_at = 0
        self._check_file()
        return exchanged

    def _check_file(self) -> None:
        """I14, and what is on record from now on: others can read it, in force or not."""
        octets = self.disk.seen(NAME)
        try:
            states = decode(octets).values() if octets is not None else ()
        except RegistryError as error:
            raise Violation(f"I14: the registry is damaged: {error}") from error
        for state in states:
            self._simulation.history.persisted(state)

    def _endanger(self, process: BrokerProcess, state: HaState | None) -> None:
        dies = state is not None and self._rng.random() < DIES and not self._simulation.faults.stopped
        if dies and self._simulation.rules.may_kill(process):
            self.disk.crash_at = self._rng.randint(1, STEPS)

    def gone(self, ids: Iterable[str]) -> frozenset[str]:
        """For the file: all brokers are processes of one machine, whose kernel knows which have ended."""
        return frozenset(ids) - {process.state.id for process in self._simulation.brokers if process.alive}

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
        """It runs on most hosts: a broker that talks to most of them talks to it."""
        liveness = self._simulation.liveness
        if self.down or not process.powered or liveness.shuns(process):
            return False
        if liveness.trusts(process):
            return True
        hosts = self._simulation.brokers
        reached = [
            other
            for other in hosts
            if other is process or (other.powered and self._simulation.network.connected(process.name, other.name))
        ]
        powered = [other for other in hosts if other.powered]
        return 2 * len(reached) > len(powered) or (2 * len(reached) == len(powered) and hosts[0] in reached)
