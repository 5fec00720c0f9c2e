"""The benchmark in small: both engines find what was planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import spark, spark_rows, spark_segments, spark_year
from benchmarks.spark_data import Truth, cluster, sizes
from benchmarks.spark_run import REFERENCE, check
from spark_jobs import pipeline
from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.parse.context import Context
from spark_jobs.parse.event_json import parse_file
from spark_jobs.schema import NAMES
from spark_jobs.workspace import Workspace

EVENTS = 20_000


def of_tables(engine: Engine, place: Path) -> tuple[Workspace, Truth]:
    made, truth = cluster(0, *sizes(EVENTS, 1))
    (place / "events_raw").mkdir(parents=True)
    spark_rows.write(made, place / "events_raw" / "part-0.parquet", seed=1)
    workspace = Workspace(str(place))
    assert pipeline.after_ingest(engine, workspace, pipeline.Settings(reference=REFERENCE)) == []
    return workspace, truth


@pytest.mark.parametrize("engine", [pytest.param("spark", marks=pytest.mark.slow), "duck"], indirect=True)
def test_what_was_planted_is_found(engine: Engine, tmp_path: Path) -> None:
    workspace, truth = of_tables(engine, tmp_path)
    found = check(engine, workspace, [truth])
    assert found.passed, found
    assert (found.clusters, found.outages, found.nodes) == (1, 40, 7)
    assert 0 < found.worst_us < 5_000
    workspace.load(engine, "incidents")
    (incident,) = engine.rows("select type, old_primary, new_primary from incidents")
    assert tuple(incident.values()) == ("kill", "n1", "n2")


def test_the_check_sees_each_kind_of_mistake(duck: DuckEngine, tmp_path: Path) -> None:
    workspace, truth = of_tables(duck, tmp_path)
    begin, end = truth.outages["prod-7"]
    wrong = Truth(
        truth.cluster, truth.begin, {**truth.counts, "lost": truth.counts["lost"] + 1},
        {**truth.outages, "prod-7": (begin, end + 8_000)}, {**truth.offsets, "n3": truth.offsets["n3"] + 3_000},
        truth.drifts,
    )  # fmt: skip
    found = check(duck, workspace, [wrong])
    assert not found.passed
    assert [len(found.counts_wrong), len(found.outages_wrong), len(found.nodes_wrong)] == [1, 1, 1]


def test_segments_say_what_the_table_says(tmp_path: Path) -> None:
    """The lines read by the real parser are the rows."""
    made, _ = cluster(0, 400, 10)
    spark_segments.write(made, tmp_path)
    files = sorted(tmp_path.rglob("*.jsonl"))
    assert len(files) > 80
    found = [
        {name: row.get(name) for name in NAMES if name not in ("file", "line_no", "raw")}
        for path in files
        for row in parse_file(path.name, path.read_bytes().splitlines(keepends=True), Context(), "client")
    ]
    wanted = [{name: row[name] for name in found[0]} for row in made.to_pylist()]
    for row in wanted:
        row["attrs"] = dict(row["attrs"]) if row["attrs"] is not None else None
    assert sorted(found, key=_place) == sorted(wanted, key=_place)


def _place(row: dict[str, Any]) -> tuple[str, int]:
    return row["proc"], row["seq"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb"])
def test_the_program(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the logs to tables and page; each run is a process."""
    small = ["--events", str(EVENTS), "--clusters", "2", "--incident-events", str(EVENTS)]
    values = tmp_path / "values.json"
    status = spark.main([*small, "--engines", engine, "--directory", str(tmp_path), "--json", str(values)])
    said = capsys.readouterr().out
    assert status == 0, said
    assert "counts of 2 clusters: exact; 80 outages: worst" in said and f"- incident, {engine}: exact" in said
    found = json.loads(values.read_text())
    assert found["failures"] == [] and {"fleet duckdb parquet", "fleet duckdb json", "incident duckdb json"} == set(
        found["costs"]
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["values.json"]


@pytest.mark.slow
def test_a_day_of_the_year_is_watched_and_old_ones_are_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--clusters", "2", "--days", "3", "--events", "1000", "--retain", "150"]
    assert spark_year.main(words) in (0, 1), "1: on a loaded machine days may seem to become dearer"
    days = [
        line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith(("| 0", "| 121", "| 243"))
    ]
    assert [day[3] for day in days] == ["2", "2", "2"] and all(day[1] == day[2] for day in days)


def test_days_that_become_dearer_are_seen() -> None:
    def rows(*costs: float) -> list[dict[str, float]]:
        return [{"cpu": cost, "maintain": 1.0} for cost in costs]

    assert spark_year.growth(rows(1, 2, 9, 9, 9, 9, 9), 2) == 1.0
    assert spark_year.growth(rows(1, 2, 9, 9, 9, 19, 19), 2) == 2.0
    assert spark_year.growth(rows(1, 3), 5) == 2.0
