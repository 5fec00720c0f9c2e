"""A manager wants one broker to be primary while another one is."""

from __future__ import annotations

from ha.model.status import State
from tests.unit.ha.world import Publisher, World


def cluster(names: str = "abc") -> World:
    world = World(names)
    world.cluster()
    return world


def test_the_primary_hands_over() -> None:
    world = cluster()
    world["a"].configuration.declare("q")
    publisher = Publisher(world["a"])
    publisher.publish("q", b"one")
    world.until(lambda: publisher.confirmed == 1)
    world.promote("c", takeover=True)
    world.until(lambda: [host.state for host in world.hosts.values()] == [State.READY, State.READY, State.ACTIVE])
    assert world["c"].contents("q") == [b"one"]
    assert world["c"].node.takeover is None


def test_without_that_wish_a_primary_is_left_in_peace() -> None:
    world = cluster()
    assert "a is primary (active)" in world.refused("c")
    assert "a is primary (active)" in world.refused("c", behind=True, force=True)
    world.run(5.0)
    assert world["a"].state is State.ACTIVE


def test_the_reason_of_the_primary_is_the_reason() -> None:
    world = cluster()
    world["c"].kill()
    world["c"].boot()
    text = world.refused("c", takeover=True)
    assert "c cannot be promoted: a is primary, and " in text
    assert "cannot relocate" in text
    assert world["a"].state is State.ACTIVE


def test_two_wishes_get_one_answer() -> None:
    world = cluster()
    first = world["b"].promote(takeover=True)
    world.until(lambda: world["b"].node.takeover is not None)
    second = world["b"].promote(takeover=True, behind=True)
    world.until(lambda: bool(first) and bool(second))
    assert first[0]["ok"]
    assert second[0]["ok"]
    assert world["b"].state.is_primary


def test_a_primary_that_dies_meanwhile_is_replaced() -> None:
    world = cluster()
    first = world["b"].promote(takeover=True)
    world.until(lambda: world["b"].node.takeover is not None)
    second = world["b"].promote(takeover=True)
    world["a"].kill()
    world.until(lambda: bool(first) and bool(second), 2.0)
    assert first[0]["ok"]
    assert second[0]["ok"]


def test_a_primary_that_falls_silent_meanwhile_is_replaced() -> None:
    world = World(safety="quorum")
    world.cluster()
    replies = world["b"].promote(takeover=True)
    world.until(lambda: world["b"].node.takeover is not None)
    world.cut("a", "b", "c")
    world.until(lambda: bool(replies), 3.0)
    assert replies[0]["ok"]
    world.until(lambda: world["b"].state is State.ACTIVE)


def test_a_primary_that_is_not_reached_is_no_primary() -> None:
    """Then it is a promotion like any other."""
    world = cluster()
    world.cut("a", "b", "c")
    world.run(3.0)
    replies = world["b"].promote(takeover=True)
    world.until(lambda: bool(replies))
    assert replies[0]["ok"]
