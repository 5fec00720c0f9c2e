"""`python -m benchmarks.spark`: the analysis of incidents over a generated fleet with known truth.

Every run is a process of its own.  Fleet: the tables from Parquet as `ingest` writes it, and from the logs as they are
(JSON lines).  Incident: one cluster's logs from the command line to the finished page.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks import spark_rows, spark_segments
from benchmarks.processes import BenchmarkError, machine_cpu_seconds, tree_cpu_seconds
from benchmarks.run import describe_machine
from benchmarks.spark_data import Truth, cluster, sizes
from benchmarks.spark_run import CORES, describe
from benchmarks.tables import ABSENT, number, table

ENGINES: Final = ("spark", "duckdb")
FORMATS: Final = ("parquet", "json")
PARTS: Final = ("fleet", "incident")
EVENTS: Final = 11_000_000
INCIDENT: Final = 1_100_000
CLUSTERS: Final = 10
BIG: Final = ("facts", "pairs", "clocks", "clients", "messages", "clusters")
"""Steps that are the messages, the windows and the clocks; `clusters` is these and all others of Spark's tasks."""
TARGETS: Final = {("fleet", "spark"): 75.0, ("incident", "spark"): 15.0, ("incident", "duckdb"): 4.0}
"""fleet: CPU s of BIG from Parquet; incident: s on a quiet machine."""
RUN_LIMIT: Final = 3600.0
_POLL: Final = 0.1
Values = dict[str, float]


@dataclass
class Results:
    """(part, engine, format) → step → name → one value a repetition."""

    costs: dict[tuple[str, str, str], dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)

    def add(self, key: tuple[str, str, str], steps: Mapping[str, Mapping[str, float]]) -> None:
        for step, cost in steps.items():
            cell = self.costs.setdefault(key, {}).setdefault(step, {})
            for name, value in cost.items():
                cell.setdefault(name, []).append(value)

    def value(self, key: tuple[str, str, str], steps: Sequence[str], name: str) -> float | None:
        """Sum over the steps of the medians; None: not measured."""
        cells = self.costs.get(key, {})
        found = [median(cells[step][name]) for step in steps if step in cells]
        return sum(found) if found else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, 1 when something found is not what was planted or a run failed."""
    options = parse(arguments)
    results = Results()
    if options.directory is not None:
        options.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-spark-", dir=options.directory) as folder:
        if "fleet" in options.only:
            _fleet(results, options, Path(folder))
        if "incident" in options.only:
            _incident(results, options, Path(folder))
    print("\n" + report(results), end="")
    if options.json:
        costs = {" ".join(key): cells for key, cells in results.costs.items()}
        options.json.write_text(json.dumps({**asdict(results), "costs": costs}, indent=1))
    return 1 if results.failures else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    add = parser.add_argument
    add("--events", type=int, default=EVENTS, help="of the fleet (%(default)s)")
    add("--clusters", type=int, default=CLUSTERS, help="of the fleet, one incident each (%(default)s)")
    add("--incident-events", type=int, default=INCIDENT, help="of the one incident (%(default)s)")
    add("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    add("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    add("--only", nargs="+", choices=PARTS, default=PARTS)
    add("--repeat", type=int, default=1, help="runs of each kind; tables show medians (%(default)s)")
    add("--directory", type=Path, help="for the data, 4 GB (the temporary directory)")
    add("--json", type=Path, metavar="FILE", help="all values")
    return parser.parse_args(arguments)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- the fleet ------------------------------------------------------------------------------------------------------


def _fleet(results: Results, options: argparse.Namespace, folder: Path) -> None:
    tables, logs = folder / "fleet" / "events_raw", folder / "logs"
    truths = _write(options, tables, logs)
    results.events["fleet"] = sum(truth.events for truth in truths)
    truth = folder / "truth.json"
    truth.write_text(json.dumps([asdict(item) for item in truths]))
    for repetition in range(options.repeat):
        for kind in options.formats:
            for engine in options.engines[:: -1 if repetition % 2 else 1]:
                _run(results, (engine, kind), folder, truth)


def _write(options: argparse.Namespace, tables: Path, logs: Path) -> list[Truth]:
    tables.mkdir(parents=True)
    messages, batches = sizes(options.events, options.clusters)
    truths = []
    for index in range(options.clusters):
        made, truth = cluster(index, messages, batches)
        if "parquet" in options.formats:
            spark_rows.write(made, tables / f"part-{index:02d}.parquet", seed=index)
        if "json" in options.formats:
            spark_segments.write(made, logs / truth.cluster)
        truths.append(truth)
        say(f"cluster {index + 1} of {options.clusters} is written: {truth.events:,} events")
    return truths


def _run(results: Results, how: tuple[str, str], folder: Path, truth: Path) -> None:
    engine, kind = how
    place = folder / "fleet" if kind == "parquet" else folder / "from-json"
    for old in place.glob("*"):
        if old.name != "events_raw" or kind == "json":
            shutil.rmtree(old)
    command = [sys.executable, "-m", "benchmarks.spark_run", engine, str(place), str(truth)]
    command += [str(folder / "logs")] if kind == "json" else []
    found = json.loads(_output(command))
    results.add(("fleet", engine, kind), found["steps"])
    results.checks[f"fleet, {engine}, {kind}"] = describe(found["check"])
    if not found["check"]["passed"]:
        results.failures.append(f"fleet, {engine}, {kind}: {describe(found['check'])} {found['failed'] or ''}")
    cpu = sum(cost["cpu"] for cost in found["steps"].values())
    say(f"fleet, {engine}, {kind}: {cpu:.1f} CPU s; {describe(found['check'])}")


def _output(command: Sequence[str]) -> str:
    """Of its last line; raises BenchmarkError."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT)
    if done.returncode:
        raise BenchmarkError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout.splitlines()[-1]


# ---- one incident ---------------------------------------------------------------------------------------------------


def _incident(results: Results, options: argparse.Namespace, folder: Path) -> None:
    made, truth = cluster(0, *sizes(options.incident_events, 1), seed=8)
    logs = folder / "incident" / "logs"
    octets = spark_segments.write(made, logs)
    results.events["incident"] = truth.events
    say(f"one incident is written: {truth.events:,} events, {octets / 1e6:.0f} MB of JSON lines")
    for repetition in range(options.repeat):
        for engine in options.engines[:: -1 if repetition % 2 else 1]:
            out = folder / "incident" / engine
            shutil.rmtree(out, ignore_errors=True)
            cost = _report(engine, logs, out)
            results.add(("incident", engine, "json"), {"all": cost})
            wrong = _differences(out, truth)
            results.checks[f"incident, {engine}"] = "; ".join(wrong) or "exact"
            results.failures += [f"incident, {engine}: {text}" for text in wrong]
            say(f"incident, {engine}: {cost['wall']:.1f} s, {cost['cpu']:.1f} CPU s; {'; '.join(wrong) or 'exact'}")


def _report(engine: str, logs: Path, out: Path) -> Values:
    """`failover-report report`, to its end."""
    command = [sys.executable, "-m", "spark_jobs.main", "report", str(logs), "-o", str(out)]
    return measured([*command, "--engine", engine, "--threads", str(CORES), "--no-progress"])


def measured(command: Sequence[str]) -> Values:
    """A program, to its end.  Raises BenchmarkError."""
    begin, busy, cpu = time.perf_counter(), machine_cpu_seconds(), 0.0
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        while process.poll() is None:
            cpu = max(cpu, tree_cpu_seconds(process.pid))
            time.sleep(_POLL)
        wall = time.perf_counter() - begin
        if process.returncode:
            said.seek(0)
            raise BenchmarkError(f"{' '.join(command)}: {said.read().decode()[-2000:]}")
    return {"wall": wall, "cpu": cpu, "foreign": max(0.0, machine_cpu_seconds() - busy - cpu) / wall * 100}


def _differences(out: Path, truth: Truth) -> list[str]:
    """Between the report and what was planted."""
    if not (out / "report.html").exists():
        return ["no report.html"]
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    total = found["messages"]["total"]
    wrong = [
        f"{name} {total.get(name)}, planted {value}"
        for name, value in truth.counts.items() if total.get(name) != value
    ]  # fmt: skip
    kinds = [(row["type"], row["old_primary"], row["new_primary"]) for row in found["incidents"]]
    return wrong if kinds == [("kill", "n1", "n2")] else [*wrong, f"incidents {kinds}"]


# ---- tables ---------------------------------------------------------------------------------------------------------


def report(results: Results) -> str:
    parts = [describe_machine(), _steps(results), _incidents(results), _targets(results)]
    checks = "".join(f"- {name}: {text}\n" for name, text in results.checks.items())
    failed = "".join(f"- WRONG {text}\n" for text in results.failures)
    return "\n\n".join(part for part in (*parts, checks + failed) if part)


def _steps(results: Results) -> str:
    keys = [key for key in results.costs if key[0] == "fleet"]
    if not keys:
        return ""
    steps = list(dict.fromkeys(step for key in keys for step in results.costs[key]))
    head = [f"{results.events['fleet']:,} events, CPU s / s", *(f"{engine}, {kind}" for _, engine, kind in keys)]
    rows = [[name, *(_cost(results, key, of) for key in keys)] for name, of in [
        *((step, [step]) for step in steps), ("sum", steps), ("clocks, windows, messages", list(BIG)),
    ]]  # fmt: skip
    return table(head, rows)


def _cost(results: Results, key: tuple[str, str, str], steps: Sequence[str]) -> str:
    cpu, wall = results.value(key, steps, "cpu"), results.value(key, steps, "wall")
    return ABSENT if cpu is None or wall is None else f"{cpu:.1f} / {wall:.1f}"


def _incidents(results: Results) -> str:
    keys = [key for key in results.costs if key[0] == "incident"]
    if not keys:
        return ""
    head = [f"incident of {results.events['incident']:,} events", *(engine for _, engine, _ in keys)]
    names = {"s to the page": "wall", "CPU s": "cpu", "foreign CPU %": "foreign"}
    return table(head, [[text, *(number(results.value(key, ["all"], name)) for key in keys)]
                        for text, name in names.items()])  # fmt: skip


def _targets(results: Results) -> str:
    found = {
        ("fleet", "spark"): results.value(("fleet", "spark", "parquet"), BIG, "cpu"),
        **{("incident", engine): results.value(("incident", engine, "json"), ["all"], "wall") for engine in ENGINES},
    }
    units = {"fleet": "CPU s for clocks, windows and messages from Parquet", "incident": "s to the page"}
    rows = [
        [f"{part}, {engine}: {units[part]}", f"≤ {limit:g}", number(found[part, engine])]
        for (part, engine), limit in TARGETS.items() if found[part, engine] is not None
    ]  # fmt: skip
    return table(["", "target", "measured"], rows) if rows else ""


if __name__ == "__main__":
    sys.exit(main())
