"""Times, durations and errors as a person writes them; ticks of the axis; places of the numbers over it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.clocks.segments import FOREVER, NEVER
from spark_jobs.report import canvas, headline, sums, units
from spark_jobs.report.canvas import Axis
from spark_jobs.report.elements import gap
from spark_jobs.report.units import SECOND


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "unknown"),
        (0, "0 s"),
        (48, "48 µs"),
        (999, "999 µs"),
        (1_000, "1 ms"),
        (172_000, "172 ms"),
        (172_400, "172 ms"),
        (65_605, "65.6 ms"),
        (999_499, "999 ms"),
        (999_501, "1 s"),
        (2_280_000, "2.28 s"),
        (99_949_999, "99.9 s"),
        (99_950_000, "1 min 40 s"),
        (250 * SECOND, "4 min 10 s"),
        (600 * SECOND, "10 min"),
        (7_200 * SECOND, "2 h"),
        (90 * 60 * SECOND, "90 min"),
        (150 * 60 * SECOND, "2 h 30 min"),
        (50 * 3600 * SECOND, "2 d 2 h"),
        (-900_000, "-900 ms"),
    ],
)
def test_a_duration_has_the_unit_of_a_person(us, text):
    assert units.duration(us) == text


@pytest.mark.parametrize(
    ("us", "low", "high", "text"),
    [
        (172_000, 164_000, 180_000, "172 ms ±8 ms"),
        (2_300_146, 2_297_673, 2_302_621, "2.300 s ±2.5 ms"),
        (3_500_000, 3_486_000, 3_514_000, "3.5 s ±14 ms"),
        (236_000, 221_000, 245_000, "236 ms +9 ms / -15 ms"),
        (85_000, 85_000, 85_000, "85 ms"),
        (85_000, None, None, "85 ms error unknown"),
        (85_000, -(1 << 62), 1 << 62, "85 ms error unknown"),
        (None, None, None, "unknown"),
    ],
)
def test_a_duration_is_as_exact_as_its_error(us, low, high, text):
    assert units.with_error(us, low, high) == text


@given(st.integers(0, 10**15))
def test_a_rough_error_is_never_less(us):
    """Two figures, rounded up: what is stated holds."""
    text = units.rough(us)
    value, unit = text.split()[:2]
    size = {"µs": 1, "ms": 10**3, "s": 10**6}.get(unit)
    if size is not None and us < 9 * 10**7:
        assert float(value) * size >= us - 1e-6
        assert float(value) * size <= us * 1.1 + 1


@given(st.integers(0, 4 * 10**15), st.integers(1, 6))
def test_a_time_is_cut_not_rounded(us, digits):
    second, rest = divmod(us, SECOND)
    whole = datetime.fromtimestamp(second, UTC).strftime("%H:%M:%S")
    assert units.clock(us, digits) == f"{whole}.{f'{rest:06}'[:digits]}"


def test_a_moment_says_date_and_zone():
    assert units.moment(1_780_315_200_900_262) == "2026-06-01 12:00:00.900 UTC"
    assert units.moment(None) == "unknown"


def test_a_bound_that_is_no_date_is_unknown():
    """A gap may begin with a row of which nothing says when it was at the earliest."""
    for bound in (NEVER, FOREVER, units.LAST, -1):
        assert units.moment(bound) == units.clock(bound) == units.clock(bound, 0) == units.date(bound) == "unknown"
    assert units.moment(units.LAST - 1) == "9999-12-31 23:59:59.999 UTC"
    assert gap({"kind": "gap", "text": "nothing", "begin": NEVER, "end": 1_780_315_200_900_262}) == (
        "nothing (unknown to 12:00:00.900)"
    )
    assert gap({"kind": "clock-unknown", "text": "no clock", "begin": NEVER, "end": FOREVER}) == "no clock"


@given(st.integers(0, 4 * 10**15), st.integers(1_000, 10**13), st.floats(200, 1000))
def test_ticks_are_round_inside_and_apart(begin, length, width):
    axis = Axis(begin, begin + length, 10.0, 10.0 + width)
    ticks = axis.ticks(80)
    assert all(begin <= at <= begin + length for at, _ in ticks)
    places = [axis.x(at) for at, _ in ticks]
    assert all(later - x >= 79 for x, later in pairwise(places))
    assert len({label for _, label in ticks}) == len(ticks) or length > 86_400 * SECOND


@given(st.lists(st.floats(0, 1000), max_size=40).map(sorted))
def test_numbers_are_apart_in_order_and_moved_only_if_they_must(places):
    found = canvas.spread(places, 17, 9, 991)
    assert len(found) == len(places)
    assert all(later - x >= 16.999 for x, later in pairwise(found))
    inside = [place for place in places if 9 <= place <= 991]
    if len(inside) == len(places) and all(b - a >= 17 for a, b in pairwise(places)):
        assert found == pytest.approx(places)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1, max_size=60), st.integers(3, 50))
def test_a_thinned_lane_keeps_its_peak_and_its_end(parts, most):
    rows = [{"client_id": str(n), "ts_begin": a, "ts_end": a + b} for n, (a, b) in enumerate(parts)]
    steps = sums.steps(rows)
    kept = sums.thinned(steps, most)
    assert len(kept) <= max(most, 1)
    assert max(down for _, down in kept) == max(down for _, down in steps)
    assert kept[-1] == steps[-1]
    assert kept[-1][1] == 0


def incidents(*verdicts: str | None, kind: str = "crash") -> dict[str, Any]:
    rows = [{"begin": 1_780_315_200_000_000, "type": kind, "dual": verdict} for verdict in verdicts]
    return {"incidents": rows, "messages": None}


def test_the_worst_is_said_first() -> None:
    said = headline.summary(incidents("excluded", None, "certain", "excluded", "possible"))
    assert said[0] == "Two primaries at once: YES for 1 of 5, possible for 1, not known for 1, no for 2."
    assert headline.summary(incidents("excluded", None))[-1] == "Two primaries at once: not known for 1 of 2, no for 1."
    assert headline.summary(incidents("excluded"))[-1] == "Two primaries at once: no."
    lost = incidents("excluded") | {"messages": {"total": {"confirmed": 9, "attempts": 9, "lost": 2}}}
    assert headline.summary(lost)[0].startswith("Of 9 confirmed messages: 2 lost")
