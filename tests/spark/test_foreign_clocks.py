"""Clocks that no machine should have: the report is weaker then, and never ends in an error."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from spark_jobs.report.units import moment
from tests.spark.truth import processes
from tests.spark.truth.reading import tables
from tests.spark.truth.world import Files

Bend = Callable[[dict[str, Any], random.Random], None]
HOUR = 3_600_000_000


def to_and_fro(event: dict[str, Any], chance: random.Random) -> None:
    event["ts_wall"] += chance.choice((0, HOUR, -HOUR, 2800 * HOUR))


def both_clocks(event: dict[str, Any], chance: random.Random) -> None:
    event["ts_wall"] += chance.randrange(-3 * HOUR, 3 * HOUR)
    event["ts_mono"] = event.get("ts_mono", 0) + chance.randrange(-3 * HOUR, 3 * HOUR)


def beyond_the_calendar(event: dict[str, Any], chance: random.Random) -> None:
    event["ts_wall"] += chance.choice((0, 1 << 57, -(10**15), -(1 << 58)))


def bent(files: Files, node: bytes, bend: Bend, seed: int) -> Files:
    chance, found = random.Random(seed), {}
    for name, lines in files.items():
        found[name] = [_bent(line, bend, chance) if node in line and b'"broker"' in line else line for line in lines]
    return found


def _bent(line: bytes, bend: Bend, chance: random.Random) -> bytes:
    event = json.loads(line)
    bend(event, chance)
    return json.dumps(event).encode() + b"\n"


@pytest.mark.parametrize("bend", [to_and_fro, both_clocks, beyond_the_calendar], ids=lambda bend: bend.__name__)
def test_a_clock_that_contradicts_itself_ends_in_a_report(bend: Bend) -> None:
    for seed in range(6):
        rows = tables(bent(processes.kill().files, b'"node1"', bend, seed))
        assert rows["incidents"]
        for row in (*rows["incidents"], *rows["phases"]):
            assert moment(row["begin"]) and moment(row["end"])
            for name in ("total_us", "duration_us"):
                assert row.get(name) is None or row[name] >= 0
