"""The job `pairs`: facts → pairs, which `clocks.pairs.from_rows` reads."""

from __future__ import annotations

from spark_jobs.clocks import pairs_query as pairs
from spark_jobs.engine.base import Engine
from spark_jobs.facts import job as facts
from spark_jobs.workspace import Workspace

_NAMES = "cluster string, node string, name string"
_SINGLE = "select 1 as n from facts where kind in ('enqueue', 'confirm_sent') and msg_id <> '' limit 1"


def run(engine: Engine, workspace: Workspace) -> None:
    """Needs events_raw, which is read if brokers wrote of single messages; else its facts do."""
    workspace.load(engine, "events_raw")
    facts.need(engine, workspace)
    engine.table("node_names", _NAMES, engine.rows(pairs.named("facts")))
    engine.view("aliases", pairs.aliases())
    messages = bool(engine.rows(_SINGLE))
    found = pairs.observations("events_raw" if messages else "facts", messages)
    workspace.save(engine, "pairs", pairs.thinned(found))
