"""Clients prove that a primary lived: where its log is silent or not here, their last confirms bound the failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_jobs import pipeline
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.workspace import Workspace
from tests.spark.truth import processes
from tests.spark.truth.world import START, World


def hung(world: World, folder: Path) -> None:
    """node1 stands still from 0 to 6; p1 publishes every 10 ms, and is answered after 2 ms until then."""
    for number in range(200):
        at = -1.0 + number / 100 if number < 100 else 1.5 + number / 100
        world.client("p1", at, "publish", queue="q", msg_id=f"m:{number}")
        world.client("p1", at + 0.002, "confirm", queue="q", msg_id=f"m:{number}")
    world.client("p1", 0.0, "publish", queue="q", msg_id="m:900")
    world.client("p1", 1.6, "confirm", queue="q", msg_id="m:900")
    world.client("p1", 9.0, "log_end")
    for name, lines in world.files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("gone", ["", "node1", "node2", "node3"])
def test_the_fault_begins_with_the_last_answer(gone: str, duck: DuckEngine, tmp_path: Path) -> None:
    hung(processes.hang().world, tmp_path / "logs")
    if gone:
        (tmp_path / "logs" / gone / "events" / f"{gone}-0001.jsonl").unlink()
    workspace = Workspace(str(tmp_path / "work"))
    pipeline.run(
        duck, workspace, [str(tmp_path / "logs")], pipeline.Settings(reference="node3" if gone != "node3" else None)
    )
    workspace.load(duck, "phases", "incidents")
    (fault,) = duck.rows("select * from phases where phase = 'fault'")
    begin: dict[str, Any] = {name: (fault[name] - START) / 1e6 for name in ("begin_lo", "begin", "begin_hi")}
    assert fault["begin_what"] == "answer to p1", fault
    assert begin["begin_lo"] <= -0.008 <= begin["begin_hi"] + 0.001
    assert abs(begin["begin"] + 0.008) < 0.05
