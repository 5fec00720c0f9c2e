"""Stories of brokers under their own manager, with answers by hand."""

import pytest

from tests.spark.truth.processes import STORIES
from tests.spark.truth.story import check


@pytest.mark.parametrize("make", STORIES, ids=lambda make: make.__name__)
def test_story(make):
    story = make()
    check(story, story.rows())
