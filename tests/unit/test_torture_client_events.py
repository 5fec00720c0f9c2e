"""The campaign's histories as events of the report: its judge counts what the campaign's own checker counts."""

import json
import random

import pytest

from spark_jobs.parse import event_json
from spark_jobs.parse.context import Context
from testkit import record
from testkit.judge import History
from testkit.record import Recorder
from tests.spark.messages_judge import judge
from tests.spark.written import faults
from torture import client_events


def test_each_line_is_an_event(tmp_path):
    recorder = Recorder(tmp_path / "history", "c1")
    recorder.begin("q")
    recorder.fact("connected 10.1.0.1")
    recorder.message("invoke", "c1:1", again=False)
    recorder.message("unknown", "c1:1")
    recorder.fact("disconnected 10.1.0.1: ConnectionResetError [Errno 104]: reset")
    recorder.message("invoke", "c1:1", again=True)
    recorder.message("ok", "c1:1")
    recorder.received("c1:1", record.body_of("c1:1"), True, True)
    recorder.message("ack", "c1:1")
    recorder.close()
    client_events.write(tmp_path / "history", tmp_path / "events", drained=True, cluster="lab")
    lines = [json.loads(line) for line in (tmp_path / "events/client-c1.jsonl").read_bytes().splitlines()]
    assert [fault for line in lines for fault in faults(line)] == []
    kinds = ["connected", "publish", "disconnected", "resend", "confirm", "deliver", "ack", "drain_end", "log_end"]
    assert [line["kind"] for line in lines] == kinds
    assert [line["seq"] for line in lines] == list(range(1, len(kinds) + 1))
    lost = lines[2]
    assert (lost["peer"], lost["reason"]) == ("10.1.0.1", "ConnectionResetError [Errno 104]: reset")
    assert (lines[5]["redelivered"], lines[5]["resend"], lines[3]["resend"]) == (True, True, True)
    begin = next(record.read(tmp_path / "history"))
    assert {line["ts_wall"] - line["ts_mono"] for line in lines} == {begin["wall"] - begin["t"]}


def test_of_a_client_apart_the_report_gets_the_connections(tmp_path):
    """Brokers name it: without its log, no message could be lost to the report."""
    recorder = Recorder(tmp_path / "history", "dead1")
    recorder.begin("torture.dead", apart=True)
    recorder.fact("connected 10.1.0.1")
    recorder.received("p:1", record.body_of("p:1"), False, False)
    recorder.message("ack", "p:1")
    recorder.close()
    client_events.write(tmp_path / "history", tmp_path / "events", drained=True)
    lines = [json.loads(line) for line in (tmp_path / "events/client-dead1.jsonl").read_bytes().splitlines()]
    assert [(line["seq"], line["kind"], line["client_id"]) for line in lines] == [
        (1, "connected", "dead1"),
        (2, "log_end", "dead1"),
    ]


def test_a_client_that_was_killed_has_no_end():
    history = [{"t": 1, "client": "c", "kind": "begin", "queue": "q", "wall": 5, "node": "n", "boot_id": "b"}]
    history += [{"t": 2, "client": "c", "kind": "receive", "id": "p:1"}]
    assert [row["kind"] for row in client_events.converted(history, drained=True)] == ["deliver"]


def test_a_history_without_its_beginning_is_refused():
    with pytest.raises(ValueError, match="wanted the kind 'begin'"):
        list(client_events.converted([{"t": 2, "client": "c", "kind": "ack", "id": "p:1"}], drained=True))


@pytest.mark.parametrize("seed", range(200))
def test_the_same_counts_as_the_checker(seed):
    chance = random.Random(seed)
    drained = chance.random() < 0.8
    history = [event for client in ("p", "c") for event in _history(client, chance)]
    own = History().add(history).verdict(drained)
    rows = []
    for client in ("p", "c"):
        events = client_events.converted([one for one in history if one["client"] == client], drained)
        lines = [json.dumps(event).encode() + b"\n" for event in events]
        rows += event_json.parse_file(f"{client}.jsonl", lines, Context(), "client")
    found = judge(rows)
    assert (found.attempts, found.confirmed, found.ok) == (own.attempted, own.confirmed, own.received)
    assert (found.lost, found.unaccounted, found.recovered) == (own.lost, own.unaccounted, own.recovered)
    assert (found.duplicated, found.unmarked, found.unexpected) == (own.duplicated, own.unmarked, own.unexpected)


def _history(client, chance):
    """Any number of rows about twelve messages; no client acknowledges what it has not received."""
    common = {"client": client, "t": 1000}
    events = [{**common, "kind": "begin", "queue": "q", "wall": 5000, "node": "n", "boot_id": "b"}]
    for number in range(1, 13):
        id = f"p:{number}"
        if client == "p" and chance.random() < 0.95:
            again = chance.random() < 0.3
            events += [{**common, "kind": "invoke", "id": id}]
            events += [{**common, "kind": "invoke", "id": id, "again": True}] * again
            events += [{**common, "kind": chance.choice(["ok", "ok", "ok", "unknown", "nack"]), "id": id}]
        elif client == "c":
            for _ in range(chance.choice([0, 1, 1, 1, 1, 2, 3])):
                marks = {mark: True for mark in ("redelivered", "resent") if chance.random() < 0.3}
                events += [{**common, "kind": "receive", "id": id, **marks}]
                events += [{**common, "kind": "ack", "id": id}] * (chance.random() < 0.9)
    events += [{**common, "kind": "receive", "id": "p:1"}] if client == "c" else []
    return [*events, {**common, "kind": "end"}]
