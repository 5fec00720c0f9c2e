"""The measurements. Each takes a running cluster and returns samples; a fault found by the generator raises."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

from benchmarks import load_generator
from benchmarks.cluster import Cluster
from benchmarks.load_generator import Option, Report
from benchmarks.processes import cpu_seconds, machine_cpu_seconds, resident_bytes, stop_process
from benchmarks.qpidd_cluster import QpiddCluster
from benchmarks.samples import Key, Sample

MEGABYTE = 2**20
MOST_WAITING = 500_000
"""Limit of a run that lets messages wait: three brokers and the machine must hold them."""
WAITING = 300_000
DELTA = 1000
"""Messages that a stopped backup misses."""
WAITING_SIZE = 1024
DECLARATIONS = 20
"""Of one connection that wait for their answer."""
SETTLE_SECONDS = 2.0
"""A broker may give memory back, or write to disk, after it has confirmed."""
OUTAGE_RATE, OUTAGE_WINDOW = 2000, 1000
CATCH_UP_RATE, CATCH_UP_WINDOW = 5000, 1000

_numbers = itertools.count(1)


def new_queue() -> str:
    """A new name, so that leftovers of a void run cannot disturb the next one."""
    return f"bench.{next(_numbers)}"


@dataclass(frozen=True)
class Cell:
    """One load of the side-by-side table."""

    load: str
    size: int
    window: int = 1000
    persistent: bool = True
    prefetch: int = 1000
    """The consumer acknowledges a tenth of it at once."""


def one_by_one(size: int) -> Cell:
    """As most clients do it."""
    return Cell("one by one", size, window=1, prefetch=10)


def cells(brokers: int, sizes: list[int]) -> list[Cell]:
    found = []
    for size in sizes:
        found += [Cell("both", size), Cell("publish", size), Cell("window 1", size, window=1), one_by_one(size)]
    if brokers == 3 and len(sizes) > 1:
        found.append(Cell("both", MEGABYTE, window=20))
    if brokers == 1:
        found.append(Cell("transient", sizes[0], persistent=False))
    return found


class Meter:
    """CPU of the brokers and of all other processes during a run."""

    def __init__(self, cluster: Cluster) -> None:
        self.pids = cluster.pids()
        self.clock, self.brokers, self.machine = time.monotonic(), cpu_seconds(self.pids), machine_cpu_seconds()

    def values(self, report: Report) -> dict[str, float]:
        brokers = cpu_seconds(self.pids) - self.brokers
        machine = machine_cpu_seconds() - self.machine
        elapsed = time.monotonic() - self.clock
        values = {
            "rate": report["rate"],
            "messages": report["messages"],
            "cpu_us": brokers / report["messages"] * 1e6,
            "rss_mb": resident_bytes(self.pids) / MEGABYTE,
            "generator_cpu_us": report["generator_cpu_seconds"] / report["messages"] * 1e6,
            "foreign_cpu_percent": max(0.0, (machine - brokers - report["generator_cpu_seconds"]) / elapsed * 100),
            "out_of_order": report["out_of_order"],
        }
        for kind in ("confirm_ms", "delivery_ms"):
            if report[kind]:
                values |= {f"{kind}_{name}": report[kind][name] for name in ("p50", "p99", "max")}
        return values


def new_place(cluster: Cluster) -> dict[str, Option]:
    """Options of the generator: a new queue at the broker that serves."""
    return {"address": cluster.addresses()[0], "queue": new_queue(), "arguments": cluster.queue_arguments}


def throughput(cluster: Cluster, cell: Cell, seconds: float) -> list[Sample]:
    """Publishing takes `seconds`; the cell "publish" is followed by the drain of the same messages."""
    brokers, publish_only = len(cluster.pids()), cell.load == "publish"
    options = {**new_place(cluster), "size": cell.size, "window": cell.window}
    meter = Meter(cluster)
    limit = {"count": MOST_WAITING} if publish_only else {}
    report = load_generator.run(
        "load",
        **options,
        **limit,
        seconds=seconds,
        no_consume=publish_only,
        transient=not cell.persistent,
        prefetch=cell.prefetch,
    )
    samples = [Sample(Key(brokers, cell.load, cell.size), cluster.name, meter.values(report))]
    if publish_only:
        meter = Meter(cluster)
        report = load_generator.run("load", **options, no_publish=True)
        samples.append(Sample(Key(brokers, "drain", cell.size), cluster.name, meter.values(report)))
    return samples


def memory(cluster: Cluster) -> list[Sample]:
    """Resident memory that WAITING messages take, in octets a message and broker. For a cluster just started."""
    pids = cluster.pids()
    before = resident_bytes(pids)
    options = {**new_place(cluster), "size": WAITING_SIZE}
    load_generator.run("load", **options, count=WAITING, no_consume=True)
    time.sleep(SETTLE_SECONDS)
    grown = resident_bytes(pids) - before
    load_generator.run("load", **options, no_publish=True)
    return [Sample(Key(len(pids), "memory", WAITING_SIZE), cluster.name, {"octets": grown / WAITING / len(pids)})]


def outage(cluster: Cluster, seconds: float) -> list[Sample]:
    """kill -9 of the broker that serves, in the middle of a steady load; then the broken broker is brought back."""
    brokers = len(cluster.pids())
    run = load_generator.Run(
        "failover",
        address=",".join(cluster.addresses()),
        queue=new_queue(),
        arguments=cluster.queue_arguments,
        size=1024,
        window=OUTAGE_WINDOW,
        rate=OUTAGE_RATE,
        seconds=seconds,
    )
    try:
        time.sleep(seconds / 2)  # the load has to be steady
        cluster.fail_over()
        report = run.report()
    finally:
        run.stop()
        cluster.repair()
    names = ("outage_ms", "delivery_gap_ms", "lost", "duplicates", "confirmed")
    return [Sample(Key(brokers, "outage", 1024), cluster.name, {name: report[name] for name in names})]


def catch_up(seconds: float) -> list[Sample]:
    """A third broker with an empty directory joins two that hold WAITING messages, while a publisher goes on."""
    cluster = QpiddCluster(3, started=2)
    try:
        cluster.start()
        options: dict[str, Option] = {
            "address": cluster.addresses()[0],
            "queue": new_queue(),
            "size": WAITING_SIZE,
            "no_consume": True,
        }
        load_generator.run("load", **options, count=WAITING)
        publisher = load_generator.Run("load", **options, rate=CATCH_UP_RATE, window=CATCH_UP_WINDOW, seconds=seconds)
        try:
            time.sleep(1)  # the load has to be steady
            begin = time.monotonic()
            cluster.launch(2)
            cluster.wait_for_listener(2)
            listening = time.monotonic()
            ready = cluster.wait_for_state(2, "ready")
            report = publisher.report()
        finally:
            publisher.stop()
    finally:
        cluster.stop()
    values = {
        "ready_s": ready - begin,
        "after_listening_s": ready - listening,
        "longest_stall_ms": report["longest_stall_ms"],
        "confirm_ms_p99": report["confirm_ms"]["p99"],
    }
    return [Sample(Key(3, "catch-up", WAITING), cluster.name, values)]


def rejoin() -> list[Sample]:
    """A backup with a journal is stopped while WAITING messages wait, misses DELTA more, and is started again."""
    cluster = QpiddCluster(3, journals=True)
    options: dict[str, Option] = {"queue": new_queue(), "size": WAITING_SIZE, "no_consume": True}
    try:
        cluster.start()
        options["address"] = cluster.addresses()[0]
        load_generator.run("load", **options, count=WAITING)
        stop_process(cluster.processes[2])
        cluster.management.pop(2).close()
        load_generator.run("load", **options, count=DELTA)
        begin = time.monotonic()
        cluster.launch(2)
        cluster.wait_for_listener(2)
        listening = time.monotonic()
        ready = cluster.wait_for_state(2, "ready")
    finally:
        cluster.stop()
    values = {"ready_s": ready - begin, "after_listening_s": ready - listening}
    return [Sample(Key(3, "rejoin", WAITING), cluster.name, values)]


def declare(cluster: Cluster, load: str, count: int) -> list[Sample]:
    """`count` queues ("declare") or bindings of one ("bind") over one connection."""
    report = load_generator.run(load, **new_place(cluster), count=count, window=DECLARATIONS)
    values = {"seconds": report["seconds"], "each_ms_p99": report["each_ms"]["p99"]}
    return [Sample(Key(len(cluster.pids()), load, count), cluster.name, values)]
