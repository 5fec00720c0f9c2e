"""The search that takes equals for interchangeable visits every state that the search without it visits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.bounds import Bounds
from tests.model.explorer import explore
from tests.model.state import Left, World
from tests.model.symmetry import orbit

BOUNDS = {
    "one-promotion": Bounds(Left(publishes=1, claims=1)),
    "a-loss": Bounds(Left(publishes=1, losses=1)),
    "a-crash": Bounds(Left(crashes=1, losses=1)),
    "a-lost-disk": Bounds(Left(claims=1, disks=1), 4, listed=3, spare=True),
}


def _visited(bounds: Bounds) -> set[World]:
    cluster, start = bounds.begin()
    groups = ("bc",)
    found: set[World] = set()
    result = explore(cluster, start, look=lambda world: found.add(orbit(world, groups)))
    assert result.complete and not result.fault
    return found


@pytest.mark.parametrize("name", BOUNDS)
def test_no_state_is_missed(name: str) -> None:
    all_of_them = _visited(BOUNDS[name])
    assert _visited(replace(BOUNDS[name], symmetric=True)) == all_of_them
