"""Pacemaker's tools, as the helper process of a broker runs them: `ha/registry_attributes.py` in virtual time.

Real: the line to the helper and its answer (`registry/pacemaker.py`, `registry/helper.py`), the steps of the exchange,
and what it makes of exit codes and documents.  Simulated: processes.  The helper runs while its broker is stopped or
stands in a write, and dies with it; a command that has handed its change over then has handed it over.

Exit codes and texts are those of Pacemaker 2.1.5 (`crm_error -X -l`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

from ha.model.environment import Exchanged
from ha.model.membership import HaState
from ha.registry.attributes import AttributeRegistry
from ha.registry.helper import answer
from ha.registry.pacemaker import exchanged, question
from ha.registry.steps import Tool, Wait, failed
from ha.registry.worker import Job, RegistryError
from tests.simulator.scheduler import Call

if TYPE_CHECKING:
    from tests.simulator.corosync import Node
    from tests.simulator.pacemaker import Pacemaker
    from tests.simulator.process import BrokerProcess

CLUSTER: Final = "sim"
ATTRIBUTE: Final = f"qpid-ha-state-{CLUSTER}"
NOT_CONNECTED: Final = 102, "Could not connect to the CIB: Transport endpoint is not connected"
REFUSALS: Final[Mapping[str, tuple[bool, int, str]]] = {
    "full": (False, 4, "Error performing operation: Permission denied"),
    "sync": (True, 124, "Error performing operation: Timer expired"),
    "names": (False, 103, "Error performing operation: Update was older than existing configuration"),
}
"""By the fault of the registry's disk, what `crm_attribute` ends with; is the change made all the same?"""
HELPER_DIES: Final = 0.01
DIES: Final = 0.02
"""Shares of the exchanges in which the helper dies, or its broker, while there are faults."""


class Command:
    """`registry_steps.Tool`."""

    def __init__(self, name: str, woken: Call) -> None:
        self.name = name
        self.ended = False
        self._end = 0, "", ""
        self._woken = woken

    def end(self, code: int, out: str = "", error: str = "") -> None:
        if not self.ended:
            self.ended, self._end = True, (code, out, error)
            self._woken()

    def result(self) -> str:
        code, out, error = self._end
        if code:
            raise failed(self.name, code, error)
        return out

    def kill(self) -> None:
        self.ended = True


class Helper:
    """The helper process of one life of a broker: `registry_steps.Tools`, and one exchange after the other."""

    def __init__(self, pacemaker: Pacemaker, process: BrokerProcess) -> None:
        self._pacemaker = pacemaker
        self._corosync = pacemaker.corosync
        self._process, self._life = process, process.life
        self._node = pacemaker.nodes[process.name]
        self._store = pacemaker.simulation.registry
        self._scheduler = pacemaker.simulation.scheduler
        self._rng = pacemaker.simulation.scenario.rng(f"tools {process.name} {process.life}")
        self._registry = AttributeRegistry(CLUSTER, self)
        self._step = Wait((), 0.0)
        self._number = 0
        self._woken: Callable[[], None] = lambda: None

    @property
    def lives(self) -> bool:
        return self._process.alive and self._process.life == self._life

    # ---- one exchange ---------------------------------------------------------------------------------------------

    def ask(self, line: str, done: Callable[[str], None]) -> None:
        """`done`: with the answer; never when the helper has died."""
        steps = answer(self._registry, line)

        def go_on(ended: list[Tool] | None) -> None:
            self._number += 1
            try:
                step = steps.send(ended) if ended is not None else next(steps)
            except StopIteration as end:
                done(json.dumps(end.value))
                return
            number = self._number
            self._woken = lambda: self._later(0.0, partial(wake, number))
            self._step = step
            self._later(max(0.0, (step.until - self.now()) / self._process.clock.rate), partial(wake, number))
            if any(command.ended for command in step.commands):
                self._woken()

        def wake(number: int) -> None:
            if not self.lives:
                steps.close()
            elif number == self._number:
                go_on([command for command in self._step.commands if command.ended])

        go_on(None)

    def die(self) -> None:
        """Its commands die with it."""
        self._life = 0

    def now(self) -> float:
        return self._process.clock.offset + self._scheduler.now * self._process.clock.rate

    def _later(self, seconds: float, call: Call) -> None:
        self._scheduler.at(seconds, call)

    # ---- commands -------------------------------------------------------------------------------------------------

    def start(self, name: str, *words: str) -> Command:
        command = Command(name, lambda: self._woken())
        kinds = {"crm_node": self._crm_node, "cibadmin": self._cibadmin, "crm_attribute": self._crm_attribute}
        self._takes(partial(self._run, command, partial(kinds[name], command, words)))
        return command

    def _takes(self, call: Call) -> None:
        """A part of what a command does."""
        slowness = self._store.slowness * self._rng.uniform(0.0, 2.0)
        self._later(self._rng.uniform(0.0005, 0.006) + slowness, lambda: call() if self.lives else None)

    def _run(self, command: Command, call: Call) -> None:
        if command.ended:
            return  # it was killed
        if self._store.down or self._node.deaf or not self._node.up:
            code, text = NOT_CONNECTED
            command.end(code, error=text)
        else:
            call()

    def _end(self, command: Command, code: int, out: str = "", error: str = "") -> None:
        if not self._store.loses_answers:
            self._takes(lambda: command.end(code, out, error))

    def _crm_node(self, command: Command, words: tuple[str, ...]) -> None:
        assert words == ("--name",)
        self._end(command, 0, f"{self._node.name}\n")

    def _cibadmin(self, command: Command, words: tuple[str, ...]) -> None:
        if words[0] == "--modify":
            number = int(ElementTree.fromstring(words[2]).get("admin_epoch", ""))
            self._corosync.send(self._node, lambda cib: cib.raised(number), lambda: self._end(command, 0))
            return
        assert words[:3] == ("--query", "--no-children", "--xpath") and f"'{ATTRIBUTE}'" in words[3]
        ring, other = self._node.ring, self._pacemaker.nodes[words[5] if words[4:5] == ("--node",) else self._node.name]
        if other is self._node:
            self._end(command, 0, self._pacemaker.document(other))
        elif other in ring.members:
            self._corosync.hop(ring, lambda: self._replies(command, other))

    def _replies(self, command: Command, other: Node) -> None:
        """Another node's copy, over the ring."""
        document = self._pacemaker.document(other)
        self._corosync.hop(other.ring, lambda: self._end(command, 0, document))

    def _crm_attribute(self, command: Command, words: tuple[str, ...]) -> None:
        options = dict(zip(words[::2], words[1::2], strict=True))
        assert options.keys() == {"--node", "--name", "--lifetime", "--update"}, words
        assert (options["--name"], options["--lifetime"]) == (ATTRIBUTE, "forever"), words
        node, value = options["--node"], options["--update"]
        made, code, text = REFUSALS.get(self._store.disk.fault, (True, 0, ""))
        if not made:
            self._end(command, code, error=text)
            return
        self._scheduler.log("rm", f"crm_attribute at {self._node.name}")
        self._corosync.send(
            self._node, lambda cib: cib.written(node, value), lambda: self._end(command, code, error=text)
        )


class Worker:
    """`RegistryWorker` over `PacemakerRegistry`, for one life of a broker: one exchange after the other, but none that
    was given up meanwhile; the helper is started again when it has died."""

    def __init__(self, pacemaker: Pacemaker, process: BrokerProcess) -> None:
        self._pacemaker, self._process = pacemaker, process
        self._simulation = pacemaker.simulation
        self._rng = self._simulation.scenario.rng(f"worker {process.name} {process.life}")
        self._helper = Helper(pacemaker, process)
        self._jobs: deque[Job] = deque()
        self._job: Job | None = None

    def exchange(self, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        job = Job(state, timeout, done)
        self._jobs.append(job)
        self._process.after(timeout, lambda: job.finish(Exchanged(error=f"no answer in {timeout:g} s")))
        self._process.when_free(self._next)

    def _next(self) -> None:
        while self._jobs and self._job is None:
            job = self._jobs.popleft()
            if not job.over:
                self._job = job
                self._endanger()
                self._helper.ask(question(job.state, job.timeout), partial(self._answered, job, self._helper))

    def _answered(self, job: Job, helper: Helper, line: str) -> None:
        """In the broker's process, as soon as that runs."""
        self._process._run("registry", self._process.life, lambda: self._told(job, helper, line))

    def _told(self, job: Job, helper: Helper, line: str) -> None:
        if helper is not self._helper:
            return
        self._job = None
        counts = self._simulation.history.counts
        try:
            end = exchanged(line)
            counts["exchanges by pacemaker"] += 1
        except RegistryError as error:
            end = Exchanged(error=str(error))
            counts["exchanges by pacemaker failed"] += 1
        job.finish(end)
        self._next()

    def _endanger(self) -> None:
        if self._simulation.faults.stopped:
            return
        chance, process, life = self._rng.random(), self._process, self._process.life
        if chance < DIES:
            self._later(lambda: self._kill() if process.life == life else None)
        elif chance < DIES + HELPER_DIES:
            self._later(lambda: self._replace(self._helper) if process.life == life and process.alive else None)

    def _later(self, call: Call) -> None:
        self._simulation.scheduler.at(self._rng.uniform(0.0, 0.06), call)

    def _kill(self) -> None:
        if self._simulation.rules.may_kill(self._process):
            self._simulation.faults.died(self._process)

    def _replace(self, helper: Helper) -> None:
        """The helper has died."""
        if helper is not self._helper:
            return
        helper.die()
        self._helper = Helper(self._pacemaker, self._process)
        self._process.run("registry", self._failed)

    def _failed(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.finish(Exchanged(error="the process that runs Pacemaker's tools has failed: it has ended"))
        self._next()
