"""What can be measured: suites that run on both sides, in alternation, and those with brokers of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks import backlog, growth, measurements
from benchmarks.cliffs import cliffs
from benchmarks.cluster import Cluster
from benchmarks.floor import floor
from benchmarks.rabbitmq import RabbitCluster
from benchmarks.samples import Sample
from benchmarks.storm import storm

CATCH_UP_SECONDS = 4.0
FEW = 1000
"""Declarations of RabbitMQ: 10,000 quorum queues take minutes and tell nothing that 1,000 do not."""


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
    """Whether RabbitMQ takes part in the suites that run once, where it needs a minute."""
    with_rabbitmq: bool
    journals: bool = False


Run = tuple[str, Callable[[Cluster], list[Sample]]]
"""What it is called, and what it does with a running cluster."""


@dataclass(frozen=True)
class Suite:
    """`runs`: of a cluster of so many brokers, one after the other."""

    brokers: tuple[int, ...]
    runs: Callable[[int, Plan], Iterator[Run]]
    once: bool = False
    """Without repetition, and slow with RabbitMQ."""


def _throughput(brokers: int, plan: Plan) -> Iterator[Run]:
    for cell in measurements.cells(brokers, plan.sizes):
        yield f"{cell.load}, {cell.size} octets", partial(measurements.throughput, cell=cell, seconds=plan.seconds)


def _windows(brokers: int, plan: Plan) -> Iterator[Run]:
    for window in growth.WINDOWS:
        yield f"window {window}", partial(growth.window, window=window, seconds=plan.seconds)


def _routes(brokers: int, plan: Plan) -> Iterator[Run]:
    for kind, topology in growth.TOPOLOGIES.items():
        for n in topology.sizes:
            yield f"{kind} {n}", partial(growth.routes, kind=kind, n=n, seconds=plan.seconds)


def _idle(brokers: int, plan: Plan) -> Iterator[Run]:
    for n in growth.IDLE:
        yield f"idle {n}", partial(growth.idle, n=n)


def _outage(brokers: int, plan: Plan) -> Iterator[Run]:
    yield "outage", partial(measurements.outage, seconds=plan.outage_seconds)


def _declare(brokers: int, plan: Plan) -> Iterator[Run]:
    for count in (FEW, 10_000):
        for load in ("declare", "bind"):
            yield f"{load} {count}", partial(_declared, load=load, count=count)


def _declared(cluster: Cluster, load: str, count: int) -> list[Sample]:
    slow = isinstance(cluster, RabbitCluster) and count > FEW
    return [] if slow else measurements.declare(cluster, load, count)


def _alone(name: str, measure: Callable[[Cluster], list[Sample]]) -> Callable[[int, Plan], Iterator[Run]]:
    return lambda brokers, plan: iter([(name, measure)])


COMPARED = {
    "memory": Suite((1, 3), _alone("memory", measurements.memory), once=True),
    "refill": Suite((1, 3), _alone("refill", growth.refill), once=True),
    "throughput": Suite((1, 3), _throughput),
    "windows": Suite((1, 3), _windows),
    "routes": Suite((1,), _routes),
    "idle": Suite((1,), _idle),
    "outage": Suite((3,), _outage),
    "late": Suite((3,), _alone("late", growth.late)),
    "declare": Suite((1, 3), _declare, once=True),
}
"""In the order in which they run."""

OWN: dict[str, tuple[int, Callable[[], list[Sample]]]] = {
    "catch-up": (3, partial(measurements.catch_up, CATCH_UP_SECONDS)),
    "rejoin": (3, measurements.rejoin),
    "deep-outage": (3, growth.deep_outage),
    "cliffs": (3, partial(cliffs, 3)),
    "storm": (3, storm),
    "floor": (3, floor),
    "restart": (1, backlog.restart),
    "backlog": (1, backlog.backlog),
}
"""Suites with brokers of their own, and how many; without RabbitMQ."""

LONG = ("backlog",)
"""Only when it is asked for: it takes some minutes, and 25 GiB of the disk."""

SUITES = tuple(name for name in (*COMPARED, *OWN) if name not in LONG)
