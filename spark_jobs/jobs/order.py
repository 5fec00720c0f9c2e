"""The job `order`: facts and clock_segments → events (silver), per cluster.

Copies of one fact in several logs of a node are one row; each has its corrected time and its bounds, and no effect is
before its cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from spark_jobs import groups, schema
from spark_jobs.clocks import job as clock
from spark_jobs.clocks import pairs as clock_pairs
from spark_jobs.engine.base import Engine, Row
from spark_jobs.facts import job as facts
from spark_jobs.facts.query import FEW
from spark_jobs.options import Options
from spark_jobs.parse.collapse import per_node
from spark_jobs.solve import order
from spark_jobs.workspace import Workspace

EVENTS: Final = f"{schema.ddl()}, ts_est bigint, ts_lo bigint, ts_hi bigint, place bigint"
"""`place`: in the order of the cluster's events, from 1."""


def run(engine: Engine, workspace: Workspace, options: Options, few: int = FEW) -> None:
    """Needs facts and clock_segments; `options.facts` and `.clock`: the corrected time, see `clock.timed`; `few`: see
    `facts.crowded`."""
    workspace.load(engine, "clock_segments")
    thin = facts.crowded(engine, workspace, few)
    found = facts.all_of(engine, thin, options.facts, options.clock)
    queries = {"facts": found, "segments": "select * from clock_segments"}
    groups.per_cluster(engine, workspace, "order", queries, solve, {"events": EVENTS})


def solve(cluster: str, views: groups.Views) -> Mapping[str, Iterable[Row]]:
    """events; as failures: causes that seem to be later than their effects (pure)."""
    kept = per_node(views["facts"])
    found = order.ordered(kept, clock.of_rows(views["segments"]), clock_pairs.links(kept))
    return {
        "events": [{**row, "place": place} for place, row in enumerate(found.events, 1)],
        groups.failures("order"): [
            {"cluster": cluster, "kind": "order", "text": str(item)} for item in found.contradictions
        ],
    }
