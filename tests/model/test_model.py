"""Small spaces are clean, and every planted mistake is found.  All spaces: `make model`."""

from __future__ import annotations

import pytest

from tests.model.explorer import explore
from tests.model.mistakes import MISTAKES
from tests.model.spaces import HOLES, SMALL

MOST = 60_000


@pytest.mark.parametrize("name", SMALL)
def test_a_small_space_is_clean(name: str) -> None:
    result = explore(*SMALL[name].begin(), MOST)
    assert not result.fault, result.schedule
    assert result.complete


@pytest.mark.parametrize("name", MISTAKES)
def test_a_broken_rule_is_found(name: str) -> None:
    mistake = MISTAKES[name]
    with mistake.apply():
        broken = explore(*mistake.bounds.begin(), MOST)
    assert broken.fault.startswith(("lost:", "one:", "back:")), broken.fault
    # Without it the space is clean as far as the search has come.
    right = explore(*mistake.bounds.begin(), min(broken.states + 100, 5000))
    assert not right.fault, right.schedule


def test_the_hole_shows() -> None:
    """A pair with a registry: the primary restarts while the removal of the other one is on record, not in force."""
    result = explore(*HOLES["registry-pair-crash"].begin(), MOST)
    assert result.fault == "lost: message 0 was confirmed by a, a of epoch 2 does not have it"
