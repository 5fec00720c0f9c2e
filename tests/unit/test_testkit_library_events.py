"""The client library's event log as a history: what is an attempt, a dequeue, a mark; `judge` has the counting."""

from client_lib.events import EventLog
from demo.events import expand, read
from testkit.library_events import LibraryHistory, outage


def history(attempts=(), confirmed=(), dequeued=(), drained=True):
    events = [{"kind": "publish", "msg_id": m, "client_id": "p", "ts_mono": 1} for m in attempts]
    events += [{"kind": "confirm", "msg_id": m, "client_id": "p", "ts_mono": 2} for m in confirmed]
    events += [{"kind": "deliver", "msg_id": m, "client_id": "c", "ts_mono": 3} for m in dequeued]
    events += [{"kind": "ack", "msg_id": m, "client_id": "c", "ts_mono": 3} for m in dequeued]
    if drained:
        events.append({"kind": "drain_end", "client_id": "c", "result": "ok", "ts_mono": 4})
    return LibraryHistory().add(events)


def test_jepsen_pathological():
    """Hung, dup, enqueued: `wtf` was never sent, `enqueued` was confirmed and never came, `dup` came twice."""
    found = history(
        attempts=["hung", "enqueued", "dup"], confirmed=["enqueued", "dup"], dequeued=["dup", "wtf", "dup"]
    ).verdict()
    assert (found.lost, found.unexpected, found.duplicated, found.received, found.attempted) == (1, 1, 1, 1, 3)
    assert found.ids == {"missing": ("enqueued",), "unexpected": ("wtf",), "unmarked": ("dup",), "repeated": ("dup",)}
    assert not found.valid


def test_without_a_drain_nothing_is_called_lost():
    found = history(attempts="12", confirmed="12", dequeued="1", drained=False).verdict()
    assert (found.lost, found.unaccounted) == (0, 1)
    assert not found.valid


def test_a_re_send_is_no_attempt_and_marks_its_duplicate():
    found = history(attempts="1", confirmed="1", dequeued="11")
    assert (found.verdict().duplicated, found.verdict().unmarked) == (1, 1)
    found.add([{"kind": "publish", "msg_id": "1", "client_id": "p", "resend": True, "ts_mono": 9}])
    found.add([{"kind": "confirm", "msg_id": "1", "client_id": "p", "ts_mono": 9}])
    verdict = found.verdict()
    assert (verdict.attempted, verdict.confirmed, found.resent) == (1, 1, 1)
    assert (verdict.duplicated, verdict.unmarked) == (1, 0)


def test_a_redelivery_marks_a_duplicate():
    found = history(attempts="1", confirmed="1", dequeued="11")
    found.add([{"kind": "deliver", "msg_id": "1", "client_id": "c", "redelivered": True, "ts_mono": 9}])
    assert found.verdict().unmarked == 0


def test_outage_is_the_longest_pause_that_touches_the_fault():
    times = [0, 1000, 2000, 902_000, 903_000, 2_000_000]
    assert outage(times, 1500, 903_000) == 1097.0
    assert outage(times, 1500, 900_000) == 900.0
    assert outage(times, 0, 500) == 1.0
    assert outage(times, 3_000_000, 4_000_000) is None
    assert outage([], 0, 1) is None


def test_what_was_logged_is_read_back(tmp_path):
    log = EventLog("p1", tmp_path)
    for number in range(1, 6):
        log.message("publish", "q", f"p1:{number}", number == 5)
    log.fact("connected", peer="node1")
    log.close()
    (tmp_path / "torn.jsonl.open").write_text('{"kind":"publish","msg_')
    events = list(read(tmp_path))
    assert [event["kind"] for event in events] == ["publish"] * 5 + ["connected", "log_end"]
    assert [event.get("msg_id") for event in events[:5]] == [f"p1:{number}" for number in range(1, 6)]
    assert [event.get("resend", False) for event in events[:5]] == [False] * 4 + [True]
    moments = [event["ts_mono"] for event in events]
    assert moments == sorted(moments)


def test_a_run_is_taken_apart_evenly():
    attrs = {"last": "a:b:9", "count": "3", "last_ts_mono": "200"}
    found = list(expand({"kind": "ack", "msg_id": "a:b:7", "ts_mono": 100, "attrs": attrs}))
    assert [(event["msg_id"], event["ts_mono"]) for event in found] == [("a:b:7", 100), ("a:b:8", 150), ("a:b:9", 200)]


def test_a_file_that_is_closed_while_others_are_read(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl.open").write_text(f'{{"kind":"{name}"}}\n')
    events = read(tmp_path)
    assert next(events)["kind"] == "one"
    (tmp_path / "two.jsonl.open").rename(tmp_path / "two.jsonl")
    assert [event["kind"] for event in events] == ["two"]
