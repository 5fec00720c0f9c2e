"""Tables as folders of Parquet files: what ingest needs of both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.engine.base import Engine
from spark_jobs.engine.spark import SparkEngine
from tests.support.slow import both_engines

COLUMNS = "n bigint, name string, attrs map<string,string>"


def numbers(engine: Engine, path: Path) -> list[int]:
    engine.load("found", str(path))
    return [row["n"] for row in engine.rows("select n from found order by n")]


def part(folder: Path, name: str, *rows: int) -> Path:
    pq.write_table(pa.table({"n": pa.array(rows, pa.int64())}), folder / name)
    return folder / name


@both_engines
def test_small_tables_are_kept_in_place_of_the_old_ones(engine: Engine, tmp_path: Path):
    table = tmp_path / "table"
    engine.save("select 9 as n union all select 8 as n", str(table))
    several: list[list[dict[str, Any]]] = [[{"n": 1, "name": "a", "attrs": {"k": "v"}}, {"n": 2}], [{"n": 3}], []]
    for rows in several:
        engine.keep(str(table), COLUMNS, rows)
        assert numbers(engine, table) == [row["n"] for row in rows]
        assert engine.columns("found") == ["n", "name", "attrs"]
    assert len(engine.parts(str(table))) == 1


@both_engines
def test_a_table_that_was_kept_may_be_saved_with_other_columns(engine: Engine, tmp_path: Path):
    table = str(tmp_path / "table")
    engine.keep(table, COLUMNS, [{"n": 1}])
    engine.save("select 2 as m", table)
    engine.load("found", table)
    assert engine.rows("select * from found") == [{"m": 2}]


@both_engines
def test_parts_come_and_go(engine: Engine, tmp_path: Path):
    table = tmp_path / "table"
    assert engine.parts(str(table)) == []
    engine.put([part(tmp_path, "a.parquet", 1), part(tmp_path, "b.parquet", 2, 3)], str(table))
    assert engine.parts(str(table)) == ["a.parquet", "b.parquet"] and not (tmp_path / "a.parquet").exists()
    assert numbers(engine, table) == [1, 2, 3]
    added = engine.append("select cast(4 as bigint) as n", str(table), "c")
    assert added == [name for name in engine.parts(str(table)) if name.startswith("c")]
    engine.drop(str(table), ["b.parquet"])
    assert numbers(engine, table) == [1, 4]
    engine.put([part(tmp_path, "a.parquet", 7)], str(table))
    assert numbers(engine, table) == [4, 7]


@both_engines
def test_nothing_is_left_next_to_a_table(engine: Engine, tmp_path: Path):
    engine.keep(str(tmp_path / "table"), COLUMNS, [{"n": 1}])
    engine.append("select cast(1 as bigint) as n", str(tmp_path / "table"), "a")
    engine.save("select 1 as n", str(tmp_path / "table"))
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def test_one_engine_writes_and_the_other_replaces(spark: Engine, duck: Engine, tmp_path: Path):
    """Hadoop's checksums of the old file must not fail the new one."""
    table = tmp_path / "table"
    spark.append("select cast(1 as bigint) as n", str(table), "a")
    (name,) = spark.parts(str(table))
    duck.drop(str(table), [name])
    duck.put([part(tmp_path, name, 2)], str(table))
    assert numbers(spark, table) == [2]


@pytest.mark.parametrize("form", ["{}", "{}/", "file:{}", "file://{}"])
def test_all_forms_of_a_place_are_one_table(spark: SparkEngine, tmp_path: Path, form: str) -> None:
    """Hadoop answers with `file:/srv`, which is no folder `file:` here."""
    place = form.format(tmp_path / "table")
    assert not spark.exists(place) and spark.parts(place) == [] and spark.written(place) == []
    (tmp_path / "new").mkdir()
    spark.put([part(tmp_path / "new", "b.parquet", 2), part(tmp_path / "new", "a.parquet", 1)], place)
    (tmp_path / "table" / "_hidden.parquet").touch()
    assert spark.exists(place) and spark.parts(place) == ["a.parquet", "b.parquet"]
    assert {file.path: file.size for file in spark.written(place)} == {
        name: (tmp_path / "table" / name).stat().st_size for name in ("a.parquet", "b.parquet")
    }
    spark.drop(place, ["b.parquet", "none.parquet"])
    assert numbers(spark, Path(f"{tmp_path}/table/a.parquet")) == [1]
    spark.load("found", f"{place.rstrip('/')}/a.parquet")
    assert spark.rows("select n from found") == [{"n": 1}]
    assert not (tmp_path / "file:").exists() and not Path("file:").exists()


ODD = "a [1],{x} *?ü run=5"
"""What patterns and Hive's folders mean something by."""


@both_engines
def test_a_place_may_have_any_name(engine: Engine, tmp_path: Path) -> None:
    table, other = tmp_path / ODD / "table", tmp_path / "a 1,x **ü run=5" / "table"
    other.mkdir(parents=True)
    part(other, "z.parquet", 9)
    engine.keep(str(table), COLUMNS, [{"n": 1}])
    assert numbers(engine, table) == [1] and engine.columns("found") == ["n", "name", "attrs"]
    engine.load("found", str(table), COLUMNS)
    engine.save("select n, name from found", str(table))
    assert numbers(engine, table) == [1]
    engine.append("select n + 1 as n, name from found", str(table), "b")
    assert numbers(engine, table) == [1, 2]
    (tmp_path / "new").mkdir()
    engine.put([part(tmp_path / "new", "c [x].parquet", 3)], str(table))
    assert numbers(engine, table) == [1, 2, 3] and numbers(engine, table / "c [x].parquet") == [3]
    engine.load_files("found", str(table), ["c [x].parquet"], "n bigint")
    assert engine.rows("select * from found") == [{"n": 3}]
    engine.view("dated", "select n, 'it''s [1]' as cluster, '2026-01-01' as date from found")
    (made,) = engine.spread("select * from dated", str(table.parent / "spread"), ("cluster", "date"))
    engine.load_files("found", str(table.parent / "spread"), [made.path], "n bigint, cluster string")
    assert engine.rows("select * from found") == [{"n": 3, "cluster": "it's [1]"}]
