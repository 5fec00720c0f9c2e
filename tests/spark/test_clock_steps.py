"""Steps: seen by a node's own two clocks, or only because observations contradict each other."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_jobs.clocks.estimate import solve
from spark_jobs.clocks.pairs import Observation
from spark_jobs.clocks.steps import steps_of
from tests.spark.clock_world import BEGIN, HOUR, SECOND, Clock, World, messages
from tests.spark.test_clock_bounds import misses
from tests.support.slow import few

NTP = Clock(offset=30_000, ppm=20, steps=((60 * SECOND, -2 * SECOND),))


def three(stepping, seed=1, count=900):
    clocks = {"a": Clock(), "b": stepping, "c": Clock(offset=-45_000, ppm=-35)}
    return World(clocks, messages(Random(seed), list(clocks), count, 120))


def readings(world, node, boot="boot", every=SECOND // 2, seconds=120, late=None):
    """Rows with both clocks; `late` (index, us): one look at the wall clock came late."""
    rows = []
    for number, t in enumerate(range(0, seconds * SECOND, every)):
        row = world.event(node, t, ts_mono=5_000_000 + t, boot_id=boot)
        if late and number == late[0]:
            row["ts_wall"] += late[1]
        rows.append(row)
    return rows


def rows_of(clocks, node):
    return [row for row in clocks.rows() if row["node"] == node]


def test_a_step_of_ntp_in_the_middle_is_split_by_the_nodes_own_clocks():
    world = three(NTP)
    own = readings(world, "b")
    solved = solve(world.observations(), own, reference="a")
    before, behind = rows_of(solved, "b")
    assert abs(before["offset_us"] - 30_000) <= before["err_us"] < 20_000
    assert abs(behind["offset_us"] + 1_970_000) <= behind["err_us"] < 20_000
    assert "wall against monotonic: step of -2.000 s" in behind["notes"]
    for row in own:  # between the two also where wall times repeat: CLOCK_MONOTONIC tells
        truth = world.clocks["a"].exact(row["ts_mono"] - 5_000_000)
        _, lo, hi = solved.correct(row)
        assert lo <= truth <= hi and hi - lo < 40_000


def test_a_row_without_mono_may_be_on_either_side_where_wall_times_repeat():
    world = three(NTP)
    solved = solve(world.observations(), readings(world, "b"), reference="a")
    assert misses(world, solved, range(50 * SECOND, 70 * SECOND, SECOND // 4)) == []
    _, lo, hi = solved.correct(world.event("b", 59 * SECOND))
    assert hi - lo > 1.9 * SECOND
    _, lo, hi = solved.correct(world.event("b", 50 * SECOND))
    assert hi - lo < 40_000


@pytest.mark.parametrize("jump", [-2 * SECOND, 2 * SECOND, 350_000, -1_200_000, HOUR])
@pytest.mark.parametrize("seed", range(4))
def test_a_step_is_found_by_contradictions_alone(jump, seed):
    world = three(Clock(offset=30_000, ppm=20, steps=((60 * SECOND, jump),)), seed)
    solved = solve(world.observations())
    assert {item.node for item in solved.breaks} == {"b"}
    segments = rows_of(solved, "b")
    assert len(segments) == 2 and not solved.dropped
    assert f"step of {jump / 1e6:+.2f}"[:-1] in segments[1]["notes"]
    assert misses(world, solved, range(0, 120 * SECOND, SECOND // 3)) == []


def test_a_step_of_hours_is_told_as_a_change_of_zone():
    world = three(Clock(steps=((60 * SECOND, -HOUR),)))
    assert "(a change of its zone)" in rows_of(solve(world.observations(), reference="a"), "b")[1]["notes"]


def test_of_two_nodes_it_is_not_known_whose_step_it_was():
    clocks = {"a": Clock(), "b": NTP}
    world = World(clocks, messages(Random(3), ["a", "b"], 600, 120))
    solved = solve(world.observations(), reference="a")
    assert [item.node for item in solved.breaks] == ["b"]
    assert "it may as well have been a" in rows_of(solved, "b")[1]["notes"]


def test_steps_of_two_nodes_are_both_found():
    clocks = {
        "a": Clock(),
        "b": NTP,
        "c": Clock(offset=-45_000, steps=((90 * SECOND, 700_000),)),
        "d": Clock(offset=10_000, ppm=-60),
    }
    world = World(clocks, messages(Random(8), list(clocks), 1_500, 120))
    solved = solve(world.observations(), reference="a")
    assert sorted(item.node for item in solved.breaks) == ["b", "c"]
    assert misses(world, solved, range(0, 120 * SECOND, SECOND)) == []


def test_a_reference_that_was_set_is_not_the_measure():
    clocks = {"a": NTP, "b": Clock(), "c": Clock(offset=-45_000)}
    world = World(clocks, messages(Random(8), list(clocks), 900, 120))
    solved = solve(world.observations(), reference="a")
    assert [item.node for item in solved.breaks] == ["a"]
    assert solved.reference in ("b", "c")
    assert misses(world, solved, range(0, 120 * SECOND, SECOND)) == []


@given(st.integers(0, 10**6), st.integers(20, 100), st.sampled_from([-3, -1, 1, 4]))
@example(34, 20, -3)  # the stepped node itself told when it was
@settings(max_examples=few(20))
def test_whatever_was_stepped_the_truth_is_inside(seed, at, seconds):
    world = three(Clock(offset=30_000, ppm=20, steps=((at * SECOND, seconds * SECOND),)), seed, 500)
    solved = solve(world.observations(), reference="a")
    assert misses(world, solved, range(0, 120 * SECOND, SECOND // 2)) == []


def test_a_wrong_pair_is_dropped_and_told():
    world = three(Clock(offset=30_000, ppm=20))
    wrong = Observation("a", "b", BEGIN + 60 * SECOND, -3 * SECOND, 1, "initiate")
    solved = solve([*world.observations(), wrong], reference="a")
    assert solved.breaks == ()
    assert len(solved.dropped) == 1 and solved.dropped[0].startswith("initiate from a at ")
    assert misses(world, solved, range(0, 120 * SECOND, SECOND)) == []


def test_one_late_reading_is_no_step():
    world = three(Clock(offset=30_000, ppm=20))
    assert steps_of(readings(world, "b", late=(50, 40_000))) == []
    assert steps_of(readings(world, "b", late=(50, 4_000))) == []
    assert len(steps_of(readings(three(NTP), "b", late=(121, 40_000)))) == 1  # just behind the step, too


def test_a_step_says_between_which_rows_it_was():
    (found,) = steps_of(readings(three(NTP), "b"))
    assert found.jump is not None and abs(found.jump + 2_000_000) <= 200
    assert found.mono == (5_000_000 + 59_500_000, 5_000_000 + 60_000_000)
    assert found.lo < found.hi


def test_a_reboot_begins_a_new_segment():
    world = three(Clock(steps=((60 * SECOND, 5 * SECOND),)))
    rows = [
        row | ({"boot_id": "second", "ts_mono": row["ts_mono"] - 60 * SECOND} if index >= 120 else {})
        for index, row in enumerate(readings(world, "b"))
    ]
    (found,) = steps_of(rows)
    assert found.why == "reboot"
    solved = solve(world.observations(), rows, reference="a")
    first, second = rows_of(solved, "b")
    assert abs(first["offset_us"]) <= first["err_us"] and abs(second["offset_us"] - 5 * SECOND) <= second["err_us"]
    assert "reboot: +5.0" in second["notes"]


def test_two_machines_of_one_name_make_no_breaks():
    world = three(Clock())
    rows = readings(world, "b", "one") + readings(world, "b", "other", seconds=60)
    assert steps_of(rows) == []


def test_clocks_that_differ_on_one_kernel_are_compared_by_its_monotonic_clock():
    """Containers of one machine (or a faked wall clock) need no messages."""
    from tests.spark.pairs_judge import observations

    world = World({"a": Clock(), "b": Clock(offset=-1_500_000)}, [])
    rows = readings(world, "a") + readings(world, "b")
    solved = solve(observations(rows), rows, reference="a")
    (row,) = rows_of(solved, "b")
    assert abs(row["offset_us"] + 1_500_000) <= row["err_us"] < 30_000
    assert set(row["evidence"]) == {"kernel"}


def test_a_side_of_a_step_that_nothing_bounds_is_unknown():
    """One message before the step and only one way: all times of the node may be before it."""
    sent = [(SECOND, SECOND + 300, "a", "b"), (2 * SECOND, 2 * SECOND + 300, "a", "b")]
    later = [item for item in messages(Random(2), ["a", "b"], 200, 120) if item[0] > 60 * SECOND]
    world = World({"a": Clock(), "b": Clock(steps=((50 * SECOND, HOUR),))}, sent + later)
    solved = solve(world.observations(), reference="a")
    assert misses(world, solved, range(0, 120 * SECOND, SECOND)) == []


def test_a_contradiction_may_need_a_whole_circle_of_nodes():
    """Messages one way round: no pair contradicts itself, but all together would run in less than no time."""
    ring = {("a", "b"), ("b", "c"), ("c", "a")}
    world = three(Clock(offset=30_000), 6, 1_500)
    world = World(world.clocks, [item for item in world.messages if item[2:] in ring])
    wrong = Observation("a", "b", BEGIN + 60 * SECOND, -SECOND, 1, "initiate")
    solved = solve([*world.observations(), wrong], reference="a")
    assert solved.breaks or solved.dropped
    assert misses(world, solved, range(0, 120 * SECOND, SECOND)) == []
