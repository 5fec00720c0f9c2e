"""How long a promotion waits for a broker that says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from unittest.mock import patch

import pytest

from ha.backup.backup import Backup
from ha.model.environment import Exchanged
from ha.model.membership import HaState
from ha.model.status import State
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


@pytest.mark.parametrize("late", [0.0, 0.02, 0.15, 0.4])
def test_who_has_granted_follows_as_soon_as_the_claimant_is_primary(late: float) -> None:
    """It had asked all brokers, and waited for the dead one before it did anything else; or the claimant needed longer
    than six attempts, and then it asked all: clients had no confirm for half a second more."""
    world = hung_primary(registry=True)
    exchange = world["b"].exchange

    def slow(state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        exchange(state, timeout, lambda found: world.at(late if state else 0.0, lambda: done(found)))

    with patch.object(world["b"], "exchange", slow):
        assert world.promote("b") >= late
    backup = cast(Backup, world["c"].node.role)
    assert world.until(lambda: world["c"].state is State.READY and backup.link is not None) < 0.03


def test_a_claimant_that_gives_up_does_not_keep_others_from_their_survey() -> None:
    world = hung_primary(registry=True)
    backup, settings = cast(Backup, world["c"].node.role), world["c"].settings
    backup.follow("b:1")
    assert backup.survey is None
    took = world.until(lambda: backup.survey is not None)
    assert took < settings.promote_timeout + settings.heartbeat + 0.1


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
