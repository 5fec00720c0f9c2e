"""Changes of the in-sync set that take their time: what happens to backups that come and go meanwhile."""

from __future__ import annotations

from ha.model.status import State
from ha.primary.primary import Primary
from tests.unit.ha.test_ha_cluster import bodies, filled
from tests.unit.ha.world import Host, Publisher, World


def roster(host: Host):
    assert isinstance(host.node.role, Primary)
    return host.node.role.roster


def world_with_registry(names: str = "abc") -> World:
    world = World(names, registry=True, isolation_wait=0.0, isolation_timeout=0.0)
    world.cluster()
    return world


def confirms(world: World, client: Publisher, seconds: float = 5.0) -> None:
    client.publish("q", b"m%d" % client.sent)
    world.until(lambda: client.confirmed == client.sent, seconds)


def test_a_removal_that_was_begun_is_completed_although_the_backup_is_back() -> None:
    world = world_with_registry()
    client = filled(world)
    world.registry_lost = {"a"}
    world.cut("a", "b")
    world.until(lambda: "b is dropped" in roster(world["a"]).record.stalling, 5.0)
    world.heal()
    world.run(1.5)
    assert any(peer.id == "id-b" and peer.link for peer in roster(world["a"]).counting), "it has come back"
    version = world["a"].disk.in_sync.version
    world.registry_lost = set()
    world.until(lambda: world["a"].disk.in_sync.version == version + 1, 3.0)
    assert "id-b" not in world["a"].disk.in_sync
    world.until(lambda: "id-b" in world["a"].disk.in_sync and world["b"].state is State.READY, 3.0)
    confirms(world, client)
    assert world["b"].contents("q") == world["a"].contents("q") == bodies(0, 21)


def test_a_removal_that_was_not_begun_is_dropped_when_the_backup_is_back() -> None:
    """Behind another change that cannot be recorded."""
    world = world_with_registry()
    filled(world)
    world.registry_lost = {"a"}
    world["c"].kill()
    world.until(lambda: "c is dropped" in roster(world["a"]).record.stalling, 5.0)
    world.cut("a", "b")
    world.run(2.5)
    world.heal()
    world.until(lambda: roster(world["a"]).find("id-b").link is not None, 5.0)
    world.registry_lost = set()
    world.until(lambda: roster(world["a"]).record.idle, 5.0)
    assert world["a"].disk.in_sync.ids == {"id-a", "id-b"}
    lines = [line for line in world.lines if "is no longer in-sync" in line]
    assert [line.split()[3] for line in lines] == ["c"]


def test_several_that_are_lost_meanwhile_leave_in_one_step() -> None:
    world = world_with_registry("abcd")
    client = filled(world)
    world.registry_lost = {"a"}
    for name in "bcd":
        world[name].kill()
        world.run(0.05)
    version = world["a"].disk.in_sync.version
    world.registry_lost = set()
    confirms(world, client)
    assert world["a"].disk.in_sync.ids == {"id-a"}
    assert world["a"].disk.in_sync.version == version + 2


def test_a_backup_that_dies_while_it_is_listed_leaves_again() -> None:
    world = world_with_registry("ab")
    client = filled(world)
    world["b"].kill()
    world.until(lambda: "id-b" not in world["a"].disk.in_sync, 3.0)
    world["b"].boot()
    world.until(lambda: world["b"].state is State.CATCHUP, 3.0)
    world.registry_lost = {"a"}
    world.until(lambda: not roster(world["a"]).record.idle, 3.0)
    world["b"].kill()
    world.run(0.5)
    world.registry_lost = set()
    confirms(world, client)
    assert world["a"].disk.in_sync.ids == {"id-a"}
    world["b"].boot()
    world.until(lambda: world["b"].state is State.READY, 5.0)
    confirms(world, client)


def test_a_deposed_primary_forgets_what_it_wanted_to_change() -> None:
    world = world_with_registry()
    client = filled(world)
    world.registry_lost = {"a"}
    world.cut("a", "b", "c")
    world.until(lambda: bool(roster(world["a"]).record.stalling), 5.0)
    client.publish("q", b"never confirmed")
    world.promote("b")
    world.heal()
    world.until(lambda: world["a"].state is State.READY, 10.0)
    world.registry_lost = set()
    world.run(5.0)
    assert world["a"].disk.in_sync == world["b"].disk.in_sync
    assert world["a"].disk.in_sync.ids == {"id-a", "id-b", "id-c"}
    assert client.confirmed == 20
    assert world["a"].contents("q") == bodies(0, 20)


def test_the_set_of_a_primary_that_dies_before_it_is_in_force_counts_all_the_same() -> None:
    """It has read, and it is not known whether it has confirmed anything without the other one."""
    world = world_with_registry("ab")
    filled(world)
    world.cut("a", "b")
    world.until(lambda: '"version": 3' in world.registry.get("a", ""), 5.0)
    assert "id-b" in world["a"].disk.in_sync
    world.pause("a")
    world.heal()
    assert "it is not in the in-sync set (a), and a may hold more but does not answer" in world.refused("b")
    world["a"].kill()
    assert "a may hold more: a host that refuses a connection may still run a broker" in world.refused("b")
    world.fenced.add("a")
    world.until(lambda: world["b"].node.candidacy.score is not None, 10.0)
    world.promote("b")  # what a held in memory is gone for certain: the best copy wins
    assert world["b"].contents("q") == bodies(0, 20)
