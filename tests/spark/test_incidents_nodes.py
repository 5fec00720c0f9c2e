"""Stories of Pacemaker clusters, with answers by hand."""

import pytest

from tests.spark.truth.nodes import STORIES, cleanup
from tests.spark.truth.reading import tables
from tests.spark.truth.story import check


@pytest.mark.parametrize("make", STORIES, ids=lambda make: make.__name__)
def test_story(make):
    story = make()
    check(story, story.rows())


def test_reprobe_after_cleanup_is_no_incident():
    """12: plans are no actions."""
    found = tables(cleanup().files())
    assert found["incidents"] == []
    assert found["phases"] == found["dual"] == found["hints"] == []
    assert [(row["node"], row["to_hi"]) for row in found["primary_spans"]] == [("node1", None)]
