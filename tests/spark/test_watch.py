"""Logs that come one after the other give what one report over all of them gives, also if a run is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import pipeline
from spark_jobs.engine.base import Engine, columns_of
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.ingest import job as ingest
from spark_jobs.jobs import part
from spark_jobs.jobs.incidents import COLUMNS
from spark_jobs.jobs.part import Part, merge
from spark_jobs.progress import QUIET
from spark_jobs.watch import job as watch
from spark_jobs.watch import memory as watch_memory
from spark_jobs.workspace import Workspace
from tests.spark.truth import nodes, processes
from tests.spark.watch_world import SETTINGS, Fleet
from tests.support.slow import mostly_slow


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def told(fleet: Fleet) -> tuple[int, tuple[str, ...], list[str]]:
    found = fleet.watch()
    return found.segments, found.clusters, found.lines()


def test_each_run_takes_what_is_new_and_computes_what_that_changes(fleet: Fleet) -> None:
    fleet.lay(processes.kill(), "blue", lambda name: "node3" not in name)
    assert told(fleet) == (3, ("blue",), ["2026-06-01 12:00:00 blue: process died, node1 → node2, 148 ms"])
    fleet.lay(processes.hang(), "green")
    assert told(fleet) == (4, ("green",), ["2026-06-01 12:00:01 green: hang, node1 → node2, 301 ms"])
    assert computed_apart(fleet) == {"green"}
    fleet.lay(processes.kill(), "blue", lambda name: "node3" in name)
    late = fleet.watch()
    assert (late.segments, late.clusters, late.new) == (1, ("blue",), [])
    assert [row["cluster"] for row in late.changed] == ["blue"]
    assert computed_apart(fleet) == {"blue"}
    assert fleet.found() == fleet.at_once()


def test_an_upgrade_finds_no_incident_changed(engine: Engine, tmp_path: Path) -> None:
    """In the tables of older programs a map was a list of pairs, and fingerprints are of rows: none has a map.  A new
    column of `incidents` changes them all: then this number is another one, and the old ones are to be known, too."""
    values = {"string": "x", "bigint": 7, "boolean": True, "array<string>": ["a", "b"]}
    row = {name: values[kind] for name, kind in columns_of(COLUMNS["incidents"])}
    workspace = Workspace(str(tmp_path / "ws"))
    engine.keep(workspace.path("incidents"), COLUMNS["incidents"], [row])
    told = [{"incident": "x", "state": "0637cb489c4268bdbbe70de5"}]
    engine.keep(workspace.path("announced"), watch_memory.ANNOUNCED, told)
    found = watch_memory.incidents(engine, workspace)
    assert (len(found.now), found.new, found.changed) == (1, [], [])


def computed_apart(fleet: Fleet) -> set[str]:
    engine = DuckEngine(threads=1)
    engine.load("apart", str(fleet.out / "work" / part.FOLDER / "events"))
    found = {row["cluster"] for row in engine.rows("select distinct cluster from apart")}
    engine.close()
    return found


def test_nothing_new_changes_nothing(fleet: Fleet) -> None:
    fleet.lay(processes.kill(), "blue")
    fleet.watch()
    before = {path: path.stat().st_mtime_ns for path in fleet.out.glob("*.*")}
    again = fleet.watch()
    assert (again.segments, again.rows, again.clusters, again.new, again.changed) == (0, 0, (), [], [])
    assert {path: path.stat().st_mtime_ns for path in fleet.out.glob("*.*")} == before


def test_a_segment_that_is_written_is_left_alone_until_it_is_closed(fleet: Fleet) -> None:
    fleet.lay(processes.kill(), "blue")
    closed = fleet.raw / "cluster=blue/node2/events/node2-0001.jsonl"
    opened = closed.rename(closed.with_name(f"{closed.name}.open"))
    assert fleet.watch().segments == 3
    data = opened.read_bytes()
    opened.write_bytes(data[: len(data) // 2])
    assert fleet.watch().rows == 0
    opened.write_bytes(data)
    opened.rename(closed)
    assert fleet.watch().segments == 1
    assert fleet.found() == fleet.at_once()


def test_before_the_first_segment_is_closed_there_is_nothing(fleet: Fleet) -> None:
    story = processes.kill()
    for name, lines in story.files.items():
        fleet.write(f"{name}.open", b"".join(lines))
    assert fleet.watch() == watch.Watched()
    assert not list(fleet.out.glob("*.*"))


def test_text_logs_are_read_as_they_grow(fleet: Fleet) -> None:
    story = nodes.crash()
    logs = [name for name in story.files if ".jsonl" not in name]
    assert logs, "a story without Pacemaker's log tells nothing here"
    fleet.lay(story, "blue", lambda name: name not in logs)
    for name in logs:
        lines = story.files[name]
        fleet.write(f"cluster=blue/{name}", b"".join(lines[: len(lines) // 2]))
    fleet.watch()
    fleet.lay(story, "blue", lambda name: name in logs)
    grown = fleet.watch()
    assert grown.segments == 0 and grown.rows > 0 and grown.clusters == ("blue",)
    assert fleet.found() == fleet.at_once()


# ---- killed ---------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from spark_jobs import pipeline
from tests.spark.watch_world import Fleet

left = int(sys.argv[2])
replace = os.replace

def counted(source, target):
    global left
    left -= 1
    table = Path(target).parent.name
    if left < 0 and table != "scratch":
        if table in pipeline.MADE:
            Path(target).unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(source, target)

os.replace = counted
Fleet(Path(sys.argv[1])).watch()
print(left)
"""


def killed(fleet: Fleet, writes: int) -> subprocess.CompletedProcess[str]:
    """A run that is killed when it has written so many tables, and has removed the next one, as Spark does."""
    command = [sys.executable, "-c", KILLED, str(fleet.place), str(writes)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("share", mostly_slow([0.5, 0.98, 0.1, 0.8], 2))
def test_a_run_that_is_killed_is_made_up_for_by_the_next(fleet: Fleet, tmp_path: Path, share: float) -> None:
    """`share` of what it writes: files, tables of the part, tables put back, what it remembers."""
    fleet.lay(processes.kill(), "blue")
    fleet.watch()
    fleet.lay(processes.hang(), "green")
    assert killed(fleet, round(share * writes(tmp_path))).returncode == -signal.SIGKILL
    after = fleet.watch()
    assert [row["cluster"] for row in after.new] == ["green"], "told, although the killed run was not able to"
    assert fleet.found() == fleet.at_once()


_WRITES: list[int] = []


def writes(place: Path) -> int:
    """How many tables such a run writes."""
    if not _WRITES:
        fleet = Fleet(place / "counted")
        fleet.lay(processes.kill(), "blue")
        fleet.watch()
        fleet.lay(processes.hang(), "green")
        done = killed(fleet, 1000)
        assert done.returncode == 0, done.stderr
        _WRITES.append(1000 - int(done.stdout))
        assert _WRITES[0] > len(pipeline.MADE)
    return _WRITES[0]


# ---- Spark's part ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", mostly_slow(["path", "url"], 1))
def test_a_stream_that_was_interrupted_loses_nothing(
    fleet: Fleet, spark: SparkEngine, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """The first batch is in the workspace, the second one is not; then somebody loses the checkpoint as well."""
    fleet.lay(processes.kill(), "blue")
    places = [str(fleet.raw) if form == "path" else fleet.raw.as_uri()]
    read, runs = ingest.run, 0

    def fail(*arguments: Any, **more: Any) -> ingest.Ingested:
        nonlocal runs
        runs += 1
        if runs == 2:
            raise KeyError("killed")
        return read(*arguments, **more)

    def take(checkpoint: str = fleet.checkpoint) -> int:
        return watch.take(spark, fleet.workspace, places, checkpoint, SETTINGS, QUIET, batch=2)

    monkeypatch.setattr(ingest, "run", fail)
    with pytest.raises(KeyError, match="killed"):
        take()
    monkeypatch.undo()
    first = lines_of(spark, fleet.workspace)
    assert len(first) == 2
    take()
    wanted = {f"cluster=blue/{name}": len(lines) for name, lines in processes.kill().files.items()}
    assert lines_of(spark, fleet.workspace) == wanted
    assert take() == 0 and take(f"{fleet.checkpoint}-2") == 0
    assert lines_of(spark, fleet.workspace) == wanted


def lines_of(engine: Engine, workspace: Workspace) -> dict[str, int]:
    """Rows of each file."""
    workspace.load(engine, "events_raw")
    rows = engine.rows("select file, count(distinct line_no) as lines, count(*) as n from events_raw group by file")
    assert all(row["lines"] == row["n"] for row in rows)
    return {row["file"]: row["lines"] for row in rows}


def test_a_file_that_has_another_cluster_now_changes_both(duck: DuckEngine, tmp_path: Path) -> None:
    workspace = Workspace(str(tmp_path))
    columns = "name string, cluster string, kind string, state string, octets bigint, lines bigint, events bigint"
    columns += ", torn bigint, covered bigint, undated bigint, first_ts bigint, last_ts bigint"
    rows = [{"file": "f", "cluster": "old", "line_no": 1}, {"file": "g", "cluster": "other", "line_no": 1}]

    def lay(cluster: str) -> None:
        states = [{"name": "f", "cluster": cluster, "kind": "client_json"}, {"name": "g", "cluster": "other"}]
        duck.keep(workspace.path("files"), columns, states)
        rows[0]["cluster"] = cluster
        duck.keep(workspace.path("events_raw"), "file string, cluster string, line_no bigint", rows)

    lay("old")
    first = watch_memory.files(duck, workspace, "")
    assert (first.changed, first.segments, first.stale) == ({"f", "g"}, 1, {"old", "other"})
    watch_memory.remember(duck, workspace, first.now)
    assert watch_memory.files(duck, workspace, "").changed == set()
    assert watch_memory.files(duck, workspace, "other settings").stale == {"old", "other"}
    lay("new")
    moved = watch_memory.files(duck, workspace, "")
    assert (moved.changed, moved.stale, moved.clusters) == ({"f"}, {"old", "new"}, {"new", "other"})


MADE = [("it's", 2), ("it's", 3), ("new", 4)]
OTHERS = [("a", 1), ("c", 1)]


def test_some_clusters_are_read_and_put_back(engine: Engine, tmp_path: Path) -> None:
    columns = "cluster string, seq bigint"
    whole = Workspace(str(tmp_path / "whole"))
    names = ["a", "it's", "c", None]
    for table in ("events_raw", "outages"):
        engine.keep(whole.path(table), columns, [{"cluster": name, "seq": 1} for name in names])
    part = Part(str(tmp_path / "part"), whole, ("it's", "new", ""))
    part.load(engine, "events_raw")
    assert values(engine, "events_raw") == [("it's", 1), (None, 1)]
    assert part.has(engine, "events_raw") and not part.has(engine, "outages")

    for table in ("outages", "hints"):
        engine.keep(part.path(table), columns, [{"cluster": cluster, "seq": n} for cluster, n in MADE])
    for _ in range(2):  # again: a job that was interrupted begins anew
        merge(engine, part, ("outages", "hints"))
        whole.load(engine, "outages", "hints")
        assert values(engine, "outages") == [*OTHERS, *MADE]
        assert values(engine, "hints") == MADE


def values(engine: Engine, table: str) -> list[Any]:
    rows = engine.rows(f"select cluster, seq from {table}")
    return sorted(((row["cluster"], row["seq"]) for row in rows), key=lambda row: (row[0] or "~", row[1]))
