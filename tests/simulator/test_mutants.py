"""Proof that the invariants can fail: each planted mistake is found."""

from __future__ import annotations

import os
import warnings

import pytest

from tests.simulator.mutants import MUTANTS
from tests.simulator.shrink import outcome
from tests.support import slow

SEARCH = 20
"""Seeds; a longer search is said, so that the mutant gets its seed: a hundred of them took a minute."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_core_is_found(name: str) -> None:
    mutant = MUTANTS[name]
    with mutant.apply():
        tried = ((seed, each, outcome(each)) for seed, each in mutant.scenarios())
        seed, scenario, violation = next((found for found in tried if found[2]), (0, None, ""))
    assert scenario is not None, f"{name} was not found within {mutant.within} seeds"
    if seed != mutant.seed and seed >= SEARCH:
        warnings.warn(f"{name} shows at seed {seed}: set Mutant.seed, the search takes long", stacklevel=1)
    assert violation.startswith(("I", "liveness")), f"not an invariant has failed, but the mutant itself: {violation}"
    if slow.ALL in os.environ:
        assert outcome(scenario) == "", "it fails without the mistake, too"
