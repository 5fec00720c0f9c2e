"""Whole files are not there, of every story: the verdict may become weaker, never wrong; with more, never worse."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.truth import nodes, processes, scenes, watches
from tests.spark.truth.reading import tables
from tests.spark.truth.story import Story
from tests.spark.truth.world import Files, World

Row = dict[str, Any]
STORIES = [make for group in (processes, nodes, watches) for make in group.STORIES]
REFUTED = {"excluded": "certain", "certain": "excluded"}


@cache
def told(number: int) -> Story:
    story: Story = STORIES[number]()
    return story


CASES = [(number, name) for number in range(len(STORIES)) for name in sorted(told(number).files)]


def without(files: Files, gone: str) -> Files:
    return {name: lines for name, lines in files.items() if name != gone}


@pytest.mark.parametrize(("number", "gone"), CASES, ids=lambda value: str(value).replace("/", "-"))
def test_a_file_is_missing(number: int, gone: str) -> None:
    story = told(number)
    rows = story.rows(without(story.files, gone))
    weaker(number, rows)
    assert len(rows["incidents"]) == 1


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_files_are_missing(data: st.DataObject) -> None:
    number = data.draw(st.sampled_from(range(len(STORIES))), label="story")
    story = told(number)
    kept = data.draw(st.sets(st.sampled_from(sorted(story.files)), min_size=1), label="kept")
    weaker(number, story.rows({name: story.files[name] for name in sorted(kept)}))


@cache
def promoted(number: int) -> frozenset[str]:
    """One that took over and then failed, too, is the new one for those who do not know the rest."""
    rows = told(number).rows()
    begin = min(row["begin"] for row in rows["incidents"])
    return frozenset(row["node"] for row in rows["primary_spans"] if row["from_est"] > begin)


def weaker(number: int, rows: dict[str, list[Row]]) -> None:
    story = told(number)
    for incident in rows["incidents"]:
        assert incident["type"] in (story.type, "unknown"), incident["why"]
        assert incident["old_primary"] in (story.old, None)
        assert incident["new_primary"] in (*promoted(number), None)
    truth = {pair[:2]: pair[3] for pair in story.dual}
    for row in rows["dual"]:
        assert row["verdict"] != REFUTED.get(truth.get((row["old_node"], row["new_node"]), ""), "certain"), row
    assert [row for row in rows["phases"] if (row["duration_us"] or 0) < 0] == []


# ---- a switch-over, and soon after it a kill ------------------------------------------------------------------------


@cache
def handed_over_and_killed() -> Files:
    """node1 hands over to node2 at 0; node2 is killed at 8, and node3 takes over."""
    world = World()
    scenes.up(world)
    scenes.work(world, "node1", ["node2", "node3"], -6.0, -0.5, 1)
    world.broker("node1", 0.0, "relocate", peer="node2", result="begin")
    world.broker("node1", 0.053, "demote", reason="relocation to node2")
    world.broker("node1", 0.0531, "state", old="active", new="joining", reason="stepped down")
    scenes.promotion(world, "node2", 0.055, 2, ["node1", "node3"])
    world.broker("node1", 0.0725, "relocate", peer="node2", result="done")
    scenes.ready(world, "node2", "node3", 0.1, 2, old="")
    scenes.ready(world, "node2", "node1", 0.11, 2)
    scenes.active(world, "node2", 0.111)
    scenes.work(world, "node2", ["node1", "node3"], 1.5, 6.0, 2)
    scenes.lost(world, ["node1", "node3"], "node2", 8.003, "Connection reset by peer")
    world.manager(8.020, "exit", peer="node2", reason="signal 9 (SIGKILL)")
    world.manager(8.022, "promote_request", peer="node3", reason="the primary node2 died")
    scenes.promotion(world, "node3", 8.030, 3, ["node1"])
    world.manager(8.050, "promoted", peer="node3", reason="the primary node2 died")
    scenes.ready(world, "node3", "node1", 8.2, 3, old="")
    scenes.active(world, "node3", 8.3)
    scenes.work(world, "node3", ["node1"], 9.5, 14.0, 3)
    return world.files()


@pytest.mark.parametrize("gone", ["", *sorted(handed_over_and_killed())], ids=lambda name: name.replace("/", "-"))
def test_a_kill_is_no_part_of_a_switch_over(gone: str) -> None:
    rows = tables(without(handed_over_and_killed(), gone))
    truth = [("planned", "node1", "node2"), ("kill", "node2", "node3")]
    found = [(row["type"], row["old_primary"], row["new_primary"]) for row in rows["incidents"]]
    assert len(found) == 2, found
    for said, (kind, old, new) in zip(found, truth, strict=True):
        assert said[0] in (kind, "unknown") and said[1] in (old, None) and said[2] in (new, None), found
