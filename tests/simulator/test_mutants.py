"""Proof that the invariants can fail: each planted mistake is found."""

from __future__ import annotations

import pytest

from tests.simulator.mutants import MUTANTS
from tests.simulator.plan import plan
from tests.simulator.shrink import outcome


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_core_is_found(name: str) -> None:
    mutant = MUTANTS[name]
    seeds = (mutant.seed, *range(mutant.within))
    scenarios = (plan(seed, mutant.mode, mutant.faults) for seed in seeds)
    with mutant.apply():
        scenario, violation = next(
            (found for found in ((each, outcome(each)) for each in scenarios) if found[1]), (None, "")
        )
    assert scenario is not None, f"{name} was not found within {mutant.within} seeds"
    # It is an invariant that has failed, not the mutant itself, and the same seed holds without it.
    assert violation.startswith(("I", "liveness")), violation
    assert outcome(scenario) == ""
