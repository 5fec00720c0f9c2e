"""Looks for schedules that reach something new: a corpus of scenarios, mutated; what adds a pair (`coverage.py`) stays.

python -m tests.simulator --search 500 --mode quorum
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.simulator.coverage import Coverage
from tests.simulator.drawing import DURATION
from tests.simulator.faults import CLIENTS_DO
from tests.simulator.plan import plan
from tests.simulator.scenario import Action, Scenario
from tests.simulator.scheduler import Violation
from tests.simulator.simulation import Simulation

NOT_BORROWED: Final = (*CLIENTS_DO, "clock-step")
FRESH: Final = 0.3
"""Of the runs are new plans."""


class Search:
    """One search; `failures` are scenarios with their violation."""

    def __init__(self, mode: str, seed: int = 0) -> None:
        self.coverage = Coverage()
        self.corpus: list[Scenario] = []
        self.failures: list[tuple[Scenario, str]] = []
        self._mode = mode
        self._rng = Random(f"search {seed} {mode}")
        self._number = 0

    def step(self) -> None:
        """One run."""
        self._number += 1
        fresh = not self.corpus or self._rng.random() < FRESH
        scenario = plan(self._number, self._mode) if fresh else self.mutated(self._rng.choice(self.corpus))
        simulation = Simulation(scenario)
        try:
            simulation.run()
        except Violation as violation:
            self.failures.append((scenario, str(violation)))
        if self.coverage.add(scenario.seed, simulation.pairs):
            self.corpus.append(scenario)

    def mutated(self, scenario: Scenario) -> Scenario:
        """Another schedule near this one: other delays, faults moved, taken away, or taken from another of its kind."""
        rng = self._rng
        faults = [action for action in scenario.actions if action.do not in CLIENTS_DO]
        others = [action for action in scenario.actions if action.do in CLIENTS_DO]
        for _ in range(rng.choice((1, 1, 2, 4))):
            kind = rng.choice(("move", "take", "add", "again"))
            if kind == "add":
                faults += self._borrowed(scenario)
            elif faults:
                at = rng.randrange(len(faults))
                if kind == "take":
                    del faults[at]
                else:
                    moved = self._moved(faults[at], scenario.duration)
                    faults[at : at + (kind == "move")] = [moved]
        actions = sorted([*faults, *others], key=lambda action: action.at)
        return replace(scenario, seed=f"{scenario.seed.partition('~')[0]}~{self._number}", actions=tuple(actions))

    def _moved(self, action: Action, duration: float) -> Action:
        at = min(max(action.at + self._rng.gauss(0.0, 0.3), 0.05), min(duration, DURATION) - 0.01)
        return replace(action, at=round(at, 4))

    def _borrowed(self, scenario: Scenario) -> list[Action]:
        """Only from a cluster of the same size: a fault names its brokers."""
        donors = [each for each in self.corpus if (each.mode, each.brokers) == (scenario.mode, scenario.brokers)]
        faults = [each for donor in donors[-20:] for each in donor.actions if each.do not in NOT_BORROWED]
        names = {client["name"] for client in scenario.clients} | {*"abcdefgh", ""}
        fitting = [each for each in faults if {each.fields.get(end, "") for end in ("from", "to")} <= names]
        return [self._moved(self._rng.choice(fitting), scenario.duration)] if fitting else []
