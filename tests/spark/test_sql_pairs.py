"""The table `pairs`: what the reference finds in the same rows, and the truth of a made-up fleet."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.spark_data import LENGTH, T0, cluster
from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.jobs import messages, pairs, windows
from spark_jobs.jobs.options import Options
from spark_jobs.solve.clock_pairs import observations
from spark_jobs.workspace import Workspace

COLUMNS = ("sender", "receiver", "kind", "sent", "delay", "slack", "count")


def test_the_same_as_the_reference(engine: Engine, tmp_path: Path) -> None:
    table, truth = cluster(0, 6_000, 300)
    workspace = Workspace(str(tmp_path))
    (tmp_path / "events_raw").mkdir()
    pq.write_table(table, tmp_path / "events_raw" / "part-0.parquet")
    pairs.run(engine, workspace, Options())
    found = sorted(tuple(row[name] for name in COLUMNS) for row in engine.rows("select * from pairs"))
    rows = [row for row in table.to_pylist() if row["source"] == "broker"]
    wanted = sorted(tuple(getattr(item, name) for name in COLUMNS) for item in observations(rows))
    assert len(found) > 100 and found == wanted
    drift = max(abs(value) for value in truth.drifts.values()) * LENGTH / 1e6
    for sender, receiver, _, _, delay, slack, _ in found:
        assert truth.offsets[receiver] - truth.offsets[sender] <= delay + slack + drift


def test_the_planted_truth_is_found(duck: DuckEngine, tmp_path: Path) -> None:
    """The benchmark in small."""
    table, truth = cluster(3, 24_000, 10)
    workspace = Workspace(str(tmp_path))
    (tmp_path / "events_raw").mkdir()
    pq.write_table(table, tmp_path / "events_raw" / "part-0.parquet")
    messages.run(duck, workspace, Options())
    sums = ", ".join(f"cast(sum({name}) as bigint) as {name}" for name in truth.counts)
    assert duck.rows(f"select {sums} from message_summary") == [truth.counts]
    windows.run(duck, workspace, Options(shortest=1_500_000))
    query = "select client_id, ts_begin, ts_end from outages where why = 'confirm'"
    found = {row["client_id"]: (row["ts_begin"], row["ts_end"]) for row in duck.rows(query)}
    assert found == {name: (begin, end) for name, (begin, end) in truth.outages.items()}
    assert min(begin for begin, _ in found.values()) > T0
