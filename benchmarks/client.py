"""`python -m benchmarks.client`: the client library compared with bare pika, and the outage seen by an application.

Every run is a process of its own against the same stand-alone broker; the sides alternate, the order turning round with
each repetition, and the table shows medians.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import pika

from benchmarks import client_outage, load_generator
from benchmarks.client_loads import BARE, LOADS, SIDES
from benchmarks.processes import BenchmarkError
from benchmarks.qpidd_cluster import QpiddCluster
from benchmarks.run import describe_machine
from benchmarks.tables import ABSENT, number, ratio, table

CASES: Final = {
    "window": ("window", 1024, 100_000),
    "sync": ("sync", 1024, 20_000),
    "consume": ("consume", 1024, 60_000),
    "small": ("consume", 100, 60_000),
}
"""Pattern, octets of a body, messages."""
PARTS: Final = (*CASES, "outage", "hang")
QUICK: Final = 10
"""--quick divides the counts by this."""
RUN_LIMIT: Final = 120.0
OURS: Final = ("threaded", "asyncio", "pika style")
FASTER: Final = (
    ("sync", "threaded", "sync", "pika Blocking", 2.5),
    ("sync", "pika style", "sync", "pika Blocking", 2.5),
    ("small", "threaded", "small", "pika Select", 2.5),
    ("small", "pika style", "small", "pika Select", 2.5),
    ("window", "threaded", "sync", "pika Blocking", 5.0),
)
"""Messages a second of a case and side, so many times those of another.  BlockingConnection has no window."""
CHEAP: Final = (("small", "threaded", 14.0), ("small", "pika style", 14.0), ("window", "threaded", 6.0))
"""CPU µs a message, at most."""
SOON_MS: Final = {"outage": 30.0, "hang": 1500.0}
"""The longest pause of the sender, median."""


@dataclass
class Results:
    """Values of every run."""

    loads: dict[tuple[str, str], dict[str, list[float]]] = field(default_factory=dict)
    """(case, side) → name → one value a repetition."""
    outages: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """After kill -9 (outage), and after SIGSTOP (hang)."""
    failures: list[str] = field(default_factory=list)

    def add(self, case: str, side: str, values: dict[str, float]) -> None:
        cell = self.loads.setdefault((case, side), {})
        for name, value in values.items():
            cell.setdefault(name, []).append(value)

    def value(self, case: str, side: str, name: str) -> float | None:
        """The median; None: not measured."""
        found = self.loads.get((case, side), {}).get(name)
        return median(found) if found else None

    def outage(self, kind: str, name: str, choose: Callable[[list[float]], float]) -> float | None:
        found = [values[name] for values in self.outages.get(kind, [])]
        return choose(found) if found else None


# ---- measuring ------------------------------------------------------------------------------------------------------


@contextmanager
def fresh_queue(port: int, queue: str) -> Iterator[None]:
    """A durable queue, deleted with what is left in it."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        try:
            yield
        finally:
            channel.queue_delete(queue)


def load(cluster: QpiddCluster, case: str, side: str, divisor: int, queue: str) -> dict[str, float]:
    """One run, on a queue of its own.  Raises BenchmarkError."""
    address = cluster.addresses()[0]
    pattern, size, count = CASES[case]
    count //= divisor
    with fresh_queue(cluster.ports[0], queue):
        if pattern == "consume":
            load_generator.run("load", address=address, queue=queue, size=size, count=count, no_consume=True)
        words = [side, pattern, "--address", address, "--queue", queue, "--count", str(count)]
        words += ["--size", str(size)]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.client_loads", *words],
                capture_output=True, text=True, timeout=RUN_LIMIT,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"not done within {RUN_LIMIT:g} s") from None
    if done.returncode:
        raise BenchmarkError(f"status {done.returncode}: {done.stderr.strip()[-300:]}")
    values: dict[str, float] = json.loads(done.stdout)
    return values


class Session:
    """Runs the requested measurements; a void run is noted and the next one is tried."""

    def __init__(
        self, parts: Sequence[str], repeat: int, outages: int, divisor: int, say: Callable[[str], None]
    ) -> None:
        self.parts, self.repeat, self.outages, self.divisor, self.say = parts, repeat, outages, divisor, say
        self.results = Results()
        self._numbers = itertools.count(1)

    def run(self) -> Results:
        cases = [case for case in CASES if case in self.parts]
        if cases:
            self._with(QpiddCluster(1), lambda cluster: self._loads(cluster, cases))
        for kind in SOON_MS:
            if kind in self.parts:
                self._with(QpiddCluster(3), lambda cluster, kind=kind: self._outages(cluster, kind))  # type: ignore[misc]
        return self.results

    def _with(self, cluster: QpiddCluster, work: Callable[[QpiddCluster], None]) -> None:
        try:
            cluster.start()
            work(cluster)
        finally:
            cluster.stop()

    def _loads(self, cluster: QpiddCluster, cases: Sequence[str]) -> None:
        for repetition in range(self.repeat):
            for case in cases:
                sides = [side for side in SIDES if (side, CASES[case][0]) in LOADS]
                for side in sides if repetition % 2 == 0 else reversed(sides):
                    self._load(cluster, case, side)

    def _load(self, cluster: QpiddCluster, case: str, side: str) -> None:
        try:
            values = load(cluster, case, side, self.divisor, f"bench.client.{next(self._numbers)}")
        except BenchmarkError as error:
            self._void(f"{case}, {side}", error)
            return
        self.results.add(case, side, values)
        self.say(f"  {case}, {side}: {number(values['rate'])} msg/s, CPU {number(values['cpu_us'])} µs/msg")

    def _outages(self, cluster: QpiddCluster, kind: str) -> None:
        for _ in range(self.outages):
            try:
                values = client_outage.measure(cluster, f"bench.client.{next(self._numbers)}", kind == "hang")
            except BenchmarkError as error:
                self._void(kind, error)
                continue
            self.results.outages.setdefault(kind, []).append(values)
            self.say(f"  {kind}: " + ", ".join(f"{name} {number(value)}" for name, value in values.items()))

    def _void(self, what: str, error: BenchmarkError) -> None:
        self.results.failures.append(f"{what}: {error}")
        self.say(f"  VOID {what}: {error}")


# ---- reporting
# --------------------------------------------------------------------------------------------------------


def load_table(results: Results) -> str:
    head = ["case", "side", "msg/s", "of bare pika", "CPU µs/msg", "of bare pika"]
    rows = []
    cases = tuple(CASES)
    for case, side in sorted(results.loads, key=lambda key: (cases.index(key[0]), SIDES.index(key[1]))):
        row, bare_side = [case, side], BARE[CASES[case][0]]
        for name in ("rate", "cpu_us"):
            value, bare = (results.value(case, each, name) for each in (side, bare_side))
            row += [number(value), ABSENT if side == bare_side else ratio(value, bare)]
        rows.append(row)
    return table(head, rows)


def outage_table(results: Results, kind: str) -> str:
    rows = [
        [text, number(results.outage(kind, name, median)), number(results.outage(kind, name, max))]
        for text, name in (
            ("outage of the sender, ms", "outage_ms"),
            ("gap of the receiver, ms", "delivery_gap_ms"),
            ("confirmed messages lost", "lost"),
            ("received twice", "duplicates"),
        )
    ]
    what = "kill -9" if kind == "outage" else "SIGSTOP, heartbeat 1 s"
    return table([f"{what}, promotion at once, {len(results.outages[kind])} times", "median", "max"], rows)


def targets(results: Results) -> list[tuple[str, str, float | None, bool]]:
    """Text, target, measured value, whether the target is met; what was not measured is left out."""
    found: list[tuple[str, str, float | None, bool]] = []
    for case, side, other_case, other, times in FASTER:
        ours, theirs = results.value(case, side, "rate"), results.value(other_case, other, "rate")
        share = ours / theirs if ours and theirs else None
        found.append((f"{case}, {side}: × {other}", f"≥ {times:g}", share, (share or 0) >= times))
    for case, side, most in CHEAP:
        cpu = results.value(case, side, "cpu_us")
        found.append((f"{case}, {side}: CPU µs/msg", f"≤ {most:g}", cpu, cpu is not None and cpu <= most))
    for kind, most in SOON_MS.items():
        middle = results.outage(kind, "outage_ms", median)
        found.append((f"{kind}, median, ms", f"≤ {most:g}", middle, middle is not None and middle <= most))
    return [target for target in found if target[2] is not None]


def target_table(results: Results) -> str:
    rows = [[text, wanted, number(value), "yes" if met else "no"] for text, wanted, value, met in targets(results)]
    return table(["target", "wanted", "measured", "met"], rows)


def report(results: Results, machine: str) -> str:
    parts = [f"{machine}\n"]
    parts += [load_table(results)] if results.loads else []
    parts += [outage_table(results, kind) for kind in results.outages]
    parts += [target_table(results)]
    parts += ["Void runs:\n\n" + "".join(f"- {failure}\n" for failure in results.failures)] if results.failures else []
    return "\n".join(parts)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short repetition, three outages")
    parser.add_argument(
        "--only", action="append", choices=PARTS, metavar="NAME", help=f"one of {', '.join(PARTS)}; may be repeated"
    )
    parser.add_argument("--repeat", type=int, help="repetitions of the loads (5)")
    parser.add_argument("--outages", type=int, help="how often the primary is killed, or stopped (20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0; 1 when a run was void; 2 when nothing could be measured."""
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    session = Session(
        parts=options.only or PARTS,
        repeat=options.repeat or (1 if options.quick else 5),
        outages=options.outages or (3 if options.quick else 20),
        divisor=QUICK if options.quick else 1,
        say=lambda line: print(line, flush=True),
    )
    try:
        load_generator.build()
        results = session.run()
    except BenchmarkError as error:
        print(f"benchmarks.client: {error}", file=sys.stderr)
        return 2
    text = report(results, describe_machine())
    print("\n" + text)
    if options.markdown:
        options.markdown.write_text(text)
    if options.json:
        loads = [{"case": case, "side": side, **values} for (case, side), values in results.loads.items()]
        found = {"loads": loads, "outages": results.outages, "failures": results.failures}
        options.json.write_text(json.dumps(found, indent=1))
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
