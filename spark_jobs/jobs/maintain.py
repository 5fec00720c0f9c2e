"""The job `maintain`: Delta tables stay small: few files, no older days than are wanted, no older snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_jobs.engine import delta
from spark_jobs.engine.base import Engine, Row
from spark_jobs.ingest import job as ingest
from spark_jobs.schema import day
from spark_jobs.workspace import DELTA, Workspace

HOUR: Final = 3_600_000_000


class NothingToMaintain(ValueError):
    """Plain Parquet has no snapshots, and nothing tells what of it counts."""


def run(
    engine: Engine, workspace: Workspace, tables: Iterable[str], snapshots: int, before: int | None = None
) -> list[Row]:
    """For each table what was done.  µs: how far back snapshots stay; days before that of a moment go.

    Raises NothingToMaintain."""
    if workspace.format != DELTA:
        raise NothingToMaintain(f"{workspace.place}: no tables of format delta, see `report --table-format`")
    midnight = None if before is None else before // ingest.DAY * ingest.DAY
    dropped, joined = ingest.tidy(engine, workspace, midnight)
    found: list[Row] = [{"table": ingest.EVENTS, "dropped": dropped, "joined": joined}]
    for table in (ingest.EVENTS, *tables):
        done = delta.maintain(workspace.path(table), snapshots // HOUR, "" if midnight is None else day(midnight))
        if table != ingest.EVENTS:
            found.append({"table": table, "dropped": done.days, "joined": done.joined})
        found[-1]["removed"] = done.removed
    return found
