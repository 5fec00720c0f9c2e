"""The analysis of the logs of simulated runs: it agrees with the simulator, and convicts a mistake by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.simulator.mutants import MUTANTS
from tests.simulator.plan import plan
from tests.simulator.report import disagreements, judged, recorded, reported, verdict
from tests.simulator.scenario import MODES
from tests.simulator.simulation import Simulation
from tests.support.slow import few

SEEDS = few(5)
"""Of each mode."""


@pytest.mark.parametrize("mode", MODES)
def test_the_analysis_agrees(mode: str) -> None:
    for seed in range(SEEDS):
        assert judged(plan(seed, mode))[1] == "", seed


def test_a_run_that_is_recorded_is_the_same() -> None:
    simulation = Simulation(plan(3, "quorum"))
    simulation.run()
    assert recorded(plan(3, "quorum"))[0].schedule() == simulation.schedule()


def test_messages_that_the_brokers_removed_are_explained() -> None:
    """By name: nothing is left that no rule accounts for."""
    causes: set[str] = set()
    for seed in range(SEEDS):
        _, recorder, _ = recorded(plan(seed, "quorum"))
        found = verdict(recorder).messages
        assert (found.unaccounted, found.anonymous) == (0, 0)
        causes.update(found.causes)
    assert causes & {"expire", "drop", "purge"}


def test_the_analysis_convicts_a_mistake_by_itself() -> None:
    """What is confirmed before any backup has it is lost with its primary; the simulator's own judge looks away."""
    mutant = MUTANTS["confirm-at-once"]
    with mutant.apply():
        assert any(_convicted(seed) for seed in range(mutant.within))


def _convicted(seed: int) -> bool:
    simulation, recorder, wrong = recorded(plan(seed, "quorum"), deaf=True)
    return not wrong and any(" lost" in text for text in disagreements(simulation, verdict(recorder)))


def test_a_seed_can_be_looked_at(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    assert reported(plan(1, "quorum"), tmp_path) == ""
    overview = json.loads((tmp_path / "report.json").read_text())
    assert overview["messages"]["total"]["lost"] == 0
    assert [row["type"] for row in overview["incidents"]]
    assert (tmp_path / "schedule.txt").exists() and (tmp_path / "report.html").exists()
