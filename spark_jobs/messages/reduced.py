"""The reduced tables that several jobs read: `takings` and `message_lives`; each one pass over all rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from spark_jobs.engine.base import Engine, Row
from spark_jobs.facts import job as facts
from spark_jobs.messages import query as messages
from spark_jobs.messages import survivors
from spark_jobs.messages.evidence import FOREVER
from spark_jobs.options import Options
from spark_jobs.sql.rows import NONE
from spark_jobs.workspace import Workspace

_NAMES = "cluster string, name string, hash bigint"
SPANS = "incident string, cluster string, ts_begin bigint, ts_end bigint"


def takings(engine: Engine, workspace: Workspace, options: Options) -> None:
    """With `names`: a client's or queue's hash in `message_lives`, whose engine alone knows it."""
    _need(engine, workspace, "takings", lambda: messages.takings(options.events, options.clock), options)
    if options.redo or not workspace.has(engine, "names"):
        engine.view("names_of", messages.names())
        rows = engine.large("names_of").rows("select cluster, name, xxhash64(name) as hash from names_of")
        engine.keep(workspace.path("names"), _NAMES, rows)
    workspace.load(engine, "names")


def lives(engine: Engine, workspace: Workspace, options: Options) -> None:
    def query() -> str:
        facts.need(engine, workspace)
        return messages.lives(options.events, options.clock, undone(engine, options))

    _need(engine, workspace, "message_lives", query, options)


def undone(engine: Engine, options: Options) -> str:
    """Condition of rows about removals that no later primary has heard of."""
    bases: dict[str, list[Row]] = defaultdict(list)
    for row in engine.rows(survivors.promotions(options.facts)):
        bases[row["cluster"]].append({"term": row["term"], "attrs": {"base": row["base"]}})
    found = {cluster: survivors.undone(rows) for cluster, rows in bases.items()}
    if not any(found.values()):
        return NONE
    removed = {(row["cluster"], row["term"]): row["first"] or 0 for row in engine.rows(survivors.latest(options.facts))}
    return survivors.condition(
        (cluster, one) for cluster in sorted(found) for one in found[cluster]
        if removed.get((cluster, one.term), -1) >= one.position
    )  # fmt: skip


def _need(engine: Engine, workspace: Workspace, table: str, query: Callable[[], str], options: Options) -> None:
    """A view of the table, which is computed if it is not there."""
    if options.redo or not workspace.has(engine, table):
        workspace.load(engine, "events_raw")
        workspace.save(engine, table, query())
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
