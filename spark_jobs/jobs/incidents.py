"""The job `incidents`: events and outages → all of `reconstruct.TABLES`, per cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from spark_jobs import groups
from spark_jobs.engine.base import Engine, Row
from spark_jobs.facts import job as facts
from spark_jobs.solve import reconstruct
from spark_jobs.sql.dialect import Dialect
from spark_jobs.workspace import Workspace

COLUMNS: Final = {
    table: ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    for table, columns in reconstruct.TABLES.items()
}
ANSWERED: Final = 10_000_000
"""us before an outage in which a client's last confirm is looked for."""


def _outages(dialect: Dialect) -> str:
    """With `alive`: the client's last confirm before it, which the primary had sent."""
    near = f"l.confirmed <= o.ts_begin and l.confirmed > o.ts_begin - {ANSWERED}"
    same = f"l.cluster = o.cluster and l.client = {dialect.hashed('o.client_id')}"
    return f"""
select o.cluster, o.client_id, o.ts_begin, o.ts_end, o.censored, max(l.confirmed) as alive
from message_lives as l right join outages as o on {same} and {near}
group by o.cluster, o.client_id, o.ts_begin, o.ts_end, o.censored"""


def run(engine: Engine, workspace: Workspace) -> None:
    """Needs facts, events and outages."""
    facts.load(engine, workspace)
    workspace.load(engine, "events", "outages", "message_lives")
    queries = {"events": "select * from events", "outages": _outages(engine.dialect)}
    groups.per_cluster(engine, workspace, "incidents", queries, solve, COLUMNS)


def solve(cluster: str, views: groups.Views) -> Mapping[str, Iterable[Row]]:
    """(pure)"""
    outages = [{**row, "begin": row["ts_begin"], "end": row["ts_end"]} for row in views["outages"]]
    return reconstruct.tables(views["events"], outages, cluster)
