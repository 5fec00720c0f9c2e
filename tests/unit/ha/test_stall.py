"""Why confirms wait; primaries that are cut off; what a cluster without a primary says of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ha.backup.backup import Backup
from ha.model.position import make
from ha.model.protocol import BACKUP
from ha.model.status import State
from ha.primary.primary import Primary
from ha.promotion.claims import ClaimRequest
from ha.shell.connection_guard import admit
from qpidd_py.errors import ReplyCode
from tests.unit.ha.test_ha_cluster import filled
from tests.unit.ha.world import Publisher, World


def query(world: World, name: str = "a") -> dict[str, Any]:
    replies: list[dict[str, Any]] = []
    assert world[name].requests.request("ha.query", {}, replies.append, "")
    return dict(replies[0]["result"])


def status(world: World, name: str = "a") -> dict[str, Any]:
    replies: list[dict[str, Any]] = []
    assert world[name].requests.request("ha.status", {}, replies.append, "")
    return dict(replies[0]["result"])


def stalled(world: World, why: str, until: str, name: str = "a") -> None:
    """It says so by itself, in time; in both answers."""
    world.until(lambda: why in str((query(world, name)["stalled"] or {}).get("why")), 3.0)
    found = query(world, name)["stalled"]
    assert until in found["until"]
    assert why in status(world, name)["stalled"]


def flows(world: World, name: str = "a") -> None:
    world.until(lambda: query(world, name)["stalled"] is None, 5.0)
    assert status(world, name)["stalled"] == ""


# ---- stalls


def test_nothing_stalls_in_a_healthy_cluster() -> None:
    world = World()
    world.cluster()
    filled(world)
    world.run(2.0)
    flows(world)
    assert query(world)["isolated"] is False
    assert query(world, "b")["stalled"] is None


def test_a_new_primary_names_the_backups_that_it_expects() -> None:
    world = World()
    world.cluster()
    world.pause("c")
    world["a"].kill()
    world.promote("b")
    world.run(0.3)
    stalled(world, "expected back: c", "silent for 10 s", "b")
    assert query(world, "b")["status"] == "recovering"
    world.resume("c")
    flows(world, "b")


def test_a_lost_backup_is_named_with_the_time_since() -> None:
    world = World()
    world.cluster()
    world.cut("a", "b", "c")
    stalled(world, "lost: ", "the smaller set is recorded, or they are back")
    world.run(0.5)
    assert query(world)["stalled"]["seconds"] >= 0.5


def test_under_quorum_the_last_member_must_come_back() -> None:
    world = World(safety="quorum")
    world.cluster()
    world["b"].kill()
    world["c"].kill()
    world.run(0.1)
    stalled(world, "lost: ", "they are back")
    world["b"].boot()
    world["c"].boot()
    flows(world)


def test_under_quorum_a_new_primary_may_have_too_few() -> None:
    world = World(safety="quorum")
    world.run(0.01)
    world.pause("c")
    world["b"].node.local.settings = replace(world["b"].node.local.settings, replicate="none")  # it will be refused
    world.promote("a")
    stalled(world, "the in-sync set has 1 of 3 brokers, 2 needed", "more backups are ready")
    world.resume("c")
    flows(world)


def test_a_slow_backup_is_named() -> None:
    world = World(heartbeat=2.0)
    world.cluster()
    client = filled(world)
    world.pause("c")
    client.publish("q", b"m20")
    stalled(world, "slow: c has acknowledged nothing for", "it acknowledges, or is dropped")
    world.resume("c")
    flows(world)


def test_a_primary_that_stood_still_says_so_until_it_has_looked_around() -> None:
    world = World("ab")
    world.cluster()
    world.pause("a")
    world.run(3.0)
    world.cut("a", "b")
    world.resume("a")
    world.run(0.2)
    stalled(world, "this process did not run", "has found no other primary")


# ---- with a registry


def test_a_change_that_cannot_be_recorded_stalls_and_says_why() -> None:
    world = World(registry=True, isolation_wait=0.0, isolation_timeout=0.0)
    world.cluster()
    client = filled(world)
    world.registry_lost = {"a"}
    world["b"].kill()
    client.publish("q", b"m20")
    stalled(world, "the registry has not recorded: b is dropped: no answer in time", "the registry answers")
    world.run(5.0)
    assert client.confirmed == 20
    assert "id-b" in world["a"].disk.in_sync
    world.registry_lost = set()
    world.until(lambda: client.confirmed == 21, 3.0)
    flows(world)


def test_a_joining_backup_waits_for_the_registry_and_no_other_does() -> None:
    world = World(registry=True)
    world.cluster()
    client = filled(world)
    world["c"].kill()
    world.until(lambda: "id-c" not in world["a"].disk.in_sync)
    world.registry_lost = {"a"}
    world["c"].boot()
    world.until(lambda: world["c"].state is State.CATCHUP)
    world.run(1.0)
    assert world["c"].state is State.CATCHUP
    assert {shown["name"]: shown["state"] for shown in query(world)["members"]} == {"b": "ready", "c": "catchup"}
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 21, 0.1)
    world.registry_lost = set()
    world.until(lambda: world["c"].state is State.READY, 5.0)


def test_a_new_primary_confirms_nothing_before_its_first_set_is_recorded() -> None:
    world = World("ab", registry=True)
    world.cluster()
    filled(world)
    world["a"].kill()
    world.promote("b")
    world.registry_lost = {"b"}
    client = Publisher(world["b"])
    client.publish("q", b"m20")
    stalled(world, "the registry has not recorded: the first set of a new primary", "the registry answers", "b")
    assert client.confirmed == 0
    assert world["b"].state is State.RECOVERING
    world.registry_lost = set()
    world.until(lambda: client.confirmed == 1, 5.0)
    assert world["b"].state is State.ACTIVE


def test_a_candidate_that_cannot_reach_the_registry_is_refused_unless_by_force() -> None:
    world = World(registry=True)
    world.cluster()
    world["a"].kill()
    world.registry_lost = {"b"}
    assert "the registry does not answer: no answer in time" in world.refused("b")
    assert world["b"].disk.epoch == 1
    world.promote("c")
    world["c"].kill()
    world.promote("b", force=True)


def test_a_primary_on_the_other_side_of_a_cut_is_overtaken_without_fencing() -> None:
    """Neither hears the other; both reach the registry, one after the other."""
    world = World("ab", registry=True, isolation_wait=0.0)
    world.cluster()
    filled(world)
    world.cut("a", "b")
    world.promote("b")
    client = Publisher(world["a"])
    client.publish("q", b"never confirmed")
    world.until(lambda: not world["a"].state.is_primary, 5.0)
    assert client.confirmed == 0
    client = Publisher(world["b"])
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 1, 15.0)


def test_a_backup_that_was_removed_behind_a_cut_is_refused_without_fencing() -> None:
    world = World("ab", registry=True, isolation_wait=0.0)
    world.cluster()
    client = filled(world)
    world.cut("a", "b")
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 21, 3.0)
    assert "it is not in the in-sync set (a), and a may hold more but does not answer" in world.refused("b")


def test_a_fresh_cluster_with_an_empty_registry_needs_no_other() -> None:
    world = World(registry=True)
    world.pause("b")
    world.pause("c")
    world.promote("a")
    world.until(lambda: world["a"].state is State.ACTIVE)


# ---- isolation


def clients_may_come_in(world: World, name: str = "a") -> bool:
    rejection = admit(world[name].node, {})
    assert rejection is None or rejection.code == ReplyCode.CONNECTION_FORCED
    return rejection is None


def test_a_set_that_an_isolated_primary_has_made_smaller_alone_hinders_no_other_broker() -> None:
    """It removes c in the moment in which it is cut off, and answers questions."""
    world = World(safety="quorum", isolation_timeout=0.5)
    world.cluster()
    filled(world)
    a, before = world["a"].node, world["a"].node.view().in_sync
    role = a.role
    assert isinstance(role, Primary)
    world.cut("a", "b", "c")
    role.roster.remove([peer for peer in role.roster.counting if peer.id == "id-c"])
    assert a.local.persisted.in_sync.ids == {"id-a", "id-b"}
    assert a.view().in_sync == a.local.persisted.in_sync, "it may have a majority"
    world.until(lambda: bool(role.isolation), 10.0)
    assert a.view().in_sync == before
    claim = ClaimRequest(2, world["c"].node.local.member, make(2, 0), before)
    assert world["a"].node.claimed(claim)["granted"]
    assert isinstance(a.role, Backup) and a.view().in_sync == a.local.persisted.in_sync


@pytest.mark.parametrize("timeout", [2.0, 0.0])
def test_a_primary_without_a_majority_sends_its_clients_away_in_time(timeout: float) -> None:
    world = World(safety="quorum", isolation_timeout=timeout)
    world.cluster()
    filled(world)
    world.cut("a", "b", "c")
    world.run(2.5)
    assert clients_may_come_in(world)
    world.run(1.5)
    expected = "CONNECTION_FORCED - isolated: a (1 of 3 brokers are linked, 2 needed)"
    assert world["a"].closed_clients == ([expected] if timeout else [])
    assert query(world)["isolated"] is bool(timeout)
    assert clients_may_come_in(world) is not bool(timeout)
    assert admit(world["a"].node, {BACKUP: {"id": "id-b"}}) is None
    world.heal()
    world.until(lambda: clients_may_come_in(world), 5.0)
    assert query(world)["isolated"] is False


def test_a_primary_that_stands_still_again_and_again_sends_its_clients_away() -> None:
    """After each pause it forgives its links their silence, so none of them counts as lost."""
    world = World(safety="quorum", isolation_timeout=5.0)
    world.cluster()
    filled(world)
    world.cut("a", "b", "c")
    for _ in range(3):
        world.pause("a")
        world.run(1.5)
        world.resume("a")
        world.run(0.02)
        assert clients_may_come_in(world)
    for _ in range(3):
        world.pause("a")
        world.run(1.5)
        world.resume("a")
        world.run(0.02)
    expected = "CONNECTION_FORCED - isolated: a (this process stands still again and again)"
    assert world["a"].closed_clients == [expected]
    assert world["a"].node.candidacy.score is None
    world.heal()
    world.until(lambda: clients_may_come_in(world), 5.0)


def test_a_primary_without_its_registry_sends_its_clients_away() -> None:
    world = World(registry=True, isolation_timeout=6.0)
    world.cluster()
    filled(world)
    world.registry_lost = {"a"}
    world.run(3.0)
    assert clients_may_come_in(world)
    world.until(lambda: bool(world["a"].closed_clients), 8.0)
    assert "isolated: a (the registry cannot be used: no answer in time)" in world["a"].closed_clients[0]
    world.registry_lost = set()
    world.until(lambda: clients_may_come_in(world), 5.0)
    assert len(world["a"].closed_clients) == 1


def test_the_manager_mode_without_a_registry_knows_no_isolation() -> None:
    world = World("ab", isolation_timeout=1.0)
    world.cluster()
    world.cut("a", "b")
    world.run(5.0)
    assert world["a"].closed_clients == []


# ---- advice


def test_a_new_cluster_says_that_it_is_new() -> None:
    world = World()
    world.run(0.1)
    assert status(world)["advice"] == "the cluster is new: promote one broker"
    world.pause("b")
    world.run(4.0)
    assert query(world)["advice"] == "the cluster is new: promote one broker (b:1 does not answer)"


def test_survivors_name_who_should_be_promoted() -> None:
    world = World()
    world.cluster()
    world["a"].kill()
    world.run(1.0)
    assert "no primary answers: promote b, which holds every confirmed message" in status(world, "c")["advice"]
    world.promote("b")
    world.until(lambda: status(world, "c")["advice"] == "")
    assert status(world, "b")["advice"] == ""


def test_a_total_failure_is_said_plainly_and_one_promotion_starts_the_cluster_again() -> None:
    world = World()
    world.cluster()
    filled(world)
    for name in "abc":
        world[name].kill()
    world["b"].boot()
    world["c"].boot()
    world.pause("c")
    world.run(3.0)
    restarted = "every member that answers has restarted, and has lost what it held in memory"
    assert status(world, "b")["advice"].startswith(f"{restarted}; c does not answer and may hold what was confirmed")
    world.resume("c")
    world.run(3.0)
    expected = f"{restarted}; promoting one starts the cluster again with what survived (most at b)"
    assert status(world, "b")["advice"] == expected
    world.promote("b")
    world.until(lambda: world["b"].state is State.ACTIVE and world["c"].state is State.READY)
