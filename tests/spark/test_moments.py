"""What consumers did in their spans is found by ts_wall, however wrong their clocks are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_jobs.clocks import query as lines
from spark_jobs.engine.base import Engine
from spark_jobs.options import Options
from spark_jobs.outages import job
from spark_jobs.outages.query import MINUTE
from spark_jobs.workspace import Workspace
from tests.spark.sql_histories import write
from tests.support.slow import both_engines

BEGIN, END = 100 * MINUTE, 101 * MINUTE
SPANS = "cluster string, client_id string, b bigint, e bigint"
SPAN = {"cluster": "c", "client_id": "c1", "b": BEGIN, "e": END}
CLOCK = {"cluster": "c", "node": "h", "w0": 0, "w1": 1 << 62, "boot": "", "m0": 0, "m1": 0, "except_boots": ""}


def row(at: int, kind: str = "deliver", client: str = "c1", **more: Any) -> dict[str, Any]:
    found = {"cluster": "c", "source": "client", "node": "h", "proc": client, "client_id": client, "kind": kind}
    return found | {"ts_wall": at, "ts_mono": 0, "pub_first": 1, "pub_last": 1, **more}


def moments(
    engine: Engine, place: Path, ahead: int, rows: list[dict[str, Any]], spans: list[dict[str, Any]]
) -> list[tuple[int, int]]:
    """(ts, got) of those found by a clock that is `ahead`, µs."""
    write([{**row, "ts_wall": row["ts_wall"] + ahead} for row in rows], place / "events_raw")
    workspace = Workspace(str(place))
    workspace.load(engine, "events_raw")
    found = [{**CLOCK, "offset_us": ahead, "slope": 0.0}]
    engine.table("clock_pieces", lines.PIECES, found)
    engine.view("events_timed", lines.timed("events_raw", found))
    engine.table("consumer_spans", SPANS, spans)
    options = Options(events="events_timed", clock="ts_est", skew=lines.skew(found))
    job._moments(engine, workspace, options)
    return sorted((row["ts"], row["got"]) for row in engine.rows("select * from consumer_moments"))


@both_engines
@pytest.mark.parametrize("ahead", [0, 5_000_000, -5_000_000])
def test_moments_of_a_span(engine: Engine, tmp_path: Path, ahead: int) -> None:
    edges = [BEGIN - 1, BEGIN, END - 1, END]
    rows = [row(at) for at in edges] + [row(BEGIN + 9, "ack"), row(BEGIN + 9, "publish"), row(BEGIN, client="c2")]
    rows += [row(BEGIN + 5, cluster="d"), row(BEGIN + 5, cluster=None)]
    assert moments(engine, tmp_path, ahead, rows, [SPAN]) == [(BEGIN, 1), (BEGIN + 9, 0), (END - 1, 1)]


@both_engines
@pytest.mark.parametrize("ahead", [0, 5_000_000])
def test_a_run_that_began_before(engine: Engine, tmp_path: Path, ahead: int) -> None:
    """Three messages a minute apart, the second at the begin of the span."""
    run = row(BEGIN - MINUTE, pub_last=3, attrs={"last_ts_mono": str(2 * MINUTE)})
    assert moments(engine, tmp_path, ahead, [run], [SPAN]) == [(BEGIN, 1)]


@both_engines
def test_the_name_of_a_cluster_is_anybodys(engine: Engine, tmp_path: Path) -> None:
    name = "o'c\\n${env:HOME}"
    found = moments(engine, tmp_path, 0, [row(BEGIN, cluster=name)], [{**SPAN, "cluster": name}])
    assert found == [(BEGIN, 1)]


@both_engines
def test_no_span_no_pass(engine: Engine, tmp_path: Path) -> None:
    assert moments(engine, tmp_path, 0, [row(BEGIN)], []) == []
    assert not (tmp_path / "consumer_moments").exists()
