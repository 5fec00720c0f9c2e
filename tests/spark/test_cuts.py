"""Whose time it is: cuts begin before the failure may have happened, and do not overlap."""

from __future__ import annotations

from spark_jobs.solve.bounds import Bound, Phase
from spark_jobs.solve.incidents import GAP, Incident
from spark_jobs.solve.ordinary import Cause
from spark_jobs.solve.reconstruct import BEFORE, FOREVER, cuts

SECOND = 1_000_000


def incident(begin: int, end: int | None) -> Incident:
    """Of a client alone; times in s."""
    until = None if end is None else end * SECOND
    return Incident(
        "k", outages=[{"client": f"c{begin}", "begin": begin * SECOND, "end": until}], cause=Cause("no-failover")
    )


def of(*given: Incident, alive: dict[int, int] | None = None) -> list[tuple[int, int]]:
    """`alive`: number of an incident → last sign of life in s."""
    fault = {
        number: Phase("fault", Bound(at * SECOND, at * SECOND, at * SECOND)) for number, at in (alive or {}).items()
    }
    return cuts(given, {one.id: [fault[number]] if number in fault else [] for number, one in enumerate(given)})


def test_it_begins_before_and_ends_with_the_incident() -> None:
    assert of() == []
    assert of(incident(1000, 1010)) == [(1000 * SECOND - BEFORE, 1010 * SECOND + 1)]


def test_it_begins_before_the_last_sign_of_life_if_that_is_near() -> None:
    assert of(incident(1000, 1010), alive={0: 990})[0][0] == 990 * SECOND - BEFORE
    assert of(incident(1000, 1010), alive={0: 1})[0][0] == 1000 * SECOND - GAP - BEFORE


def test_two_do_not_overlap() -> None:
    first, second = of(incident(1000, 1010), incident(1012, 1020))
    assert first[1] == second[0] == 1010 * SECOND + 1
    first, second = of(incident(1000, 1050), incident(1012, 1020))
    assert first[1] == second[0] == 1012 * SECOND


def test_what_has_not_ended_goes_on_until_the_next() -> None:
    assert of(incident(1000, None)) == [(1000 * SECOND - BEFORE, FOREVER)]
    first, second = of(incident(1000, None), incident(2000, 2010))
    assert first[1] == second[0] == 2000 * SECOND
