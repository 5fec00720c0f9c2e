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
ANSWERED: Final = 10_000_000
"""us before an outage in which a client's last confirm is looked for."""


_ALIVE: Final = f"""
select o.cluster, o.client_id, o.ts_begin, o.ts_end, max(l.confirmed) as alive
from message_lives as l join named_outages as o
  on l.cluster = o.cluster and l.client = o.hash and l.confirmed <= o.ts_begin and l.confirmed > o.ts_begin - {ANSWERED}
group by o.cluster, o.client_id, o.ts_begin, o.ts_end"""
_OUTAGES: Final = """
select o.*, a.alive from outages as o left join alive as a
  on a.cluster = o.cluster and a.client_id = o.client_id and a.ts_begin = o.ts_begin and a.ts_end = o.ts_end"""
"""With `alive`: the client's last confirm before it, which the primary had sent."""


def run(engine: Engine, workspace: Workspace) -> None:
    """Needs facts, events and outages."""
    facts.load(engine, workspace)
    workspace.load(engine, "events", "outages", "names", "message_lives")
    engine.view(
        "named_outages",
        "select o.*, hash from outages as o join names as n on n.cluster = o.cluster and name = client_id",
    )
    engine.save(_ALIVE, workspace.path("scratch"))
    engine.load("alive", workspace.path("scratch"))
    queries = {"events": "select * from events", "outages": _OUTAGES}
    groups.per_cluster(engine, workspace, "incidents", queries, solve, COLUMNS)


def solve(cluster: str, views: groups.Views) -> Mapping[str, Iterable[Row]]:
    """(pure)"""
    outages = [{**row, "begin": row["ts_begin"], "end": row["ts_end"]} for row in views["outages"]]
    return reconstruct.tables(views["events"], outages, cluster)
