"""Quantiles, survival and comparisons: published examples, plain simulations, and how often they cry wolf."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.fleet.compare import Value, difference, holm, scores, trend
from spark_jobs.fleet.quantiles import SMALLEST, firm, interval, quantile
from spark_jobs.fleet.survival import curve, reached

SIX_MP = [(6, True)] * 3 + [
    *((6, False), (7, True), (9, False), (10, True), (10, False), (11, False), (13, True), (16, True), (17, False)),
    *(
        (19, False),
        (20, False),
        (22, True),
        (23, True),
        (25, False),
        (32, False),
        (32, False),
        (34, False),
        (35, False),
    ),
]
"""Weeks of remission under 6-MP (Freireich et al. 1963), the textbooks' example of Kaplan and Meier's estimate."""


def exact(*values: float, stratum: str = "") -> list[Value]:
    return [Value(value, value, stratum) for value in values]


# ---- quantiles ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), st.sampled_from([0.0, 0.5, 0.9, 0.95, 0.99, 1.0]))
def test_quantiles_are_those_of_everybody_else(values: list[int], share: float) -> None:
    import numpy

    assert quantile(sorted(values), share) == pytest.approx(float(numpy.quantile(values, share)), rel=1e-12)


def test_quantiles_are_those_of_sql(duck: DuckEngine) -> None:
    values = random.Random(4).sample(range(10**7), 40)
    duck.table("given", "v bigint", [{"v": value} for value in values])
    (row,) = duck.rows("select quantile_cont(v, 0.95) as p95, quantile_cont(v, 0.99) as p99 from given")
    assert row == {name: pytest.approx(quantile(sorted(values), int(name[1:]) / 100)) for name in ("p95", "p99")}


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_the_interval_is_that_of_values_drawn_again(share: float) -> None:
    """The same by really drawing n of n, 4000 times."""
    chance = random.Random(1)
    values = sorted(chance.expovariate(1.0) for _ in range(40))
    drawn = sorted(quantile(sorted(chance.choices(values, k=40)), share) for _ in range(4000))
    found = interval(values, values, share, seed=3, resamples=4000)
    spread = drawn[3899] - drawn[100]
    assert found == pytest.approx((drawn[100], drawn[3899]), abs=spread / 10)


def test_the_interval_takes_in_the_clocks() -> None:
    values = list(range(1000, 2000, 25))
    narrow = interval(values, values, 0.5, 1, 500)
    wide = interval([value - 100 for value in values], [value + 300 for value in values], 0.5, 1, 500)
    assert narrow is not None and wide == (narrow[0] - 100, narrow[1] + 300)


def test_of_too_few_values_nothing_is_said() -> None:
    assert interval([1] * (SMALLEST - 1), [1] * (SMALLEST - 1), 0.5, 1, 100) is None
    assert interval([1] * SMALLEST, [1] * SMALLEST, 0.5, 1, 100) == (1, 1)
    assert [firm(number, 0.95) for number in (19, 20)] == [False, True]


# ---- survival -------------------------------------------------------------------------------------------------------


def test_the_textbooks_example() -> None:
    steps = curve(SIX_MP)
    assert [step.at for step in steps] == [6, 7, 10, 13, 16, 22, 23]
    assert [round(step.open, 4) for step in steps] == [0.8571, 0.8067, 0.7529, 0.6902, 0.6275, 0.5378, 0.4482]
    assert [step.at_risk for step in steps] == [21, 17, 15, 12, 11, 7, 6]
    # R: survfit(Surv(time, status) ~ 1, conf.type = "log-log")
    assert (steps[0].low, steps[0].high) == pytest.approx((0.6197, 0.9516), abs=1e-4)
    assert (steps[-1].low, steps[-1].high) == pytest.approx((0.1881, 0.6801), abs=1e-4)
    assert (reached(steps, 0.5), reached(steps, 0.95)) == (23, None)


def test_without_open_ones_it_is_the_share_that_is_left() -> None:
    assert [(step.at, step.open) for step in curve([(2, True), (1, True), (4, True), (4, True)])] == [
        (1, 0.75), (2, 0.5), (4, 0.0),
    ]  # fmt: skip
    assert curve([]) == [] and curve([(5, False)]) == []


def test_leaving_open_ones_out_would_flatter() -> None:
    over, open_ = [(at, True) for at in (10, 20, 30, 40)], [(15, False), (25, False)]
    assert reached(curve(over), 0.5) == 20
    assert reached(curve(over + open_), 0.5) == 30


# ---- comparisons ----------------------------------------------------------------------------------------------------


def test_scores_count_what_is_certain() -> None:
    assert scores(exact(1, 2, 3)) == [-2, 0, 2]
    assert scores([Value(1, 5), Value(4, 9), Value(6, 7)]) == [-1, 0, 1]
    never = Value(4)  # took 4 at least
    assert scores([*exact(3, 5), never]) == [-2, 1, 1]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), min_size=1, max_size=12))
def test_scores_are_those_of_all_pairs(values: list[tuple[int, int]]) -> None:
    bounded = [Value(low, low + width) for low, width in values]
    wanted = [sum((x.low > y.high) - (x.high < y.low) for y in bounded) for x in bounded]
    assert scores(bounded) == wanted


def test_a_regression_is_found() -> None:
    chance = random.Random(2)
    before = exact(*(chance.gauss(300, 40) for _ in range(15)))
    after = exact(*(chance.gauss(450, 40) for _ in range(15)))
    found = difference(before, after, seed=1)
    assert found is not None and found[0] < 0.001 and found[1] == 1
    back = difference(after, before, seed=1)
    assert back is not None and back[1] == -1


def test_p_is_that_of_all_draws() -> None:
    """Three and three, apart: of the 20 ways to choose, 2 are as extreme."""
    found = difference(exact(1, 2, 3), exact(4, 5, 6), seed=1, draws=20_000)
    assert found is not None and found[0] == pytest.approx(0.1, abs=0.02)


def test_it_does_not_cry_wolf() -> None:
    """Of 400 pairs of groups without a difference, at most 5 % and what chance adds (3 sigma) may be called different;
    skewed values, kinds of incident in other shares than before, and some that never ended."""
    chance = random.Random(5)
    alarms = 0
    for number in range(400):
        sides: tuple[list[Value], list[Value]] = ([], [])
        for side, share in zip(sides, (0.3, 0.7), strict=True):
            for _ in range(20):
                stratum = "partition" if chance.random() < share else "kill"
                at = chance.lognormvariate(2 if stratum == "partition" else 0, 1)
                side.append(Value(at, at, stratum) if at < 20 else Value(20, math.inf, stratum))
        found = difference(*sides, number, 1000)
        alarms += found is not None and found[0] <= 0.05
    assert alarms <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05 * 0.95)


def test_without_kinds_of_incident_it_would_cry_wolf() -> None:
    """What the strata are for: more partitions than before, each as fast as before."""
    chance = random.Random(6)
    times = {"kill": lambda: chance.gauss(200, 20), "partition": lambda: chance.gauss(2300, 50)}

    def side(kills: int, partitions: int, strata: bool) -> list[Value]:
        names = ["kill"] * kills + ["partition"] * partitions
        return [Value(at, at, name if strata else "") for name in names for at in [times[name]()]]

    mixed = difference(side(15, 5, False), side(5, 15, False), 1)
    assert mixed is not None and mixed[0] < 0.05
    apart = difference(side(15, 5, True), side(5, 15, True), 1)
    assert apart is not None and apart[0] > 0.05
    assert difference(side(10, 0, True), side(0, 10, True), 1) is None


def test_a_difference_within_the_clocks_error_is_none() -> None:
    """The same shift, known to 1 ms, and to 200 ms."""

    def group(middle: int, error: int) -> list[Value]:
        return [Value(middle + place - error, middle + place + error) for place in range(0, 100, 5)]

    for error, shown in ((1, True), (200, False)):
        found = difference(group(1000, error), group(1150, error), 1)
        assert found is not None and (found[0] < 0.01) == shown


def test_a_trend() -> None:
    chance = random.Random(8)
    assert trend([Value(200 - 4 * n + chance.gauss(0, 20)) for n in range(30)], 1)[0] > 0.05  # no upper bounds: unknown
    p, direction = trend(exact(*(200 - 4 * n + chance.gauss(0, 20) for n in range(30))), 1)
    assert p < 0.001 and direction == -1
    p, _ = trend(exact(*(chance.gauss(200, 20) for _ in range(30))), 1)
    assert p > 0.05


def test_holm_as_in_the_literature() -> None:
    """R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")"""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == [] and holm([0.7, 0.8]) == [1.0, 1.0]


def test_the_same_seed_gives_the_same() -> None:
    chance = random.Random(9)
    sides = [exact(*(chance.gauss(0, 1) for _ in range(12))) for _ in range(2)]
    assert difference(sides[0], sides[1], 7) == difference(sides[0], sides[1], 7)
    shuffled = chance.sample(sides[1], 12)
    assert difference(sides[0], shuffled, 7) == pytest.approx(difference(sides[0], sides[1], 7), abs=0.02)
    values = [value.low for value in sides[0]]
    assert statistics.median(values) == pytest.approx(quantile(sorted(values), 0.5))
