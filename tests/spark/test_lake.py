"""Tables of format delta: the same answers, snapshots, columns that come later, small files and old days that go."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_jobs import pipeline, schema
from spark_jobs.cli.main import main
from spark_jobs.engine import delta
from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.jobs import maintain
from spark_jobs.workspace import DELTA, Workspace, WrongVersion, of_format
from tests.spark.truth import nodes, processes
from tests.spark.watch_world import Fleet

pytest.importorskip("deltalake", reason="the package deltalake is not installed")
HOUR = 3_600_000_000
NOON = 1_780_315_200_000_000
"""2026-06-01, the day of all stories."""
ODD = "gr/e%n {ü} 'x'"


def in_delta(place: Path) -> Fleet:
    found = Fleet(place)
    found.workspace = Workspace(found.workspace.place, format=DELTA)
    return found


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return in_delta(tmp_path)


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """blue, then green, then one more file of blue."""
    fleet = in_delta(tmp_path_factory.mktemp("runs"))
    fleet.lay(processes.kill(), "blue", lambda name: "node3" not in name)
    fleet.watch()
    fleet.lay(nodes.crash(), "green")
    fleet.watch()
    fleet.lay(processes.kill(), "blue", lambda name: "node3" in name)
    fleet.watch()
    return fleet.place


@pytest.fixture
def after_three(three_runs: Path, tmp_path: Path) -> Fleet:
    shutil.copytree(three_runs, tmp_path, dirs_exist_ok=True)
    return in_delta(tmp_path)


def incidents(fleet: Fleet, version: int | None = None, engine: Engine | None = None) -> list[str]:
    own = engine or DuckEngine(threads=1)
    delta.load(own, "found", fleet.workspace.path("incidents"), version=version)
    return [row["cluster"] for row in own.rows("select cluster from found order by cluster")]


def test_a_cluster_that_changed_is_replaced_and_the_others_are_not_written(after_three: Fleet) -> None:
    fleet = after_three
    assert fleet.found() == fleet.at_once()
    table = Path(fleet.workspace.path("events"))
    assert {path.parent.relative_to(table).as_posix() for path in table.rglob("*.parquet")} == {
        "cluster=blue/date=2026-06-01", "cluster=green/date=2026-06-01"
    }  # fmt: skip
    assert len(list(table.glob("cluster=green/*/*.parquet"))) == 1, "the third run was about blue"
    assert [incidents(fleet, version) for version in range(4)] == [[], ["blue"], ["blue", "green"], ["blue", "green"]]
    assert fleet.watch().rows == 0
    with pytest.raises(Exception, match="version"):
        incidents(fleet, 4)


def test_days_that_have_nothing_to_do_with_each_other_are_computed_apart(fleet: Fleet, tmp_path: Path) -> None:
    fleet.lay(processes.kill(), "blue")
    fleet.watch()
    first = {name: files_of(fleet, "blue", name) for name in ("events", "phases", "gaps", "message_lives")}
    fleet.lay(processes.hang(), "blue", lambda name: "node3" not in name, days=5)
    later = fleet.watch()
    assert [row["cluster"] for row in later.new] == ["blue"] and later.again == later.rows
    assert days_computed(fleet) == {"2026-06-06"}
    fleet.lay(processes.hang(), "blue", lambda name: "node3" in name, days=5)
    assert fleet.watch().new == [] and days_computed(fleet) == {"2026-06-06"}
    now = {name: files_of(fleet, "blue", name) for name in first}
    assert all(files and files <= now[name] for name, files in first.items() if name != "message_lives")
    other = in_delta(tmp_path / "other")
    shutil.copytree(fleet.raw, other.raw)
    other.watch()
    assert other.found() == fleet.found(), "all at once says the same"

    fleet.lay(processes.kill(), "blue", lambda name: "node2" in name, days=3)
    mended = fleet.raw / "cluster=blue/node2/events/day3-node2-0001.jsonl"
    mended.write_bytes(mended.read_bytes().replace(b"d3-", b"d5-"))
    fleet.watch()
    assert days_computed(fleet) == {"2026-06-04", "2026-06-06"}, "a process that lived on both joins them"


def test_days_apart_are_computed_in_tasks_too(fleet: Fleet, spark: SparkEngine, tmp_path: Path) -> None:
    fleet.lay(processes.kill(), "blue")
    fleet.lay(nodes.crash(), "green")
    fleet.watch(spark)
    fleet.lay(processes.hang(), "blue", days=5)
    assert [row["cluster"] for row in fleet.watch(spark).new] == ["blue"]
    assert days_computed(fleet) == {"2026-06-06"}
    other = in_delta(tmp_path / "other")
    shutil.copytree(fleet.raw, other.raw)
    other.watch()
    assert other.found() == fleet.found(), "DuckDB says the same, and all at once"


def files_of(fleet: Fleet, cluster: str, table: str) -> set[str]:
    return {file for file in delta.files(fleet.workspace.path(table)) if f"cluster={cluster}/" in file}


def days_computed(fleet: Fleet) -> set[str]:
    engine = DuckEngine(threads=1)
    engine.load("apart", f"{fleet.workspace.place}/part/events")
    found = {schema.day(row["ts_wall"]) for row in engine.rows("select ts_wall from apart")}
    engine.close()
    return found


def test_both_engines_write_and_read_names_of_any_form(
    fleet: Fleet, spark: SparkEngine, duck: DuckEngine, tmp_path: Path
) -> None:
    place = str(tmp_path / "cluster=other" / "table")
    names = (ODD, "", "12")
    rows = [{"cluster": name, "n": n, "attrs": {"a": "b"}} for n, name in enumerate(names)]
    engines: tuple[Engine, ...] = (duck, spark, duck)
    for number, engine in enumerate(engines):
        kept = {name or None for name in names[:number]}
        engine.table("rows", "cluster string, n bigint, attrs map<string,string>", rows[number:])
        engine.view("dated", "select *, case when n = 1 then null else '2026-01-01' end as date from rows")
        delta.merge(engine, "dated", place, partial(lambda kept, name, _: name not in kept, kept))
        for reader in engines[:2]:
            delta.load(reader, "found", place)
            found = reader.rows("select * from found order by n")
            assert [dict(row, attrs=dict(row["attrs"])) for row in found] == rows, (engine.name, reader.name)
    delta.maintain(place, 0)
    assert len(spark.large().rows(f"select n, cluster from parquet.`{place}`")) == 3, (
        "for spark-sql without any package"
    )


def test_a_table_of_the_first_version_is_read_and_extended(fleet: Fleet, duck: DuckEngine) -> None:
    """Its files lack a column, as if it had been written before there was one."""
    fleet.lay(processes.kill(), "blue")
    fleet.watch()
    table = Path(fleet.workspace.path("events_raw"))
    for file in table.glob("*.parquet"):
        old = pq.read_table(file)
        assert "term" in old.column_names
        pq.write_table(old.drop_columns(["term"]), file)
    before = of_columns(fleet, duck, "outages")
    columns = duck.ddl("found") + ", later string"
    duck.table("rows", columns + ", date string", [{"cluster": "red", "later": "x", "date": "2026-07-01"}])
    delta.merge(duck, "rows", fleet.workspace.path("outages"), lambda name, _: name == "red")
    assert of_columns(fleet, duck, "outages") == [*before, "later"]
    fleet.workspace.load(duck, "events_raw")
    assert duck.columns("events_raw") == list(schema.NAMES)
    assert duck.rows("select distinct term from events_raw") == [{"term": None}]


def of_columns(fleet: Fleet, engine: Engine, table: str) -> list[str]:
    delta.load(engine, "found", fleet.workspace.path(table))
    return engine.columns("found")


def test_small_files_are_joined_old_days_go_and_a_late_file_still_comes(after_three: Fleet, duck: DuckEngine) -> None:
    fleet = after_three
    found = fleet.found()
    for _ in range(2):
        done = {row["table"]: row for row in maintain.run(duck, fleet.workspace, pipeline.MADE, 0)}
        assert fleet.found() == found
    assert done["events_raw"]["joined"] == done["events"]["joined"] == 0, "nothing is left to be joined"
    with pytest.raises(Exception, match=r"."):
        incidents(fleet, 1), duck.rows("select * from found")
    fleet.lay(processes.hang(), "red")
    fleet.watch()
    assert fleet.found() == fleet.at_once()
    assert incidents(fleet) == ["blue", "green", "red"]
    maintain.run(duck, fleet.workspace, pipeline.MADE, 0, before=NOON)
    assert incidents(fleet) == ["blue", "green", "red"], "of that day"
    maintain.run(duck, fleet.workspace, pipeline.MADE, 0, before=NOON + 24 * HOUR)
    assert incidents(fleet) == []
    fleet.workspace.load(duck, "events_raw", "events")
    assert duck.rows("select count(*) as n from events_raw")[0]["n"] == 0
    assert duck.rows("select count(*) as n from events")[0]["n"] == 0


def test_a_workspace_keeps_its_format(fleet: Fleet, duck: DuckEngine, tmp_path: Path, capsys: Any) -> None:
    fleet.lay(processes.kill(), "blue")
    out, logs = str(tmp_path / "reported"), str(fleet.raw)
    arguments = ["report", logs, "-o", out, "--engine", "duckdb", "--format", "json"]
    assert main([*arguments, "--table-format", "delta"]) == 0
    assert main(arguments) == 0
    assert of_format(duck, f"{out}/work").format == DELTA
    assert main([*arguments, "--table-format", "parquet"]) == 2
    assert "the tables are delta, wanted parquet" in capsys.readouterr().err
    assert main(["maintain", out, "--snapshots", "0s", "--engine", "duckdb"]) == 0
    assert "files joined" in capsys.readouterr().out
    assert main(["explain", out, "msg", "p7:1"]) == 2
    with pytest.raises(WrongVersion):
        Workspace(f"{out}/work").begin(duck)


def test_days_that_were_removed_are_not_days_without_incidents(fleet: Fleet, tmp_path: Path, capsys: Any) -> None:
    fleet.lay(processes.kill(), "blue")
    out = str(tmp_path / "reported")
    arguments = ["report", str(fleet.raw), "-o", out, "--engine", "duckdb", "--format", "json,html"]
    assert main([*arguments, "--table-format", "delta"]) == 0
    assert main(["maintain", out, "--retain", "1d", "--engine", "duckdb"]) == 0
    capsys.readouterr()
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "no incidents in what is kept" in said and "blue: days before" in said
    for limit, text in (("--max-incidents", "incidents unknown, limit 0"), ("--max-lost", "lost unknown, limit 0")):
        assert main(["check", out, limit, "0"]) == 1
        assert text in capsys.readouterr().out
    assert "were removed by maintain" in Path(out, "report.html").read_text()


@pytest.mark.parametrize("text", ["90", "0s", "23h", "1"])
def test_a_forgotten_unit_removes_no_days(fleet: Fleet, tmp_path: Path, text: str, capsys: Any) -> None:
    fleet.lay(processes.kill(), "blue")
    fleet.watch()
    before = fleet.found()
    assert (
        main(["maintain", str(tmp_path), "--work", fleet.workspace.place, "--retain", text, "--engine", "duckdb"]) == 2
    )
    assert f"found '{text}', expected at least one day, such as 90d" in capsys.readouterr().err
    assert fleet.found() == before


def test_what_is_asked_of_plain_parquet_is_refused(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "work").mkdir()
    assert main(["maintain", str(tmp_path), "--engine", "duckdb"]) == 2
    assert "no tables of format delta" in capsys.readouterr().err
    assert main(["maintain", str(tmp_path / "none")]) == 2
    with pytest.raises(delta.DeltaError, match=r"hdfs://x/y: Delta tables lie on a disk or in s3a://"):
        delta.name_files("hdfs://x/y", [], "n bigint")
