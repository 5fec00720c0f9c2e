"""The job `pairs`: events_raw → pairs, which `solve.clock_pairs.from_rows` reads."""

from __future__ import annotations

from spark_jobs.engine.base import Engine
from spark_jobs.jobs.options import Options
from spark_jobs.sql import pairs
from spark_jobs.workspace import Workspace

_NAMES = "cluster string, node string, name string"
_SINGLE = "select 1 as n from events_raw where kind in ('enqueue', 'confirm_sent') and msg_id <> '' limit 1"


def run(engine: Engine, workspace: Workspace, options: Options) -> None:
    """Needs events_raw."""
    workspace.load(engine, "events_raw")
    engine.table("node_names", _NAMES, engine.rows(pairs.named()))
    engine.view("aliases", pairs.aliases())
    messages = bool(engine.rows(_SINGLE))
    workspace.save(engine, "pairs", pairs.thinned(engine.dialect, pairs.observations("events_raw", messages)))
