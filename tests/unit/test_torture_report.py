"""The end of a campaign: when it has failed, and that its table fits."""

from pathlib import Path

import pytest

from testkit.judge import History
from torture.brokers import Exit
from torture.campaign import Outcome, Round
from torture.faults import KINDS, Fault
from torture.lab import MODES, Plan
from torture.load import GROUPS, UNTIMED
from torture.report import failures, summary, table


def event(kind, id, t=1, client="p"):
    return {"kind": kind, "id": id, "client": client, "t": t}


def found(mode="quorum", lost=0, exits=(), contradictions=(), salvaged=frozenset(), more=(), **outcome):
    ids = [str(number) for number in range(10)]
    events = [event(kind, id, 1000 * int(id)) for id in ids for kind in ("invoke", "ok")]
    events += [event(kind, id) for id in ids[lost:] for kind in ("receive", "ack")]
    events += more
    rounds = [Round([Fault(kind, kind) for kind in KINDS], 1000, 2_000_000)]
    result = Outcome(rounds, **{"drained": True, "seconds": 12.3, **outcome})
    return summary(Plan(mode, 3, 7, Path()), result, History().add(events), exits, contradictions, salvaged)


def test_all_is_well():
    result = found()
    assert failures(result) == []
    assert "10 messages were confirmed and every one of them was delivered." in table(result)
    assert result["faults"] == len(KINDS)


def test_the_table_fits():
    text = table(found("availability", lost=3, stuck=""))
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("mode", MODES)
def test_a_loss_is_a_failure_but_where_it_is_the_price(mode):
    result = found(mode, lost=2)
    assert result["messages"]["lost"] == 2
    assert bool(failures(result)) == (mode != "availability")
    assert ("lost, as this mode allows" in table(result)) == (mode == "availability")


def twice(id, queue="q", **marks):
    return [
        {**event("begin", "", client="c"), "queue": queue},
        {**event("receive", id, client="c"), **marks},
        event("ack", id, client="c"),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_duplicate_without_a_mark_fails_in_every_mode(mode):
    assert failures(found(mode, more=twice("3"))) == [
        "1 duplicates without a mark (3)",
    ], "the first one came from another queue"
    assert failures(found(mode, more=twice("3", redelivered=True))) == []
    assert failures(found(mode, more=twice("3", resent=True))) == []
    assert failures(found(mode, more=[*twice("3"), *twice("3")])) == [
        "2 duplicates without a mark (3)",
        "1 came twice from one queue without a mark (3)",
    ]


def test_what_else_fails():
    assert failures(found(lost=1, drained=False, stuck="no primary")) == [
        "1 unaccounted (0)", "stuck: no primary",
    ]  # fmt: skip
    assert failures(found(left={"q on node2": 1})) == ["left after the drain: {'q on node2': 1}"]
    assert failures(found(exits=[Exit("node1", 70, 1.0, "")])) == ["node1 ended with 70"]
    assert failures(found(contradictions=["two"])) == ["two"]


def test_outages_are_of_all_together_and_of_each():
    """One producer has nothing confirmed between 9 ms and the end of the round at 2 s."""
    outages = found()["outages"]
    assert outages["all"]["max"] == outages["one"]["max"] == 1.99


@pytest.mark.parametrize("client", UNTIMED)
def test_some_producers_tell_nothing_of_the_cluster(client):
    assert client in {name for group in GROUPS for name in group["producers"]}
    seldom = [event("ok", "x", 1000, client=client), event("ok", "y", 1_000_000, client=client)]
    assert found(more=seldom)["outages"] == found()["outages"]
    often = [event("ok", "x", 1000, client="routed1")]
    assert found(more=often)["outages"]["one"]["max"] == 2.0


def test_what_was_salvaged_is_told_of_the_lost_only():
    result = found("availability", lost=3, salvaged=frozenset(("0", "1", "9")))
    assert result["salvaged"] == 2
    assert "2 of the lost are in salvage files" in table(result)
