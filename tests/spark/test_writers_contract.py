"""The one contract between writers and readers: what the real writers write, the real parsers read without a fault."""

import ast
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import client_lib.events
import ha.shell.events
from client_lib import Connection, Message
from demo.events import read as read_demo
from ha.qpid_cluster.events import SupervisorEvents
from ha.qpid_cluster.supervision import Note
from spark_jobs import schema
from spark_jobs.bundle import Bundle
from spark_jobs.clocks import estimate as clocks
from spark_jobs.clocks import pairs as clock_pairs
from spark_jobs.parse import broker_text
from spark_jobs.parse.context import Context, Tally
from spark_jobs.parse.detect import PARSERS, detect
from tests.spark.messages_judge import expanded, judge
from tests.spark.pairs_judge import observations
from tests.spark.written import faults
from tests.support import programs
from tests.support.process import BrokerProcess, HeldPort
from tests.support.wait import wait_for

ROOT = Path(__file__).resolve().parents[2]
READ_ONLY = {column.name for column in schema.COLUMNS if not column.written}


def segments(directory: Path) -> tuple[list[dict[str, Any]], Tally]:
    """All event segments below, read as the jobs read them."""
    rows, context = [], Context()
    with Bundle(directory) as bundle:
        for file in bundle:
            kind = detect(file.name, file.head())
            if kind in ("broker_json", "client_json"):
                rows += PARSERS[kind](file.name, file.lines(), context)
        assert not bundle.refused
    return rows, context.tally


JSON_SCHEMA = schema.json_schema()
JSON_TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict}


def fits_json_schema(event: dict[str, Any]) -> bool:
    """As far as it uses JSON Schema: required, properties with a type, no others."""
    types = {name: JSON_TYPES[one["type"]] for name, one in JSON_SCHEMA["properties"].items()}
    complete = set(JSON_SCHEMA["required"]) <= event.keys() <= types.keys()
    return complete and all(value is None or type(value) is types[name] for name, value in event.items())


def test_the_json_schema_refuses_what_is_no_event():
    event: dict[str, Any] = {"source": "broker", "kind": "start", "ts_wall": 1}
    assert fits_json_schema(event)
    wrong = [{**event, "ts_wall": "1"}, {**event, "colour": "red"}, {"source": "broker", "kind": "start"}]
    assert not any(fits_json_schema(one) for one in wrong)
    shown = subprocess.run([sys.executable, "-m", "spark_jobs.schema"], capture_output=True, check=True, cwd=ROOT)
    assert json.loads(shown.stdout) == JSON_SCHEMA


def check(rows: list[dict[str, Any]], tally: Tally) -> None:
    """Sound, known, complete, and nothing lost on the way."""
    assert rows and tally.faulty == tally.torn == tally.unknown == 0, tally.faults
    for row in rows:
        event = {name: value for name, value in row.items() if name not in READ_ONLY}
        assert faults(event) == [], event
        assert fits_json_schema(event), event
        assert {"node", "proc", "boot_id", "seq", "ts_wall", "ts_mono", "ts_res"} <= {n for n in event if event[n]}
    numbers = Counter(row["proc"] for row in rows)
    for proc, count in numbers.items():
        assert sorted(row["seq"] for row in rows if row["proc"] == proc) == list(range(1, count + 1)), proc


# ---- every kind and field of each writer --------------------------------------------------------------------------


def literals(folder: str, *calls: str) -> Iterator[str]:
    """The first arguments of the calls, as far as they are written out; with both branches of a condition."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and _name(node.func) in calls:
                for found in ast.walk(node.args[0]):
                    if isinstance(found, ast.Constant) and isinstance(found.value, str):
                        yield found.value


def _name(func: ast.expr) -> str:
    if isinstance(func, ast.Attribute):
        owner = func.value.attr if isinstance(func.value, ast.Attribute) else getattr(func.value, "id", "")
        return f"{owner.lstrip('_')}.{func.attr}"
    return getattr(func, "id", "")


def test_every_kind_that_a_broker_writes_is_known() -> None:
    written = set(literals("ha", "env.event", "events.write")) | {"log_end"}
    assert {"start", "state", "promoted", "backup_lost", "confirm_sent"} <= written
    assert written <= schema.BROKER_KINDS


def test_every_kind_that_the_supervisor_writes_is_known() -> None:
    written = set(literals("ha", "Note")) | {"log_end"}
    assert {"start", "state", "promoted", "hung", "exit"} <= written
    assert written <= schema.KINDS["qpid-cluster"]


def test_every_kind_that_a_client_writes_is_known() -> None:
    written = set(client_lib.events.KINDS)
    for folder in ("client_lib", "demo"):
        written |= set(literals(folder, "events.fact", "log.fact"))
    assert {"connected", "publish", "deliver", "log_end"} <= written
    assert written <= schema.CLIENT_KINDS


def test_the_schema_has_every_field_of_the_writers_with_their_types() -> None:
    written = {column.name: column.type for column in schema.COLUMNS if column.written}
    types = {str: "string", int: "bigint", bool: "boolean", dict: schema.TEXTS}
    assert {name: types[type_] for name, type_ in client_lib.events.FIELDS.items()} == {**written, "ts_res": "bigint"}
    assert set(ha.shell.events._FIELDS) <= set(written)


# ---- the writers alone --------------------------------------------------------------------------------------------


def test_the_brokers_writer(tmp_path: Path) -> None:
    log = ha.shell.events.EventLog(tmp_path, "node 1", lambda: 7, "prod")
    for kind in sorted(schema.BROKER_KINDS - {"log_end"}):
        log.write(
            kind, **dict.fromkeys(("peer", "queue", "old", "new", "reason", "result"), "ä\n"), first_pos=1, last_pos=2
        )
    log.write("state", attrs={"n": 1, "none": None, "flag": True})
    log.close()
    rows, tally = segments(tmp_path)
    check(rows, tally)
    assert {row["kind"] for row in rows} == schema.BROKER_KINDS
    assert (rows[0]["cluster"], rows[0]["node"], rows[0]["term"], rows[0]["source"]) == ("prod", "node 1", 7, "broker")
    assert rows[0]["reason"] == "ä\n" and (rows[0]["first_pos"], rows[0]["last_pos"]) == (1, 2)
    assert rows[-1]["kind"] == "log_end"


def test_the_clients_writer_with_runs(tmp_path: Path) -> None:
    log = client_lib.events.EventLog("p1", tmp_path, cluster="prod")
    for kind in sorted(schema.CLIENT_KINDS - schema.MESSAGE_KINDS - {"log_end"}):
        log.fact(kind, peer="h:1", conn_id="p1#1", planned=True, attrs={"a": 1})
    log.messages("publish", "q", [f"p1:{n}" for n in range(1, 2501)])
    log.messages("deliver", "q", ["x", None, "p1:1", "p1:2"], True)
    log.message("resend", "q", "p1:9", True)
    log.close()
    rows, tally = segments(tmp_path)
    check(rows, tally)
    assert {row["kind"] for row in rows} == schema.CLIENT_KINDS - schema.MESSAGE_KINDS | {
        "publish",
        "deliver",
        "resend",
    }
    assert [(r["pub_first"], r["pub_last"]) for r in rows if r["kind"] == "publish"] == [
        (1, 1000),
        (1001, 2000),
        (2001, 2500),
    ]
    sent = [row for row in expanded(rows) if row["kind"] == "publish"]
    assert [row["msg_id"] for row in sent] == [f"p1:{n}" for n in range(1, 2501)]
    assert [(r.get("producer"), r.get("pub_first"), r.get("redelivered")) for r in rows if r["kind"] == "deliver"] == [
        ("x", 0, True), (None, None, True), ("p1", 1, True),
    ]  # fmt: skip


def test_the_open_segment_of_a_killed_client_and_its_torn_line(tmp_path: Path) -> None:
    log = client_lib.events.EventLog("p1", tmp_path)
    log.fact("connected", peer="h:1")
    log.message("publish", "q", "p1:1")
    log.flush_runs()
    (path,) = tmp_path.glob("*.jsonl.open")
    path.write_bytes(path.read_bytes()[:-20])
    rows, tally = segments(tmp_path)
    assert [row["kind"] for row in rows] == ["connected", "torn"]
    assert (rows[1]["proc"], rows[1]["client_id"], tally.torn, tally.faulty) == (rows[0]["proc"], "p1", 1, 0)


def test_the_supervisors_writer(tmp_path: Path) -> None:
    log = SupervisorEvents(tmp_path, "prod")
    for kind in sorted(schema.KINDS["qpid-cluster"] - {"log_end"}):
        log.note(Note(kind, f"text of {kind}", "node1", {"old": "a", "new": "b", "reason": "r", "term": 3, "ms": 1.5}))
    log.close()
    rows, tally = segments(tmp_path)
    check(rows, tally)
    assert {row["kind"] for row in rows} == schema.KINDS["qpid-cluster"]
    assert {row["source"] for row in rows} == {"qpid-cluster"}
    assert rows[0]["attrs"]["text"] == f"text of {rows[0]['kind']}" and rows[0]["peer"] == "node1"


def test_our_reading_and_the_demos_are_the_same(tmp_path: Path) -> None:
    log = client_lib.events.EventLog("c1", tmp_path)
    for number in range(1, 40):
        log.message("deliver", "q", f"p1:{number}", number % 7 == 0)
        log.message("ack", "q", f"p1:{number}")
    log.close()
    rows, _ = segments(tmp_path)
    ours = [(row["kind"], row.get("msg_id"), row["ts_mono"]) for row in expanded(rows)]
    theirs = [(row["kind"], row.get("msg_id"), row["ts_mono"]) for row in read_demo(tmp_path)]
    assert ours == theirs and len(ours) == 79


# ---- real processes -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What two brokers and a client leave: promoted, joined, 200 messages, primary killed, backup promoted."""
    directory = tmp_path_factory.mktemp("cluster")
    held = [HeldPort(), HeldPort()]
    url = ",".join(f"127.0.0.1:{port.port}" for port in held)
    options = ["--ha-cluster", "yes", "--ha-brokers-url", url, "--ha-replicate", "all"]
    options += ["--ha-promote-on-shutdown", "always"]
    brokers = [BrokerProcess(directory, *options, name=f"n{n}", port=port.port) for n, port in enumerate(held, 1)]
    try:
        for broker in brokers:
            broker.start()
        promote(brokers[0])
        wait_for(lambda: "is ready" in brokers[0].log, 60, lambda: brokers[0].log + brokers[1].log)
        exchange(brokers, directory / "clients")
        for broker in brokers:
            if broker.running:
                broker.stop()
        yield directory
    finally:
        for broker in brokers:
            broker.close()
        for port in held:
            port.release()


def promote(broker: BrokerProcess) -> None:
    words = ["promote", "--cluster-manager", "-b", broker.address]
    done = programs.run(
        [sys.executable, "-m", "ha.qpid_ha.main", *words], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr + broker.log


def exchange(brokers: list[BrokerProcess], directory: Path) -> None:
    directory.mkdir()
    url = ",".join(broker.address for broker in brokers)
    with Connection(url, client_id="app", event_log=str(directory), cluster="prod") as connection:
        session = connection.session()
        session.declare_queue("q", durable=True)
        sender, receiver = session.sender("q", capacity=50), session.receiver("q", capacity=50)
        for number in range(1, 201):
            sender.send(Message(b"x", id=f"app:{number}"), sync=False)
            if number == 100:
                sender.sync()
                brokers[0].signal(9)
                brokers[0].wait()
                promote(brokers[1])
        sender.sync()
        take(session, receiver, 200)
        session.events.fact("drain_end", queue="q", result="ok")


def take(session: Any, receiver: Any, count: int) -> None:
    seen: set[str] = set()
    deadline = time.monotonic() + 60
    while len(seen) < count:
        message = receiver.fetch(timeout=max(0.1, deadline - time.monotonic()))
        session.acknowledge(message, sync=False)
        seen.add(message.id)
    session.sync(timeout=10)


def test_what_real_brokers_and_a_client_leave_behind_is_read_whole(left_behind: Path) -> None:
    rows, tally = segments(left_behind)
    check(rows, tally)
    kinds = {(row["source"], row["kind"]) for row in rows}
    assert {("broker", kind) for kind in ("start", "state", "promoted", "stop", "log_end")} <= kinds
    assert {("client", kind) for kind in ("connected", "publish", "confirm", "deliver", "ack", "disconnected")} <= kinds


def test_the_verdict_over_what_they_left_behind(left_behind: Path) -> None:
    rows, _ = segments(left_behind)
    summary = judge(rows)
    assert (summary.attempts, summary.confirmed, summary.ok) == (200, 200, 200)
    assert (summary.lost, summary.unaccounted, summary.unexpected, summary.unmarked) == (0, 0, 0, 0)
    assert summary.valid


def test_without_the_segments_the_text_logs_say_the_same(left_behind: Path) -> None:
    rows, _ = segments(left_behind)
    here = Context(zone=timezone(timedelta(seconds=time.localtime().tm_gmtoff)))
    for node in ("n1", "n2"):
        lines = (left_behind / f"{node}.log").read_bytes().splitlines(keepends=True)
        found = list(broker_text.parse_file(f"{node}.log", lines, here))
        for kind in ("state", "promoted", "demote", "backup_lost", "primary_lost"):
            said = [row for row in found if row["kind"] == kind]
            written = [row for row in rows if row["kind"] == kind and row["node"] == node]
            assert list(map(facts, said)) == list(map(facts, written)), (node, kind)
            # cut to the second, and not written at the very same moment
            assert all(abs(a["ts_wall"] - b["ts_wall"]) < 1_500_000 for a, b in zip(said, written, strict=True))
    assert sum(row["kind"] == "promoted" for row in rows) == 2


def facts(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("old", "new", "reason", "peer"))


def test_a_tarball_of_it_gives_the_very_same_rows(left_behind: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-czf", tmp_path / "report.tar.gz", "-C", left_behind, "."], check=True)
    assert segments(tmp_path / "report.tar.gz")[0] == segments(left_behind)[0]


def test_a_demo_run_if_there_is_one() -> None:
    """The last `make demo`: its clients and brokers, the writers in full use."""
    directory = ROOT / "demo-run"
    if not (directory / "result.json").exists():
        pytest.skip("make demo has not run")
    written = max((path.stat().st_mtime for path in directory.rglob("*.jsonl*")), default=0)
    if written > (directory / "result.json").stat().st_mtime or list(directory.rglob("*.open")):
        pytest.skip("make demo runs")
    rows, tally = segments(directory)
    assert tally.faulty == 0, tally.faults
    result = json.loads((directory / "result.json").read_text())["messages"]
    summary = judge(rows)
    names = {
        "attempts": "attempted",
        "confirmed": "confirmed",
        "ok": "received",
        "lost": "lost",
        "recovered": "recovered",
    }
    names |= {name: name for name in ("unaccounted", "unexpected", "duplicated", "unmarked")}
    assert {name: getattr(summary, name) for name in names} == {name: result[other] for name, other in names.items()}
    assert summary.resends == result["resent"]


# ---- clocks ---------------------------------------------------------------------------------------------------------

TOLD = ("clock", "connected", "client_open")
"""Kinds of rows that carry the other one's reading."""


def test_each_pair_of_neighbours_has_told_its_clock_both_ways(left_behind: Path) -> None:
    rows, _ = segments(left_behind)
    client = next(row["node"] for row in rows if row["source"] == "client")
    found = {(item.sender, item.receiver, item.kind) for item in told(rows)}
    assert {("n1", "n2", "clock"), ("n2", "n1", "clock")} <= found
    assert {(name, client, "connected") for name in ("n1", "n2")} <= found
    assert {(client, name, "client_open") for name in ("n1", "n2")} <= found


def told(rows: list[dict[str, Any]]) -> list[clock_pairs.Observation]:
    """What follows from the readings alone: nothing else says where a clock stood."""
    blind = [{**row, "ts_mono": None, "boot_id": None} for row in rows if row["kind"] in ("start", *TOLD)]
    return [item for item in observations(blind) if item.kind in TOLD]


def test_the_clocks_of_brokers_and_client_are_found_from_what_they_told(left_behind: Path) -> None:
    rows, _ = segments(left_behind)
    solved = clocks.solve(told(rows), reference="n1").rows()
    assert len({row["node"] for row in solved}) == 3
    for row in solved:
        assert row["err_us"] is not None and row["err_us"] < 5_000, row
        assert abs(row["offset_us"]) <= row["err_us"] + 1, row  # they are one clock


def test_clients_that_come_and_go_are_in_the_brokers_log(left_behind: Path) -> None:
    rows, _ = segments(left_behind)
    opened = [row for row in rows if row["kind"] == "client_open"]
    closed = [row for row in rows if row["kind"] == "client_close"]
    assert [row["client_id"] for row in opened] == ["app", "app"]
    (mine,) = [row for row in rows if row["kind"] == "connected" and row["attrs"]["broker"] == "n2"]
    assert mine["conn_id"] == opened[1]["conn_id"] == closed[0]["conn_id"]
    assert "closed by the client" in closed[0]["reason"]


def test_a_broker_says_what_a_failover_may_take(left_behind: Path) -> None:
    rows, _ = segments(left_behind)
    for row in rows:
        if row["kind"] == "start" and row["source"] == "broker":
            assert row["attrs"] | {"ha-safety": "manager", "ha-backup-timeout": "10.0"} == row["attrs"]
            budget = {"link-heartbeat-interval", "ha-promote-timeout", "ha-isolation-timeout"}
            assert {"version", "address", "broker_id"} | budget <= set(row["attrs"])
