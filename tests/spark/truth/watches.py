"""Stories in which only the clocks are wrong: 5, 13; and the one of a kill with every clock off and drifting."""

from __future__ import annotations

from tests.spark.truth import processes, scenes
from tests.spark.truth.story import Story
from tests.spark.truth.world import Clock, World


def fast_clock() -> Story:
    """5: node1's clock is 1.5 s ahead, so its step down seems to come long after the promotion of node2."""
    world = World()
    world.clocks["node1"] = Clock(offset=1.5)
    scenes.up(world)
    scenes.work(world, "node1", ["node2", "node3"], -6.0, -0.5, 1)
    world.manager(0.0, "hung", peer="node1", attrs={"seconds": "1.0"})
    world.manager(0.001, "promote_request", peer="node2", reason="the primary node1 hangs")
    world.broker("node1", 0.0175, "demote", reason="node2 claims epoch 2", term=2)
    scenes.promotion(world, "node2", 0.010, 2, ["node1", "node3"])
    # it is promoted 8 ms after node1 has stepped down
    scenes.ready(world, "node2", "node3", 0.1, 2, old="")
    scenes.ready(world, "node2", "node1", 0.12, 2)
    scenes.active(world, "node2", 0.121)
    scenes.work(world, "node2", ["node1", "node3"], 1.5, 6.0, 2)
    return Story(
        "5 dual primary by a clock only",
        world.files(),
        world,
        "hang",
        "node1",
        "node2",
        phases={
            "fault": (-0.9966, 0.0),
            "decision": (0.0, 0.001),
            "promotion": (0.010, 0.0261),
            "recovering": (0.026, 0.121),
            "redundancy": (0.0261, 0.12),
        },
        dual=[("node1", "node2", "excluded", "excluded", 8.6)],
    )


def set_back() -> Story:
    """13: node2's clock is set back by 2 s between the request and the promotion."""
    world = World()
    world.clocks["node2"] = Clock(steps=((0.030, -2.0),))
    story = processes.kill(world)
    return Story(**{**vars(story), "name": "13 a clock is set back", "error": 0.005, "hints": ["clock-step"]})


def all_wrong() -> Story:
    """The kill with node1 8 s behind, node2 3 s ahead, both drifting, the one by 40, the other by -60 ppm."""
    world = World()
    world.clocks["node1"] = Clock(offset=-8.0, ppm=40)
    world.clocks["node2"] = Clock(offset=3.0, ppm=-60)
    story = processes.kill(world)
    return Story(**{**vars(story), "name": "all clocks are wrong"})


STORIES = (fast_clock, set_back, all_wrong)
