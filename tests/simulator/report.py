"""The analysis as a third judge of a run: from the logs alone it must come to what the simulator knows.

`recorded` runs a scenario under a `tap.Recorder`.  `verdict` gives its logs to the plain reference of the analysis
(`spark_jobs.solve`), through the real parser; `write` keeps them as files, and `drawn` lets `failover-report` make its
pages of them.  `disagreements` states the promise for what the analysis has counted, and compares:

    confirmed     as many as the simulator's history has: a copy counts once for each of its queues
    promotions    as many
    lost          none, unless a total failure was seen, or the resource manager gambles; not in queues of which no
                  log could tell (`told`)
    unexpected    none: nothing came that no client sent

It sees less than the other judge: when a message came, in which order, and whether a primary's decision survived it, it
cannot tell from logs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from unittest.mock import patch

from spark_jobs.parse import event_json
from spark_jobs.parse.context import Context
from spark_jobs.schema import Event
from spark_jobs.solve.signs import Facts
from tests.simulator.judge import Judge as SimulatorsJudge
from tests.simulator.scenario import Scenario
from tests.simulator.scheduler import Violation
from tests.simulator.simulation import Simulation
from tests.simulator.tap import Recorder, Row
from tests.simulator.topology import ONCE, QUEUES, QueueKind
from tests.spark.messages_judge import Judge, Summary

GAMBLING: Final = ("gamble", "availability")
"""Modes in which something confirmed may be lost to the cluster."""


@dataclass(frozen=True)
class Analysed:
    """What the analysis makes of the logs of one run."""

    messages: Summary
    lost: Mapping[str, int]
    """Messages by queue."""
    promotions: int


def recorded(scenario: Scenario, deaf: bool = False) -> tuple[Simulation, Recorder, str]:
    """The run, its logs, and the violation that ended it; `deaf`: the simulator's judge looks at nothing."""
    recorder = Recorder()
    with _deaf() if deaf else nullcontext():
        simulation = Simulation(scenario, recorder)
        try:
            simulation.run()
        except Violation as violation:
            return simulation, recorder, str(violation)
    return simulation, recorder, ""


@contextmanager
def _deaf() -> Iterator[None]:
    with ExitStack() as stack:
        for look in ("safe_moved", "promoted", "check_copy", "check_end"):
            stack.enter_context(patch.object(SimulatorsJudge, look, lambda *_: None))
        yield


def judged(scenario: Scenario) -> tuple[Simulation, str]:
    """The run, and what one of both judges says against it."""
    simulation, recorder, wrong = recorded(scenario)
    return simulation, wrong or "; ".join(disagreements(simulation, verdict(recorder)))


def reported(scenario: Scenario, folder: Path) -> str:
    """Runs it and draws it into the folder; what any of the judges says against it.  Raises ReportFailed."""
    simulation, recorder, wrong = recorded(scenario)
    found = [wrong] if wrong else disagreements(simulation, verdict(recorder))
    return "; ".join([*found, *drawn(simulation, recorder, folder)])


# ---- the analysis ---------------------------------------------------------------------------------------------------


def verdict(recorder: Recorder) -> Analysed:
    """By the plain reference, in this process."""
    rows = list(events(recorder))
    of_brokers = [row for row in rows if row["source"] == "broker"]
    judge = Judge().add(rows)
    judge.known = replace(judge.brokers(), clients=frozenset())  # they connect without a name; each has a log here
    lost = Counter(queue for each in judge.verdicts() if each.verdict == "lost" for queue in each.counts.queues[:1])
    return Analysed(judge.summary(), lost, len(Facts.of(of_brokers).promotions))


def events(recorder: Recorder) -> Iterable[Event]:
    """As the real parser reads them; `ts_est` is the virtual time, without any error of a clock."""
    for name, rows in recorder.logs.items():
        parsed = event_json.parse_file(name, map(line, rows), Context(), str(rows[0]["source"]))
        for at, event in zip(recorder.times[name], parsed, strict=True):
            yield {**event, "ts_est": at, "ts_lo": at, "ts_hi": at, "file": name}


def disagreements(simulation: Simulation, found: Analysed) -> list[str]:
    """What the analysis says and should not, of a run that the simulator has finished."""
    history, summary = simulation.history, found.messages
    places = sum(len(copy.queues) for copy in history.copies.values() if copy.confirmed)
    places += sum(len(job.outputs) for job in history.jobs.values() if job.state == "committed")
    wanted = [
        ("confirmed", summary.confirmed, places),
        ("promotions", found.promotions, len(history.promotions)),
        ("unexpected", summary.unexpected, 0),
    ]
    risky = simulation.scenario.mode in GAMBLING or history.counts["total failures"]
    if not risky:
        wanted.append(("lost", sum(count for queue, count in found.lost.items() if told(simulation, queue)), 0))
    return [f"analysis: {count} {what}, wanted {right}" for what, count, right in wanted if count != right]


def told(simulation: Simulation, queue: str) -> bool:
    """Would there be a line about each message that is not in this queue any more?

    Not for a message that is left out since its key is there; nor if the queue or its binding may have been away, so
    that one that is not mandatory was confirmed for no queue; nor for a consumer that acknowledges by itself: what its
    host has taken need not have arrived."""
    kind = QUEUES.get(queue, QueueKind())
    stays = kind.fixed and "x-expires" not in kind.arguments and queue not in (*ONCE, "turned")
    readers = {client["queue"] for client in simulation.scenario.clients if client["kind"] == "reader"}
    return stays and queue not in readers


# ---- files --------------------------------------------------------------------------------------------------------


def line(row: Row) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def write(recorder: Recorder, folder: Path) -> None:
    """The logs, one file for each process; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in recorder.logs.items():
        kind = "client-" if rows[0]["source"] == "client" else ""
        (folder / f"{kind}{name.replace(':', '-')}.jsonl").write_bytes(b"".join(map(line, rows)))


def drawn(simulation: Simulation, recorder: Recorder, folder: Path) -> list[str]:
    """Logs and report come into the folder; where the report counts otherwise than the plain reference does.

    Raises ReportFailed."""
    from demo import morning_after  # needs DuckDB

    write(recorder, folder / "logs")
    (folder / "schedule.txt").write_text(f"{simulation.schedule()}\n\n{simulation.scenario.text()}")
    overview = morning_after.report([folder / "logs"], folder, "--engine", "duckdb", "--cluster", "simulated")
    summary = verdict(recorder).messages
    counted = {name: getattr(summary, ours) for name, ours in morning_after.SAME.items()}
    return morning_after.differences(overview, counted)
