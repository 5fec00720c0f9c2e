"""How long a primary waits before it goes on without a lost backup."""

from __future__ import annotations

import pytest

from ha.environment import Outcome
from ha.membership import Member
from ha.safety import Safety
from ha.view import Survey

ANSWERED, REFUSED, SILENT = Outcome.ANSWERED, Outcome.REFUSED, Outcome.SILENT


@pytest.mark.parametrize(
    ("others", "waits"),
    [
        ((ANSWERED, SILENT), False),
        ((REFUSED, REFUSED), False),
        ((REFUSED,), False),
        ((SILENT,), True),
        ((SILENT, SILENT), True),
        # The host of a dead broker proves that we have a network, not that nobody was promoted behind the cut.
        ((REFUSED, SILENT), True),
        ((REFUSED, REFUSED, ANSWERED, SILENT), False),
        ((ANSWERED, SILENT, SILENT, SILENT), True),
    ],
)
def test_a_primary_that_may_be_the_one_cut_off_waits(others: tuple[Outcome, ...], waits: bool) -> None:
    survey = Survey((), {f"host{i}:5672": outcome for i, outcome in enumerate(others)})
    members = [Member("lost", "lost", "host0:5672")]
    assert Safety("manager", (), 2.0).patience(survey, members) == (2.0 if waits else 0.0)
    assert Safety("availability", (), 2.0).patience(survey, members) == 0.0


def test_a_lost_broker_that_could_not_even_be_asked_is_waited_for() -> None:
    assert Safety("manager", (), 2.0).patience(Survey((), {}), [Member("lost")]) == 2.0
