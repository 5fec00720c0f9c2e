"""A slow backup: publishers are not read, and are told which backup it is."""

import pytest

from tests.unit.ha.world import Publisher, World


@pytest.fixture
def world():
    world = World("abc", heartbeat=5.0, backlog_high=20_000, backlog_low=5_000)
    world.cluster()
    world["a"].configuration.declare("q")
    world.run(0.1)
    return world


def fill(world):
    publisher = Publisher(world["a"])
    link = next(link for link in world["a"].links if link.peer_host.name == "b")
    link.output_ready = lambda: None  # nothing leaves any more
    for _ in range(40):
        publisher.publish("q", b"x" * 1000)
    return publisher, link


def test_publishers_are_told_why(world):
    a = world["a"]
    assert a.configuration.throttled == ""
    publisher, link = fill(world)
    assert a.configuration.throttled.startswith("backup b") and "is slow" in a.configuration.throttled
    assert a.engine.throttled and publisher.connection.input_paused
    del link.output_ready
    link.output_ready()
    world.until(lambda: a.configuration.throttled == "")
    assert not a.engine.throttled and not publisher.connection.input_paused
    world.until(lambda: publisher.confirmed == 40)


def test_a_deposed_primary_holds_nobody(world):
    a = world["a"]
    fill(world)
    assert a.configuration.throttled
    world.pause("a")
    world.promote("c")
    world.resume("a")
    world.until(lambda: not a.state.is_primary)
    assert a.configuration.throttled == "" and not a.engine.throttled
