"""Spans of primaries and their overlap: every verdict, and what each needs."""

import json
from typing import Any

import pytest

from spark_jobs.solve.near_misses import rows as near_misses
from spark_jobs.solve.primaries import duals, spans, worst
from spark_jobs.solve.signs import Facts
from tests.spark.truth import processes, scenes
from tests.spark.truth.rows import fact, promoted

TERM = 1 << 48


def judged(*events):
    facts = Facts.of(events)
    return duals(spans(facts), facts)


def verdict(*events):
    (pair,) = judged(*events)
    return pair["roles"], pair["verdict"]


def confirm(node, at, term, pos, **columns):
    return fact(node, at, "confirm_sent", term=term, last_pos=pos, **columns)


FIRST = promoted("a", 0.0, 1)


def test_a_clean_end_before():
    (pair,) = judged(FIRST, fact("a", 5.0, "demote"), promoted("b", 5.172, 2))
    assert (pair["roles"], pair["margin_ms"], pair["error_ms"]) == ("excluded", 172.0, 0.0)
    assert pair["evidence"] == ["a.log:5000", "b.log:5172"]


@pytest.mark.parametrize(("error", "roles"), [(0.085, "excluded"), (0.087, "possible"), (3.0, "possible")])
def test_bounds_decide(error, roles):
    """172 ms apart; each line is known to `error`."""
    assert verdict(FIRST, fact("a", 5.0, "demote", error), promoted("b", 5.172, 2, error))[0] == roles


@pytest.mark.parametrize(("error", "roles"), [(0.4, "certain"), (0.5, "possible")])
def test_overlap_is_certain_only_beyond_the_errors(error, roles):
    assert verdict(FIRST, fact("a", 5.9, "demote", error), promoted("b", 5.0, 2, error))[0] == roles


def test_no_end_excludes_nothing():
    (pair,) = judged(FIRST, promoted("b", 5.0, 2))
    assert (pair["roles"], pair["verdict"], pair["margin_ms"]) == ("possible", "possible", None)


@pytest.mark.parametrize(
    "end",
    [
        fact("c", 4.0, "fence_op_done", source="pacemaker", peer="a", result="OK"),
        fact("c", 4.0, "fence_notify", source="pacemaker", peer="a", result="OK"),
        fact("c", 4.0, "exit", source="qpid-cluster", peer="a", reason="signal 9"),
        fact("a", 4.0, "start"),
        fact("a", 4.0, "stop", reason="SIGTERM"),
        fact("a", 4.0, "op_result", source="pacemaker", result="ok", attrs={"task": "demote", "target": "a"}),
        fact(
            "c",
            4.0,
            "op_unexpected",
            source="pacemaker",
            result="not running",
            attrs={"task": "monitor", "target": "a", "op": "broker_monitor_1000", "target_rc": "8"},
        ),
    ],
    ids=lambda event: event["kind"],
)
def test_what_ends_a_primary(end):
    (pair,) = judged(FIRST, end, promoted("b", 5.0, 2))
    assert (pair["roles"], pair["margin_ms"]) == ("excluded", 1000.0)


@pytest.mark.parametrize(
    "end",
    [
        fact("c", 4.0, "fence_op_done", source="pacemaker", peer="a", result="Error"),
        fact("c", 4.0, "fence_op_done", source="pacemaker", peer="c", result="OK"),
        fact("c", 4.0, "fence_op_done", source="pacemaker", peer="a", result="OK", attrs={"by": "a human"}),
        fact("c", 4.0, "primary_lost", peer="a"),
        fact("a", 4.0, "op_result", source="pacemaker", result="ok", attrs={"task": "stop", "target": "a"}),
        fact("c", 4.0, "exit", source="qpid-cluster", peer="c", reason="signal 9"),
        fact("a", -4.0, "demote"),
    ],
    ids=lambda event: event["kind"],
)
def test_what_does_not(end):
    assert verdict(FIRST, end, promoted("b", 5.0, 2))[0] == "possible"


def test_a_fencing_is_not_believed_if_the_broker_goes_on():
    fenced = fact("c", 4.0, "fence_op_done", source="pacemaker", peer="a", result="OK")
    alive = fact("a", 6.0, "repl_send", last_pos=5)
    assert verdict(FIRST, fenced, alive, promoted("b", 5.0, 2))[0] == "certain"
    # after a restart it may write again
    assert verdict(FIRST, fenced, fact("a", 5.9, "start"), alive, promoted("b", 5.0, 2))[0] == "excluded"


def test_one_clock_saw_both_in_order():
    """The bounds overlap widely; the DC's own log does not."""
    fenced = fact("c", 4.0, "fence_op_done", 2.0, source="pacemaker", peer="a", result="OK")
    asked = {"task": "promote", "target": "b"}
    events = [FIRST, fenced, promoted("b", 4.5, 2, 2.0)]
    assert verdict(*events)[0] == "possible"
    (pair,) = judged(*events, fact("c", 4.1, "initiate", 2.0, source="pacemaker", attrs=asked))
    assert pair["roles"] == "excluded"
    assert pair["why"] == "c saw a was fenced before it asked for the promotion of b"
    assert judged(*events, fact("d", 4.1, "initiate", 2.0, source="pacemaker", attrs=asked))[0]["roles"] == "possible"
    assert judged(*events, fact("c", 4.0, "initiate", 2.0, source="pacemaker", attrs=asked))[0]["roles"] == "possible"


def test_a_clock_set_back_in_between_shows_no_order():
    """By its stamps the fencing came first, by its monotonic clock the request did."""
    fenced = fact("c", 4.0, "fence_op_done", 2.0, source="pacemaker", peer="a", result="OK", ts_mono=900)
    asked = {"task": "promote", "target": "b"}
    initiate = fact("c", 4.1, "initiate", 2.0, source="pacemaker", attrs=asked, ts_mono=800)
    assert verdict(FIRST, fenced, initiate, promoted("b", 4.5, 2, 2.0))[0] == "possible"


def test_one_node_promoted_twice_in_seconds():
    facts = Facts.of([FIRST, fact("a", 3.0, "demote"), promoted("a", 4.0, 2)])
    assert [(span.term, span.to_hi) for span in spans(facts)] == [(1, 3_000_000), (2, None)]


def test_verdict_is_certain_only_with_a_confirm_of_the_old_one():
    events = [FIRST, promoted("b", 5.0, 2), fact("a", 9.0, "demote")]
    assert verdict(*events) == ("certain", "possible")
    assert verdict(*events, confirm("a", 6.0, 1, 7, first_pos=7)) == ("certain", "certain")
    assert verdict(*events, confirm("a", 4.9, 1, 7, first_pos=7)) == ("certain", "possible")


def test_samples_show_a_confirm_only_if_they_differ_and_both_are_late():
    events = [FIRST, promoted("b", 5.0, 2), fact("a", 9.0, "demote")]
    assert verdict(*events, confirm("a", 6.0, 1, 7), confirm("a", 7.0, 1, 7)) == ("certain", "possible")
    assert verdict(*events, confirm("a", 4.0, 1, 7), confirm("a", 7.0, 1, 8)) == ("certain", "possible")
    assert verdict(*events, confirm("a", 6.0, 1, 7), confirm("a", 7.0, 1, 8)) == ("certain", "certain")


def test_promotion_known_only_by_its_result_may_have_been_earlier():
    result = {"task": "promote", "target": "b"}
    done = fact("b", 5.2, "op_result", source="pacemaker", result="ok", attrs=result)
    ended = fact("a", 5.0, "demote")
    assert verdict(FIRST, ended, done)[0] == "possible"
    asked = fact("b", 5.1, "op_request", source="pacemaker", attrs=result)
    assert verdict(FIRST, ended, asked, done)[0] == "excluded"


def test_independent_signs():
    rings = [
        fact(
            node,
            4.0,
            "membership",
            source="corosync",
            attrs={"ring": ring, "ring_seq": "1a", "rep": ring[0], "left": "1"},
        )
        for node, ring in (("b", "2.1a"), ("a", "1.1a"))
    ]
    (pair,) = judged(FIRST, *rings, promoted("b", 5.0, 1))
    assert pair["signs"] == ["term 1 on a and b", "rings 1.1a and 2.1a"]


def test_one_promotion_told_by_three_logs_is_one():
    facts = Facts.of(
        [
            FIRST,
            fact("b", 4.9, "state", old="ready", new="recovering", term=2),
            promoted("b", 5.0, 2),
            fact("m", 5.1, "promoted", source="qpid-cluster", peer="b"),
            fact("b", 5.2, "op_result", source="pacemaker", result="ok", attrs={"task": "promote", "target": "b"}),
            fact("b", 30.0, "state", old="recovering", new="active", term=2),
        ]
    )
    assert [(span.node, span.term, span.promotion.at) for span in spans(facts)] == [("a", 1, 0), ("b", 2, 5_000_000)]


def test_three_primaries_at_once():
    pairs = judged(FIRST, promoted("b", 5.0, 2), promoted("c", 6.0, 3), *(fact(n, 9.0, "demote") for n in "abc"))
    assert [(pair["old_node"], pair["new_node"]) for pair in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert worst(pairs) == "possible"


def test_worst():
    assert worst([]) is None
    assert worst([{"verdict": "excluded"}, {"verdict": "certain"}, {"verdict": "possible"}]) == "certain"


# ---- near misses ----------------------------------------------------------------------------------------------------


def kinds(*events):
    facts = Facts.of(events)
    return [row["kind"] for row in near_misses(spans(facts), facts)]


def test_a_sample_that_may_be_older_than_the_confirm_proves_nothing():
    listed = fact("a", 1.0, "membership", peer="b", result="ready", term=1)
    sample = fact("b", 3.1, "repl_recv", 0.2, last_pos=TERM + 99, term=1)
    assert kinds(FIRST, listed, confirm("a", 3.0, 1, TERM + 100), sample) == []


def test_promoted_while_not_ready():
    assert kinds(FIRST, fact("b", 5.0, "state", old="catchup", new="recovering", term=2)) == ["not-ready"]
    assert kinds(FIRST, fact("b", 5.0, "state", old="ready", new="recovering", term=2)) == []
    assert kinds(fact("b", 5.0, "state", old="joining", new="recovering", term=1)) == []


def test_promoted_by_force():
    assert kinds(FIRST, promoted("b", 5.0, 2, attrs={"forced": "true"})) == ["forced"]


@pytest.mark.parametrize(("held", "found"), [(99, ["behind-confirmed"]), (100, []), (101, [])])
def test_promoted_behind_what_was_confirmed(held, found):
    sent = confirm("a", 3.0, 1, TERM + 100, first_pos=TERM + 90)
    assert kinds(FIRST, sent, fact("a", 4.0, "demote"), promoted("b", 5.0, 2, last_pos=2 * TERM + held)) == found


@pytest.mark.parametrize(
    ("held", "at", "listed", "found"),
    [
        (99, 4.0, "ready", ["confirmed-before-replicated"]),
        (100, 4.0, "ready", []),
        # earlier than the confirm, or not counted
        (99, 2.9, "ready", []),
        (99, 4.0, "removed", []),
    ],
)
def test_confirmed_before_it_was_replicated(held, at, listed, found):
    rows = [
        fact("a", 1.0, "membership", peer="b", result=listed, term=1),
        confirm("a", 3.0, 1, TERM + 100),
        fact("b", at, "repl_recv", last_pos=TERM + held, term=1),
    ]
    assert kinds(FIRST, *rows) == found


def woken(**demote: Any) -> dict[str, Any]:
    """The story `hang`, in which the line with which node1 steps down has more."""
    story = processes.hang()
    name = "node1/events/node1-0001.jsonl"
    lines = [json.loads(line) for line in story.files[name]]
    lines = [line | demote if line["kind"] == "demote" else line for line in lines]
    found = story.rows(story.files | {name: [json.dumps(line).encode() + b"\n" for line in lines]})
    (row,) = found["dual"]
    return row


@pytest.mark.parametrize(
    ("beyond", "verdict"), [(0, "excluded"), (-5, "excluded"), (1, "possible"), (1000, "possible"), (None, "possible")]
)
def test_a_frozen_primary_that_says_what_it_had_confirmed(beyond: int | None, verdict: str) -> None:
    base = scenes.position(2, 1.010) & ((1 << 48) - 1)
    said = {} if beyond is None else {"attrs": {"confirmed": str((1 << 48) + base + beyond)}}
    row = woken(**said)
    assert (row["roles"], row["verdict"]) == ("certain", verdict)
    if verdict == "excluded":
        assert "node2 was promoted with all of it" in row["why"]


@pytest.mark.parametrize("said", ["", "x", "-1", "1.5", "\u00b2", "9" * 5000], ids=lambda said: str(len(said)))
def test_a_position_that_is_none_proves_nothing(said: str) -> None:
    assert woken(attrs={"confirmed": said})["verdict"] == "possible"


# ---- two clocks, and bounds that overlap ----------------------------------------------------------------------------


def test_an_end_that_another_clock_puts_before_the_promotion_is_still_an_end() -> None:
    """The promotion is known to 2 s; by its estimate it came after the exit that ended it."""
    exit_ = fact("c", -1.0, "exit", source="qpid-cluster", peer="a", reason="signal 9")
    (pair,) = judged(promoted("a", 0.0, 1, 2.0), exit_, promoted("b", 5.0, 2))
    assert pair["roles"] == "excluded", pair["why"]


def test_an_end_that_may_be_that_of_the_life_before_is_none_and_is_not_denied() -> None:
    first, again = promoted("a", -50.0, 1), promoted("a", 0.0, 2, 2.0)
    exit_ = fact("c", -1.0, "exit", source="qpid-cluster", peer="a", reason="signal 9")
    pair = judged(first, again, exit_, promoted("b", 5.0, 3))[-1]
    assert (pair["old_term"], pair["roles"]) == (2, "possible")
    assert pair["why"] == "a had ended, and whether it ended by that is not known"


def test_what_an_administrator_says_ends_nothing() -> None:
    said = fact("c", 4.0, "fence_op_done", source="pacemaker", peer="a", result="OK", attrs={"by": "a human"})
    (pair,) = judged(FIRST, said, promoted("b", 5.0, 2))
    assert (pair["roles"], pair["why"]) == ("possible", "only an administrator said that a was down")


def test_a_request_is_found_where_no_clock_is_known() -> None:
    """Its own node wrote both: an unknown clock is no reason to miss it."""
    unknown = {"ts_lo": -(1 << 61), "ts_hi": 1 << 61, "source": "pacemaker"}
    asked = fact("b", 4.0, "initiate", attrs={"task": "promote", "target": "b"}) | unknown
    done = fact("b", 5.0, "op_result", result="ok", attrs={"task": "promote", "target": "b", "resource": "d"}) | unknown
    (promotion,) = Facts.of([asked, done]).promotions
    assert promotion.asked is not None


@pytest.mark.parametrize(("error", "near"), [(0.1, 1), (2.0, 0)])
def test_a_backup_that_may_have_been_removed_is_no_near_miss(error, near):
    """b holds less at 5, and was removed at 6; its clock is known to `error` s."""
    rows = [
        fact("a", 1.0, "membership", peer="b", result="ready"),
        confirm("a", 2.0, 1, TERM + 9, first_pos=TERM + 9),
        fact("b", 5.0, "repl_recv", error, term=1, last_pos=TERM + 8),
        fact("a", 6.0, "membership", peer="b", result="removed"),
    ]
    facts = Facts.of([FIRST, *rows])
    assert len(near_misses(spans(facts), facts)) == near
