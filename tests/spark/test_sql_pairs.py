"""The table `pairs`: what the reference finds in the same rows of a made-up cluster."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.spark_data import LENGTH, cluster
from spark_jobs.clocks import job as clock
from spark_jobs.engine.base import Engine
from spark_jobs.workspace import Workspace
from tests.spark.pairs_judge import observations

COLUMNS = ("sender", "receiver", "kind", "sent", "delay", "slack", "count")


def test_the_same_as_the_reference(engine: Engine, tmp_path: Path) -> None:
    table, truth = cluster(0, 6_000, 300)
    workspace = Workspace(str(tmp_path))
    (tmp_path / "events_raw").mkdir()
    pq.write_table(table, tmp_path / "events_raw" / "part-0.parquet")
    clock.pairs(engine, workspace)
    found = sorted(tuple(row[name] for name in COLUMNS) for row in engine.rows("select * from pairs"))
    rows = [
        {**row, "attrs": dict(row["attrs"] or {})}
        for row in table.to_pylist() if row["source"] == "broker" or row["kind"] == "connected"
    ]  # fmt: skip
    wanted = sorted(tuple(getattr(item, name) for name in COLUMNS) for item in observations(rows))
    assert len(found) > 100 and found == wanted
    drift = max(abs(value) for value in truth.drifts.values()) * LENGTH / 1e6
    for sender, receiver, _, _, delay, slack, _ in found:
        assert truth.offsets[receiver] - truth.offsets[sender] <= delay + slack + drift
