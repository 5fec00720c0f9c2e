"""The job `facts`: events_raw → facts, all rows about no message; and what the jobs per cluster read of it."""

from __future__ import annotations

from spark_jobs.engine.base import Engine
from spark_jobs.facts import query as facts
from spark_jobs.workspace import Workspace


def run(engine: Engine, workspace: Workspace) -> None:
    """Needs events_raw."""
    workspace.load(engine, "events_raw")
    workspace.save(engine, "facts", facts.facts())


def load(engine: Engine, workspace: Workspace) -> None:
    """The views `facts` and `clusters` (cluster), see `groups.per_cluster`."""
    workspace.load(engine, "facts")
    engine.table("clusters", "cluster string", engine.rows("select distinct cluster from facts"))


def need(engine: Engine, workspace: Workspace) -> None:
    """The view, of a table that is made if it is not there."""
    if workspace.has(engine, "facts"):
        workspace.load(engine, "facts")
    else:
        run(engine, workspace)


def crowded(engine: Engine, workspace: Workspace, few: int = facts.FEW) -> bool:
    """The views `facts`, `clusters` and `crowded` (cluster); is there such a cluster?  `few`: so many facts need no
    thinning."""
    load(engine, workspace)
    found = engine.rows(facts.crowded(few))
    engine.table("crowded", "cluster string", found)
    return bool(found)


def steady() -> str:
    """Query for what is never thinned, with the witness of clients."""
    return f"select * from ({facts.steady()}) union all select * from ({facts.witnesses()})"


def near(engine: Engine, events: str, clock: str) -> None:
    """The view `near`: cluster, minute."""
    engine.table("near", "cluster string, minute bigint", engine.rows(facts.near(events, clock)))


def all_of(engine: Engine, thin: bool, events: str, clock: str) -> str:
    """Query for all facts; of crowded clusters (`thin`) the samples are thinned by the time `clock` of `events`."""
    if not thin:
        return steady()
    near(engine, events, clock)
    return f"{steady()} union all select * from ({facts.thinned(events, clock)})"
