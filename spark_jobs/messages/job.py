"""The job `messages`: events_raw → message_lives, message_verdicts (those not simply ok), message_summary.

Queries over all events stay in SQL.  The reference's own code decides from `takings` (a row for each process and queue)
how complete the logs are as evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from spark_jobs.engine.base import Engine, Row
from spark_jobs.facts import job as facts
from spark_jobs.messages import fans, reduced
from spark_jobs.messages import query as messages
from spark_jobs.messages.evidence import Brokers, Evidence, Process
from spark_jobs.options import Options
from spark_jobs.workspace import Workspace

_EVIDENCE = "cluster string, queue string, place bigint, doubt string, why string, drained_at bigint"
_INCOMPLETE = "cluster string, proc string"
_GAPS = "cluster string, gap string"
_SHAKY = "cluster string, producer string, cause string"


def run(engine: Engine, workspace: Workspace, options: Options) -> None:
    """Needs events_raw; `incidents` if it is there."""
    workspace.load(engine, "events_raw")
    facts.need(engine, workspace)
    reduced.takings(engine, workspace, options)
    reduced.lives(engine, workspace, options)
    reduced.spans(engine, workspace)
    processes = _processes(engine.rows("select * from takings"))
    _by_queue(engine, options)
    brokers = _brokers(engine, options)
    judges = {
        cluster: Evidence(of, options.drained, brokers.get(cluster, Brokers())) for cluster, of in processes.items()
    }
    _evidence(engine, judges, options)
    _shaky(engine, processes, judges)
    engine.view("judged", messages.judged())
    workspace.save(engine, "message_verdicts", messages.verdicts())
    workspace.save(engine, "message_summary", messages.summary())


def _by_queue(engine: Engine, options: Options) -> None:
    """The view `message_counts`; a second pass only over what an exchange put into several queues."""
    if not engine.rows(f"select 1 as n from ({fans.fanned()}) limit 1"):
        engine.view("message_counts", fans.alone())
        return
    engine.view("fans", fans.fans(options.events))
    engine.view("message_counts", fans.apart())


def _brokers(engine: Engine, options: Options) -> dict[str, Brokers]:
    """By cluster: what the brokers' logs say about which logs there must be."""
    logs: dict[str, list[Row]] = defaultdict(list)
    for row in engine.rows(messages.brokers(options.facts)):
        logs[row["cluster"]].append(row)
    return {cluster: Brokers.of(rows) for cluster, rows in logs.items()}


def _processes(rows: Iterable[Row]) -> dict[str, dict[str, Process]]:
    """cluster → name → what it wrote; of `takings`."""
    found: dict[str, dict[str, Process]] = defaultdict(lambda: defaultdict(Process))
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        process = found[row["cluster"]][row["proc"]]
        process.ended |= bool(row["ended"])
        process.client = row["client_id"] or process.client
        process.sends |= bool(row["sends"])
        process.takes |= {row["queue"]} if row["takes"] else set()
        if row["drained"] is not None:
            process.drained[row["queue"]] = max(row["drained"], process.drained.get(row["queue"], 0))
        count = counts[row["cluster"], row["proc"]]
        count[0] += row["seqs"]
        count[1] += row["seq_sum"] or 0
        count[2] = max(count[2], row["seq_max"] or 0)
    for (cluster, name), (number, total, last) in counts.items():
        found[cluster][name].holes = number != last or 2 * total != last * (last + 1)
    return found


def _evidence(engine: Engine, judges: Mapping[str, Evidence], options: Options) -> None:
    """The view `evidence`: for each queue that a log names, whether missing messages may be lost."""
    named = engine.rows("select cluster, name as queue, hash as place from names")
    undone = reduced.undone(engine, options)
    doubts = {(row["cluster"], row["queue"]): row["kind"] for row in engine.rows(messages.doubts("facts", undone))}
    rows = []
    for row in named:
        cluster, queue = row["cluster"], row["queue"]
        why, drained_at = judges[cluster].of_queue(queue)
        rows.append({**row, "doubt": doubts.get((cluster, queue)), "why": why, "drained_at": drained_at})
    engine.table("evidence", _EVIDENCE, rows)
    engine.view("queue_names", "select cluster as cluster_of, place, queue from evidence")


def _shaky(engine: Engine, processes: dict[str, dict[str, Process]], judges: Mapping[str, Evidence]) -> None:
    """The view `shaky_producers`; a pass over all rows only when something unexpected came."""
    engine.view("unexpected", messages.unexpected())
    if not engine.rows("select 1 as n from unexpected limit 1"):
        engine.table("shaky_producers", _SHAKY, [])
        return
    broken = [
        {"cluster": cluster, "proc": name}
        for cluster, of in processes.items() for name, process in of.items() if not process.whole
    ]  # fmt: skip
    gaps = [{"cluster": cluster, "gap": judge.gap} for cluster, judge in judges.items() if judge.gap]
    engine.table("incomplete", _INCOMPLETE, broken)
    engine.table("log_gaps", _GAPS, gaps)
    engine.table("shaky_producers", _SHAKY, engine.rows(messages.shaky()))
