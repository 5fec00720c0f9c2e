"""One function for each cluster: the same on the driver and in Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import groups
from spark_jobs.engine.base import Engine
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.workspace import Workspace
from tests.support.slow import both_engines

COLUMNS = (
    "cluster string, begin bigint, end bigint, real double, yes boolean, texts array<string>, attrs map<string,string>"
)
GIVEN = "cluster string, n bigint, text string, attrs map<string,string>"


def solver(cluster: str, views: groups.Views) -> Mapping[str, Iterable[dict[str, Any]]]:
    if cluster == "bad":
        raise ValueError("no way")
    seen = sorted(row["n"] for row in views["all"])
    attrs = {"seen": str(seen), "keys": " ".join(sorted({name for row in views["all"] for name in row}))}
    some = {"texts": [f'"{cluster}" äöü\n', "'"], "attrs": attrs, "real": 1.5, "yes": len(views["few"]) == 1}
    row = {"cluster": cluster, "begin": min(seen), "end": None, **some}
    told = [{"cluster": cluster, "kind": "word", "text": "told"}] if cluster == "a" else []
    return {"hints": [row], groups.failures("clocks"): told}


def run(engine: Engine, place: Path, clusters: Iterable[str]) -> tuple[list[Any], list[Any]]:
    rows = [{"cluster": name, "n": n, "attrs": {"q": "ü"}} for name in clusters for n in range(3)]
    engine.table("given", GIVEN, rows)
    engine.table("clusters", "cluster string", [{"cluster": name} for name in clusters])
    queries = {"all": "select * from given", "few": "select * from given where n > 1"}
    groups.per_cluster(engine, Workspace(str(place)), "clocks", queries, solver, {"hints": COLUMNS})
    found = [(*row.values(),) for row in engine.rows("select * from hints order by cluster")]
    return found, engine.rows("select * from clocks_failures order by cluster")


def row_of(cluster: str) -> tuple[Any, ...]:
    attrs = [("seen", "[0, 1, 2]"), ("keys", "attrs cluster n")]
    return (cluster, 0, None, 1.5, True, [f'"{cluster}" äöü\n', "'"], attrs)


def ordered(rows: list[Any]) -> list[Any]:
    return [(*row[:-1], sorted(dict(row[-1]).items())) for row in rows]


@both_engines
@pytest.mark.parametrize("few", [0, groups.FEW])
def test_each_cluster_alone_and_failures_apart(engine: Engine, tmp_path: Path, monkeypatch: Any, few: int) -> None:
    """Up to `few` rows that tasks made go to the tables through this process."""
    monkeypatch.setattr(groups, "FEW", few)
    found, failed = run(engine, tmp_path, ["a", "bad", "c"])
    assert ordered(found) == ordered([row_of("a"), row_of("c")])
    assert failed == [
        {"cluster": "a", "kind": "word", "text": "told"},
        {"cluster": "bad", "kind": "failed", "text": "the step clocks failed for this cluster: ValueError: no way"},
    ]


def test_one_cluster_stays_here(spark: SparkEngine, tmp_path: Path) -> None:
    found, failed = run(spark, tmp_path, ["c"])
    assert (ordered(found), failed) == (ordered([row_of("c")]), [])
    assert not spark.exists(Workspace(str(tmp_path)).path("scratch"))


@both_engines
def test_no_logs_at_all(engine: Engine, tmp_path: Path) -> None:
    assert run(engine, tmp_path, []) == ([], [])
