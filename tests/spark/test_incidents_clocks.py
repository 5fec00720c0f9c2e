"""Stories in which only the clocks are wrong."""

import pytest

from spark_jobs.parse.collapse import per_node
from spark_jobs.solve.reconstruct import tables
from tests.spark.truth.reading import events
from tests.spark.truth.rows import timed
from tests.spark.truth.story import check
from tests.spark.truth.watches import STORIES, fast_clock


@pytest.mark.parametrize("make", STORIES, ids=lambda make: make.__name__)
def test_story(make):
    story = make()
    check(story, story.rows())


def test_without_solved_clocks_it_would_be_a_dual_primary():
    found = tables(map(timed, per_node(events(fast_clock().files))))
    (pair,) = found["dual"]
    assert pair["roles"] == "certain"
    assert pair["margin_ms"] == pytest.approx(-1491.4)
