"""The reduced tables that several jobs read: `takings` and `message_lives`; each one pass over all rows."""

from __future__ import annotations

from spark_jobs.engine.base import Engine
from spark_jobs.jobs.options import Options
from spark_jobs.solve.evidence import FOREVER
from spark_jobs.sql import messages
from spark_jobs.workspace import Workspace

SPANS = "incident string, cluster string, ts_begin bigint, ts_end bigint"


def takings(engine: Engine, workspace: Workspace, options: Options) -> None:
    _need(engine, workspace, "takings", messages.takings(options.events, options.clock), options)


def lives(engine: Engine, workspace: Workspace, options: Options) -> None:
    query = messages.lives(engine.dialect, options.events, options.clock)
    _need(engine, workspace, "message_lives", query, options)


def _need(engine: Engine, workspace: Workspace, table: str, query: str, options: Options) -> None:
    """A view of the table, which is computed if it is not there."""
    if options.redo or not workspace.has(engine, table):
        workspace.load(engine, "events_raw")
        workspace.save(engine, table, query)
    else:
        workspace.load(engine, table)


def spans(engine: Engine, workspace: Workspace) -> None:
    """The view `spans`: when each incident was; without the table `incidents` each cluster is one, named ''."""
    if workspace.has(engine, "incidents"):
        workspace.load(engine, "incidents")
        engine.view("spans", "select incident, coalesce(cluster, '') as cluster, ts_begin, ts_end from incidents")
        return
    clusters = engine.rows("select distinct cluster from takings")
    rows = [{"incident": "", "cluster": row["cluster"], "ts_begin": 0, "ts_end": FOREVER} for row in clusters]
    engine.table("spans", SPANS, rows)
