"""Small spaces are clean, and every planted mistake is found.  All spaces: `make model`."""

from __future__ import annotations

import pytest

from tests.model.explorer import explore
from tests.model.mistakes import MISTAKES
from tests.model.spaces import SMALL

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


@pytest.mark.parametrize("name", [name for name, mistake in MISTAKES.items() if mistake.bounds.listed])
def test_only_a_broker_that_enters_shows_it(name: str) -> None:
    with MISTAKES[name].apply():
        result = explore(*SMALL["one-promotion"].begin(), MOST)
    assert not result.fault, result.schedule
