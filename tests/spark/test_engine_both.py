"""Both engines do the same with the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs import schema
from spark_jobs.engine.base import Engine, TooManyRows, columns_of
from spark_jobs.engine.session import LITTLE, settings, shuffle_partitions, submitted, suited
from spark_jobs.workspace import Workspace, WrongVersion
from tests.support.slow import both_engines


@both_engines
def test_rows_of_ours_go_to_parquet_and_back(engine: Engine, tmp_path: Path) -> None:
    columns = "name string, n bigint, flag boolean, attrs map<string,string>"
    engine.table("given", columns, [{"name": "a", "n": 2**40, "attrs": {"k": "v"}}, {"name": "b", "flag": True}])
    path = str(tmp_path / "table")
    for _ in range(2):  # the second one replaces the first
        engine.save("select * from given", path)
        engine.load("found", path)
    found = engine.rows("select name, n, flag, attrs['k'] as k from found order by name")
    assert found == [
        {"name": "a", "n": 2**40, "flag": None, "k": "v"},
        {"name": "b", "n": None, "flag": True, "k": None},
    ]


@both_engines
def test_an_empty_table_keeps_its_columns(engine: Engine, tmp_path: Path) -> None:
    engine.table("nothing", "cluster string, n bigint", [])
    engine.save("select * from nothing", str(tmp_path / "t"))
    engine.load("found", str(tmp_path / "t"))
    assert engine.rows("select cluster, n from found") == []


@both_engines
def test_a_table_that_is_not_there_is_named(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent: no such table"):
        engine.load("x", str(tmp_path / "absent"))


@both_engines
def test_big_results_are_refused(engine: Engine) -> None:
    engine.table("three", "n bigint", [{"n": n} for n in range(3)])
    assert len(engine.rows("select n from three", limit=3)) == 3
    with pytest.raises(TooManyRows, match="more than 2 rows"):
        engine.rows("select n from three", limit=2)


@both_engines
def test_a_workspace_knows_its_version(engine: Engine, tmp_path: Path) -> None:
    workspace = Workspace(str(tmp_path))
    workspace.begin(engine)
    workspace.begin(engine)
    engine.save("select '2.0' as version", workspace.path("about"))
    with pytest.raises(WrongVersion, match=r"version 2\.0, wanted 1"):
        workspace.begin(engine)
    with pytest.raises(ValueError, match="table 'nonsense', wanted one of"):
        workspace.path("nonsense")


def test_columns_of_the_schema() -> None:
    assert columns_of(schema.ddl(("kind", "attrs"))) == [("kind", "string"), ("attrs", schema.TEXTS)]


def test_settings_of_a_session() -> None:
    local, cluster = settings("local[2]", 4, None, {}), settings("spark://host:7077", 4, "3g", {"x": "y"})
    assert local["spark.driver.bindAddress"] == "127.0.0.1" and "spark.driver.bindAddress" not in cluster
    assert (cluster["spark.driver.memory"], cluster["x"]) == ("3g", "y")
    assert submitted({"PYSPARK_GATEWAY_PORT": "1"}) and not submitted({})


def test_partitions_grow_with_the_input() -> None:
    assert [shuffle_partitions(size, 2) for size in (0, 10**9, 10**13)] == [4, 30, 2000]


def test_little_data_is_not_compiled_for_long() -> None:
    name = "spark.driver.extraJavaOptions"
    assert "TieredStopAtLevel=1" in settings("local[2]", 4, None, suited(LITTLE - 1, 2))[name]
    much = settings("local[2]", 4, None, suited(LITTLE, 2))[name]
    assert "TieredStopAtLevel" not in much and "Tier4CompileThreshold" in much


def test_little_data_has_a_partition_for_each_core() -> None:
    assert settings("local[3]", 6, None, suited(0, 3))["spark.sql.shuffle.partitions"] == "3"
    assert settings("local[3]", 6, None, suited(LITTLE, 3))["spark.sql.shuffle.partitions"] == "6"
