"""Logs to the second, as libqb 1 and rsyslog's default write them: less is known, and nothing wrong is said."""

from __future__ import annotations

import re
from typing import Any

import pytest

from spark_jobs.clocks.estimate import solve
from spark_jobs.clocks.pairs import Observation
from spark_jobs.report import dual
from tests.spark.parse_lab import lab_files
from tests.spark.test_foreign_lab import TRUTH
from tests.spark.truth import nodes
from tests.spark.truth.reading import tables
from tests.spark.truth.world import Files

_MILLISECONDS = re.compile(rb"^(\w{3} [ \d]\d \d\d:\d\d:\d\d)\.\d{3} ")
SECOND = 1_000_000
NODES = ("n1", "n2", "n3", "n4", "n5")
OFFSETS = dict(zip(NODES, (3, -3, 0, 0, 0), strict=True))
"""s"""


def coarse(files: Files) -> Files:
    return {name: [_MILLISECONDS.sub(rb"\1 ", line) for line in lines] for name, lines in files.items()}


def claims(rows: dict[str, list[dict[str, Any]]]) -> None:
    """What is not certain is not said as if it were."""
    for row in rows["dual"]:
        assert ("had ended" in dual.why(row)) == (row["roles"] == "excluded"), dual.why(row)


def test_the_nights_fail_overs_are_not_split() -> None:
    rows = tables(coarse({name: lab_files()[name] for name in sorted(lab_files())}))
    found = [row for row in rows["incidents"] if row["type"] not in ("no-failover", "false-alarm")]
    assert [(row["old_primary"], row["new_primary"]) for row in found] == [truth[1:] for truth in TRUTH]
    for row, (kind, *_) in zip(found, TRUTH, strict=True):
        assert row["type"] in (kind, "unknown"), row["why"]
        assert row["end"] is not None
    claims(rows)


@pytest.mark.parametrize("make", nodes.STORIES, ids=lambda make: make.__name__)
def test_stories(make: Any) -> None:
    story = make()
    rows = story.rows(coarse(story.files))
    (incident,) = rows["incidents"]
    assert incident["type"] in (story.type, "unknown"), incident["why"]
    assert (incident["old_primary"], incident["new_primary"]) == (story.old, story.new)
    assert [row for row in rows["phases"] if (row["duration_us"] or 0) < 0] == []
    claims(rows)


def test_the_clock_of_most_is_the_axis() -> None:
    """n1 is busiest, and 3 s ahead; n2 is 3 s behind; three of five agree."""
    found = [
        Observation(
            one, other, (10 + at + OFFSETS[one]) * SECOND, (OFFSETS[other] - OFFSETS[one]) * SECOND + 500, 1, "clock"
        )
        for one in NODES
        for other in NODES
        for at in range(40 if "n1" in (one, other) else 2)
        if one != other
    ]
    clocks = solve(found, [])
    assert clocks.reference in ("n3", "n4", "n5")
