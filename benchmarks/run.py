"""The session: the order of the clusters, in alternation, and the output."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import load_generator, plots, rabbitmq, tables
from benchmarks.cluster import Cluster
from benchmarks.processes import BenchmarkError, fresh_memory_cost
from benchmarks.qpidd_cluster import QpiddCluster
from benchmarks.rabbitmq import RabbitCluster
from benchmarks.samples import Results, Sample
from benchmarks.suites import COMPARED, LONG, OWN, SUITES, Plan


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
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw rate over window and cost over n there (SVG)")
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
            suites = [name for name in COMPARED if name in self.plan.suites and brokers in COMPARED[name].brokers]
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
        for suite in map(COMPARED.__getitem__, suites):
            taking_part = clusters
            if suite.once and not self.plan.compare_slow:
                taking_part = [cluster for cluster in clusters if not isinstance(cluster, RabbitCluster)]
            for repetition in range(1 if suite.once else self.plan.repeat):
                for what, measure in suite.runs(brokers, self.plan):
                    for cluster in taking_part if repetition % 2 == 0 else reversed(taking_part):
                        self._measure(what, partial(measure, cluster))

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


def _prepare(options: argparse.Namespace) -> None:
    """What will be written can be.  Raises OSError."""
    for file in filter(None, (options.markdown, options.json)):
        file.open("a").close()
    if options.plot:
        options.plot.mkdir(parents=True, exist_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0; 1 when a run was void; 2 when nothing could be measured."""
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        _prepare(options)
    except OSError as error:  # before the first run, not behind half an hour of them
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
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
    if options.plot:
        print(*plots.write(results, options.plot), sep="\n")
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "machine": machine,
                    "samples": [s.to_json() for s in results.samples],
                    "failures": results.failures,
                },
                indent=1,
            )
        )
    return 1 if results.failures else 0
