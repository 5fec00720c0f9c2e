"""The job `incidents`: events and outages → all of `reconstruct.TABLES`, per cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from spark_jobs import groups
from spark_jobs.engine.base import Engine, Row
from spark_jobs.facts import job as facts
from spark_jobs.solve import reconstruct
from spark_jobs.workspace import Workspace

COLUMNS: Final = {
    table: ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    for table, columns in reconstruct.TABLES.items()
}
_OUTAGES: Final = "select cluster, client_id, ts_begin, ts_end, censored from outages"


def run(engine: Engine, workspace: Workspace) -> None:
    """Needs facts, events and outages."""
    facts.load(engine, workspace)
    workspace.load(engine, "events", "outages")
    queries = {"events": "select * from events", "outages": _OUTAGES}
    groups.per_cluster(engine, workspace, "incidents", queries, solve, COLUMNS)


def solve(cluster: str, views: groups.Views) -> Mapping[str, Iterable[Row]]:
    """(pure)"""
    outages = [{**row, "begin": row["ts_begin"], "end": row["ts_end"]} for row in views["outages"]]
    return reconstruct.tables(views["events"], outages, cluster)
