"""The job `gaps`: missing evidence of all other jobs → gaps, per cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from spark_jobs import groups
from spark_jobs.clocks import job as clock
from spark_jobs.engine.base import Engine, Row
from spark_jobs.facts import job as facts
from spark_jobs.gaps import findings as gaps
from spark_jobs.gaps import query as sql
from spark_jobs.workspace import Workspace

COLUMNS: Final = ", ".join(f"{name} {type_}" for name, type_ in gaps.COLUMNS.items())
_BROKEN: Final = "cluster string, source string, node string, proc string"
_HOLES: Final = (
    "cluster string, source string, node string, proc string, file string, line_no bigint, seq bigint, ts_wall bigint, "
    "after_seq bigint, after_ts bigint"
)


_GIVEN: Final = {
    "files": "cluster, name, kind, lines, faulty, continued, state, why",
    "notes": "cluster, about, text, certainty",
}
"""Of ingest: table → columns."""


def run(engine: Engine, workspace: Workspace) -> None:
    """Needs events_raw, facts, takings, events, clock_segments and incidents; reads files and notes, too."""
    facts.load(engine, workspace)
    workspace.load(engine, "events_raw", "takings", "events", "clock_segments", "incidents")
    engine.view("logs", f"{sql.logs()} union all {sql.clients()}")
    broken = engine.rows(sql.broken())
    engine.table("broken", _BROKEN, broken)
    engine.table("holes", _HOLES, engine.rows(sql.holes()) if broken else [])
    steps = [groups.failures(step) for step in ("clocks", "order", "incidents")]
    workspace.load(engine, *steps)
    engine.view("failures", " union all ".join(f"select * from {table}" for table in steps))
    tables = {"segments": "clock_segments", "failures": "failures"}
    tables |= {name: name for name in ("logs", "holes", "events", "incidents")}
    queries = {"odd": sql.odd()} | {name: f"select * from {table}" for name, table in tables.items()}
    for table, columns in _GIVEN.items():
        if workspace.has(engine, table):
            workspace.load(engine, table)
            queries[table] = f"select {columns} from {table}"
    groups.per_cluster(engine, workspace, "gaps", queries, solve, {"gaps": COLUMNS})
    _own(engine, workspace)


def _own(engine: Engine, workspace: Workspace) -> None:
    """The clusters for which this step failed."""
    failed = engine.rows(f"select * from {groups.failures('gaps')}")
    if failed:
        rows = engine.rows("select * from gaps") + [
            row for one in failed for row in gaps.find(one["cluster"], failures=[one])
        ]
        engine.keep(workspace.path("gaps"), COLUMNS, rows)
        workspace.load(engine, "gaps")


def solve(cluster: str, views: groups.Views) -> Mapping[str, Iterable[Row]]:
    """(pure)"""
    counted = {name: views[name] for name in ("logs", "holes", "odd", "failures", "files", "notes") if name in views}
    clocks = clock.of_rows(views["segments"])
    return {"gaps": gaps.find(cluster, views["events"], clocks, views["incidents"], **counted)}
