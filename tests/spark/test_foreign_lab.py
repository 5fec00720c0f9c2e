"""The lab's logs with files missing: the seven fail-overs of a real cluster whose resource is not our agent.

The truth was written from the notes of who ran the lab, and from the lines `Result of promote` of all three nodes.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import pytest

from tests.spark.parse_lab import lab_files
from tests.spark.truth.reading import tables
from tests.support.slow import mostly_slow

Row = dict[str, Any]
TRUTH = (
    ("crash", "node2", "node1"),
    ("partition", "node1", "node2"),
    ("kill", "node2", "node1"),
    ("partition", "node1", "node2"),
    ("controller", "node2", "node1"),
    ("controller", "node1", "node2"),
    ("planned", "node2", "node1"),
)
"""Type, primary before, primary after."""
FILES = ("n1", "n2", "n3", "c1", "c2", "c3")
DC = "n3"
"""node3 was the DC throughout; n: Pacemaker's log, c: Corosync's."""


@cache
def found(names: tuple[str, ...]) -> dict[str, list[Row]]:
    return tables({f"lab_{name}.log": lab_files()[f"lab_{name}.log"] for name in names})


def subsets() -> list[tuple[str, ...]]:
    return [names for size in range(1, len(FILES) + 1) for names in combinations(FILES, size)]


@pytest.mark.parametrize("names", mostly_slow([names for names in subsets() if DC in names], 9), ids="-".join)
def test_with_the_log_of_the_dc_all_are_found(names: tuple[str, ...]) -> None:
    incidents = [row for row in found(names)["incidents"] if row["type"] not in ("no-failover", "false-alarm")]
    assert [(row["old_primary"], row["new_primary"]) for row in incidents] == [truth[1:] for truth in TRUTH]
    for row, (kind, *_) in zip(incidents, TRUTH, strict=True):
        assert row["type"] in (kind, "unknown"), row["why"]


@pytest.mark.parametrize("names", mostly_slow(subsets(), 9), ids="-".join)
def test_nothing_lasted_less_than_no_time(names: tuple[str, ...]) -> None:
    rows = found(names)
    assert [row for row in rows["phases"] if row["duration_us"] is not None and row["duration_us"] < 0] == []
    assert [row for row in rows["incidents"] if row["total_us"] is not None and row["total_us"] < 0] == []


@pytest.mark.parametrize("name", ["c1", "c2", "c3"])
def test_logs_that_do_not_know_a_primary_say_nothing_of_it(name: str) -> None:
    for row in found((name,))["incidents"]:
        assert row["type"] == "unknown" and "primary" not in row["why"].replace("which node was the primary", "")


def test_an_administrators_fencing_of_the_primary_is_the_cause() -> None:
    """The lab's first crash, with a line of stonith_admin 200 ms before the token was lost."""
    files = {name: list(lines) for name, lines in lab_files().items()}
    said = (
        b"node3 pacemaker-fenced     [47] (made) \tnotice: Client stonith_admin.9.1a2b wants to fence (reboot) node2\n"
    )
    name = "lab_n3.log"
    at = max(number for number, line in enumerate(files[name]) if line.startswith(b"Nov 21 01:54:53."))
    files[name].insert(at + 1, b"Nov 21 01:54:54.001 " + said)
    first = next(row for row in tables(files)["incidents"] if row["old_primary"] == "node2")
    assert (first["type"], first["new_primary"]) == ("fencing", "node1")
    assert first["why"].startswith("node node2 was fenced, asked for by stonith_admin (an administrator's command)")


def test_the_address_moves_with_the_primary_and_the_fencing_device_is_no_service() -> None:
    rows = found(FILES)
    numbers = {row["incident"]: number for number, row in enumerate(rows["incidents"], 1)}
    assert {row["resource"] for row in rows["resources"]} == {"vip"}
    moved = {numbers[row["incident"]]: (row["what"], row["old_node"], row["new_node"]) for row in rows["resources"]}
    assert moved[1] == ("moved", "node2", "node1") and moved[9] == ("moved", "node2", "node1")
    assert 6 not in moved and 8 not in moved
