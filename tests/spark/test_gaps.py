"""What cannot be known is said, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_jobs import pipeline
from spark_jobs.clocks.estimate import solve
from spark_jobs.clocks.pairs import Observation
from spark_jobs.clocks.segments import Clocks
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.gaps import findings as gaps
from spark_jobs.workspace import Workspace
from tests.spark.sql_histories import write
from tests.spark.truth import files, messages, nodes, processes
from tests.spark.truth.reading import events
from tests.spark.truth.rows import fact
from tests.spark.truth.world import START

Row = dict[str, Any]
KNOWN = [Observation(*ends, 1, 0, 0, "clock") for ends in (("a", "b"), ("b", "a"))]


def told(rows: list[Row]) -> list[tuple[str, str | None]]:
    return [(row["kind"], row["node"]) for row in rows]


def log(node: str = "a", source: str = "broker", **columns: Any) -> Row:
    whole = {"proc": f"{source}-{node}", "seqs": 3, "seq_sum": 6, "seq_max": 3, "ended": 1, "lines": 3, "ts_res": 1}
    return {"source": source, "node": node, "first_ts": 10, "last_ts": 30, "file": f"{node}.log", **whole, **columns}


def of_logs(*logs: Row, clocks: Clocks | None = None, **given: Any) -> list[Row]:
    here = log("c", "client")
    return gaps.find("k", [fact("a", 1, "start")], clocks or solve(KNOWN), logs=[here, *logs], **given)


def test_whole_logs_have_no_gaps() -> None:
    assert of_logs(log("a"), log("b")) == []


def test_every_row_has_all_columns_and_its_cluster() -> None:
    (row,) = of_logs(log(ended=0))
    assert row.keys() == gaps.COLUMNS.keys()
    assert (row["cluster"], row["kind"], row["proc"], row["begin"], row["count"]) == (
        "k",
        "no-log-end",
        "broker-a",
        30,
        1,
    )


def test_missing_numbers_name_what_is_around_them() -> None:
    hole = {"proc": "broker-a", "node": "a", "file": "a.log", "line_no": 7, "after_seq": 4, "seq": 7}
    (row,) = of_logs(log(), holes=[{**hole, "after_ts": 100, "ts_wall": 200}])
    assert (row["kind"], row["count"], row["begin"], row["end"], row["evidence"]) == (
        *("missing-seq", 2, 100, 200, ["a.log:7"]),
    )
    assert "2 lines are missing (seq 5 to 6)" in row["text"]


def test_times_are_on_the_common_axis() -> None:
    ahead = [
        Observation("a", "b", 1_000_000, 5_000_000, 0, "clock"),
        Observation("b", "a", 6_000_000, -5_000_000, 0, "clock"),
    ]
    clocks = solve(ahead, reference="a")
    (row,) = of_logs(log("b", ended=0, last_ts=9_000_000), clocks=clocks)
    assert abs(row["begin"] - 4_000_000) <= 1


def test_a_gap_in_the_time_of_an_incident_is_its_own() -> None:
    incident = {"incident": "x", "begin": 5, "ts_begin": 0, "ts_end": 31}
    (row,) = of_logs(log(ended=0), incidents=[incident])
    assert row["incident"] == "x"
    (row,) = of_logs(log(ended=0), incidents=[{**incident, "ts_end": 30}])
    assert row["incident"] is None


def test_coarse_and_late_logs() -> None:
    text = log("a", "pacemaker", proc="", seqs=0, ts_res=1_000_000, first_ts=10, ended=0)
    assert told(of_logs(text)) == [("coarse", "a")]
    late = of_logs(text, incidents=[{"incident": "x", "begin": 5, "ts_begin": 0, "ts_end": 9}])
    assert told(late) == [("begins-late", "a"), ("coarse", "a")]
    assert late[0]["end"] == 10


def test_an_unknown_clock_is_said_once() -> None:
    clocks = solve(KNOWN, [fact("z", 1, "start"), fact("z", 2, "stop")])
    assert told(of_logs(clocks=clocks)) == [("clock-unknown", "z")]


def test_nodes_that_others_name() -> None:
    rows = [
        fact("a", 1, "start", attrs={"address": "10.0.0.1:5672"}),
        fact("a", 2, "membership", peer="b", result="ready"),
        fact("b", 2, "start"),
        fact("b", 3, "membership", peer="10.0.0.1:5672", result="ready"),
        fact("b", 3, "peer_state", peer="d", new="lost", source="pacemaker"),
    ]
    found = gaps.find("k", rows, solve(KNOWN), logs=[log("c", "client")])
    assert told(found) == [("no-log", "d")]
    assert found[0]["evidence"] == ["b.log:3000"]


def test_no_log_of_any_client_or_broker() -> None:
    rows = [fact("a", 1, "peer_state", source="pacemaker", peer="a")]
    assert told(gaps.find("k", rows, solve(KNOWN))) == [("clients-none", None), ("no-broker-log", None)]


def test_what_ingest_told() -> None:
    file = {"name": "x.jsonl", "faulty": 0, "state": "read", "why": None}
    read = [
        file,
        {**file, "name": "bad.jsonl", "faulty": 2},
        {**file, "name": "core", "state": "refused", "why": "no log"},
    ]
    notes = [
        {"about": "a", "text": "read as UTC", "certainty": "assumed"},
        {"about": "b", "text": "", "certainty": "exact"},
    ]
    found = of_logs(files=read, notes=notes)
    assert [(row["kind"], row["text"]) for row in found] == [
        ("assumed", "a: read as UTC"),
        ("faulty", "bad.jsonl: 2 lines are no event and left out"),
        ("refused", "core: refused: no log"),
    ]


# ---- through the jobs -----------------------------------------------------------------------------------------------


def through(duck: DuckEngine, place: Path, made: Any) -> list[Row]:
    write(events(made), place / "events_raw")
    workspace = Workspace(str(place))
    pipeline.after_ingest(duck, workspace, pipeline.Settings(reference="node3"))
    return duck.rows("select * from gaps")


def test_lines_that_somebody_took_out(duck: DuckEngine, tmp_path: Path) -> None:
    """Of a broker's log 3 lines, of a client's the first one."""
    made = dict(messages.lost().files)
    broker, client = "node2/events/node2-0001.jsonl", "clients/c1-0001.jsonl"
    made[broker] = made[broker][:10] + made[broker][13:]
    made[client] = made[client][1:]
    found = {row["proc"]: row for row in through(duck, tmp_path, made) if row["kind"] == "missing-seq"}
    assert {proc: row["count"] for proc, row in found.items()} == {"qpidd:101:node21": 3, "c1:7:x": 1}
    hole = found["qpidd:101:node21"]
    assert (hole["file"], hole["line_no"], hole["node"]) == (broker, 11, "node2")
    assert START - 60_000_000 < hole["begin"] < hole["end"] < START + 20_000_000
    assert "seq 1)" in found["c1:7:x"]["text"] and found["c1:7:x"]["begin"] is None


def test_torn_dropped_and_missing_logs(duck: DuckEngine, tmp_path: Path) -> None:
    made = files.torn(processes.kill().files, "node2/events/node2-0001.jsonl")
    made = files.without(made, "node1/")
    rows = through(duck, tmp_path, made)
    found = {row["kind"]: row for row in rows}
    assert found["torn"]["file"] == "node2/events/node2-0001.jsonl" and found["torn"]["evidence"]
    assert found["no-log"]["node"] == "node1"


def test_a_node_of_pacemaker_without_logs(duck: DuckEngine, tmp_path: Path) -> None:
    rows = through(duck, tmp_path, files.without(nodes.crash().files, "node1/"))
    assert [row["node"] for row in rows if row["kind"] == "no-log"] == ["node1"]
