"""A thousand schedules and more, and proof that the invariants can fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from tests.simulator.mutants import MUTANTS
from tests.simulator.scheduler import Violation
from tests.simulator.simulation import Simulation

SEEDS = 1000
CHUNK = 50
WITHIN = 150
"""A broken HA core is found within that many seeds."""
RARE: dict[str, tuple[tuple[str, ...], int]] = {
    "ignore-silence": (("ambush",), 600),
    "expect-everything": (("ambush", "crash"), 1000),
}
"""Mistakes that need a rare coincidence: which faults bring it about, and how many seeds that may take."""


def run(seed: int, faults: Sequence[str] = ()) -> Simulation:
    """The seed's simulation; fails with its schedule when something does not hold."""
    simulation = Simulation(seed, faults=faults)
    try:
        simulation.run()
    except Violation as violation:
        pytest.fail(f"{simulation.schedule()}\nseed {seed}: {violation}", pytrace=False)
    return simulation


def first_failure(seeds: Iterable[int], faults: Sequence[str] = ()) -> tuple[int, str]:
    """The first seed that fails, and how; (-1, "") when none does."""
    for seed in seeds:
        try:
            Simulation(seed, faults=faults).run()
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


@pytest.mark.parametrize("fault", ["ambush", "pause", "isolate", "crash"])
def test_invariants_hold_under_one_kind_of_fault(fault: str) -> None:
    for seed in range(50):
        run(seed, (fault,))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_core_is_found(mutant: str) -> None:
    faults, within = RARE.get(mutant, ((), WITHIN))
    with MUTANTS[mutant]():
        seed, violation = first_failure(range(within), faults)
    assert violation, f"{mutant} was not found within {within} seeds"
    # It is an invariant that has failed, not the mutant itself, and the same seed holds without it.
    assert violation.startswith(("I", "liveness")), violation
    run(seed, faults)


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
