"""How long a promotion waits for a broker that says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.ha.world import World


def hung_primary(**settings: Any) -> World:
    """a stands still, and its backups have given up the link to it."""
    world = World(**settings)
    world.cluster()
    world.pause("a")
    world.until(lambda: all(world[name].node.role.hushed == {"a:1"} for name in "bc"))
    return world


@pytest.mark.parametrize("settings", [{"safety": "quorum"}, {"registry": True}])
def test_who_has_been_silent_is_not_waited_for_again(settings: dict[str, Any]) -> None:
    world = hung_primary(**settings)
    assert world.promote("b") < 0.3 * world["b"].settings.promote_timeout


def test_without_a_majority_or_a_registry_that_vouches_he_is() -> None:
    world = hung_primary()
    assert world.promote("b") >= world["b"].settings.promote_timeout


def test_another_one_that_is_silent_is_waited_for() -> None:
    world = hung_primary(safety="quorum", names="abcde")
    world.pause("d")
    assert world.promote("b") >= world["b"].settings.promote_timeout


def test_a_broker_that_is_needed_is_waited_for() -> None:
    """b and c do not hold everything; a, which is silent, may."""
    world = World(safety="quorum")
    world.cluster()
    for name in "bc":
        world[name].kill()
        world[name].boot()
    world.pause("a")
    world.run(3.0)
    began = world.clock
    assert "a may hold more but does not answer" in world.refused("b")
    assert world.clock - began >= world["b"].settings.promote_timeout
