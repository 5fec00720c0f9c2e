"""Whole clusters in one process: joining, confirming, fail-over, losses, deposition."""

from __future__ import annotations

from typing import Any

import pytest

from ha.backup.backup import Backup
from ha.model.difference import Origin
from ha.model.status import State
from tests.unit.ha.world import Publisher, World


def filled(world: World, count: int = 20, primary: str = "a") -> Publisher:
    host = world[primary]
    host.configuration.declare("q")
    client = Publisher(host)
    for number in range(count):
        client.publish("q", b"m%d" % number)
    world.until(lambda: client.confirmed == count)
    return client


def bodies(first: int, last: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, last)]


def test_fresh_cluster_becomes_active_and_ready() -> None:
    world = World()
    world.cluster()
    assert world["a"].state is State.ACTIVE
    assert world["a"].disk.in_sync.ids == {"id-a", "id-b", "id-c"}
    world.run(0.1)
    for host in world.hosts.values():
        assert host.disk.in_sync == world["a"].disk.in_sync
        assert host.disk.epoch == 1


def test_messages_are_confirmed_when_all_backups_hold_them() -> None:
    world = World()
    world.cluster()
    filled(world)
    for host in world.hosts.values():
        assert host.contents("q") == bodies(0, 20)


def test_nothing_is_confirmed_without_an_in_sync_backup() -> None:
    world = World()
    world.cluster()
    client = filled(world)
    world.pause("b")
    client.publish("q", b"m20")
    world.run(0.9)
    assert client.confirmed == 20
    took = 0.9 + world.until(lambda: client.confirmed == 21)
    assert took < 1.6
    assert "id-b" not in world["a"].disk.in_sync
    assert "id-b" not in world["c"].disk.in_sync


def test_killed_backup_stops_to_count_at_once() -> None:
    world = World()
    world.cluster()
    client = filled(world)
    world["b"].kill()
    client.publish("q", b"m20")
    assert world.until(lambda: client.confirmed == 21) < 0.01


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [({"safety": "quorum"}, 0.0, 0.01), ({"registry": True}, 0.0, 0.02), ({"safety": "manager"}, 0.7, 1.1)],
    ids=["quorum", "registry", "manager"],
)
def test_fail_over_is_fast_and_loses_nothing(settings: dict[str, Any], least: float, most: float) -> None:
    """Without a registry or a majority a host has to refuse for `dead_after` (1 s) before it counts as gone."""
    world = World(**settings)
    world.cluster()
    filled(world)
    world["a"].kill()
    took = world.promote("b")
    assert least <= took < most
    client = Publisher(world["b"])
    client.publish("q", b"m20")
    assert world.until(lambda: client.confirmed == 1) < 0.03
    world.until(lambda: world["b"].state is State.ACTIVE, 0.03)
    assert world["c"].state is State.READY
    assert world["b"].contents("q") == world["c"].contents("q") == bodies(0, 21)
    assert world["b"].configuration.promotions == 1


def test_two_fail_overs_and_the_return_of_the_dead() -> None:
    world = World()
    world.cluster()
    filled(world)
    world["a"].kill()
    world.promote("b")
    world["a"].boot()
    world.until(lambda: world["a"].state is State.READY)
    assert world["a"].contents("q") == bodies(0, 20)
    world.until(lambda: world["b"].state is State.ACTIVE)
    world["b"].kill()
    world.promote("a")
    world["b"].boot()
    world.until(lambda: world["b"].state is State.READY)
    world.until(lambda: world["a"].state is State.ACTIVE)
    assert world["a"].contents("q") == world["b"].contents("q") == world["c"].contents("q") == bodies(0, 20)


def test_promotion_is_idempotent_on_a_primary() -> None:
    world = World()
    world.cluster()
    assert world.promote("a") == 0
    assert world["a"].disk.epoch == 1


def test_promotion_is_refused_while_a_primary_lives() -> None:
    world = World()
    world.cluster()
    assert "a is primary (active)" in world.refused("b")
    assert world["a"].state is State.ACTIVE
    assert world["b"].disk.epoch == 1


def test_restarted_broker_is_refused_while_a_ready_one_lives() -> None:
    world = World()
    world.cluster()
    world["c"].kill()
    world["c"].boot()
    world["a"].kill()
    world.run(0.0)
    assert "b (ready" in world.refused("c")
    world.promote("b")


def test_restarted_broker_is_refused_while_a_silent_one_may_hold_more() -> None:
    world = World("ab")
    world.cluster()
    filled(world)
    world.pause("a")
    world["b"].kill()
    world["b"].boot()
    assert "a may hold more but does not answer" in world.refused("b")
    assert world["b"].state is State.JOINING
    world.promote("b", force=True)


def test_total_failure_lets_any_restarted_broker_win() -> None:
    world = World()
    world.cluster()
    for host in world.hosts.values():
        host.kill()
    for host in world.hosts.values():
        host.boot()
    world.promote("c")
    world.until(lambda: world["c"].state is State.ACTIVE)
    world.until(lambda: world["a"].state is State.READY)


def test_stale_ready_broker_is_refused() -> None:
    world = World()
    world.cluster()
    client = filled(world)
    world.cut("b", "a", "c")
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 21)
    world["a"].kill()
    world.heal()
    assert world["b"].state is State.READY
    assert "c (ready" in world.refused("b")
    world.promote("c")
    world.until(lambda: world["b"].state is State.READY and world["b"].contents("q") == bodies(0, 21))


def test_paused_primary_is_deposed_and_follows() -> None:
    world = World()
    world.cluster()
    old = filled(world)
    world.pause("a")
    world.run(0.1)
    world.promote("b")
    client = Publisher(world["b"])
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 1)
    old.publish("q", b"never")
    world.resume("a")
    old.publish("q", b"nor this")
    world.until(lambda: world["a"].state is State.READY)
    assert old.confirmed == 20
    assert world["a"].contents("q") == bodies(0, 21)
    assert world["a"].closed_clients


def test_isolated_primary_waits_before_it_confirms_alone() -> None:
    world = World()
    world.cluster()
    client = filled(world)
    world.cut("a", "b", "c")
    client.publish("q", b"m20")
    world.run(2.9)
    assert client.confirmed == 20
    world.until(lambda: client.confirmed == 21, 3.0)


def test_primary_cut_off_while_another_is_promoted_confirms_nothing() -> None:
    world = World()
    world.cluster()
    old = filled(world)
    world.cut("a", "b", "c")
    world.run(0.3)
    world.promote("b")
    new = Publisher(world["b"])
    new.publish("q", b"m20")
    old.publish("q", b"never")
    world.until(lambda: new.confirmed == 1)
    world.run(0.5)
    world.heal()
    world.until(lambda: world["a"].state is State.READY)
    assert old.confirmed == 20
    assert world["a"].contents("q") == bodies(0, 21)


def test_quorum_primary_without_majority_never_confirms() -> None:
    world = World(safety="quorum")
    world.cluster()
    client = filled(world)
    world.cut("a", "b", "c")
    client.publish("q", b"m20")
    world.run(30)
    assert client.confirmed == 20


def test_availability_forgets_a_lost_backup_at_once() -> None:
    world = World("ab", safety="availability")
    world.cluster()
    client = filled(world)
    world.pause("b")
    client.publish("q", b"m20")
    assert world.until(lambda: client.confirmed == 21) < 1.4


def test_double_promotion_leaves_one_primary() -> None:
    world = World()
    world.cluster()
    filled(world)
    world["a"].kill()
    first, second = world["b"].promote(), world["c"].promote()
    world.until(lambda: bool(first and second))
    world.run(3)
    primaries = [host for host in (world["b"], world["c"]) if host.state.is_primary]
    if not primaries:
        world.promote("b")
        primaries = [world["b"]]
    assert len(primaries) == 1
    world.until(lambda: primaries[0].state is State.ACTIVE)
    assert primaries[0].contents("q") == bodies(0, 20)


def test_backup_that_lost_its_link_for_a_moment_stays_in_sync() -> None:
    world = World()
    world.cluster()
    client = filled(world)
    version = world["a"].disk.in_sync.version
    world["b"].events.clear()
    link = next(link for link in world["b"].links if link.open)
    link.lost("cut by the test")
    assert link.other is not None
    link.other.lost("cut by the test")
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 21)
    assert world["b"].state is State.READY
    assert not [fields for kind, fields in world["b"].events if kind == "state"]
    world.run(0.1)
    assert "id-b" in world["a"].disk.in_sync
    assert world["a"].disk.in_sync.version == version, "no set has changed"
    assert world["b"].contents("q") == bodies(0, 21)


def test_recovering_holds_confirms_until_the_timeout_gives_a_backup_up() -> None:
    world = World(backup_timeout=3.0)
    world.cluster()
    filled(world)
    world["a"].kill()
    world.pause("c")
    took = world.promote("b")
    assert 0.7 < took < 1.6
    client = Publisher(world["b"])
    client.publish("q", b"m20")
    world.run(2.5)
    assert world["b"].state.value == "recovering"
    assert client.confirmed == 0
    world.until(lambda: client.confirmed == 1, 4.0)
    assert world["b"].state is State.ACTIVE


def test_new_backup_gets_queues_and_messages_while_publishing_goes_on() -> None:
    world = World(slice_size=1024)
    world["c"].kill()
    world.run(0.01)
    world.promote("a")
    world.until(lambda: world["b"].state is State.READY)
    client = filled(world, 2000)
    for number in range(5):
        assert client.get("q") == b"m%d" % number
    world["c"].boot()
    for number in range(2000, 2040):
        client.publish("q", b"m%d" % number)
        client.get("q")
        world.run(0.0004)
    world.until(lambda: world["c"].state is State.READY)
    world.until(lambda: client.confirmed == 2040)
    world.run(0.1)
    assert world["c"].contents("q") == world["a"].contents("q") == bodies(45, 2040)


def test_queue_deleted_and_made_again_while_a_backup_was_away() -> None:
    world = World()
    world.cluster()
    filled(world)
    world.cut("b", "a", "c")
    world.run(2)
    primary = world["a"]
    primary.configuration.delete("q")
    primary.configuration.declare("q")
    client = Publisher(primary)
    client.publish("q", b"new")
    world.heal()
    world.until(lambda: world["b"].state is State.READY and world["b"].contents("q") == [b"new"])


def test_different_replication_level_is_refused_with_a_clear_text() -> None:
    world = World("ab")
    from dataclasses import replace

    world["b"].kill()
    world["b"].settings = replace(world["b"].settings, replicate="none")
    world["b"].boot()
    world.run(0.01)
    world.promote("a")
    world.run(1)
    assert world["b"].state is not State.READY
    assert any("ha-replicate is none, at the primary a it is all" in line for line in world.lines)


@pytest.mark.parametrize("victim", ["a", "b"])
def test_second_failure_during_recovery(victim: str) -> None:
    world = World("abcd")
    world.cluster()
    filled(world)
    world["a"].kill()
    world.promote("b")
    world["b"].kill()
    world.run(0.001)
    world.promote("c")
    world.until(lambda: world["c"].state is State.ACTIVE)
    world.until(lambda: world["d"].state is State.READY)
    assert world["c"].contents("q") == world["d"].contents("q") == bodies(0, 20)


def test_removal_must_reach_the_remaining_members_before_anything_is_confirmed() -> None:
    world = World(safety="quorum")
    world.cluster()
    client = filled(world)
    world.pause("b")
    client.publish("q", b"m20")
    world.run(0.01)  # c has acknowledged it, b has not
    world.cut("a", "c")
    world["b"].kill()
    world.run(0.7)
    assert "id-b" not in world["a"].disk.in_sync
    assert "id-b" in world["c"].disk.in_sync
    assert client.confirmed == 20, "b, or c on the word of b, could still be promoted without this message"
    world.heal()
    world.until(lambda: client.confirmed == 21)
    assert "id-b" not in world["c"].disk.in_sync


def test_primary_that_stood_still_confirms_nothing_before_it_has_asked() -> None:
    world = World("ab")
    world.cluster()
    client = filled(world)
    world["b"].kill()
    world.until(lambda: "id-b" not in world["a"].disk.in_sync)
    world.pause("a")
    world["b"].boot()
    world.run(2)
    world.promote("b", force=True)
    world["a"].paused = False
    client.publish("q", b"never")
    assert client.confirmed == 20
    world.resume("a")
    world.until(lambda: world["a"].state is State.READY)
    assert client.confirmed == 20


def test_backup_that_stood_still_is_in_doubt_while_the_primary_is_silent() -> None:
    world = World()
    world.cluster()
    client = filled(world)
    world.pause("b")
    world.pause("c")
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 21)  # a goes on alone
    world.pause("a")
    world.resume("b")
    world.resume("c")
    world.run(0.01)
    assert "was disconnected" in world.refused("b")
    world.resume("a")
    world.until(lambda: world["b"].state is State.READY and world["b"].contents("q") == bodies(0, 21))


def test_short_pause_of_a_backup_leaves_no_doubt() -> None:
    world = World()
    world.cluster()
    world.pause("b")
    world.run(0.8)
    world.resume("b")
    world.run(0.2)
    assert not world["b"].node.view().doubt
    assert world["b"].state is State.READY


def test_set_on_record_at_the_manager_counts() -> None:
    world = World()
    world.cluster()
    recorded = world["a"].disk.in_sync.shrink(["id-b"])
    world["a"].kill()
    replies: list[dict[str, object]] = []
    world["b"].requests.request("ha.promote", {"in_sync": recorded.to_json()}, replies.append, "")
    world.until(lambda: bool(replies))
    assert "not in the in-sync set (a, c)" in str(replies[0]["error"])
    world.promote("c")


def test_deposed_primary_may_be_promoted_again_and_a_ready_one_too() -> None:
    for name in "ab":
        world = World()
        world.cluster()
        filled(world)
        world["a"].node.depose((5, "id-nobody"), "test", "")
        world.run(0.05)
        assert world["a"].state is State.JOINING
        world.promote(name)
        world.until(lambda world=world, name=name: world[name].state is State.ACTIVE)  # type: ignore[misc]
        assert world[name].contents("q") == bodies(0, 20)
        assert world[name].disk.epoch == 6


def test_two_histories_of_one_epoch_are_not_mixed() -> None:
    world = World()
    world.cluster()
    filled(world)
    loser = world["c"].node
    loser.role.stop()
    world.run(0.01)
    # c has written under its own claim of epoch 2, which b claims as well
    world["a"].kill()
    loser.local.lineage[2] = Origin("id-c")
    loser.local.engine.begin_epoch(2)
    client = Publisher(world["c"])
    for number in range(20, 25):
        client.publish("q", b"other%d" % number)
    loser.local.engine.flush()
    world.promote("b")
    right = Publisher(world["b"])
    for number in range(20, 30):
        right.publish("q", b"m%d" % number)
    loser.role = role = Backup(loser.local, loser.end)
    role.follow("b:1")
    world.until(lambda: world["c"].contents("q") == bodies(0, 30))


def test_deposed_primary_gets_back_what_it_had_dequeued_alone() -> None:
    world = World()
    world.cluster()
    old = filled(world)
    old.channel.get(world["a"].configuration.queues["q"][0], False)
    world.cut("a", "b", "c")
    old.get("q")
    old.get("q")
    world.run(0.3)
    world.promote("b")
    world.heal()
    world.until(lambda: world["a"].state is State.READY)
    assert world["a"].contents("q") == bodies(0, 20)
