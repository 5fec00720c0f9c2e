"""A resource manager that goes by the promotion scores alone, as Pacemaker does with our agent.

    broker ──news──▶ agent on its node ──after a while──▶ attribute ──▶ the manager's next decision

It promotes the broker with the highest score that it has *heard*, which may not be true any more; of equals the one
that it likes best.  While a promotion is under way it decides nothing, and one that was refused costs time.  An
agent notices the end of its process, kills one that hangs, and loses a node without power after a while.  Of two
primaries it demotes the one that it did not promote last, and without quorum all of them.  It never looks at what a
broker holds; a cluster that it leaves without a primary is a score that was missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ha.model.environment import Json
from ha.promotion.score import PRIMARY
from tests.simulator.manager import Manager, may_be_asked

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

LOOK: Final = 0.05
"""Seconds between two looks, at most; a changed attribute brings one about sooner."""
HANGS: Final = 0.4
"""Seconds after which a process that does not beat is killed."""
TOKEN: Final = 0.3
"""Seconds after which a node without power is known to be lost."""
PROMOTE_LIMIT: Final = 2.0
"""Seconds that a promotion may take."""
REFUSED: Final = 0.5
"""Seconds that a promotion costs which was refused."""


@dataclass(frozen=True)
class Attribute:
    """What an agent has said last of its broker."""

    life: int
    primary: bool
    score: int | None


class ScoreManager(Manager):
    """Scores in, promotions out."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        super().__init__(simulation, name)
        self._attributes: dict[str, Attribute] = {}
        self._arrival: dict[str, float] = {}
        self._likes = [process.name for process in simulation.brokers]
        self.rng.shuffle(self._likes)
        self._busy_until = 0.0
        self._promoted = ""
        self._hung: dict[str, float] = {}

    # ---- what agents say ------------------------------------------------------------------------------------------

    def news(self, process: BrokerProcess) -> None:
        """A broker has told its agent; what one agent says arrives in order."""
        node = process.node
        said = Attribute(process.life, node.local.state.is_primary, node.candidacy.score)
        if said != self._attributes.get(process.name) or process.name in self._arrival:
            self._later(process, partial(self._heard, process, said))

    def _later(self, process: BrokerProcess, call: partial[None]) -> None:
        delay = self.rng.uniform(0.002, 0.04) if self.rng.random() < 0.9 else 0.3
        arrival = max(self.scheduler.now + delay, self._arrival.get(process.name, 0.0))
        self._arrival[process.name] = arrival
        self.scheduler.at(arrival - self.scheduler.now, call)

    def _heard(self, process: BrokerProcess, said: Attribute) -> None:
        if self._attributes.get(process.name) == said or process.life != said.life or not process.alive:
            return
        self._attributes[process.name] = said
        self.scheduler.log(self.name, f"{process.name}: {'primary' if said.primary else 'backup'}, score {said.score}")
        self.scheduler.at(self.rng.uniform(0.005, 0.03), self._decide)

    def died(self, process: BrokerProcess) -> None:
        """The agent sees the end of its process; that of a node, the others."""
        delay = self.rng.uniform(0.002, 0.03) if process.powered else TOKEN
        self.scheduler.at(delay, partial(self._gone, process, process.life))

    def _gone(self, process: BrokerProcess, life: int) -> None:
        said = self._attributes.get(process.name)
        if said is not None and said.life <= life:
            del self._attributes[process.name]
            self._decide()

    # ---- decisions ------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        self.scheduler.at(LOOK * self.rng.uniform(0.5, 1.0), self._poll)
        self.rules.fence_isolated()
        self._kill_hung()
        self._demote_without_quorum()
        self._decide()

    def _kill_hung(self) -> None:
        for process in self.simulation.brokers:
            if not process.alive or not process.paused:
                self._hung.pop(process.name, None)
                continue
            since = self._hung.setdefault(process.name, self.scheduler.now)
            if self.scheduler.now - since >= HANGS and self.rules.may_kill(process):
                self.scheduler.log(self.name, f"kills {process.name}, which hangs")
                self.rules.stop(process, power=False)

    def _demote_without_quorum(self) -> None:
        """`no-quorum-policy=demote`."""
        for process in self.simulation.brokers:
            if process.running and process.is_primary and self.rules.cut_off(process) and self.rng.random() < 0.1:
                self._demote(process, "no quorum")

    def _demote(self, process: BrokerProcess, reason: str) -> None:
        self.scheduler.log(self.name, f"demote {process.name}: {reason}")
        process.run("admin", lambda: process.handle("ha.demote", {}, lambda value: None))

    def _decide(self) -> None:
        if self.scheduler.now < self._busy_until:
            return
        seen = [
            (process, self._attributes[process.name])
            for process in self.simulation.brokers
            if process.name in self._attributes and self._sees(process)
        ]
        primaries = [process for process, said in seen if said.primary]
        if primaries:
            score = self._attributes[primaries[0].name].score
            best = max((said.score or 0 for _, said in seen if not said.primary), default=0)
            if primaries[0].running and (score is None or score < best):
                self._demote(primaries[0], f"its score is {score}, and another one has {best}")
            for process in primaries[1:]:
                other = primaries[0] if process.name == self._promoted else process
                if other.running:
                    self._demote(other, "there are two")
            return
        scored = [(said.score, self._likes.index(process.name), process) for process, said in seen if said.score]
        if scored:
            self.promote(max(scored)[2])

    def _sees(self, process: BrokerProcess) -> bool:
        """A broker that no member change has brought in yet is not on a node of this manager's."""
        known = process.address in self.simulation.history.enrolled
        return known and not self.rules.cut_off(process) and not self.simulation.liveness.shuns(process)

    def promote(self, process: BrokerProcess) -> None:
        if not may_be_asked(self.simulation, process):
            return
        counts, life = self.simulation.history.counts, process.life
        self.scheduler.log(self.name, f"promote {process.name}, score {self._attributes[process.name].score}")
        self._busy_until, self._promoted = self.scheduler.now + PROMOTE_LIMIT, process.name
        counts["promoted by score"] += 1
        if any(other.node.role.position > process.node.role.position for other in self.simulation.history.survivors()):
            counts["promoted though behind"] += 1

        def reply(value: Json) -> None:
            self.scheduler.log(self.name, f"{process.name}: {'promoted' if value['ok'] else value['error']}")
            refused = not value["ok"]
            counts["refused in spite of a score"] += refused
            self._busy_until = self.scheduler.now + (REFUSED if refused else 0.0)
            if not refused and process.life == life:
                self._attributes[process.name] = Attribute(life, True, PRIMARY)

        process.run("admin", lambda: process.handle("ha.promote", {"behind": True, "takeover": True}, reply))
