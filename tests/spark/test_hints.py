"""The table of hints: each rule fires on its lines, and not without them."""

import pytest

from spark_jobs.solve import hints
from spark_jobs.solve.reconstruct import tables
from tests.spark.truth.rows import fact, promoted

BASE = [promoted("a", 0.0, 1), fact("a", 0.1, "state", old="recovering", new="active")]
KILLED = [
    fact("b", 100.0, "primary_lost", peer="a", reason="Connection reset by peer"),
    promoted("b", 100.5, 2),
    fact("b", 100.6, "state", old="recovering", new="active", term=2),
]


def cluster(node, at, kind, **columns):
    return fact(node, at, kind, source="pacemaker", **columns)


def ring(node, at, kind, **columns):
    return fact(node, at, kind, source="corosync", **columns)


def monitor(result):
    attrs = {"task": "monitor", "resource": "broker", "target": "a", "op": "broker_monitor_1000", "target_rc": "8"}
    return cluster("c", 100.1, "op_unexpected", result=result, attrs=attrs)


def changed(at, change):
    by = f"db-meta_attributes-is-managed doing modify {change}"
    return cluster("c", at, "abort", reason="Configuration change", attrs={"by": by})


def found(*events):
    return {row["rule"]: row for row in tables([*BASE, *events])["hints"]}


TOKEN = ring("b", 100.0, "token_lost", attrs={"token": "1000", "consensus": "1200"})
CUT = [fact("a", 100.2, "isolated", result="begun", reason="no majority")]
BACK = {"messages": "7", "queues": "1", "seconds": "0.010", "torn": "no"}


def outage(*journals, brokers="abc"):
    """All were down at 100; `journals`: (node, result, last_pos) of those that say what they read.  a is promoted."""
    rows = [fact(node, 50.0, "state", proc=f"{node}.1", old="catchup", new="ready") for node in brokers]
    rows += [fact(node, 100.0, "start", proc=f"{node}.2") for node in brokers]
    for node, result, last in journals:
        rows.append(
            fact(node, 100.1, "journal_read", proc=f"{node}.2", result=result, last_pos=last, attrs=BACK, reason="why")
        )
    return [*rows, promoted("a", 101.0, 2, proc="a.2"), fact("a", 101.1, "state", proc="a.2", new="active", term=2)]


CASES = {
    "paused": ([TOKEN, ring("a", 99.0, "sched_pause", attrs={"ms": "1500.0"})], [TOKEN]),
    "one-host-without-links": (
        [TOKEN, ring("b", 99.5, "no_links", peer="1"), ring("c", 99.5, "no_links", peer="1")],
        [TOKEN, *(ring(n, 99.5, "no_links", peer=p) for n, p in (("b", "1"), ("c", "1"), ("b", "3"), ("a", "3")))],
    ),
    "monitor-timeout": ([monitor("Timed Out"), *KILLED], [monitor("not running"), *KILLED]),
    "fence-retries": (
        [TOKEN, *(cluster("c", at, "fence_request", peer="a") for at in (101.0, 102.0))],
        [TOKEN, cluster("c", 101.0, "fence_request", peer="a")],
    ),
    "fencing-delayed": ([TOKEN, cluster("c", 101.0, "fence_delay", peer="a", attrs={"delay": "7s"})], [TOKEN]),
    "promotion-failed": ([*KILLED, fact("b", 100.2, "promote_request", result="refused", reason="behind")], KILLED),
    "near-miss": ([*KILLED[:1], promoted("b", 100.5, 2, attrs={"forced": "true"})], KILLED),
    "rapid-succession": (
        [*KILLED, fact("c", 200.0, "primary_lost", peer="b", reason="reset"), promoted("c", 200.5, 3)],
        KILLED,
    ),
    "watchdog": ([*KILLED, cluster("a", 101.0, "self_fenced")], KILLED),
    "self-fenced": (
        [*KILLED, cluster("a", 100.4, "sbd_reset", attrs={"fence": "reboot"})],
        [*KILLED, cluster("a", 100.3, "self_fenced"), cluster("a", 100.4, "sbd_reset", attrs={"fence": "reboot"})],
    ),
    "unmanaged": (
        [changed(90.0, "is-managed=false"), *KILLED],
        [changed(90.0, "is-managed=false"), changed(95.0, "is-managed=true"), *KILLED],
    ),
    "clock-step": (
        [*KILLED, *(fact("b", at, "claim", proc="p", seq=n, ts_mono=n * 1000) for n, at in enumerate((100.2, 104.2)))],
        [*KILLED, *(fact("b", at, "claim", proc="p", seq=n, ts_mono=n * 1000) for n, at in enumerate((100.2, 100.3)))],
    ),
    "backup-timeout": (
        [
            *KILLED[:2],
            fact("b", 105.4, "membership", peer="c", result="removed"),
            fact("b", 105.5, "state", new="active", term=2),
        ],
        [*KILLED[:2], fact("b", 105.5, "state", new="active", term=2)],
    ),
    "slow-decision": (
        [KILLED[0], fact("b", 102.0, "promote_request"), promoted("b", 102.1, 2)],
        [KILLED[0], fact("b", 100.9, "promote_request"), promoted("b", 102.1, 2)],
    ),
    "late-or-no-fencing": (
        [*CUT, *KILLED],
        [*CUT, cluster("c", 100.3, "fence_op_done", peer="a", result="OK"), *KILLED],
    ),
    "lines-dropped": ([*KILLED, fact("b", 100.2, "lines_dropped", source="syslog", attrs={"count": "77"})], KILLED),
    "isolated": ([*CUT, *KILLED], KILLED),
    "none-promoted": (KILLED[:1], KILLED),
    "journals": (outage(("a", "whole", 9), ("b", "whole", 8)), outage()),
}


@pytest.mark.parametrize("rule", hints.RULES)
def test_rule(rule):
    with_it, without = CASES[rule]
    row = found(*with_it)[rule]
    assert row["confidence"] in ("certain", "likely", "possible")
    assert row["text"] and row["evidence"]
    assert all(":" in place and not place.startswith(":") for place in row["evidence"])
    assert rule not in found(*without)


def test_words():
    assert found(*CASES["paused"][0])["paused"]["text"].startswith("a was not scheduled for 1500.0 ms")
    assert (
        found(*CASES["clock-step"][0])["clock-step"]["text"] == "the clock of b was set by +3.999 s between two lines"
    )
    assert found(*CASES["promotion-failed"][0])["promotion-failed"]["text"] == "a promotion was refused: behind"


def told(*events):
    made = tables([*BASE, *events])
    texts = [row["text"] for row in made["hints"] if row["rule"] == "journals"]
    return [row["type"] for row in made["incidents"]], texts


def test_a_power_loss_says_what_each_disk_had_and_what_no_log_says():
    types, texts = told(*outage(("a", "whole", (1 << 48) + 9), ("b", "partial", 8)))
    assert types == ["power-loss"]
    assert "a: 7 messages in 1 queues, up to 1.9: all that it had acknowledged, read in 0.010 s" in texts
    assert any(text.startswith("b: ") and "it may lack something (why)" in text for text in texts)
    assert "a held the most: up to 1.9, ahead of b" in texts
    assert "no log says what the disks of c held" in texts
    assert any("nothing that was confirmed on its disk is missing" in text for text in texts)


def test_a_power_loss_whose_disks_are_not_whole_says_that_something_may_be_missing():
    types, texts = told(*outage(("a", "damaged", None), ("b", "whole", 8), ("c", "whole", 8)))
    assert types == ["power-loss"] and "a: its journal is damaged, and nothing of it counts: why" in texts
    assert "no log shows that a held all that was confirmed: it may lack something" in texts
    assert not any("is missing" in text for text in texts)


def test_brokers_that_ended_in_order_or_one_by_one_lost_no_power():
    stopped = [fact(node, 60.0, "stop", proc=f"{node}.1", reason="SIGTERM") for node in "abc"]
    assert "power-loss" not in told(*stopped, *outage(("a", "whole", 9)))[0]
    assert "power-loss" not in told(*outage(("a", "whole", 9), brokers="a"))[0]
