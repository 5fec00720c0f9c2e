"""Clusters computed in tasks: what is cut, what is put together, and when Spark's own queries do it instead."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_jobs import pipeline
from spark_jobs.engine import session
from spark_jobs.engine.base import Engine, arrow
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.gaps import job as gaps
from spark_jobs.jobs import part, spread
from spark_jobs.progress import QUIET
from spark_jobs.schema import ddl
from spark_jobs.workspace import Workspace
from tests.spark import pipeline_runs as runs
from tests.spark.clients_log import segments
from tests.spark.sql_histories import write

Row = dict[str, Any]


def row(cluster: str | None, line: int) -> Row:
    said = {"node": "n", "source": "client", "kind": "publish", "file": "f", "line_no": line}
    return {**said, "cluster": cluster, "attrs": {"a": "b"}}


def parquet(*clusters: str | None, group: int = 100) -> bytes:
    sink = io.BytesIO()
    rows = [row(cluster, line) for line, cluster in enumerate(clusters)]
    pq.write_table(arrow(ddl(), rows), sink, row_group_size=group)
    return sink.getvalue()


def pieces(workspace: Workspace, bins: dict[str, int], content: bytes) -> dict[int, list[tuple[str, int]]]:
    """Bin → (cluster, line) of its rows."""
    found: dict[int, list[tuple[str, int]]] = {}
    for number, (table, piece) in spread._pieces(spread.Spread(workspace, (), 0, bins), [content]):
        assert table == spread.EVENTS
        rows = pq.read_table(io.BytesIO(piece)).to_pylist()
        found.setdefault(number, []).extend((one["cluster"], one["line_no"]) for one in rows)
    return found


HERE = Workspace("/nowhere")


def test_a_file_of_one_cluster_is_moved_as_it_is() -> None:
    content = parquet(*["b"] * 7, group=2)
    found = list(spread._pieces(spread.Spread(HERE, (), 0, {"a": 0, "b": 1}), [content]))
    assert found == [(1, ("events_raw", content))]


def test_a_file_of_several_is_cut() -> None:
    found = pieces(HERE, {"a": 0, "b": 1, "": 1, "c": 0}, parquet("a", "b", None, "c", "a", group=2))
    assert found == {0: [("a", 0), ("c", 3), ("a", 4)], 1: [("b", 1), (None, 2)]}


def test_what_only_a_line_names_is_somewhere_all_the_same() -> None:
    """And always in the same bin, whichever file has it."""
    (one,) = pieces(HERE, {"a": 0, "b": 1}, parquet("x", "x"))
    two = pieces(HERE, {"a": 0, "b": 1}, parquet("x", "a", "b"))
    assert sorted(of for rows in two.values() for of in rows) == [("a", 1), ("b", 2), ("x", 0)]
    assert ("x", 0) in two[one]


def test_of_clusters_that_are_not_wanted_nothing_is_moved() -> None:
    wanted = part.of(HERE, ["a", "b"])
    assert pieces(wanted, {"a": 0}, parquet("a", "x", None)) == {0: [("a", 0)]}
    assert pieces(wanted, {"a": 0}, parquet("x", "x")) == {}
    assert pieces(wanted, {"a": 0}, parquet("b")) == {0: [("b", 0)]}


# ---- when ------------------------------------------------------------------------------------------------------------


def place(folder: Path, *clusters: str) -> Workspace:
    write([row(cluster, line) for line, cluster in enumerate(clusters)], folder / "events_raw")
    return Workspace(str(folder))


def test_one_cluster_that_is_too_large_is_for_queries(spark: SparkEngine, duck: DuckEngine, tmp_path: Path) -> None:
    workspace = place(tmp_path, "a", "a", "a", "b")
    spark.fits = 3
    planned = spread.planned(spark, workspace)
    assert planned is not None and planned.bins == {"a": 0, "b": 1}
    spark.fits = 2
    assert spread.planned(spark, workspace) is None
    assert spread.planned(duck, workspace) is None


def test_a_file_that_is_too_large_and_far_away_is_for_queries(
    spark: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = place(tmp_path, "a")
    monkeypatch.setattr(spread, "LARGEST", 100)
    assert spread.planned(spark, workspace) is not None, "it is read group by group"
    there = Workspace(tmp_path.as_uri())
    assert spread.planned(spark, there) is None
    monkeypatch.undo()
    assert spread.planned(spark, there) is not None


def test_nothing_at_all_and_tables_of_others_are_for_queries(spark: SparkEngine, tmp_path: Path) -> None:
    assert spread.planned(spark, place(tmp_path / "none")) is None
    workspace = place(tmp_path / "given", "a")
    spark.keep(workspace.path("given"), "path string", [{"path": "/elsewhere"}])
    assert spread.planned(spark, workspace) is None


@pytest.mark.parametrize(("module", "there"), [("duckdb", True), ("no_such_module", False)])
def test_workers_without_duckdb_get_queries(
    spark: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, there: bool
) -> None:
    monkeypatch.setattr(spread, "remote", lambda context: True)
    monkeypatch.setattr(spread, "_DUCKDB", module)
    assert (spread.planned(spark, place(tmp_path, "a")) is not None) == there


# ---- all of it -------------------------------------------------------------------------------------------------------


def test_a_file_whose_lines_name_several_clusters(spark: SparkEngine, duck: DuckEngine, tmp_path: Path) -> None:
    """The catalog knows a file by the first one of them."""
    logs = [segments(cluster, 40) for cluster in ("red", "blue", "green")]
    files = {name: [of[name] for of in logs] for name in logs[0]}
    given = [runs.folder(files, tmp_path / "in")]
    wanted = runs.answer(duck, given, tmp_path / "duck")
    assert runs.parsed(wanted)["report.json"]["messages"]["total"]["attempts"] == 120
    assert runs.answer(spark, given, tmp_path / "spark") == wanted


def copied(engine: Engine, workspace: Workspace, tables: tuple[str, ...]) -> None:
    """For each table a row of each event; one has more than the other tells."""
    workspace.load(engine, "events_raw")
    for table in tables:
        engine.save(
            "select cluster, case when line_no > 1 then line_no end as n from events_raw", workspace.path(table)
        )


def rows_of(engine: Engine, workspace: Workspace, table: str) -> list[tuple[Any, ...]]:
    workspace.load(engine, table)
    return sorted(tuple(one.values()) for one in engine.rows(f"select cluster, coalesce(n, 0) as n from {table}"))


def done(engine: SparkEngine, workspace: Workspace, work: Callable[..., object], *tables: str) -> None:
    planned = spread.planned(engine, workspace)
    assert planned is not None
    spread.run(engine, planned, work, tables, QUIET)


@pytest.mark.parametrize(("octets", "files"), [(1, 3), (spread.JOINED, 1)])
def test_tables_of_all_bins_become_one(
    spark: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, octets: int, files: int
) -> None:
    """Some have NULL where others have none; what was there before is gone."""
    monkeypatch.setattr(spread, "JOINED", octets)
    workspace = place(tmp_path, "a", "b", "b", "c")
    spark.keep(workspace.path("facts"), "old string", [{"old": "x"}])
    done(spark, workspace, partial(copied, tables=("facts", "pairs")), "facts", "pairs")
    for table in ("facts", "pairs"):
        assert rows_of(spark, workspace, table) == [("a", 0), ("b", 0), ("b", 2), ("c", 3)]
        assert len(spark.parts(workspace.path(table))) == files
    monkeypatch.setattr(spread, "JOINED", spread.JOINED * 1000)
    done(spark, workspace, partial(copied, tables=("facts",)), "facts")
    assert len(spark.parts(workspace.path("facts"))) == 1, "no file of the run before counts"
    assert rows_of(spark, workspace, "facts") == [("a", 0), ("b", 0), ("b", 2), ("c", 3)]


class Steps:
    """A progress that notes everything."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.told: list[tuple[int, int]] = []

    def step(self, name: str) -> None:
        self.steps.append(name)

    def at(self, number: int, total: int) -> None:
        self.told.append((number, total))


def fails(engine: Engine, workspace: Workspace) -> None:
    workspace.load(engine, "events_raw")
    assert engine.rows("select 1 as n from events_raw where cluster = 'b'") == [], "no room"


def test_a_task_that_fails_leaves_what_was_there(spark: SparkEngine, tmp_path: Path) -> None:
    workspace = place(tmp_path, "a", "b")
    spark.keep(workspace.path("facts"), "cluster string, n bigint", [{"cluster": "x", "n": 1}])
    with pytest.raises(Exception, match="no room"):
        done(spark, workspace, fails, "facts")
    assert rows_of(spark, workspace, "facts") == [("x", 1)]


def test_an_interrupted_run_leaves_nothing_that_counts(
    spark: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some steps were done before; then tasks did all of them, and were cut off between new tables and old ones."""
    workspace, put = place(tmp_path, "a", "b"), SparkEngine.put
    monkeypatch.setattr(spark, "fits", 0)
    monkeypatch.setattr(gaps, "run", fails)
    with pytest.raises(AssertionError, match="no room"):
        pipeline.after_ingest(spark, workspace)
    monkeypatch.undo()

    def cut_off(engine: SparkEngine, files: list[Path], path: str) -> None:
        put(engine, files, path)
        if path.endswith("/facts"):
            raise KeyboardInterrupt

    monkeypatch.setattr(SparkEngine, "put", cut_off)
    with pytest.raises(KeyboardInterrupt):
        pipeline.after_ingest(spark, workspace)
    monkeypatch.undo()
    monkeypatch.setattr(spark, "fits", 0)
    heard = Steps()
    pipeline.after_ingest(spark, workspace, progress=heard)
    assert heard.steps == list(pipeline.STEPS[1:])


def test_how_far_it_is_is_told(spark: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "TICK", 0.01)
    workspace, heard = place(tmp_path, "a", "b"), Steps()
    planned = spread.planned(spark, workspace)
    assert planned is not None
    spread.run(spark, planned, partial(copied, tables=("facts",)), ("facts",), heard)
    assert heard.told and all(0 <= number <= total for number, total in heard.told)
    assert {total for _, total in heard.told} == {2 * planned.octets}


def test_the_pipeline_takes_tasks_where_it_can(spark: SparkEngine, tmp_path: Path) -> None:
    workspace, heard = place(tmp_path, "a", "b"), Steps()
    pipeline.after_ingest(spark, workspace, progress=heard)
    assert heard.steps == [pipeline.CLUSTERS]
    spark.fits = 0
    pipeline.after_ingest(spark, workspace, pipeline.Settings(redo=True), heard)
    assert heard.steps == [pipeline.CLUSTERS, *pipeline.STEPS[1:]]


def test_what_tasks_write_goes_with_spark_even_if_they_are_killed(spark: SparkEngine) -> None:
    (place,) = spark.context.parallelize([0], 1).map(lambda _: session.scratch() or "").collect()
    assert Path(place).is_dir() and Path(place).name.startswith("blockmgr-")
    assert session.scratch({}) is None, "here it is what others use, too"


def test_memory_is_what_a_worker_may_have() -> None:
    assert spread.memory({}, 64 << 30, 4) == spread.MEMORY
    assert spread.memory({}, 8 << 30, 8) == 512 << 20
    assert spread.memory({"PYSPARK_EXECUTOR_MEMORY_MB": "1000"}, 64 << 30, 4) == 500 << 20
