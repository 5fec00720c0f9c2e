"""The verdict of a campaign: Jepsen's vectors, what we ask beyond them, and proof that it can fail."""

import random

import pytest

from testkit.judge import History, Verdict, longest_pause, quantile
from testkit.record import Recorder, body_of, id_of, read


def event(kind, id, client="c", t=1, **more):
    return {"kind": kind, "id": id, "client": client, "t": t, **more}


def history(attempts=(), confirmed=(), dequeued=()):
    events = [event("invoke", id) for id in attempts] + [event("ok", id) for id in confirmed]
    return History().add([*events, *(event(kind, id) for id in dequeued for kind in ("receive", "ack"))])


def test_jepsen_empty():
    assert history().verdict() == Verdict()
    assert history().verdict().valid


def test_jepsen_sane():
    """Two attempts, one confirmed, both dequeued: the unconfirmed one is recovered."""
    found = history(attempts="12", confirmed="2", dequeued="12").verdict()
    assert (found.attempted, found.confirmed, found.received, found.recovered, found.lost) == (2, 1, 2, 1, 0)
    assert found.valid


def test_jepsen_pathological():
    """Hung, dup, enqueued: `wtf` was never sent, `enqueued` was confirmed and never came, `dup` came twice."""
    found = history(
        attempts=["hung", "enqueued", "dup"], confirmed=["enqueued", "dup"], dequeued=["dup", "wtf", "dup"]
    ).verdict()
    assert (found.lost, found.unexpected, found.duplicated, found.received, found.attempted) == (1, 1, 1, 1, 3)
    assert found.ids["missing"] == ("enqueued",)
    assert found.ids["unexpected"] == ("wtf",)
    assert not found.valid


def test_a_planted_loss_among_many_is_found():
    ids = [f"p1:{number}" for number in range(5000)]
    stolen = random.Random(1).choice(ids)
    assert history(ids, ids, ids).verdict().valid
    found = history(ids, ids, [id for id in ids if id != stolen]).verdict()
    assert (found.lost, found.ids["missing"], found.valid) == (1, (stolen,), False)


def test_received_but_not_acknowledged_is_lost_when_it_does_not_come_again():
    found = history("1", "1").add([event("receive", "1")]).verdict()
    assert (found.lost, found.valid) == (1, False)


def test_without_a_drain_nothing_is_called_lost_but_nothing_is_proved():
    found = history("12", "12", "1").verdict(drained=False)
    assert (found.lost, found.unaccounted, found.valid) == (0, 1, False)


@pytest.mark.parametrize(
    "mark",
    [event("receive", "1", redelivered=True), event("receive", "1", resent=True), event("invoke", "1", again=True)],
)
def test_duplicates_are_marked_by_broker_or_producer(mark):
    found = history("1", "1", "11")
    assert (found.verdict().duplicated, found.verdict().unmarked) == (1, 1)
    assert found.verdict().valid
    found.add([mark])
    assert (found.verdict().duplicated, found.verdict().marked, found.verdict().unmarked) == (1, 1, 0)


def begin(client, queue):
    return {"kind": "begin", "client": client, "queue": queue}


@pytest.mark.parametrize(
    ("received", "repeated"),
    [
        (["a"], ()),
        (["a", "a"], ("1",)),
        (["a", "a2"], ("1",)),
        (["a", "a*", "a+"], ()),
        (["a*", "a"], ()),
        (["a", "a*", "a2"], ("1",)),
        (["a", "b"], ()),
        (["a", "b", "a", "b"], ("1",)),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_of_each_queue_one_delivery_comes_without_a_mark(received, repeated, again):
    """a, a2: two clients of one queue; b: one of another, where its dead letters go.  Nothing is acknowledged, and a
    producer that has sent the message again excuses no delivery that does not say so."""
    found = History().add([begin("a", "q"), begin("a2", "q"), begin("b", "dead"), event("invoke", "1")])
    found.add([event("invoke", "1", again=True)] if again else [])
    for name in received:
        marks = {"redelivered": "*" in name, "resent": "+" in name}
        found.add([event("receive", "1", name.rstrip("*+"), **marks)])
    verdict = found.verdict()
    assert (verdict.repeated, verdict.ids.get("repeated", ())) == (len(repeated), repeated)


def test_a_re_send_is_no_attempt_and_a_second_confirm_no_message():
    found = history("1", "1", "1").add([event("invoke", "1", again=True), event("ok", "1")]).verdict()
    assert (found.attempted, found.confirmed, found.lost) == (1, 1, 0)


def test_outcomes_that_are_no_confirm():
    found = history("1234", "1", "12").add([event("nack", "2"), event("unknown", "3"), event("unknown", "1")]).verdict()
    assert (found.refused, found.unknown, found.recovered) == (1, 1, 1)


def test_a_transaction_is_whole_or_absent():
    sent = [event("invoke", id, tx="t") for id in "123"]
    assert History().add(sent).verdict().torn == 0
    whole = [event(kind, id) for id in "123" for kind in ("receive", "ack")]
    assert History().add([*sent, *whole]).verdict().torn == 0
    found = History().add([*sent, *whole[:2]]).verdict()
    assert (found.torn, found.ids["torn"], found.valid) == (1, ("t",), False)


def test_what_was_never_committed_must_not_be_seen():
    found = history("1").add([event("abort", "1"), event("receive", "1")]).verdict()
    assert (found.phantom, found.valid) == (1, False)


def test_confirms_are_kept_by_client():
    found = History().add([event("ok", "1", "a", 5), event("ok", "2", "b", 7), event("fact", "", "a", 9)])
    assert found.confirms == {"a": [5], "b": [7]}


def test_the_longest_pause_touches_the_round():
    moments = [0, 1_000_000, 1_200_000, 4_200_000, 4_300_000, 9_000_000]
    assert longest_pause(moments, 1_100_000, 4_250_000) == 3.0
    assert longest_pause(moments, 4_200_000, 4_300_000) == 0.1
    assert longest_pause(moments, 4_300_000, 6_300_000) == 2.0
    assert longest_pause([], 0, 2_000_000) == 2.0


def test_quantiles():
    assert quantile([], 0.5) == 0.0
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([1, 2], 0.5) == 1
    assert quantile(range(1, 11), 0.9) == 9
    assert quantile([5], 0.99) == 5


def test_a_changed_body_is_a_failure():
    found = history("1", "1", "1").add([event("receive", "1", changed=True)]).verdict()
    assert (found.changed, found.lost, found.valid) == (1, 0, False)


def test_ids_and_bodies_tell_of_each_other(tmp_path):
    bodies = {id: body_of(id) for id in (f"p1:{number}" for number in range(1000))}
    assert all(id_of(body) == id for id, body in bodies.items())
    assert max(map(len, bodies.values())) > 10_000
    record = Recorder(tmp_path, "c1")
    record.received("p1:1", bodies["p1:1"], False, False)
    record.received("p1:2", bodies["p1:1"], True, False)
    record.close()
    (tmp_path / "torn.jsonl").write_text('{"kind":')
    received = [event for event in read(tmp_path) if event["kind"] == "receive"]
    assert [event.get("changed", False) for event in received] == [False, True]
