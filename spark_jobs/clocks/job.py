"""The jobs `pairs`: facts → pairs; and `clocks`: pairs and facts → clock_segments, per cluster; and the corrected time
for the big queries.

A cluster whose clocks cannot be solved has no segments: its times stay as they were written, without bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

from spark_jobs import groups
from spark_jobs.clocks import estimate as clocks
from spark_jobs.clocks import pairs as clock_pairs
from spark_jobs.clocks import pairs_query
from spark_jobs.clocks import query as lines
from spark_jobs.clocks.pairs import BUCKET, Observation
from spark_jobs.clocks.segments import Clocks
from spark_jobs.clocks.steps import Break
from spark_jobs.engine.base import Engine, Row
from spark_jobs.facts import job as facts
from spark_jobs.facts import query as rows_of
from spark_jobs.options import Options
from spark_jobs.parse.collapse import per_node
from spark_jobs.workspace import Workspace

SEGMENTS: Final = (
    "cluster string, node string, segment bigint, t0 bigint, t1 bigint, offset_us bigint, drift_ppm double, "
    "err_us bigint, evidence map<string,string>, notes string, band string, max_drift_ppm double, step string"
)
"""`segments.ClockSegment.row`; `step`: the Break before it as JSON, null for the first."""
_NAMES: Final = "cluster string, node string, name string"
_SINGLE: Final = "select 1 as n from facts where kind in ('enqueue', 'confirm_sent') and msg_id <> '' limit 1"


def pairs(engine: Engine, workspace: Workspace) -> None:
    """Needs events_raw, which is read if brokers wrote of single messages; else its facts do."""
    workspace.load(engine, "events_raw")
    facts.need(engine, workspace)
    engine.table("node_names", _NAMES, engine.rows(pairs_query.named("facts")))
    engine.view("aliases", pairs_query.aliases())
    messages = bool(engine.rows(_SINGLE))
    found = pairs_query.observations("events_raw" if messages else "facts", messages)
    workspace.save(engine, "pairs", pairs_query.thinned(found))


def run(engine: Engine, workspace: Workspace, reference: str | None = None, few: int = rows_of.FEW) -> None:
    """Needs events_raw, facts and pairs.  `reference`: the node whose clock is the axis, in clusters that have it;
    `few`: see `facts.crowded`."""
    workspace.load(engine, "events_raw", "pairs")
    queries = {"facts": facts.steady(), "readings": rows_of.readings(), "pairs": "select * from pairs"}
    if facts.crowded(engine, workspace, few):
        facts.near(engine, "facts", "ts_wall")
        samples = f"select *, cast(1 as bigint) as count from ({rows_of.samples_of_positions()})"
        queries["pairs"] += f" union all {samples}"
        queries["crowded"] = rows_of.crowded_readings()  # apart: facts are small where events are not
    solver = partial(solve, reference=reference)
    groups.per_cluster(engine, workspace, "clocks", queries, solver, {"clock_segments": SEGMENTS})


def solve(cluster: str, views: groups.Views, reference: str | None = None) -> Mapping[str, Iterable[Row]]:
    """clock_segments; as failures: observations that were not believed (pure)."""
    kept = per_node(row for row in views["facts"] if row.get("source") != "client")
    read = [*kept, *views["readings"], *views.get("crowded", ())]
    found = merged(clock_pairs.observations(read, clock_pairs.links(kept)), clock_pairs.from_rows(views["pairs"]))
    named = {row.get("node") for row in read if row.get("ts_wall") is not None}
    solved = clocks.solve(found, read, reference if reference in named else None)
    dropped = [{"cluster": cluster, "kind": "clock-contradiction", "text": text} for text in solved.dropped]
    return {"clock_segments": rows(solved, cluster), groups.failures("clocks"): dropped}


def merged(some: Sequence[Observation], others: Sequence[Observation]) -> list[Observation]:
    """What two say about the same rows is counted once; who has seen more of them has the greater count."""
    counts: dict[tuple[str, str, str, int], int] = {}
    for item in (*some, *others):
        counts[_key(item)] = max(counts.get(_key(item), 0), item.count)
    return [replace(item, count=counts[_key(item)]) for item in clock_pairs.thinned([*some, *others])]


def _key(item: Observation) -> tuple[str, str, str, int]:
    return item.sender, item.receiver, item.kind, item.sent // BUCKET


def rows(solved: Clocks, cluster: str) -> list[Row]:
    """Of the table `clock_segments`."""
    found = []
    for row in solved.rows():
        breaks = [item for item in solved.breaks if item.node == row["node"]]
        step = json.dumps(asdict(breaks[row["segment"] - 1])) if row["segment"] else None
        found.append({"cluster": cluster, **row, "step": step})
    return found


def of_rows(segments: Iterable[Mapping[str, Any]]) -> Clocks:
    """The clocks of one cluster as they were solved."""
    listed = [{"notes": "", "evidence": {}, **row} for row in segments]
    steps = [(row["node"], row["segment"], json.loads(row["step"])) for row in listed if row.get("step")]
    breaks = [_break(step) for *_, step in sorted(steps, key=lambda item: item[:2])]
    return Clocks.from_rows(listed, breaks)


def _break(step: dict[str, Any]) -> Break:
    pairs = {name: tuple(step[name]) if step[name] is not None else None for name in ("mono", "axis", "walls")}
    return Break(**{**step, **pairs})


def timed(engine: Engine, workspace: Workspace, options: Options) -> Options:
    """The options with corrected time, if any clock of any cluster is off: views `events_timed` and `facts_timed` with
    ts_est."""
    workspace.load(engine, "events_raw", "facts", "clock_segments")
    of: dict[str, list[Row]] = {}
    for row in engine.rows("select * from clock_segments"):
        of.setdefault(row["cluster"], []).append({**row, "evidence": {}})
    found = [piece for cluster in sorted(of) for piece in lines.pieces(of_rows(of[cluster]), cluster)]
    if not found:
        return options
    engine.table("clock_pieces", lines.PIECES, found)
    engine.view("events_timed", lines.timed("events_raw", found))
    engine.view("facts_timed", lines.timed("facts", found))
    return replace(options, events="events_timed", facts="facts_timed", clock="ts_est")
