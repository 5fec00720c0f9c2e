"""What costs nothing more when there is more of it: rates over bindings and queues, idle connections, memory of what
was there, an outage with much that waits, and a backup that is late.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import pamqp.commands as commands

from benchmarks import load_generator, measurements
from benchmarks.cliffs import Client, message
from benchmarks.cluster import Cluster
from benchmarks.measurements import MEGABYTE, Meter, new_place, new_queue
from benchmarks.processes import BenchmarkError, cpu_seconds, resident_bytes
from benchmarks.qpidd_cluster import QpiddCluster
from benchmarks.samples import Key, Sample

KEYS: Final = 50_000
BODY: Final = b"x" * 16
IDLE: Final = (1000, 10_000)
IDLE_SECONDS: Final = 3.0
CYCLES: Final = 5
TRIM_SECONDS: Final = 10.0
"""A broker gives memory back when it is idle."""
LATE_RATE, LATE_SECONDS, LATE_SETTLE = 5000, 4.0, 1.5
LATE_RUNS, LATE_PERIOD = 0.03, 0.48
"""Seconds in which the late backup runs, of so many."""
MANY_QUEUES, MANY_MESSAGES, MANY_SIZE = 10_000, 3_000_000, 64


@dataclass(frozen=True)
class Topology:
    """`declare` makes `n` bindings; `messages` reaches them; `queues` are declared before and deleted in the end."""

    sizes: tuple[int, ...]
    declare: Callable[[int], list[Any]]
    messages: Callable[[int], Iterator[bytes]]
    queues: Callable[[int], list[str]]


def _ten(_: int) -> list[str]:
    return [f"growth{number}" for number in range(10)]


def _bound(exchange: str, key: Callable[[int], tuple[str, dict[str, Any]]]) -> Callable[[int], list[Any]]:
    def declare(n: int) -> list[Any]:
        bindings = [(f"growth{number % 10}", *key(number)) for number in range(n)]
        return [commands.Queue.Bind(0, queue, exchange, text, True, table) for queue, text, table in bindings]

    return declare


def _headers(n: int) -> Iterator[bytes]:
    return (message("amq.headers", "", BODY, headers={"a": number, "b": "x", "c": 1}) for number in range(n))


WINDOWS: Final = (1, 10, 100, 1000, 10_000)
TOPOLOGIES: Final = {
    "topic": Topology(
        (100, 1000, 10_000),
        _bound("amq.topic", lambda number: (f"a.{number}.*", {})),
        lambda n: (message("amq.topic", f"a.{number % n}.{number}", BODY) for number in range(KEYS)),
        _ten,
    ),
    "direct": Topology(
        (100, 1000, 10_000),
        _bound("amq.direct", lambda number: (f"key{number}", {})),
        lambda n: (message("amq.direct", f"key{number}", BODY) for number in range(KEYS)),
        _ten,
    ),
    "headers": Topology(
        (1, 100, 1000),
        _bound("amq.headers", lambda number: ("", {"x-match": "all", "a": number, "b": "x"})),
        _headers,
        _ten,
    ),
    "queues": Topology(
        (10, 1000, 10_000),
        lambda n: [],
        lambda n: (message("", f"growth{number % n}", BODY) for number in range(KEYS)),
        lambda n: [f"growth{number}" for number in range(n)],
    ),
}


def routes(cluster: Cluster, kind: str, n: int, seconds: float) -> list[Sample]:
    """One publisher with confirms, window 1000; queues that keep ten messages."""
    topology = TOPOLOGIES[kind]
    client = Client(_port(cluster))
    queues = topology.queues(n)
    declares = [commands.Queue.Declare(queue=name, arguments={"x-max-length": 10}) for name in queues]
    client.call(*declares, *topology.declare(n), commands.Basic.Qos())
    try:
        with _file(topology.messages(n)) as file:
            meter = Meter(cluster)
            report = load_generator.run(
                "load", address=cluster.addresses()[0], messages=file, no_consume=True, seconds=seconds
            )
            values = meter.values(report)
    finally:
        client.call(*(commands.Queue.Delete(queue=name) for name in queues))
        client.socket.close()
    return [Sample(Key(len(cluster.pids()), f"routes {kind}", n), cluster.name, values)]


@contextlib.contextmanager
def _file(messages: Iterator[bytes]) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(prefix="bench-messages-") as file:
        for octets in messages:
            file.write(struct.pack(">I", len(octets)) + octets)
        file.flush()
        yield file.name


def _port(cluster: Cluster) -> int:
    return int(cluster.addresses()[0].rpartition(":")[2])


def idle(cluster: Cluster, n: int) -> list[Sample]:
    """Processor time of connections that do nothing, in percent of one processor."""
    clients: list[Client] = []
    try:
        for _ in range(n):
            clients.append(Client(_port(cluster)))
        time.sleep(1)  # what opening them has left to do
        before, begin = cpu_seconds(cluster.pids()), time.monotonic()
        time.sleep(IDLE_SECONDS)
        used = (cpu_seconds(cluster.pids()) - before) / (time.monotonic() - begin)
    finally:
        for client in clients:
            client.socket.close()
    return [Sample(Key(len(cluster.pids()), "idle", n), cluster.name, {"percent": used * 100})]


def refill(cluster: Cluster) -> list[Sample]:
    """Memory before and after some cycles of fill and drain, and the rates of the first fill, which takes fresh memory
    from the system, and of the others."""
    pids = cluster.pids()
    options = new_place(cluster)
    time.sleep(TRIM_SECONDS)  # what the run before has left
    before = resident_bytes(pids)
    rates = []
    for _ in range(CYCLES):
        report = load_generator.run("load", **options, count=measurements.WAITING, no_consume=True)
        rates.append(report["rate"])
        full = resident_bytes(pids)
        load_generator.run("load", **options, no_publish=True)
    time.sleep(TRIM_SECONDS)
    values = {"before_mb": before / MEGABYTE, "full_mb": full / MEGABYTE, "after_mb": resident_bytes(pids) / MEGABYTE}
    values |= {"first_rate": rates[0], "rate": median(rates[1:])}
    return [Sample(Key(len(pids), "refill", measurements.WAITING), cluster.name, values)]


def late(cluster: Cluster) -> list[Sample]:
    """The last node runs for 30 of every 480 ms: what the others' publisher waits for."""
    over = threading.Event()
    thread = threading.Thread(target=_interrupt, args=(cluster.pids()[-1], over))
    thread.start()
    try:
        time.sleep(LATE_SETTLE)
        options = new_place(cluster)
        warm = load_generator.run("load", **options, rate=LATE_RATE, seconds=LATE_SETTLE)
        report = load_generator.run("load", **options, rate=LATE_RATE, seconds=LATE_SECONDS)
    finally:
        over.set()
        thread.join()
    values = {"first_ms_p99": warm["confirm_ms"]["p99"], "confirm_ms_p99": report["confirm_ms"]["p99"]}
    return [Sample(Key(len(cluster.pids()), "late", LATE_RATE), cluster.name, values)]


def _interrupt(pid: int, over: threading.Event) -> None:
    while not over.is_set():
        os.kill(pid, signal.SIGSTOP)
        over.wait(LATE_PERIOD - LATE_RUNS)
        os.kill(pid, signal.SIGCONT)
        time.sleep(LATE_RUNS)


def deep_outage() -> list[Sample]:
    """kill -9 of a primary with 10,000 queues and 3,000,000 messages."""
    cluster = QpiddCluster(3)
    try:
        cluster.start()
        address, queue = cluster.addresses()[0], new_queue()
        load_generator.run("declare", address=address, queue=f"{queue}.many", count=MANY_QUEUES, window=100)
        load_generator.run("load", address=address, queue=queue, size=MANY_SIZE, count=MANY_MESSAGES, no_consume=True)
        (sample,) = measurements.outage(cluster, 3.0)
    finally:
        cluster.stop()
    if sample.values["lost"]:
        raise BenchmarkError(f"{sample.values['lost']:g} confirmed messages are lost")
    return [Sample(Key(3, "deep outage", MANY_MESSAGES), cluster.name, sample.values)]


def window(cluster: Cluster, window: int, seconds: float) -> list[Sample]:
    """Publisher and consumer with so many messages without a confirm."""
    (sample,) = measurements.throughput(cluster, measurements.Cell("both", 1024, window), seconds)
    return [Sample(Key(sample.key.brokers, "window", window), sample.side, sample.values)]
