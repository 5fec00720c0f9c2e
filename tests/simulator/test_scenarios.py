"""The known hole of each mode, or its price, exactly as `ha/README.md` has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulator.scenario import Scenario
from tests.simulator.shrink import outcome
from tests.simulator.simulation import Simulation

DIRECTORY = Path(__file__).parent / "scenarios"


def load(name: str) -> Scenario:
    return Scenario.load(DIRECTORY / f"{name}.yaml")


def confirms(scenario: Scenario) -> list[float]:
    """When; nothing may fail."""
    simulation = Simulation(scenario)
    simulation.run()
    return [now for now, _, text in simulation.scheduler.lines if text.startswith("confirmed")]


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_scenario_shows_what_it_says(path: Path) -> None:
    scenario = Scenario.load(path)
    violation = outcome(scenario)
    assert violation.startswith(scenario.expect), violation
    assert bool(violation) == bool(scenario.expect), violation


def test_what_availability_loses_is_in_a_salvage_file() -> None:
    simulation = Simulation(replace(load("availability-stale-ready"), mode="gamble"))
    simulation.run()
    assert set(simulation.history.salvaged["main"]) == {"p1.2@1"}
    assert simulation.history.counts["recovered"] == 1


@pytest.mark.parametrize("mode", ["registry", "quorum"])
def test_a_registry_or_a_quorum_closes_the_hole_of_manager(mode: str) -> None:
    scenario = replace(load("manager-without-fencing"), mode=mode)
    assert outcome(scenario) == ""


def test_quorum_confirms_nothing_below_a_majority() -> None:
    first, second = confirms(load("quorum-below-majority"))
    assert first < 1.0
    assert second > 2.5


def test_no_backup_is_dropped_without_the_registry() -> None:
    first, second = confirms(load("registry-out-of-reach"))
    assert first < 1.0
    assert second > 2.5
