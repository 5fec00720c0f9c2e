"""What is paired with what; and the real logs, as they are and with their clocks moved."""

from random import Random

import pytest

from spark_jobs.clocks.estimate import solve
from spark_jobs.clocks.pairs import (
    ATTRIBUTE_SPREAD,
    BUCKET,
    RING_SPREAD,
    Observation,
    from_rows,
    links,
    stamp_error,
    thinned,
)
from tests.spark.clock_world import BEGIN, HOUR, SECOND
from tests.spark.pairs_judge import observations
from tests.spark.parse_lab import lab_events

NODES = ("node1", "node2", "node3")


def row(node, at, kind, source="broker", **more):
    return {"node": node, "ts_wall": BEGIN + at, "ts_res": 1, "kind": kind, "source": source} | more


def told(events):
    """(kind, sender, receiver, delay)"""
    return [(item.kind, item.sender, item.receiver, item.delay) for item in observations(events)]


def operation(kind, node, at, pid="1", **attrs):
    return row(node, at, kind, "pacemaker", attrs={"pid": pid, "target": "b"} | attrs)


def exchange(begin, dc="a", uuid="u1", trans="7", pid="1", call="3", delay=2_000):
    key = {"trans": trans, "action": "4", "op": "x_promote_0"}
    return [
        operation("initiate", dc, begin, pid, **key),
        operation("op_request", "b", begin + delay, "9", uuid=uuid, **key),
        operation("op_result", "b", begin + delay + 50_000, "9", op="x_promote_0", call=call),
        operation("op_confirmed", dc, begin + 2 * delay + 50_000, pid, call=call, **key),
    ]


# ---- the lab


def kept(sender, receiver, kinds, events=None):
    """Delays between two nodes in ms, before any slack."""
    found = links(lab_events() if events is None else events)
    return [
        (link.received["ts_wall"] - link.sent["ts_wall"]) / 1_000
        for link in found
        if (link.sent["node"], link.received["node"]) == (sender, receiver) and link.kind in kinds
    ]


def moved(**shifts):
    return [event | {"ts_wall": event["ts_wall"] + shifts.get(event["node"], 0)} for event in lab_events()]


def middle(sender, receiver, events=None):
    """(min_fwd - min_bwd)/2 and (min_fwd + min_bwd)/2 in ms: the hand-made solution of the analysis."""
    forward, back = kept(sender, receiver, ("initiate",), events), kept(receiver, sender, ("result",), events)
    return (min(forward) - min(back)) / 2, (min(forward) + min(back)) / 2


def test_the_lab_has_many_pairs_of_all_members():
    """The first analysis found 27+21 and 7+5: it did not know which transition an `Initiating` belongs to."""
    assert len(kept("node3", "node1", ("initiate",))) >= 27 and len(kept("node1", "node3", ("result",))) >= 21
    assert len(kept("node3", "node2", ("initiate",))) >= 7 and len(kept("node2", "node3", ("result",))) >= 5


@pytest.mark.parametrize(("node", "offset", "error"), [("node1", -2, 2), ("node2", -4, 8)])
def test_the_labs_offsets_are_those_of_the_analysis(node, offset, error):
    """One kernel clock: the truth is 0.  More pairs than the first analysis had, so the error may be smaller."""
    found, bound = middle("node3", node)
    assert bound <= error and abs(found) <= bound  # a tick of 4 ms hides the rest
    assert abs(found - offset) <= error + bound


@pytest.mark.parametrize(("node", "shift", "width"), [("node3", 350_000, 20_000), ("node2", -1_200_000, 30_000)])
def test_moved_clocks_of_the_lab_are_found(node, shift, width):
    """node2 talks with node1 only by way of the DC, node3: so both errors add up."""
    events = moved(node3=350_000, node2=-1_200_000)
    found = solve(observations(events), events, reference="node1")
    (segment,) = [item for item in found.rows() if item["node"] == node]
    assert abs(segment["offset_us"] - shift) <= segment["err_us"] < 20_000
    x = next(event["ts_wall"] for event in events if event["kind"] == "fence_request")
    lo, hi = found.segments[node][0].bounds(x)
    assert lo <= shift <= hi and hi - lo <= width


def test_the_moved_lab_gives_the_same_numbers_shifted():
    events = moved(node3=350_000, node2=-1_200_000)
    for node, shift in (("node1", -350), ("node2", -1_550)):
        plain, plain_bound = middle("node3", node)
        offset, bound = middle("node3", node, events)
        assert (offset, bound) == (plain + shift, plain_bound)


def test_zero_is_inside_of_every_bound_of_the_lab_and_no_step_is_invented():
    events = lab_events()
    for reference in (*NODES, None):
        found = solve(observations(events), events, reference=reference)
        assert found.breaks == () and found.dropped == ()
        for event in events:
            _, lo, hi = found.correct(event)
            assert lo <= event["ts_wall"] <= hi
            assert hi - lo <= 45_000


def test_bounds_of_the_lab_would_not_hold_without_the_resolution():
    """4 ms of the clock, and the ms that are cut off: the slack is needed, and it is not more."""
    sharp = [
        Observation(item.sender, item.receiver, item.sent, item.delay - 5_000, 0, item.kind)
        for item in observations(lab_events())
    ]
    found = solve(sharp)
    assert found.dropped or found.breaks


def test_an_hour_between_the_labs_nodes_does_no_harm_and_is_named():
    events = moved(node1=HOUR)
    found = solve(observations(events), events)
    notes = {item["node"]: item["notes"] for item in found.rows()}
    assert notes["node1"].startswith("zone: +1 h (the rest is ")
    assert "zone" not in notes["node2"] + notes["node3"]
    assert len(kept("node3", "node1", ("initiate",), events)) == len(kept("node3", "node1", ("initiate",)))


def test_a_step_in_the_lab_is_found_with_no_monotonic_clock():
    """node2 is set by -2 s in the middle of the run."""
    middle_of_run = 1_795_226_120_000_000
    late = [e for e in lab_events() if e["node"] == "node2" and e["ts_wall"] >= middle_of_run]
    events = [e | {"ts_wall": e["ts_wall"] - 2 * SECOND} if any(e is f for f in late) else e for e in lab_events()]
    found = solve(observations(events), events)
    assert {item.node for item in found.breaks} == {"node2"}
    truths = [(new, old["ts_wall"]) for new, old in zip(events, lab_events(), strict=True)]
    wrong = [new for new, truth in truths if not found.correct(new)[1] <= truth <= found.correct(new)[2]]
    assert wrong == []


def test_the_order_of_the_rows_plays_no_part():
    events = list(lab_events())
    Random(4).shuffle(events)
    assert observations(events) == observations(lab_events())


# ---- operations


def test_both_ways_of_an_operation():
    assert told(exchange(0)) == [("initiate", "a", "b", 2_000), ("result", "b", "a", 2_000)]


def test_what_stays_on_one_node_says_nothing():
    rows = [event | {"node": "b"} for event in exchange(0)]
    assert told(rows) == []


def test_transition_numbers_of_another_dc_are_told_apart_by_what_they_have_in_common():
    """Both DCs had a transition 7; only the second one had 8.  The first one's lines are an hour off."""
    first = exchange(0, "a", "u1")
    second = [*exchange(90 * SECOND, "c", "u2", "7", "5"), *exchange(95 * SECOND, "c", "u2", "8", "5")]
    hour = [event | {"ts_wall": event["ts_wall"] + HOUR} if event["node"] == "a" else event for event in first]
    alone = [event for event in second if event["node"] == "c" or event["attrs"].get("uuid") == "u2"]
    found = {(link.sent["node"], link.received["node"]) for link in links([*hour, *alone])}
    assert ("c", "b") in found
    assert all(link.received["ts_wall"] - link.sent["ts_wall"] == 2_000 for link in links(alone))


def test_a_request_that_two_dcs_may_have_sent_is_left_out():
    rows = [event for event in exchange(0) if event["kind"] != "initiate"]
    rows += [exchange(0, dc)[0] for dc in ("a", "c")]
    assert told(rows) == []


def test_a_result_of_another_call_is_left_out():
    rows = exchange(0)
    rows[2] = rows[2] | {"attrs": rows[2]["attrs"] | {"call": "99"}}
    assert [item[0] for item in told(rows)] == ["initiate"]


# ---- rings and attributes


def ring(node, at, name="1.5"):
    return row(node, at, "membership", "corosync", attrs={"ring": name})


def test_a_ring_is_one_moment_give_or_take_a_rotation():
    found = observations([ring("a", 0), ring("b", 3_000)])
    assert [(item.sender, item.delay, item.slack) for item in found] == [
        ("a", 3_000, RING_SPREAD + 1),
        ("b", -3_000, RING_SPREAD + 1),
    ]


def test_a_ring_that_was_formed_twice_says_nothing():
    assert told([ring("a", 0), ring("b", 0), ring("b", 50 * SECOND)]) == []


def attribute(node, at, value):
    attrs = {"name": "score", "target": "a", "writer": "a"}
    return row(node, at, "attr", "pacemaker", new=value, attrs=attrs)


def test_broadcasts_stand_in_where_there_is_nothing_better():
    rows = [attribute(node, number * SECOND, str(number)) for number in range(5) for node in "ab"]
    late = [event | {"ts_wall": event["ts_wall"] + 40 * SECOND} for event in rows[-1:]]  # told again to who joins
    assert {item[0] for item in told(rows)} == {"attr"}
    found = observations([*rows[:-1], *late])
    assert all(abs(item.delay) <= ATTRIBUTE_SPREAD for item in found) and found
    assert {item[0] for item in told([*rows, ring("a", 0), ring("b", 0)])} == {"ring"}


def test_two_broadcasts_are_too_few():
    assert told([attribute(node, number * SECOND, str(number)) for number in range(2) for node in "ab"]) == []


# ---- brokers and clients


def test_heartbeats_carry_the_senders_clock():
    rows = [row("b", 500, "clock", peer="10.0.0.1:5672", attrs={"peer_wall": str(BEGIN)})]
    rows.append(row("a", 0, "start", attrs={"address": "10.0.0.1:5672", "broker_id": "x"}))
    assert told(rows) == [("clock", "a", "b", 500)]
    assert told(rows[:1]) == []  # an address that no broker claims


def test_clients_and_brokers_tell_each_other_the_time():
    rows = [
        row("a", 0, "start", attrs={"address": "h:1"}),
        row("host", 900, "connected", "client", client_id="p1", peer="h:1", attrs={"peer_wall": str(BEGIN + 300)}),
        row("host", 950, "connected", "client", peer="vip:1", attrs={"broker": "a", "peer_wall": str(BEGIN + 351)}),
        row("a", 700, "client_open", client_id="p1", attrs={"peer_wall": str(BEGIN + 400)}),
        row("a", 800, "client_open", client_id="p1", attrs={"peer_wall": "yesterday"}),
    ]
    assert told(rows) == [("connected", "a", "host", 599), ("client_open", "host", "a", 300)]
    del rows[2]  # whose name is not an address of "a"
    assert told(rows)[0] == ("connected", "a", "host", 600)


def test_batches_that_name_their_peer_are_exact_and_only_once():
    send = row("a", 0, "repl_send", peer="b", queue="q", first_pos=1, last_pos=9)
    receive = row("b", 400, "repl_recv", peer="a", queue="q", first_pos=1, last_pos=9)
    assert told([send, receive]) == [("repl", "a", "b", 400)]
    assert told([send, receive, send | {"ts_wall": BEGIN + 90}]) == []


def test_samples_bound_only_what_is_strictly_behind():
    """The position was sampled late: equal positions would say that it arrived before it was there."""
    rows = [row("a", at, "repl_send", last_pos=pos, term=1) for at, pos in ((0, 10), (500_000, 20))]
    same = row("b", 100_000, "repl_recv", last_pos=20, term=1)
    more = row("b", 700_000, "repl_recv", last_pos=21, term=1)
    assert told([*rows, same]) == [("repl_sample", "a", "b", 100_000)]  # behind 10, not 20
    assert ("repl_sample", "a", "b", 200_000) in told([*rows, more])
    assert told([*rows, more | {"term": 2}]) == []


def test_messages_that_brokers_name():
    rows = [row("host", 0, "publish", "client", msg_id="p:1"), row("a", 70, "enqueue", msg_id="p:1")]
    assert told(rows) == [("publish", "host", "a", 70)]


# ---- thinning


def test_the_shortest_of_a_bucket_is_kept_with_the_number_of_all():
    at = BEGIN // BUCKET * BUCKET
    found = [Observation("a", "b", at + number, 50 - number, 1, "clock") for number in range(10)]
    assert thinned([*found, Observation("a", "b", at + BUCKET, 99, 1, "clock")]) == [
        Observation("a", "b", at + 9, 41, 1, "clock", 10),
        Observation("a", "b", at + BUCKET, 99, 1, "clock", 1),
    ]
    rows = [{"sender": "a", "receiver": "b", "kind": "clock", "sent": at, "delay": 3, "slack": 1, "count": 700}]
    assert from_rows(rows) == [Observation("a", "b", at, 3, 1, "clock", 700)]


@pytest.mark.parametrize(("resolution", "error"), [(1, 1), (1_000, 1_000), (SECOND, SECOND), (4_000, 5_000)])
def test_a_stamp_is_early_by_up_to_its_resolution(resolution, error):
    assert stamp_error({"ts_res": resolution}) == error
