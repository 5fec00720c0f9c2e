"""One row for one fact: several daemons, several logs, several nodes; and no evidence is lost."""

import random
from collections import Counter

from spark_jobs.parse import collapse
from tests.spark.parse_lab import lab_events, lines_of, parsed, us

NOON = us("2026-11-21T12:00+00:00")


def rows(**files):
    return collapse.per_node(parsed({name: lines_of(text) for name, text in files.items()}, now=NOON))


def test_four_daemons_one_fact():
    text = "Nov 21 01:55:05.{} n1 pacemaker-{} [7] (f) \tnotice: Node n2 state is now {} | nodeid=2 previous=x source=y"
    daemons = ("controld", "attrd", "fenced", "based")
    lost = [text.format(725 + 8 * at, name, "lost") for at, name in enumerate(daemons)]
    back = [text.format(825 + 8 * at, name, "member") for at, name in enumerate(daemons)]
    again = [text.format(925 + 8 * at, name, "lost") for at, name in enumerate(daemons)]
    found = rows(log="\n".join(lost + back + again))
    assert [(row["new"], row["line_no"], row["attrs"]["copies"]) for row in found] == [
        ("lost", 1, "4"),
        ("member", 5, "4"),
        ("lost", 9, "4"),
    ]
    assert collapse.evidence(found[0]) == [("log", 1), ("log", 2), ("log", 3), ("log", 4)]
    assert found[0]["attrs"]["daemons"] == "pacemaker-attrd pacemaker-based pacemaker-controld pacemaker-fenced"


def test_syslog_is_a_copy_without_its_tail():
    said = "notice: Result of start operation for a on n1: ok"
    line = "Nov 21 01:55:06.{} n1 pacemaker-controld [7] (f) \t{} | call={} key=a_start_0 rc=0"
    copy = f"Nov 21 01:55:06 n1 pacemaker-controld[7]:  {said}"
    logs = {
        "pacemaker.log": line.format("333", said, 1) + "\n" + line.format("433", said, 2),
        "messages": f"{copy}\n{copy}",
    }
    found = rows(**logs)
    assert [(row["source"], row["attrs"]["call"], row["ts_res"], collapse.evidence(row)) for row in found] == [
        ("pacemaker", "1", 1000, [("pacemaker.log", 1), ("messages", 1)]),
        ("pacemaker", "2", 1000, [("pacemaker.log", 2), ("messages", 2)]),
    ]


ELECTION = "Nov 21 01:55:06.{} n1 pacemaker-controld [7] (f) \tnotice: State transition S_IDLE -> S_ELECTION"
DONE = "Operation 'reboot' targeting n2 by n1 for c@n3: OK"
FENCED = "Nov 21 01:{}:06.{} {} pacemaker-fenced [7] (f) \tnotice: " + DONE + " | id={}"


def test_what_contradicts_is_not_the_same():
    said = "Result of start operation for a on n1: ok"
    line = f"Nov 21 01:55:06.333 n1 pacemaker-controld [7] (f) \tnotice: {said} | call={{}}"
    assert len(rows(one=line.format(1), other=line.format(1))) == 1
    assert len(rows(one=line.format(1), other=line.format(2))) == 2


def test_one_daemon_in_one_log_tells_two_facts():
    text = (
        "Nov 21 01:55:06.{} n1 pacemaker-controld [7] (f) \tnotice: State transition S_IDLE -> S_ELECTION | input=I_X"
    )
    assert len(rows(log=text.format("001") + "\n" + text.format("009"))) == 2


def test_a_rotated_log_is_one_log():
    text = (
        "Nov 21 01:55:06.{} n1 pacemaker-controld [7] (f) \tnotice: State transition S_IDLE -> S_ELECTION | input=I_X"
    )
    assert len(rows(**{"p.log.1": text.format("001"), "p.log": text.format("009")})) == 2
    assert len(rows(**{"p.log": text.format("001"), "q.log": text.format("009")})) == 1


def test_far_apart_is_not_the_same():
    text = "Nov 21 01:55:{} n1 {} [7] (f) \tnotice: Node n2 state is now lost | nodeid=2"
    near = rows(log=text.format("01.000", "pacemaker-attrd") + "\n" + text.format("03.999", "pacemaker-based"))
    far = rows(log=text.format("01.000", "pacemaker-attrd") + "\n" + text.format("04.100", "pacemaker-based"))
    assert (len(near), len(far)) == (1, 2)


def test_nodes_keep_their_rows():
    found = rows(a=FENCED.format(55, 157, "n1", "d43e5649"), b=FENCED.format(55, 161, "n3", "d43e5649"))
    assert [row["node"] for row in found] == ["n1", "n3"]


def test_the_finer_clock_of_two_logs_is_kept():
    """Pacemaker's file is to the second, and has what the system log cuts off."""
    file = "Nov 21 01:55:06 n1 pacemaker-controld [7] (f) \tnotice: Node n2 state is now lost | nodeid=2"
    syslog = "2026-11-21T01:55:06.333123+00:00 n1 pacemaker-controld[7]:  notice: Node n2 state is now lost"
    (row,) = rows(a=file, b=syslog)
    assert (row["file"], row["ts_res"], row["ts_wall"] % 1_000_000) == ("a", 1, 333_123)
    assert row["attrs"]["nodeid"] == "2"


def test_two_fencings_of_one_node_are_two():
    """A second operator fences again while the first fencing is not over."""
    found = rows(a=FENCED.format(55, 157, "n1", "d43e5649") + "\n" + FENCED.format(55, 957, "n1", "00c0ffee"))
    assert [row["attrs"]["event"] for row in found] == ["d43e5649", "00c0ffee"]


def test_rows_without_time_stay():
    found = collapse.per_node([{"kind": "quorum", "source": "pacemaker", "file": "x", "line_no": n} for n in (2, 1)])
    assert [row["line_no"] for row in found] == [1, 2]


def test_clients_and_brokers_are_not_touched():
    event = {"kind": "state", "source": "broker", "node": "n", "ts_wall": 1, "attrs": {}}
    assert collapse.per_node([event, dict(event)]) == [event, event]


def test_lab():
    kept = collapse.per_node(lab_events())
    before, after = (Counter(event["kind"] for event in events) for events in (lab_events(), kept))
    # each survivor tells a loss once, not four times; Kronosnet tells a dead link up to three times
    assert (before["peer_state"], after["peer_state"]) == (191, 51)
    assert (before["no_links"], after["no_links"]) == (74, 38)
    assert {kind for kind in before if before[kind] != after[kind]} == {"peer_state", "no_links"}
    assert {place for row in kept for place in collapse.evidence(row)} == {
        (event["file"], event["line_no"]) for event in lab_events()
    }


def test_lab_has_four_fencings_and_each_loss_once():
    kept = collapse.per_node(lab_events())
    fencings = Counter((row["peer"], row["attrs"]["event"]) for row in kept if row["kind"] == "fence_op_done")
    assert sorted(peer for peer, _ in fencings) == ["node1", "node1", "node2", "node2"]
    assert set(fencings.values()) == {2}, "both survivors"
    losses = Counter(
        (row["node"], row["peer"], row["ts_wall"] // 5_000_000)
        for row in kept
        if row["kind"] == "peer_state" and row["new"] == "lost"
    )
    assert set(losses.values()) == {1}


def test_order_of_the_input_does_not_matter():
    events = list(lab_events())
    wanted = collapse.per_node(events)
    random.Random(7).shuffle(events)
    assert collapse.per_node(events) == wanted


def test_twice_is_once():
    """A bundle that holds the same log twice, and a second run over what was collapsed."""
    copy = [event | {"file": "again/" + event["file"]} for event in lab_events()]
    kept = collapse.per_node(lab_events())
    assert len(collapse.per_node([*lab_events(), *copy])) == len(kept)
