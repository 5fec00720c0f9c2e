"""The session: the order of the clusters, in alternation, and the output."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import backlog, load_generator, measurements, rabbitmq, tables
from benchmarks.cliffs import cliffs
from benchmarks.cluster import Cluster
from benchmarks.processes import BenchmarkError, fresh_memory_cost
from benchmarks.qpidd_cluster import QpiddCluster
from benchmarks.rabbitmq import RabbitCluster
from benchmarks.samples import Results, Sample
from benchmarks.storm import storm

SUITES = ("memory", "throughput", "outage", "catch-up", "rejoin", "declare", "cliffs", "storm", "restart")
LONG = ("backlog",)
"""Only when it is asked for: it takes some minutes, and 25 GiB of the disk."""

CATCH_UP_SECONDS = 4.0
OWN: dict[str, tuple[int, Callable[[], list[Sample]]]] = {
    "catch-up": (3, partial(measurements.catch_up, CATCH_UP_SECONDS)),
    "rejoin": (3, measurements.rejoin),
    "cliffs": (3, cliffs),
    "storm": (3, storm),
    "restart": (1, backlog.restart),
    "backlog": (1, backlog.backlog),
}
"""Suites with brokers of their own, and how many."""


@dataclass(frozen=True)
class Plan:
    """What to run; times in seconds."""

    suites: tuple[str, ...]
    brokers: tuple[int, ...]
    sizes: list[int]
    seconds: float
    repeat: int
    outage_seconds: float
    compare_slow: bool
    """Whether RabbitMQ takes part in memory and declare, where it needs a minute."""
    with_rabbitmq: bool
    journals: bool = False


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one short repetition, bodies of 1 KiB only; about a minute"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=SUITES + LONG,
        metavar="NAME",
        help=f"one of {', '.join(SUITES + LONG)}; may be repeated",
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), help="only stand-alone or only three brokers")
    parser.add_argument("--no-rabbitmq", action="store_true", help="only our side")
    parser.add_argument("--journals", action="store_true", help="our brokers keep journals")
    parser.add_argument("--seconds", type=float, help="of publishing in a run of the throughput table")
    parser.add_argument("--repeat", type=int, help="repetitions; the tables show medians")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    return parser.parse_args(arguments)


def make_plan(options: argparse.Namespace, rabbitmq_installed: bool) -> Plan:
    quick = options.quick
    return Plan(
        suites=tuple(options.only or SUITES),
        brokers=(options.brokers,) if options.brokers else (1, 3),
        sizes=[1024] if quick else [1024, 16],
        seconds=options.seconds or (1.0 if quick else 4.0),
        repeat=options.repeat or (1 if quick else 3),
        outage_seconds=3.0 if quick else 6.0,
        compare_slow=not quick,
        with_rabbitmq=rabbitmq_installed and not options.no_rabbitmq,
        journals=options.journals,
    )


class Session:
    """Runs a plan. A void run is noted and the next one is tried: one fault must not lose the whole table."""

    def __init__(self, plan: Plan, output: Callable[[str], None]) -> None:
        self.plan = plan
        self.output = output
        self.results = Results()

    def run(self) -> Results:
        for brokers in self.plan.brokers:
            suites = [name for name in self.plan.suites if name not in OWN and (name, brokers) != ("outage", 1)]
            if suites:
                self._phase(brokers, suites)
        for name in [name for name in self.plan.suites if name in OWN and OWN[name][0] in self.plan.brokers]:
            for _ in range(1 if name in LONG else self.plan.repeat):
                self._measure(name, OWN[name][1])
        return self.results

    def _phase(self, brokers: int, suites: list[str]) -> None:
        try:
            with self._running(brokers) as clusters:
                self._side_by_side(brokers, suites, clusters)
        except BenchmarkError as error:
            self._void(f"{brokers} broker(s)", error)

    def _side_by_side(self, brokers: int, suites: list[str], clusters: list[Cluster]) -> None:
        patient = [cluster for cluster in clusters if self.plan.compare_slow or not isinstance(cluster, RabbitCluster)]
        if "memory" in suites:
            for cluster in patient:
                self._measure("memory", partial(measurements.memory, cluster))
        if "throughput" in suites:
            self._throughput(brokers, clusters)
        if "outage" in suites:
            for cluster in clusters * self.plan.repeat:
                self._measure("outage", partial(measurements.outage, cluster, self.plan.outage_seconds))
        if "declare" in suites:
            self._declare(patient)

    def _throughput(self, brokers: int, clusters: list[Cluster]) -> None:
        for repetition in range(self.plan.repeat):
            for cell in measurements.cells(brokers, self.plan.sizes):
                for cluster in clusters if repetition % 2 == 0 else reversed(clusters):
                    what = f"{cell.load}, {cell.size} octets"
                    self._measure(what, partial(measurements.throughput, cluster, cell, self.plan.seconds))

    def _declare(self, clusters: list[Cluster]) -> None:
        for cluster in clusters:
            # 10,000 quorum queues take minutes and tell nothing that 1,000 do not
            for count in (1000,) if isinstance(cluster, RabbitCluster) else (1000, 10_000):
                for load in ("declare", "bind"):
                    self._measure(f"{load} {count}", partial(measurements.declare, cluster, load, count))

    def _measure(self, what: str, measure: Callable[[], list[Sample]]) -> None:
        try:
            samples = measure()
        except BenchmarkError as error:
            self._void(what, error)
            return
        self.results.samples += samples
        for sample in samples:
            values = ", ".join(f"{name} {tables.number(value)}" for name, value in sample.values.items())
            self.output(
                f"  {sample.side}, {sample.key.brokers} broker(s), {sample.key.load} {sample.key.size}: {values}"
            )

    def _void(self, what: str, error: BenchmarkError) -> None:
        self.results.failures.append(f"{what}: {error}")
        self.output(f"  VOID {what}: {error}")

    @contextmanager
    def _running(self, brokers: int) -> Iterator[list[Cluster]]:
        """Both sides stay up for the whole phase; the one that is not measured idles."""
        made: list[Cluster] = [QpiddCluster(brokers, journals=self.plan.journals)]
        if self.plan.with_rabbitmq:
            made.append(RabbitCluster(brokers))
        running: list[Cluster] = []
        try:
            for cluster in made:
                self.output(f"starting {cluster.name}, {brokers} broker(s)")
                running.append(cluster)
                cluster.start()
            yield running
        finally:
            for cluster in running:
                cluster.stop()


def describe_machine() -> str:
    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    server = rabbitmq.find_server()
    theirs = server.parent.name.replace("rabbitmq_server-", "RabbitMQ ") if server else "no RabbitMQ"
    return (
        f"{os.cpu_count()} × {model}, Linux {platform.release()}, Python {platform.python_version()}, {theirs}; "
        f"first touch of memory {fresh_memory_cost():.2f} µs/KiB"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0; 1 when a run was void; 2 when nothing could be measured."""
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    session = Session(make_plan(options, rabbitmq.find_server() is not None), lambda line: print(line, flush=True))
    try:
        load_generator.build()
        results = session.run()
    except BenchmarkError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    machine = describe_machine()
    text = tables.report(results, machine)
    print("\n" + text)
    if options.markdown:
        options.markdown.write_text(text)
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "machine": describe_machine(),
                    "samples": [s.to_json() for s in results.samples],
                    "failures": results.failures,
                },
                indent=1,
            )
        )
    return 1 if results.failures else 0
