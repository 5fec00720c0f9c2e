"""`ha-promote-on-shutdown`: when a controlled stop is refused."""

from __future__ import annotations

import pytest

from ha.shell.shutdown import may_stop, would_lose
from tests.unit.ha.test_ha_cluster import filled
from tests.unit.ha.world import Host, World


@pytest.fixture
def world() -> World:
    found = World()
    found.cluster()
    return found


def stop_requests(host: Host) -> list[str]:
    return [str(fields["result"]) for kind, fields in host.events if kind == "stop_request"]


def test_with_a_backup_in_sync_it_stops(world: World) -> None:
    filled(world)
    world["c"].kill()
    world.run(0.1)
    assert may_stop(world["a"].node, "when-synced") == ""
    assert stop_requests(world["a"]) == []


def test_a_backup_stops_at_any_time(world: World) -> None:
    filled(world)
    assert may_stop(world["b"].node, "when-synced") == ""


def test_the_last_one_that_holds_something_refuses(world: World) -> None:
    filled(world, 7)
    world["b"].kill()
    world["c"].kill()
    world.run(2.0)
    loss = may_stop(world["a"].node, "when-synced")
    assert loss.startswith("a is primary, and no backup is in sync: 1 queues with 7 messages would be lost (")
    assert "b:1 is not connected" in loss or "b is away" in loss
    assert stop_requests(world["a"]) == ["refused"]
    assert world["a"].state.is_primary


def test_or_only_warns(world: World) -> None:
    filled(world)
    world["b"].kill()
    world["c"].kill()
    world.run(2.0)
    assert may_stop(world["a"].node, "always") == ""
    assert stop_requests(world["a"]) == ["warned"]
    assert any("warning: stopping although a is primary" in line for line in world.lines)


def test_an_empty_broker_has_nothing_to_lose(world: World) -> None:
    world["b"].kill()
    world["c"].kill()
    world.run(2.0)
    assert would_lose(world["a"].node) == ""


def test_no_other_broker_could_keep_it() -> None:
    world = World("a")
    world.run(0.01)
    world.promote("a")
    filled(world)
    assert would_lose(world["a"].node) == ""
