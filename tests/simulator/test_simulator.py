"""A thousand schedules, the schedules that once found something, and proof that the invariants can fail."""

from __future__ import annotations

import pytest

from tests.simulator.mutants import MUTANTS
from tests.simulator.scheduler import Violation
from tests.simulator.simulation import Simulation

SEEDS = 1000
CHUNK = 50
WITHIN = 150
"""A broken HA core is found within that many seeds."""

FOUND = {
    136: "a candidate granted another claim while it was asking, and went on with its own",
    286: "demotion counted unacknowledged messages twice",
    332: "a broker that had answered the question was silent to the claim",
    716: "a transaction that was not safe yet confirmed the message that it consumed",
    3058: "the same",
}


def run(seed: int) -> Simulation:
    """The seed's simulation; fails with its schedule when something does not hold."""
    simulation = Simulation(seed)
    try:
        simulation.run()
    except Violation as violation:
        pytest.fail(f"{simulation.schedule()}\nseed {seed}: {violation}", pytrace=False)
    return simulation


def first_failure(seeds: range) -> tuple[int, str]:
    """The first seed that fails, and how; (-1, "") when none does."""
    for seed in seeds:
        try:
            Simulation(seed).run()
        except Violation as violation:
            return seed, str(violation)
    return -1, ""


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_invariants_hold(first: int) -> None:
    total: dict[str, int] = {}
    for seed in range(first, first + CHUNK):
        for name, count in run(seed).history.counts.items():
            total[name] = total.get(name, 0) + count
    # A simulation in which nothing happens proves nothing.
    assert total["confirmed"] > 10 * CHUNK, total
    assert total["committed"] > 2 * CHUNK, total
    assert total["promotions"] > 1.2 * CHUNK, total
    assert total["redelivered"] > CHUNK / 5, total
    assert total["prefixes compared"] > 20 * CHUNK, total


@pytest.mark.parametrize("seed", FOUND, ids=[f"{seed}-{text.replace(' ', '-')}" for seed, text in FOUND.items()])
def test_what_was_found_once(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_core_is_found(mutant: str) -> None:
    with MUTANTS[mutant]():
        seed, violation = first_failure(range(WITHIN))
    assert violation, f"{mutant} was not found within {WITHIN} seeds"
    # The violation belongs to the mutant: the same seed holds without it.
    Simulation(seed).run()


def test_a_seed_replays_exactly() -> None:
    first, second = run(7), run(7)
    assert first.schedule() == second.schedule()
    assert first.scheduler.steps == second.scheduler.steps


def test_a_failure_prints_its_schedule() -> None:
    with MUTANTS["confirm-at-once"]():
        seed, violation = first_failure(range(WITHIN))
        simulation = Simulation(seed)
        with pytest.raises(Violation) as raised:
            simulation.run()
    assert str(raised.value) == violation
    schedule = simulation.schedule()
    assert f"seed {seed}" in schedule
    assert "rm promote" in schedule
    assert "publish p1.1@1" in schedule
