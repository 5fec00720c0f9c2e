"""The truth is inside of what is stated, always; and what is stated gets sharper with more observations."""

import re
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.clocks.band import ClockBand, lower_hull
from spark_jobs.clocks.estimate import solve
from spark_jobs.clocks.pairs import Observation
from spark_jobs.clocks.segments import FOREVER, NEVER, Clocks
from tests.spark.clock_world import BEGIN, HOUR, SECOND, Clock, World, messages, plain_clocks


def made_world(clocks, seed, count=200, seconds=120):
    named = {f"n{index}": clock for index, clock in enumerate(clocks)}
    return World(named, messages(Random(seed), list(named), count, seconds))


def misses(world, clocks, moments):
    """Rows whose true time on the reference's clock is outside of the stated bounds."""
    reference = world.clocks[clocks.reference]
    found = []
    for t in moments:
        for node in world.clocks:
            est, lo, hi = clocks.correct(world.event(node, t))
            assert lo <= est <= hi
            if not lo <= reference.exact(t) <= hi:
                found.append((node, t, lo - reference.exact(t), reference.exact(t) - hi))
    return found


@given(st.lists(plain_clocks(), min_size=2, max_size=4), st.integers(0, 10**6), st.integers(1, 300))
@settings(max_examples=60)
def test_the_truth_is_inside_of_the_bounds_during_the_observations_and_outside_of_them(clocks, seed, count):
    world = made_world(clocks, seed, count)
    solved = solve(world.observations())
    assert solved.dropped == () and solved.breaks == ()
    seen = [node for node in world.clocks if node in solved.segments]
    reduced = World({node: world.clocks[node] for node in seen}, world.messages)
    assert misses(reduced, solved, [*range(0, 120 * SECOND, 7 * SECOND), -60 * SECOND, 300 * SECOND]) == []


def test_that_test_can_fail():
    """A clock that is worse than the stated greatest drift is not inside of the bounds."""
    world = made_world([Clock(), Clock(offset=1_000, ppm=90)], 1)
    narrow = solve(world.observations(), reference="n0", max_drift_ppm=30)
    assert narrow.breaks or narrow.dropped or misses(world, narrow, range(0, 300 * SECOND, 7 * SECOND))


@given(st.integers(0, 10**6), st.floats(-90, 90))
@settings(max_examples=25)
def test_more_observations_narrow_the_bound(seed, ppm):
    random = Random(seed)
    clocks = {"a": Clock(), "b": Clock(offset=250_000, ppm=ppm)}
    sent = messages(random, ["a", "b"], 400, 120)
    ends = [(0, 0 + 2_000_000, "a", "b"), (0, 2_000_000, "b", "a")]
    ends += [(119 * SECOND, 121 * SECOND, "a", "b"), (119 * SECOND, 121 * SECOND, "b", "a")]
    widths = []
    for count in (0, 40, 400):
        world = World(clocks, ends + sent[:count])
        _, lo, hi = solve(world.observations(), reference="a").correct(world.event("b", 60 * SECOND))
        widths.append(hi - lo)
    # knots and the kept ones of a bucket move a little: the line between two knots is not quite the bound
    assert widths[2] <= widths[1] * 1.05 and widths[1] <= widths[0]
    assert widths[2] < widths[0] / 3


def test_offset_and_drift_are_those_of_the_clock():
    world = made_world([Clock(), Clock(offset=350_000, ppm=60)], 5, 2_000, 600)
    (row,) = [row for row in solve(world.observations(), reference="n0").rows() if row["node"] == "n1"]
    assert abs(row["offset_us"] - 350_000) <= row["err_us"]
    assert row["err_us"] < 5_000
    assert row["drift_ppm"] == pytest.approx(60, abs=5)
    assert row["evidence"]["clock"] == "2000"


@given(st.lists(plain_clocks(), min_size=3, max_size=3), st.integers(0, 10**6), st.integers(-3_000_000, 3_000_000))
@settings(max_examples=30)
def test_an_affine_warp_of_a_clock_moves_its_events_by_less_than_the_stated_error(clocks, seed, shift):
    world = made_world(clocks, seed)
    name = "n1"
    warped = replace(world.clocks[name], offset=world.clocks[name].offset + shift, ppm=world.clocks[name].ppm + 9)
    other = World({**world.clocks, name: warped}, world.messages)
    one = solve(world.observations(), reference="n0")
    two = solve(other.observations(), reference="n0")
    for t in range(0, 120 * SECOND, 11 * SECOND):
        est, lo, hi = one.correct(world.event(name, t))
        moved = two.correct(other.event(name, t))[0]
        assert abs(moved - est) <= max(est - lo, hi - est) + SECOND * (warped.resolution == SECOND)


def test_times_are_bounded_through_a_third_node():
    """a and c never talk; b talks with both."""
    world = made_world([Clock(), Clock(offset=-40_000), Clock(offset=900_000)], 3, 600)
    world = World(world.clocks, [item for item in world.messages if "n1" in item[2:]])
    solved = solve(world.observations(), reference="n0")
    assert misses(world, solved, range(0, 120 * SECOND, SECOND)) == []
    _, lo, hi = solved.correct(world.event("n2", 60 * SECOND))
    assert hi - lo < 20_000


def test_a_circle_of_one_way_messages_is_enough():
    """No pair has messages both ways, yet every offset is bounded."""
    ring = {("n0", "n1"), ("n1", "n2"), ("n2", "n0")}
    world = made_world([Clock(), Clock(offset=123_456), Clock(offset=-50_000)], 9, 600)
    world = World(world.clocks, [item for item in world.messages if item[2:] in ring])
    solved = solve(world.observations(), reference="n0")
    assert misses(world, solved, range(0, 120 * SECOND, SECOND)) == []
    assert all(row["err_us"] is not None and row["err_us"] < 50_000 for row in solved.rows())


def test_a_node_without_connection_is_unknown_and_never_exact():
    world = made_world([Clock(), Clock(offset=7_000)], 2)
    lonely = {"node": "alone", "kind": "state", "ts_wall": BEGIN, "ts_res": 1}
    solved = solve(world.observations(), [lonely])
    assert solved.correct(lonely) == (BEGIN, NEVER, FOREVER)
    assert solved.correct({"node": "never heard of", "ts_wall": BEGIN}) == (BEGIN, NEVER, FOREVER)
    (row,) = [row for row in solved.rows() if row["node"] == "alone"]
    assert row["offset_us"] is None and row["err_us"] is None and row["drift_ppm"] is None
    assert row["notes"].startswith("unknown")


def test_one_way_only_bounds_one_side():
    solved = solve([Observation("a", "b", BEGIN, 5_000, 1, "clock")], reference="a")
    est, lo, hi = solved.correct({"node": "b", "ts_wall": BEGIN + 5_000, "ts_res": 1})
    assert hi == FOREVER and BEGIN - 5 <= lo <= BEGIN  # it was not sent before BEGIN
    assert est == lo
    assert "one side" in solved.rows()[1]["notes"]


def test_a_zone_is_named_with_what_is_left():
    world = made_world([Clock(), Clock(offset=80_000), Clock(offset=HOUR - 120_000)], 4)
    notes = {row["node"]: row["notes"] for row in solve(world.observations(), reference="n0").rows()}
    assert re.fullmatch(r"zone: \+1 h \(the rest is -1(19|20|21) ms\)", notes["n2"])
    assert "zone" not in notes["n0"] + notes["n1"]


def test_the_reference_is_one_of_the_majority_about_the_hour():
    """The busiest node has the wrong zone: the others are right."""
    world = made_world([Clock(), Clock(offset=-HOUR * 11 // 2), Clock(offset=5_000)], 4, 900)
    kept = [item for item in world.messages if "n1" in item[2:] or item[0] % 5 == 0]
    solved = solve(World(world.clocks, kept).observations())
    assert solved.reference in ("n0", "n2")
    assert {row["node"]: row["notes"][:12] for row in solved.rows()}["n1"] == "zone: -5.5 h"


def test_an_unknown_reference_is_refused():
    with pytest.raises(ValueError, match=r"'nobody'.*known: a, b"):
        solve([Observation("a", "b", BEGIN, 1, 1, "clock")], reference="nobody")


def test_nothing_is_known_from_nothing():
    assert solve([]).rows() == []


@given(st.lists(plain_clocks(), min_size=2, max_size=4), st.integers(0, 10**6), st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_the_order_of_the_input_plays_no_part(clocks, seed, random):
    world = made_world(clocks, seed)
    found = world.observations()
    shuffled = list(found)
    random.shuffle(shuffled)
    assert solve(shuffled).rows() == solve(found).rows()


def test_rows_give_the_clocks_back():
    world = made_world([Clock(), Clock(offset=350_000, ppm=60)], 5)
    lonely = {"node": "alone", "ts_wall": BEGIN, "ts_res": 1}
    solved = solve(world.observations(), [lonely])
    again = Clocks.from_rows(reversed(solved.rows()))
    assert again.reference == solved.reference and again.rows() == solved.rows()
    for event in (lonely, world.event("n0", 5 * SECOND), world.event("n1", 70 * SECOND)):
        assert [abs(a - b) <= 1 for a, b in zip(again.correct(event), solved.correct(event), strict=True)] == [True] * 3


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(-1000, 1000)), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), min_size=1, max_size=30),
    st.integers(-500, 1500),
)
def test_a_band_is_what_the_lines_of_a_grid_reach(lowers, gaps, t):
    """Against trying many lines: none that fits is outside, and no bound is kept that no line comes near to."""
    steep, scale, fine = 2.0, 10**6, 2.0 / 200
    uppers = [(x, max(low for _, low in lowers) + gap) for x, gap in gaps]
    above_all, below_all = ([(x * scale, y * scale) for x, y in points] for points in (uppers, lowers))
    band = ClockBand.of(above_all, below_all, steep)
    highest, lowest = [], []
    for slope in (fine * step for step in range(-200, 201)):
        above = min(value - slope * x for x, value in uppers)
        below = max(value - slope * x for x, value in lowers)
        if below <= above:
            highest.append(above + slope * t)
            lowest.append(below + slope * t)
    assert band.feasible  # the level line fits
    near = fine * 2_500 + 0.01  # of a line between those of the grid
    assert max(highest) - 1e-6 <= band.upper(t * scale) / scale <= max(highest) + near
    assert min(lowest) - near <= band.lower(t * scale) / scale <= min(lowest) + 1e-6


def test_the_hull_of_points_above_each_other_is_the_lowest():
    assert lower_hull([(1, 5), (1, 3), (0, 0), (2, 0), (1, -1)]) == [(0, 0), (1, -1), (2, 0)]
