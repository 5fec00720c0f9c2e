"""Both engines give the same octets about a cluster that runs other resources."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs import pipeline
from spark_jobs.engine.base import Engine
from spark_jobs.report import files
from spark_jobs.workspace import Workspace
from tests.spark.test_foreign_bundle import ROOT


def written(engine: Engine, place: Path) -> dict[str, bytes]:
    workspace = Workspace(str(place / "work"))
    pipeline.run(engine, workspace, [str(ROOT)], pipeline.Settings(zones={"*": "Asia/Shanghai"}))
    made = files.write(engine, workspace, place / "out", ("html", "json", "md", "svg"), None)
    return {path.name: path.read_bytes() for path in made}


@pytest.mark.slow
def test_both_engines_write_the_same(spark: Engine, duck: Engine, tmp_path: Path) -> None:
    by_duck = written(duck, tmp_path / "duck")
    assert b"Node sles2 was fenced" in by_duck["report.md"]
    assert written(spark, tmp_path / "spark") == by_duck
