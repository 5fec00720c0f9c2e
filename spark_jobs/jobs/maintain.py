"""The job `maintain`: Delta tables stay small: few files, no older days than are wanted, no older snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from spark_jobs.engine import delta
from spark_jobs.engine.base import Engine, Row
from spark_jobs.ingest import job as ingest
from spark_jobs.workspace import DELTA, Workspace

HOUR: Final = 3_600_000_000


class NothingToMaintain(ValueError):
    """Plain Parquet has no snapshots, and nothing tells what of it counts."""


def run(
    engine: Engine, workspace: Workspace, tables: Iterable[str], now: int, snapshots: int, retain: int | None = None
) -> list[Row]:
    """For each table what was done.  µs: `now`; how far back snapshots stay, and days (None: all).

    Raises NothingToMaintain."""
    if workspace.format != DELTA:
        raise NothingToMaintain(f"{workspace.place}: no tables of format delta, see `report --table-format`")
    before = None if retain is None else (now - retain) // ingest.DAY * ingest.DAY
    day = "" if before is None else datetime.fromtimestamp(before / 1_000_000, UTC).strftime("%Y-%m-%d")
    dropped, joined = ingest.tidy(engine, workspace, before)
    found: list[Row] = []
    for table in (ingest.EVENTS, *tables):
        done = delta.maintain(workspace.path(table), snapshots // HOUR, day)
        mine = (
            {"dropped": dropped, "joined": joined}
            if table == ingest.EVENTS
            else {"dropped": done.days, "joined": done.joined}
        )
        found.append({"table": table, **mine, "removed": done.removed})
    return found
