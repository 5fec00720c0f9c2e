"""How far our three brokers are from plain C that only passes the octets on (`generator/floor.c`): no machine, and no
neighbour on it, does better, so the ratio says more than microseconds that were measured elsewhere."""

from __future__ import annotations

from typing import Final

from benchmarks import load_generator
from benchmarks.measurements import MEGABYTE, Cell, one_by_one, throughput
from benchmarks.qpidd_cluster import QpiddCluster
from benchmarks.samples import Key, Sample

CELLS: Final = {
    "floor both": (Cell("both", 1024), 500_000),
    "floor small": (Cell("both", 16), 2_000_000),
    "floor window 1": (one_by_one(1024), 10_000),
    "floor large": (Cell("both", MEGABYTE, window=20), 1_000),
}
"""What the brokers do, and how many messages plain C passes on."""
SECONDS: Final = 3.0
ROUNDS: Final = 3
"""Of both, in alternation; the tables show medians."""


def floor() -> list[Sample]:
    """Three brokers of our own."""
    load_generator.build()
    cluster = QpiddCluster(3)
    try:
        cluster.start()
        return [_sample(cluster, load) for _ in range(ROUNDS) for load in CELLS]
    finally:
        cluster.stop()


def _sample(cluster: QpiddCluster, load: str) -> Sample:
    cell, count = CELLS[load]
    (ours,) = throughput(cluster, cell, SECONDS)
    plain = load_generator.run("floor", size=cell.size, window=cell.window, count=count)
    values = {"cpu_us": ours.values["cpu_us"], "rate": ours.values["rate"]}
    values |= {"plain_cpu_us": plain["cpu_us"], "plain_rate": plain["rate"]}
    return Sample(Key(3, load, cell.size), cluster.name, {**values, "times": values["cpu_us"] / plain["cpu_us"]})
