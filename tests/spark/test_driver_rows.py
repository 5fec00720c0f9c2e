"""Of many events only few rows come to the process that asks; on Spark tests/spark/test_cluster.py measures octets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import pipeline
from spark_jobs.engine.base import Row, TooManyRows
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.report import files as report
from tests.spark.clients_log import LOST, segments
from tests.spark.truth import processes
from tests.spark.watch_world import SETTINGS, Fleet

MESSAGES = 5000
"""Four times as many events."""
FEW = 600


class Sparing(DuckEngine):
    """Gives and takes FEW rows at once."""

    def rows(self, query: str, limit: int = FEW) -> list[Row]:
        return super().rows(query, min(limit, FEW))

    def table(self, name: str, columns: str, rows: Iterable[Mapping[str, Any]]) -> None:
        listed = list(rows)
        assert len(listed) <= FEW, f"{name}: {len(listed)} rows from the driver"
        super().table(name, columns, listed)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(tmp_path)
    fleet.lay(processes.kill(), "red")
    for name, data in segments("red", MESSAGES).items():
        fleet.write(f"cluster=red/{name}", data)
    return fleet


def test_the_whole_report_asks_for_few_rows(fleet: Fleet) -> None:
    engine = Sparing(threads=2)
    assert pipeline.run(engine, fleet.workspace, [str(fleet.raw)], SETTINGS) == []
    report.write(engine, fleet.workspace, fleet.out, ("json",))
    found = engine.rows("select producer, pub, verdict from message_verdicts")
    assert found == [{"producer": "p1", "pub": LOST, "verdict": "lost"}]
    with pytest.raises(TooManyRows):
        engine.rows("select * from events_raw")
    engine.close()
