"""The judgement of a trial and the table of figures: what they count, that they can fail, that they fit."""

import pytest

from tests.pacemaker.clients import by_way, way_of
from tests.pacemaker.disasters import DISASTERS, LOSES
from tests.pacemaker.figures import EVENTS, TOY_EVENTS, summary, table
from tests.pacemaker.judge import Evidence, Happening, judge
from tests.pacemaker.primaries import Sample
from tests.pacemaker.timeline import Entry

S = 1_000_000
ZERO = 1000.0
CLIENTS = ("t.list.library1", "t.list.plain1", "t.vip.library1")


def history(lost=0, outages=(1.0, 2.0, 3.0)):
    """Each client has a message confirmed every 0.1 s, but for its outage, which begins at second 5."""
    for client, outage in zip(CLIENTS, outages, strict=True):
        for number in range(120):
            at = number / 10
            if 5 <= at < 5 + outage:
                continue
            id = f"{client}:{number}"
            yield {"client": client, "kind": "invoke", "t": int(at * S), "id": id}
            yield {"client": client, "kind": "ok", "t": int(at * S), "id": id}
            if number >= lost:
                yield {"client": "c", "kind": "receive", "t": int(at * S), "id": id}
                yield {"client": "c", "kind": "ack", "t": int(at * S), "id": id}


def evidence(events=(), samples=(), entries=(), bad=(), served=10 * S, broker_events=()):
    happenings = [Happening("kill", "a", 5 * S, served)]
    return Evidence(happenings, list(events), list(samples), list(entries), broker_events, {"10.0.0.1": "a"}, ZERO,
                    ZERO + 12, bad)  # fmt: skip


def result(at, node, task, resource="qpidd", result="ok", kind="result"):
    return Entry(ZERO + at, node, kind, "", {"task": task, "resource": resource, "target": node, "result": result})


def test_a_client_says_its_way():
    assert way_of("kill9.vip.library1") == "vip"
    assert by_way({"a.list.x": 1.0, "a.vip.x": 2.0, "a.list.y": 3.0}) == {"list": [1.0, 3.0], "vip": [2.0]}


def test_outages_are_of_each_way():
    report = judge(evidence(history()))
    assert report.failures() == []
    (effect,) = report.effects
    assert [round(value, 1) for value in effect.clients.values()] == [1.0, 2.0, 3.0]
    way = effect.outages["list"]
    assert [round(value, 1) for value in (way.first, way.median, way.worst)] == [1.0, 1.5, 2.0]
    assert round(way.back / S, 1) == 6.0
    assert round(effect.outages["vip"].worst, 1) == 3.0
    assert effect.line().startswith("kill: outage (first/median/worst client) list 1.00/1.50/2.00 s")


def test_a_client_that_never_comes_back_counts_until_the_end():
    report = judge(evidence(history(outages=(1.0, 2.0, 99.0)), served=0))
    assert report.effects[0].outages["vip"].worst == pytest.approx(7.0)


def test_phases_come_from_logs_brokers_and_clients():
    entries = [result(5.2, "b", "promote", kind="requested"), result(5.5, "b", "promote")]
    brokers = [{"kind": "promote_request", "ts_mono": int(5.3 * S)}, {"kind": "promoted", "ts_mono": int(5.4 * S)}]
    found = judge(evidence(history(), entries=entries, broker_events=brokers)).effects[0].phases.moments
    assert {name: round(value, 1) for name, value in found.items()} == {
        "promote asked": 0.2, "claim": 0.3, "primary": 0.4, "promoted": 0.5, "confirm, list": 1.0,
        "confirm, address": 3.0,
    }  # fmt: skip


def test_what_fails_a_trial():
    assert judge(evidence(history(lost=2))).failures()[0].startswith("6 lost")
    assert judge(evidence(history(lost=2))).failures(may_lose=True) == []
    assert judge(evidence(history(), bad=["node1: Traceback"])).failures() == ["node1: Traceback"]
    strange = [*history(), *({"client": "c", "kind": kind, "t": S, "id": "x"} for kind in ("receive", "ack"))]
    assert judge(evidence(strange)).failures()[0].startswith("1 unexpected")
    assert judge(evidence(strange)).failures(may_lose=True)


def test_two_that_confirm_fail_a_trial_and_two_that_are_promoted_do_not():
    both = [
        Sample(node, 1, at * 10_000, at * 10_000 + 100, "active", epoch, epoch << 48 | at)
        for node, epoch, first in (("a", 1, 0), ("b", 2, 50))
        for at in range(first, 100)
    ]
    report = judge(evidence(history(), samples=both))
    assert len(report.failures()) == 1
    assert any(line.startswith("TWO CONFIRMING: a confirmed in epoch 1") for line in report.lines())
    promoted = judge(evidence(history(), entries=[result(5.1, "a", "promote"), result(5.2, "b", "promote")]))
    assert promoted.failures() == []
    assert "two promoted for Pacemaker: a and b, for 6.80 s" in promoted.lines()


def test_the_table_of_figures_fits():
    report = judge(evidence(history(lost=1), entries=[result(5.5, "b", "promote")]))
    found = summary({name: [report] * 5 for name in EVENTS})
    for name in TOY_EVENTS:
        found["events"][name]["toy"] = [2.0, 3.0, 12.5]
    text = table(found)
    assert max(len(line) for line in text.splitlines() if not line.startswith("FAILED")) <= 80
    assert text.count("FAILED: 3 lost") == 5 * len(EVENTS)
    assert found["events"]["kill9"]["ways"]["vip"]["worst"] == pytest.approx(3.0)


def test_every_disaster_has_a_name_that_can_stand_in_a_queue_name():
    assert {*EVENTS, *LOSES} <= set(DISASTERS)
    assert all(name.replace("-", "").isalnum() for name in DISASTERS)
