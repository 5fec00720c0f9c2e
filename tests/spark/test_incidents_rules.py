"""Where an incident begins and ends, of which type it is, and what is none."""

import pytest

from spark_jobs.solve.reconstruct import tables
from tests.spark.truth.rows import fact, promoted

UP = [promoted("a", 0.0, 1), fact("a", 0.1, "state", old="recovering", new="active", term=1)]


def lost(at, peer, node="c", reason="Connection reset by peer"):
    return fact(node, at, "primary_lost", peer=peer, reason=reason)


def over(at, node, term):
    return [promoted(node, at, term), fact(node, at + 0.1, "state", old="recovering", new="active", term=term)]


def found(*events, outages=()):
    return tables([*UP, *events], outages, "x")["incidents"]


def types(*events, **more):
    return [row["type"] for row in found(*events, **more)]


def test_bring_up_and_orderly_stop_are_none():
    assert types() == []
    assert types(fact("a", 50.0, "stop", reason="SIGTERM")) == []


def test_a_first_promotion_of_an_old_cluster_is_one():
    assert [row["type"] for row in tables([promoted("b", 5.0, 7)])["incidents"]] == ["unknown"]


def test_two_failovers_in_a_minute_are_two_if_the_first_was_over():
    events = [lost(100, "a"), *over(100.5, "b", 2), lost(130, "b"), *over(130.5, "c", 3)]
    assert [(row["old_primary"], row["new_primary"]) for row in found(*events)] == [("a", "b"), ("b", "c")]


def test_two_failovers_in_a_minute_are_one_if_it_was_not():
    events = [lost(100, "a"), promoted("b", 100.5, 2), lost(130, "b"), *over(130.5, "c", 3)]
    (row,) = found(*events)
    assert (row["old_primary"], row["new_primary"], row["promotions"]) == ("a", "c", 2)


def test_gap_of_two_minutes():
    """Without any promotion, so nothing settles."""
    assert len(found(lost(100, "a"), lost(219, "a"))) == 1
    assert len(found(lost(100, "a"), lost(221, "a"))) == 2


def test_what_comes_of_the_old_one_later_is_no_new_incident():
    events = [lost(100, "a"), *over(100.5, "b", 2), fact("a", 105, "demote", reason="b claims epoch 2", term=2)]
    late = fact("c", 106, "fence_op_done", source="pacemaker", peer="a", result="OK")
    assert len(found(*events, late)) == 1


@pytest.mark.parametrize(
    ("events", "type_"),
    [
        ([lost(100, "a")], "kill"),
        ([lost(100, "a", reason="no frame for 2 s")], "unknown"),
        ([fact("m", 100, "hung", source="qpid-cluster", peer="a")], "hang"),
        (
            [
                fact("a", 100, "relocate", peer="b", result="begin"),
                fact("a", 100.1, "demote", reason="relocation to b"),
            ],
            "planned",
        ),
        ([fact("a", 100, "stop", reason="SIGTERM"), lost(100.1, "a")], "planned"),
        (
            [
                fact(
                    "a",
                    100,
                    "daemon_exit",
                    source="pacemaker",
                    result="signal 9",
                    attrs={"child": "pacemaker-controld"},
                )
            ],
            "controller",
        ),
        ([fact("a", 100, "isolated", result="begun", reason="x"), lost(100, "a", reason="no frame")], "partition"),
        ([fact("a", 100, "backup_lost", peer="c", reason="no frame"), lost(100, "a", reason="no frame")], "partition"),
    ],
)
def test_types(events, type_):
    assert types(*events, *over(101, "b", 2)) == [type_]


def test_an_unknown_cause_is_said_to_be_unknown():
    (row,) = found(lost(100, "a", reason="no frame for 2 s"), *over(101, "b", 2))
    assert "no log tells whether its process, its node or the network failed" in row["why"]


def test_planned_flag_after_a_failure_does_not_make_it_planned():
    standby = fact("c", 100.2, "abort", source="pacemaker", planned=True, reason="standby")
    assert types(
        lost(100, "a"),
        fact("m", 100.1, "exit", source="qpid-cluster", peer="a", reason="signal 9"),
        standby,
        *over(101, "b", 2),
    ) == ["kill"]


def test_outages_belong_to_the_incident_that_they_overlap():
    events = [lost(100, "a"), *over(100.5, "b", 2), lost(130, "b"), *over(130.5, "c", 3)]
    outages = [{"client": "p", "begin": round(at * 1e6), "end": round((at + 1) * 1e6)} for at in (99.99, 129.99)]
    one, two = found(*events, outages=outages)
    assert (one["begin"], two["begin"]) == (99_990_000, 129_990_000)
    assert (one["end"], two["end"]) == (100_990_000, 130_990_000)


def test_a_hiccup_near_by_is_not_part_of_it():
    outages = [{"client": "p", "begin": at * 1_000_000, "end": at * 1_000_000 + 150_000} for at in (97, 100, 104)]
    (row,) = found(lost(100, "a"), *over(100.5, "b", 2), outages=outages)
    assert (row["begin"], row["end"], row["outages"], row["other_outages"]) == (100_000_000, 100_600_000, 1, 2)


def test_outages_as_the_job_windows_writes_them():
    """`client_id`, and `censored` next to an end that is only that of the log."""
    row = {"client_id": "p", "begin": 100_000_000, "end": 190_000_000, "censored": True}
    made = tables([*UP, lost(100, "a"), *over(101, "b", 2)], [row])
    assert made["incidents"][0]["end"] is None
    assert [row["note"] for row in made["phases"] if row["phase"] == "all_clients"] == ["never back: p"]


def test_clients_alone():
    (row,) = found(outages=[{"client": "p", "begin": 500_000_000, "end": 501_000_000}])
    assert (row["type"], row["failover"], row["begin"], row["end"]) == ("no-failover", False, 500_000_000, 501_000_000)
    assert "no log of the cluster says why" in row["why"]


def test_never_over():
    assert found(lost(100, "a"))[0]["end"] is None
    assert found(lost(100, "a"), *over(101, "b", 2))[0]["end"] == 101_100_000
    outage = {"client": "p", "begin": 100_000_000, "end": None}
    assert found(lost(100, "a"), *over(101, "b", 2), outages=[outage])[0]["end"] is None


def test_ids_depend_on_the_cluster_and_the_first_seed_only():
    events = [*UP, lost(100, "a"), *over(101, "b", 2)]
    ids = [
        tables(rows, (), name)["incidents"][0]["incident"]
        for rows, name in ((events, "x"), (events[:-1], "x"), (events, "y"))
    ]
    assert ids[0] == ids[1] != ids[2]
    assert len(ids[0]) == 12


# ---- settled, and who says so ----------------------------------------------------------------------------------------


def fsa(at, new):
    return fact("c", at, "fsa", source="pacemaker", old="S_TRANSITION_ENGINE", new=new)


def test_settled_needs_the_broker_and_the_dc():
    """The next failure comes after the broker is active, and before the DC is idle."""
    events = [lost(100, "a"), *over(100.5, "b", 2), lost(103, "b"), *over(103.5, "c", 3)]
    assert len(found(*events, fsa(100.2, "S_POLICY_ENGINE"), fsa(102, "S_IDLE"))) == 2
    assert len(found(*events, fsa(100.2, "S_POLICY_ENGINE"), fsa(105, "S_IDLE"))) == 1
    assert len(found(*events, fsa(100.2, "S_POLICY_ENGINE"))) == 1
    assert found(*events[:3], fsa(100.2, "S_POLICY_ENGINE"), fsa(102, "S_IDLE"))[0]["end"] == 102_000_000


# ---- types that are not what they seem ------------------------------------------------------------------------------


def test_links_closed_on_both_sides_are_no_partition():
    both = [fact("a", 100, "backup_lost", peer="c", reason="Connection reset by peer"), lost(100, "a")]
    assert types(*both, *over(101, "b", 2)) == ["kill"]


def test_a_primary_that_writes_meanwhile_does_not_hang():
    events = [
        lost(100, "a", reason="no frame"),
        *over(101, "b", 2),
        fact("a", 106, "demote", reason="b claims", proc="p"),
    ]
    before = fact("a", 99, "claim", proc="p")
    assert types(before, *events) == ["hang"]
    assert types(before, *events, fact("a", 100.5, "claim", proc="p")) == ["unknown"]


def test_a_closed_link_next_to_a_lost_token_is_no_proof_of_a_kill():
    token = fact("c", 99.9, "token_lost", source="corosync")
    assert types(token, lost(100, "a"), *over(101, "b", 2)) == ["unknown"]


def test_a_probe_that_fails_is_no_death():
    attrs = {"task": "monitor", "resource": "broker", "target": "a", "op": "broker_monitor_0", "target_rc": "7"}
    assert types(fact("c", 100, "op_unexpected", source="pacemaker", result="error", attrs=attrs)) == []
    attrs |= {"op": "broker_monitor_1000", "target_rc": "8"}
    assert types(fact("c", 100, "op_unexpected", source="pacemaker", result="error", attrs=attrs)) == ["kill"]


def test_near_misses_of_calmer_days_belong_to_no_incident():
    rows = [
        fact("a", 1, "membership", peer="b", result="ready", term=1),
        fact("a", 3, "confirm_sent", term=1, last_pos=100),
        fact("b", 4, "repl_recv", term=1, last_pos=99),
    ]
    made = tables([*UP, *rows, lost(500, "a"), *over(501, "b", 2)])
    assert [(row["kind"], row["incident"]) for row in made["near_misses"]] == [("confirmed-before-replicated", None)]
    assert len(made["incidents"]) == 1 and not [row for row in made["hints"] if row["rule"] == "near-miss"]
