"""Delta tables by rows: what is there stays; files that come twice, late, torn, in any order, or in a kill."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.cli.main import main
from spark_jobs.engine import delta
from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.watch import job as watch
from spark_jobs.watch.job import Watched
from spark_jobs.workspace import alone
from tests.spark.test_lake import in_delta
from tests.spark.truth import nodes, processes
from tests.spark.watch_world import SETTINGS, Fleet
from tests.support.slow import both_engines

pytest.importorskip("deltalake", reason="the package deltalake is not installed")
COLUMNS = "cluster string, n bigint, attrs map<string,string>, date string"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return in_delta(tmp_path)


def put(engine: Engine, place: str, *rows: tuple[str, int, str]) -> int:
    """All rows of the cluster blue: (day, number, text)."""
    made = [{"cluster": "blue", "n": n, "attrs": {"a": text}, "date": day} for day, n, text in rows]
    engine.table("rows", COLUMNS, made)
    return delta.merge(engine, "rows", place, lambda cluster, _: cluster == "blue")


def rows_of(engine: Engine, place: str) -> list[tuple[int, str]]:
    delta.load(engine, "found", place)
    return [(row["n"], dict(row["attrs"])["a"]) for row in engine.rows("select n, attrs from found order by n")]


@both_engines
def test_what_is_large_is_written_anew(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "COMPARED", 2)
    place = str(tmp_path / "table")
    put(engine, place, ("d1", 1, "x"), ("d1", 2, "y"), ("d2", 5, "v"))
    files = set(delta.files(place))
    put(engine, place, ("d1", 1, "x"), ("d1", 2, "y"), ("d1", 3, "z"), ("d2", 5, "v"))
    assert rows_of(engine, place) == [(1, "x"), (2, "y"), (3, "z"), (5, "v")]
    assert [file.split("/")[1] for file in files & set(delta.files(place))] == ["date=d2"]


@both_engines
def test_a_row_that_is_there_stays_in_its_file(engine: Engine, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    first = put(engine, place, ("d1", 1, "x"), ("d1", 1, "x"), ("d2", 2, "y"))
    files = set(delta.files(place))
    assert put(engine, place, ("d2", 2, "y"), ("d1", 1, "x"), ("d1", 1, "x")) == first, "no commit"
    put(engine, place, ("d1", 1, "x"), ("d1", 1, "x"), ("d1", 1, "x"), ("d2", 2, "y"), ("d3", 3, "z"))
    grown = set(delta.files(place))
    assert files < grown and {file.split("/")[1] for file in grown - files} == {"date=d1", "date=d3"}
    assert rows_of(engine, place) == [(1, "x"), (1, "x"), (1, "x"), (2, "y"), (3, "z")]
    put(engine, place, ("d1", 1, "x"), ("d2", 2, "changed"))
    assert rows_of(engine, place) == [(1, "x"), (2, "changed")]
    put(engine, place, ("d2", 2, "changed"))
    assert rows_of(engine, place) == [(2, "changed")] and len(delta.files(place)) == 1
    put(engine, place)
    assert rows_of(engine, place) == []


def test_days_in_any_order_twice_and_torn_are_what_one_report_says(fleet: Fleet) -> None:
    story = processes.kill()
    fleet.lay(processes.hang(), "blue", days=6)
    fleet.watch()
    fleet.lay(story, "blue", lambda name: "node2" not in name)
    fleet.watch()
    (whole,) = [name for name in story.files if "node2" in name and name.endswith(".jsonl")]
    data = b"".join(story.files[whole]).replace(b'"made"', b'"blue"')
    fleet.write(f"cluster=blue/{whole}", data[: len(data) * 2 // 3])  # cut in the middle of a line
    fleet.watch()
    fleet.write(f"cluster=blue/{whole}", data)
    fleet.write("cluster=blue/once-more/copy.jsonl", data)
    fleet.watch()
    assert fleet.found() == in_one_run(fleet)
    before = {table: delta.files(fleet.workspace.path(table)) for table in ("facts", "events", "phases")}
    assert fleet.watch().rows == 0
    assert before == {table: delta.files(fleet.workspace.path(table)) for table in before}


def in_one_run(fleet: Fleet) -> dict[str, list[str]]:
    """What a `watch` says that finds all of it at once."""
    other = in_delta(fleet.place / "other")
    shutil.copytree(fleet.raw, other.raw)
    other.watch()
    return other.found()


# ---- the watermark --------------------------------------------------------------------------------------------------


def timely(fleet: Fleet, late: int | None = 10) -> Watched:
    engine = DuckEngine(threads=2)
    try:
        place = [str(fleet.raw)]
        return watch.run(engine, fleet.workspace, place, fleet.checkpoint, SETTINGS, out=fleet.out, late=late)
    finally:
        engine.close()


def test_what_comes_too_late_is_counted_and_named_until_a_report_computes_it(fleet: Fleet) -> None:
    fleet.lay(nodes.crash(), "green")
    fleet.lay(processes.kill(), "blue", lambda name: "node3" not in name)
    timely(fleet)
    fleet.lay(processes.hang(), "blue", days=40)
    known = timely(fleet)
    assert not known.late and [row["cluster"] for row in known.new] == ["blue"]
    before = incidents(fleet)
    fleet.lay(processes.kill(), "blue", lambda name: "node3" in name and name.endswith(".jsonl"))
    came = timely(fleet)
    assert came.rows > 0 and came.again == 0 and came.new == [] and incidents(fleet) == before
    assert all("too late for `watch`" in text and "2026-06-01" in text for text in came.lines()) and came.lines()
    ingest = json.loads((fleet.out / "report.json").read_text())["ingest"]
    assert sum("too late for `watch`" in text for text in ingest["removed"]) == len(came.late)
    assert timely(fleet).late == (), "named once, and kept in the report"
    assert "too late" in (fleet.out / "report.html").read_text()
    logs, out = str(fleet.raw), str(fleet.out)
    assert main(["report", logs, "-o", out, "--tz", "*=UTC", "--engine", "duckdb", "--format", "json"]) == 0
    other = in_delta(fleet.place / "other")
    assert main(["report", logs, "-o", str(other.out), "--tz", "*=UTC", "--engine", "duckdb", "--format", "json"]) == 0
    assert fleet.found() == other.found(), "nothing was dropped"


def incidents(fleet: Fleet) -> list[str]:
    engine = DuckEngine(threads=1)
    delta.load(engine, "found", fleet.workspace.path("incidents"))
    found = engine.rows("select * from found order by cluster, begin")
    engine.close()
    return [json.dumps(row, default=str) for row in found]


def test_lines_of_a_day_that_is_open_are_never_late(fleet: Fleet) -> None:
    fleet.lay(processes.kill(), "blue", lambda name: "node3" not in name)
    timely(fleet)
    fleet.lay(processes.hang(), "blue", days=9)
    timely(fleet)
    fleet.lay(processes.kill(), "blue", lambda name: "node3" in name)
    assert not timely(fleet).late
    assert fleet.found() == in_one_run(fleet)


def test_a_clock_that_is_years_ahead_closes_no_day(fleet: Fleet) -> None:
    fleet.lay(processes.kill(), "blue", lambda name: "node3" not in name)
    fleet.lay(processes.hang(), "blue", days=20_000)
    timely(fleet)
    fleet.lay(processes.kill(), "blue", lambda name: "node3" in name)
    came = timely(fleet)
    assert not came.late and came.again > 0


def test_a_file_that_changes_late_again_is_named_once(fleet: Fleet) -> None:
    fleet.lay(processes.kill(), "blue", lambda name: "node3" not in name)
    fleet.lay(processes.hang(), "blue", days=40)
    timely(fleet)
    (name,) = [name for name in processes.kill().files if "node3" in name and name.endswith(".jsonl")]
    data = b"".join(processes.kill().files[name]).replace(b'"made"', b'"blue"')
    for share in (3, 2, 1):
        fleet.write(f"cluster=blue/{name}", data[: data.rfind(b"\n", 0, len(data) // share) + 1])
        assert len(timely(fleet).late) == 1
    removed = json.loads((fleet.out / "report.json").read_text())["ingest"]["removed"]
    assert len(removed) == 1 and f"{data.count(bytes([10]))} lines" in removed[0]


def test_a_watermark_wants_delta_tables_and_days(fleet: Fleet, tmp_path: Path, capsys: Any) -> None:
    fleet.lay(processes.kill(), "blue")
    arguments = ["watch", str(fleet.raw), "-o", str(tmp_path / "plain"), "--engine", "duckdb"]
    assert main([*arguments, "--late", "30d"]) == 2
    assert "--late: the tables are parquet, expected --table-format delta" in capsys.readouterr().err
    assert main([*arguments, "--late", "30"]) == 2


# ---- interrupted, and two at once -----------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from spark_jobs.cli.main import main
from spark_jobs.engine import delta

turns, commit = int(sys.argv.pop(1)), delta._commit


def dying(*arguments):
    global turns
    turns -= 1
    if turns == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(*arguments)


delta._commit = dying
sys.exit(main())
"""


@pytest.mark.parametrize("turn", [1, 2, 7, 15])
def test_a_kill_in_the_middle_of_the_commits_is_made_up_for(fleet: Fleet, turn: int) -> None:
    """Files of the commit lie there, and the log does not name them."""
    fleet.lay(processes.kill(), "blue", lambda name: "node3" not in name)
    arguments = ["watch", str(fleet.raw), "-o", str(fleet.out), "--tz", "*=UTC", "--engine", "duckdb"]
    assert main([*arguments, "--table-format", "delta"]) == 0
    fleet.lay(processes.kill(), "blue", lambda name: "node3" in name)
    done = subprocess.run([sys.executable, "-c", KILLED, str(turn), *arguments], timeout=120, check=False)
    assert done.returncode == -9
    assert main(arguments) == 0
    assert fleet.found() == fleet.at_once()


def test_two_runs_at_once_on_one_workspace_are_one(fleet: Fleet, capsys: Any) -> None:
    fleet.lay(processes.kill(), "blue")
    out = str(fleet.out)
    report = ["report", str(fleet.raw), "-o", out, "--engine", "duckdb", "--format", "json", "--table-format", "delta"]
    with alone(fleet.workspace.place):
        for arguments in (report, ["watch", *report[1:6]], ["maintain", out, "--engine", "duckdb"]):
            assert main(arguments) == 2
            assert "another run works on these tables" in capsys.readouterr().err
    assert main(report) == 0
