"""The fleet of real reports: what the pipeline writes is what the fleet reads, as documents, as workspaces, by URL."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spark_jobs.cli.main import main
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.fleet import job
from spark_jobs.fleet.summary import FleetSettings
from tests.spark import pipeline_runs as runs
from tests.spark.truth import messages, nodes, processes

QUICK = FleetSettings(resamples=100, shuffles=500)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One report over two clusters, and one over a third."""
    place = tmp_path_factory.mktemp("reports")
    duck = DuckEngine(threads=2)
    try:
        two = runs.clusters({"eu": messages.lost().files, "us": processes.never().files})
        runs.answer(duck, [runs.folder(two, place / "logs" / "a")], place / "a")
        runs.answer(duck, [runs.folder(nodes.late_fencing().files, place / "logs" / "b")], place / "b")
    finally:
        duck.close()
    return place


def test_documents(reports: Path, duck: DuckEngine) -> None:
    found = job.run(duck, [str(reports)], QUICK)
    assert found["refused"] == []
    rows = {row["cluster"]: row for row in found["incidents"]}
    assert [row["cluster"] for row in found["by_cluster"]] == ["made", "eu", "us"]
    assert (rows["made"]["dual"], rows["made"]["type"]) == ("certain", "partition")
    assert abs(rows["made"]["margin_ms"] + 900) < 5
    assert rows["eu"]["lost"] == 1 and rows["eu"]["attempts"] == 6 and rows["made"]["attempts"] is None
    never = rows["us"]
    assert never["service_us"] is None and 28_990_000 < never["service_lo_us"] <= 28_997_000
    assert rows["eu"]["service_lo_us"] <= 148_000 <= rows["eu"]["service_hi_us"]


def test_workspaces_say_the_same(reports: Path, duck: DuckEngine) -> None:
    places = [str(reports / name / "out" / "work") for name in ("a", "b")]
    assert json.dumps(job.run(duck, places, QUICK)) == json.dumps(job.run(duck, [str(reports)], QUICK))


@pytest.mark.slow
def test_spark_finds_documents_and_workspaces_below_a_url(
    reports: Path, spark: SparkEngine, duck: DuckEngine, tmp_path: Path
) -> None:
    shutil.copytree(reports, tmp_path / "copy")
    for path in (tmp_path / "copy" / "a" / "out").glob("incident-*.json"):  # of the first only the workspace is left
        path.unlink()
    found = job.run(spark, [f"file://{tmp_path}/copy"], QUICK)
    assert json.dumps(found) == json.dumps(job.run(duck, [str(reports)], QUICK))


def test_the_verb(reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", str(reports), "-o", str(tmp_path / "out"), "--engine", "duckdb"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("3 incidents of 3 clusters") and max(map(len, told.splitlines())) <= 80
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["fleet.html", "fleet.json", "fleet.md"]
    assert main(["fleet", str(tmp_path / "nowhere"), "-o", str(tmp_path / "x"), "--engine", "duckdb"]) == 2
    assert "nowhere" in capsys.readouterr().err
