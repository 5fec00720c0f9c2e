"""A manager that goes by the promotion scores alone, as Pacemaker does, always finds a primary if there can be one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.plan import SCORED, plan
from tests.simulator.test_scenarios import confirms, load
from tests.simulator.test_simulator import check
from tests.support.slow import mostly_slow

SEEDS = 240
CHUNK = 20


@pytest.mark.parametrize("mode", SCORED)
@pytest.mark.parametrize("number", mostly_slow(range(SEEDS // CHUNK), 1))
def test_a_primary_is_found_by_scores_alone(mode: str, number: int) -> None:
    """`Simulation` fails when there is none some time after the last fault."""
    plans = (plan(seed, mode) for seed in range(10_000 + number * CHUNK, 10_000 + (number + 1) * CHUNK))
    runs = [check(scenario) for scenario in plans if scenario.option("scores", False)]
    assert len(runs) > CHUNK / 8
    assert sum(run.history.counts["promoted by score"] for run in runs) >= len(runs) / 2


def test_a_lone_survivor_goes_on() -> None:
    first, second = confirms(load("score-lone-survivor"))
    assert first < 1.0
    assert second < 5.0


def test_after_a_power_cut_service_returns_by_itself() -> None:
    first, second = confirms(load("score-power-cycle"))
    assert first < 1.0
    assert second < 3.0


def test_a_restarted_broker_waits_for_the_other_one_unless_that_was_fenced() -> None:
    scenario = load("score-restarted-alone")
    first, second = confirms(scenario)
    assert first < 1.0
    assert second > 3.0
    first, second = confirms(replace(scenario, options={**scenario.options, "fencing": True}))
    assert first < 1.0
    assert second < 3.0
