"""One run of the analysis over a generated fleet, in its own process: the cost of each step, and the check against the
truth.  `python -m benchmarks.spark_run ENGINE WORKSPACE TRUTH [INPUT]` prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import tree_cpu_seconds
from benchmarks.spark_brokers import Clock
from benchmarks.spark_data import LENGTH, Truth
from spark_jobs import pipeline
from spark_jobs.clocks import job as clock
from spark_jobs.engine.base import Engine, Row
from spark_jobs.workspace import Workspace

REFERENCE: Final = "n1"
"""Its clock is true time."""
CORES: Final = 2
OUTAGE_US: Final = 5_000
MOMENTS: Final = 25
"""At which each clock is looked at."""


class Meter:
    """A Progress that notes what each step costs; CPU of this process and all that it began."""

    def __init__(self) -> None:
        self.steps: dict[str, dict[str, float]] = {}
        self._name = ""
        self._since = self._now()

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), tree_cpu_seconds(os.getpid())

    def step(self, name: str) -> None:
        now = self._now()
        if self._name:
            wall, cpu = (later - before for later, before in zip(now, self._since, strict=True))
            self.steps[self._name] = {"wall": wall, "cpu": cpu}
        self._name, self._since = name, now

    def at(self, done: int, total: int) -> None: ...


@dataclass
class Check:
    """What was found, compared with what was planted."""

    clusters: int = 0
    counts_wrong: list[str] = field(default_factory=list)
    outages: int = 0
    outages_wrong: list[str] = field(default_factory=list)
    worst_us: int = 0
    nodes: int = 0
    nodes_wrong: list[str] = field(default_factory=list)
    widest_us: int = 0
    """Half of the greatest bound of a clock."""

    @property
    def passed(self) -> bool:
        clocks = len(self.nodes_wrong) <= self.nodes // 100
        return bool(self.clusters) and not self.counts_wrong and not self.outages_wrong and clocks


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_run")
    parser.add_argument("engine", choices=("spark", "duckdb"))
    parser.add_argument("workspace")
    parser.add_argument("truth", type=Path)
    parser.add_argument("inputs", nargs="*")
    options = parser.parse_args(arguments)
    truths = [Truth(**truth) for truth in json.loads(options.truth.read_text())]
    print(json.dumps(measure(options.engine, options.workspace, truths, options.inputs)))
    return 0


def measure(name: str, place: str, truths: Sequence[Truth], inputs: Sequence[str] = ()) -> dict[str, Any]:
    """`place`: of the workspace; without inputs its events_raw is there.  {"steps": name → wall, cpu (s); "check"}"""
    meter = Meter()
    meter.step("start")
    with _engine(name) as engine:
        workspace, settings = Workspace(place), pipeline.Settings(reference=REFERENCE)
        if inputs:
            failed = pipeline.run(engine, workspace, inputs, settings, meter)
        else:
            failed = pipeline.after_ingest(engine, workspace, settings, meter)
        meter.step("check")
        found = check(engine, workspace, truths)
        meter.step("end")
    steps = {step: cost for step, cost in meter.steps.items() if step != "check"}
    return {"steps": steps, "failed": failed, "check": {**asdict(found), "passed": found.passed and not failed}}


@contextmanager
def _engine(name: str) -> Iterator[Engine]:
    engine = _spark() if name == "spark" else _duckdb()
    try:
        yield engine
    finally:
        engine.close()


def _spark() -> Engine:
    from spark_jobs.engine.session import context, shuffle_partitions
    from spark_jobs.engine.spark import SparkEngine

    return SparkEngine(context(f"local[{CORES}]", shuffle_partitions(0, CORES), memory="4g"), own=True)


def _duckdb() -> Engine:
    from spark_jobs.engine.duckdb_engine import DuckEngine

    return DuckEngine(threads=CORES)


# ---- the truth ------------------------------------------------------------------------------------------------------


def check(engine: Engine, workspace: Workspace, truths: Sequence[Truth]) -> Check:
    """Counts exactly, the outages of producers within OUTAGE_US, clocks within what is said of them."""
    workspace.load(engine, "message_summary", "outages", "clock_segments")
    found = Check(clusters=len(truths))
    _counts(engine, truths, found)
    _outages(engine, truths, found)
    _clocks(engine, truths, found)
    return found


def _counts(engine: Engine, truths: Sequence[Truth], found: Check) -> None:
    names = truths[0].counts
    sums = ", ".join(f"cast(sum({name}) as bigint) as {name}" for name in names)
    rows = {row["cluster"]: row for row in engine.rows(f"select cluster, {sums} from message_summary group by cluster")}
    for truth in truths:
        row = rows.get(truth.cluster, {})
        found.counts_wrong += [
            f"{truth.cluster}: {name} {row.get(name)}, planted {value}"
            for name, value in truth.counts.items() if row.get(name) != value
        ]  # fmt: skip


def _outages(engine: Engine, truths: Sequence[Truth], found: Check) -> None:
    rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in engine.rows("select cluster, client_id, ts_begin, ts_end from outages"):
        rows[row["cluster"], row["client_id"]].append(row)
    for truth in truths:
        for client, (begin, end) in truth.outages.items():
            mine = rows[truth.cluster, client]
            found.outages += 1
            errors = [max(abs(row["ts_begin"] - begin), abs(row["ts_end"] - end)) for row in mine]
            found.worst_us = max([found.worst_us, *errors])
            if len(mine) != 1 or errors[0] > OUTAGE_US:
                found.outages_wrong.append(f"{truth.cluster} {client}: {len(mine)} outages, wrong by {errors} us")


def _clocks(engine: Engine, truths: Sequence[Truth], found: Check) -> None:
    """Of each node at MOMENTS: is true time between the bounds?"""
    segments: dict[str, list[Row]] = defaultdict(list)
    for row in engine.rows("select * from clock_segments"):
        segments[row["cluster"]].append({**row, "evidence": {}})
    for truth in truths:
        solved = clock.of_rows(segments[truth.cluster])
        for node in truth.offsets:
            found.nodes += 1
            machine = Clock(truth.begin, truth.offsets[node], truth.drifts[node])
            worst = 0
            for moment in range(truth.begin, truth.begin + LENGTH, LENGTH // MOMENTS):
                _, low, high = solved.correct({"node": node, "ts_wall": int(machine.wall(moment)), "ts_res": 1})
                worst = max(worst, low - moment, moment - high)
                found.widest_us = max(found.widest_us, (high - low) // 2)
            if worst > 0:
                found.nodes_wrong.append(f"{truth.cluster} {node}: {worst} us beyond its bound")


def describe(check: Mapping[str, Any]) -> str:
    """One line."""
    return (
        f"counts of {check['clusters']} clusters: {_wrong(check['counts_wrong'])}; {check['outages']} outages: worst "
        f"{check['worst_us'] / 1000:.1f} ms, {_wrong(check['outages_wrong'])}; {check['nodes']} clocks: "
        f"{_wrong(check['nodes_wrong'])}, widest bound ±{check['widest_us'] / 1000:.1f} ms"
    )


def _wrong(faults: Sequence[str]) -> str:
    return f"{len(faults)} wrong ({faults[0]})" if faults else "exact"


if __name__ == "__main__":
    sys.exit(main())
