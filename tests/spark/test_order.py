"""One order for all: estimates, causes, contradictions; whatever the order of the input."""

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.clocks.estimate import solve
from spark_jobs.clocks.pairs import Link, Observation, links
from spark_jobs.clocks.segments import FOREVER, NEVER
from spark_jobs.solve.order import ordered
from tests.spark.clock_world import BEGIN, SECOND
from tests.spark.pairs_judge import observations
from tests.spark.parse_lab import lab_events

MS = 1_000
NEAR = solve(
    [Observation("a", "b", BEGIN, 50 * MS, 0, "clock"), Observation("b", "a", BEGIN, 50 * MS, 0, "clock")],
    reference="a",
)
"""b's clock is within 50 ms of a's."""


def row(node, at, kind="state", **more):
    return {"node": node, "ts_wall": BEGIN + at, "ts_res": 1, "kind": kind, "source": "broker"} | more


def names(found):
    return [event["name"] for event in found.events]


def test_an_effect_is_lifted_behind_its_cause():
    cause, effect = row("a", 30 * MS, name="cause"), row("b", 10 * MS, name="effect")
    assert names(ordered([cause, effect], NEAR)) == ["effect", "cause"]
    found = ordered([cause, effect], NEAR, [Link("clock", cause, effect)])
    assert names(found) == ["cause", "effect"] and not found.contradictions
    first, second = found.events
    assert first["ts_est"] <= second["ts_est"]
    assert second["ts_lo"] == first["ts_lo"] == BEGIN + 30 * MS  # a's clock is the reference: it was not earlier
    assert cause == row("a", 30 * MS, name="cause")  # what was given is not changed


def test_a_cause_is_not_later_than_the_latest_effect():
    cause, effect = row("b", 30 * MS), row("a", 10 * MS)
    (first, second) = ordered([cause, effect], NEAR, [Link("clock", cause, effect)]).events
    assert first["node"] == "b"
    assert first["ts_hi"] == second["ts_hi"] == BEGIN + 10 * MS + 1
    assert first["ts_lo"] <= first["ts_est"] <= first["ts_hi"]


def test_an_edge_that_cannot_hold_is_told_and_has_no_effect():
    cause, effect = row("a", 900 * MS, name="cause", file="x", line_no=7), row("b", 0, name="effect")
    found = ordered([cause, effect], NEAR, [Link("clock", cause, effect)])
    assert names(found) == ["effect", "cause"]
    (contradiction,) = found.contradictions
    assert contradiction.by is not None and 840 * MS <= contradiction.by <= 850 * MS
    assert str(contradiction).startswith("state of a (x:7) should be before state of b () (clock), but was at least 84")


def test_a_chain_of_possible_edges_may_be_impossible():
    """b may be up to 50 ms off either way, but not both at once."""
    rows = [row("a", 60 * MS, name="1"), row("b", 15 * MS, name="2"), row("a", 1 * MS, name="3")]
    found = ordered(rows, NEAR, [Link("x", rows[0], rows[1]), Link("y", rows[1], rows[2])])
    assert len(found.contradictions) == 1
    for event in found.events:
        assert event["ts_lo"] <= event["ts_est"] <= event["ts_hi"]


def test_circles_are_cut_and_told():
    rows = [row("b", at, name=str(at)) for at in (1, 2, 3)]
    circle = [Link("x", rows[0], rows[1]), Link("x", rows[1], rows[2]), Link("x", rows[2], rows[0])]
    found = ordered(rows, NEAR, circle)
    assert names(found) == ["1", "2", "3"]
    assert [item.by for item in found.contradictions] == [None]
    assert "circle" in str(found.contradictions[0])


def test_inside_a_process_seq_decides():
    rows = [row("b", at, proc="p", seq=seq, name=str(seq)) for at, seq in ((3, 1), (2, 2), (1, 3))]
    assert names(ordered(rows, NEAR)) == ["1", "2", "3"]
    others = [event | {"proc": event["name"]} for event in rows]
    assert names(ordered(others, NEAR)) == ["3", "2", "1"]


def test_lines_of_one_daemon_keep_their_order_and_lines_of_two_need_not():
    def line(number, pid):
        return row("b", -number, file="x", line_no=number, attrs={"pid": pid}, name=str(number))

    assert names(ordered([line(1, "7"), line(2, "7")], NEAR)) == ["1", "2"]
    assert names(ordered([line(1, "7"), line(2, "8")], NEAR)) == ["2", "1"]


def test_a_clients_runs_of_messages_are_written_when_they_end():
    rows = [row("a", 5, "confirm", proc="p", seq=1, name="1"), row("a", 1, "publish", proc="p", seq=2, name="2")]
    assert names(ordered(rows, NEAR)) == ["2", "1"]
    assert ordered(rows, NEAR).contradictions == []


def test_a_process_whose_clock_went_back_is_told():
    rows = [row("a", 2 * SECOND, proc="p", seq=1), row("a", 0, proc="p", seq=2)]
    (contradiction,) = ordered(rows, NEAR).contradictions
    assert contradiction.kind == "process" and contradiction.by == 2 * SECOND - 1


def test_rows_of_an_unknown_clock_get_bounds_by_their_causes():
    cause, stranger = row("a", 7 * MS), row("nobody", 900 * SECOND)
    (_, last) = ordered([cause, stranger], NEAR, [Link("x", cause, stranger)]).events
    assert (last["ts_lo"], last["ts_hi"]) == (BEGIN + 7 * MS, FOREVER)
    (alone,) = ordered([stranger], NEAR).events
    assert (alone["ts_lo"], alone["ts_hi"]) == (NEVER, FOREVER)


def test_a_row_without_time_comes_behind_its_predecessor():
    rows = [row("a", at, proc="p", seq=seq, name=str(seq)) for at, seq in ((1, 1), (2, 2), (3, 3))]
    del rows[1]["ts_wall"]
    found = ordered(rows, NEAR)
    assert names(found) == ["1", "2", "3"]
    assert found.events[1]["ts_est"] is None


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.integers(0, 2)), min_size=2, max_size=25),
    st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24)), max_size=30),
    st.randoms(use_true_random=False),
)
@settings(max_examples=150)
def test_whatever_is_given_the_result_keeps_its_promises(specs, pairs, random):
    rows = [row(node, at * 10 * MS, proc=f"p{of}", seq=seq) for seq, (node, at, of) in enumerate(specs)]
    edges = [Link("x", rows[i], rows[j]) for i, j in pairs if i < len(rows) and j < len(rows)]
    found = ordered(rows, NEAR, edges)
    assert len(found.events) == len(rows)
    told = {(item.cause["seq"], item.effect["seq"]) for item in found.contradictions}
    position = {event["seq"]: number for number, event in enumerate(found.events)}
    for edge in edges:
        cause, effect = edge.sent["seq"], edge.received["seq"]
        assert (cause, effect) in told or cause == effect or position[cause] < position[effect]
    for event in found.events:
        assert event["ts_lo"] <= event["ts_est"] <= event["ts_hi"]
    for one, other in pairwise(found.events):
        assert one["ts_est"] <= other["ts_est"]
    shuffled, reversed_edges = list(rows), list(edges)
    random.shuffle(shuffled)
    random.shuffle(reversed_edges)
    again = ordered(shuffled, NEAR, reversed_edges)
    assert again.events == found.events
    assert [str(item) for item in again.contradictions] == [str(item) for item in found.contradictions]


def test_the_labs_causes_hold_and_its_order_is_the_same_with_moved_clocks():
    shifts = {"node3": 350_000, "node2": -1_200_000}
    events = list(lab_events())
    moved = [event | {"ts_wall": event["ts_wall"] + shifts.get(event["node"], 0)} for event in events]
    Random(3).shuffle(moved)
    for rows in (events, moved):
        pairs = links(rows)
        found = ordered(rows, solve(observations(rows, pairs), rows, reference="node1"), pairs)
        assert found.contradictions == []
        position = {(event["file"], event["line_no"]): number for number, event in enumerate(found.events)}
        for link in pairs:
            assert position[_place(link.sent)] < position[_place(link.received)]
        assert len(pairs) > 200


def _place(event):
    return event["file"], event["line_no"]
