"""A disk that does not take a vote or a set: what needs it is refused or waits, memory stays, no process ends."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import patch

import pytest

from ha.backup.backup import Backup
from ha.model.environment import StateNotStored
from ha.model.status import State
from ha.primary.primary import Primary
from ha.primary.stall import StallWatch
from ha.promotion.score import LEAST_WHOLE, SLOW
from tests.unit.ha.test_ha_cluster import bodies, filled
from tests.unit.ha.test_stall import flows, stalled, status
from tests.unit.ha.world import FakeLink, Publisher, World

FULL = "/data/ha-state.json cannot be written: [Errno 28] No space left on device"


def three() -> World:
    world = World()
    world.cluster()
    return world


def fail(world: World, *names: str) -> None:
    for name in names:
        world[name].disk_error = FULL


def repair(world: World, *names: str) -> None:
    for name in names:
        world[name].disk_error = ""


def kinds(world: World, name: str, kind: str) -> list[str]:
    return [str(fields.get("result")) for found, fields in world[name].events if found == kind]


def test_a_broker_that_cannot_store_its_vote_denies_a_claim_and_nothing_has_changed() -> None:
    world = three()
    filled(world)
    world["a"].kill()
    fail(world, "c")
    assert f"c cannot store its vote: {FULL}" in world.refused("b")
    world.run(1.0)
    assert world["c"].node.local.epoch == world["c"].disk.epoch == 1
    assert world["c"].contents("q") == world["b"].contents("q") == bodies(0, 20)
    repair(world, "c")
    world.promote("b")
    world.until(lambda: world["b"].state is State.ACTIVE, 20)
    assert world["b"].contents("q") == bodies(0, 20)


def test_a_primary_that_cannot_store_its_vote_denies_a_claim_and_stays_primary() -> None:
    world = three()
    client = filled(world)
    fail(world, "a")
    request = {
        "epoch": 2,
        "claimant": world["b"].node.local.member.to_json(),
        "position": world["b"].node.role.position,
    }
    request |= {"base": world["a"].disk.in_sync.to_json(), "whole": True, "force": False, "behind": True}
    replies: list[dict[str, object]] = []
    assert world["a"].requests.request("ha.claim", request, replies.append, world["a"].settings.username)
    assert "cannot store its vote" in str(replies)
    assert world["a"].state is State.ACTIVE
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 21)


def test_a_candidate_that_cannot_store_its_vote_is_refused_and_says_why() -> None:
    world = three()
    filled(world)
    world["a"].kill()
    fail(world, "b")
    assert "b cannot be promoted: its vote cannot be stored" in world.refused("b")
    assert world["b"].disk.epoch == world["c"].disk.epoch == 1, "no other broker was disturbed"
    assert "b cannot be promoted: its vote cannot be stored" in world.refused("b"), "at once: its disk is known to fail"
    assert FULL in status(world, "b")["advice"]
    assert status(world, "b")["score"] is None
    assert kinds(world, "b", "state_file") == ["failed"]
    repair(world, "b")
    world.until(lambda: status(world, "b")["score"] is not None, 5.0)
    assert kinds(world, "b", "state_file") == ["failed", "ended"]
    assert FULL not in status(world, "b")["advice"]
    world.promote("b")
    assert world["b"].contents("q") == bodies(0, 20)


def test_a_claim_that_was_granted_is_given_up_when_the_first_set_cannot_be_stored() -> None:
    world = three()
    filled(world)
    world["a"].kill()
    replies = world["b"].promote()
    world.until(lambda: world["b"].disk.epoch == 2)
    fail(world, "b")
    world.until(lambda: bool(replies))
    assert "its in-sync set cannot be stored" in str(replies[0]["error"])
    assert world["b"].state is State.READY
    repair(world, "b")
    world.promote("b")
    world.until(lambda: world["b"].state is State.ACTIVE, 20)
    assert world["b"].contents("q") == bodies(0, 20)


def test_a_primary_that_cannot_store_a_smaller_set_freezes_and_thaws() -> None:
    world = three()
    client = filled(world)
    fail(world, "a")
    world["b"].kill()
    client.publish("q", b"m20")
    stalled(world, f"the disk has not stored: b is dropped: {FULL}", "it can be written again")
    world.run(10.0)
    assert client.confirmed == 20
    assert world["a"].state is State.ACTIVE
    assert "id-b" in world["a"].node.local.persisted.in_sync, "memory does not run ahead of the disk"
    tries = sum("cannot be stored" in line for line in world.lines)
    assert tries == 1, "it is said once"
    repair(world, "a")
    world.until(lambda: client.confirmed == 21, 2.0)
    flows(world)
    assert "id-b" not in world["a"].disk.in_sync


def test_a_backup_that_cannot_store_a_set_does_not_acknowledge_it_and_the_others_go_on() -> None:
    world = three()
    client = filled(world)
    fail(world, "c")
    world["b"].kill()
    world.run(0.1)
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 21, 5.0)
    assert "id-c" not in world["a"].disk.in_sync, "it counts no more: it could not acknowledge the removal of b"
    assert world["c"].disk.in_sync.ids == {"id-a", "id-b", "id-c"}
    assert world["c"].contents("q")[:20] == bodies(0, 20)
    repair(world, "c")
    world.until(lambda: world["c"].state is State.READY and "id-c" in world["a"].disk.in_sync, 10.0)
    assert world["c"].contents("q") == [*bodies(0, 20), b"m20"]
    assert world["c"].disk.in_sync == world["a"].disk.in_sync


def test_what_came_with_a_set_that_was_not_stored_counts_when_the_set_is_stored() -> None:
    """Its log would else begin before the end of what it holds, and lack what its queues have."""
    world = three()
    filled(world)
    fail(world, "b")
    world["c"].kill()
    backup = world["b"].node.role
    assert isinstance(backup, Backup)
    world.until(lambda: backup.link is None)
    world["a"].kill()
    held = world["b"].engine.position
    assert backup.position < held
    assert world["b"].disk.in_sync.ids == {"id-a", "id-b", "id-c"}
    assert FULL in world.refused("b"), "it is not promoted with less in its log than in its queues"
    repair(world, "b")
    world.promote("b")
    assert world["b"].node.local.lineage[2].base == held
    assert world["b"].contents("q") == bodies(0, 20)


@pytest.mark.parametrize("stored", ["again", "with the vote"])
def test_a_set_that_was_not_stored_is_stored_with_the_next_write(stored: str) -> None:
    world = three()
    filled(world)
    local = world["b"].node.local
    in_sync = local.persisted.in_sync
    newer = in_sync.change_brokers((), "c:1")
    fail(world, "b")
    with pytest.raises(StateNotStored):
        local.receive(newer, True)
    assert not local.knows_sets and local.persisted.in_sync == in_sync
    repair(world, "b")
    if stored == "again":
        assert local.can_store()
    else:
        local.persist(epoch=2, leader="id-c")
    assert local.knows_sets and world["b"].disk.in_sync == newer


def test_a_backup_holds_what_was_applied_before_a_frame_that_breaks_the_link() -> None:
    """The batches before it, of the same read, were applied and not acknowledged."""
    world = three()
    client = filled(world)
    backup, before = world["b"].node.role, world["b"].engine.position
    assert isinstance(backup, Backup)
    link = cast(FakeLink, backup.link)
    feed = link.feed
    with patch.multiple(link, feed=lambda data: feed(data + bytes(40)), failed=lambda *_: link.lost("broken")):
        client.publish("q", b"m20")
        world.until(lambda: not link.open)
    assert backup.position == world["b"].engine.position > before


def test_a_broker_that_cannot_store_the_ballot_of_a_primary_does_not_join_it() -> None:
    world = three()
    filled(world)
    world["a"].kill()
    world.promote("b")
    world.until(lambda: world["b"].state is State.ACTIVE, 20)
    world["a"].boot()
    fail(world, "a")
    world.run(5.0)
    assert world["a"].state is State.JOINING
    assert world["a"].disk.epoch == 1
    lines = sum("is lost" in line and " a " in line for line in world.lines)
    assert lines < 100, "it tries again at a bounded rate"
    repair(world, "a")
    world.until(lambda: world["a"].state is State.READY, 5.0)


def test_a_deposed_primary_stops_confirming_whatever_its_disk_does() -> None:
    world = three()
    client = filled(world)
    world.cut("a", "b", "c")
    world.promote("b")
    fail(world, "a")
    client.publish("q", b"isolated")
    world.heal()
    world.until(lambda: not world["a"].state.is_primary, 5.0)
    assert client.confirmed == 20
    assert world["a"].node.local.persisted.ballot == (1, "id-a")
    world.run(3.0)
    assert world["a"].state is State.JOINING
    repair(world, "a")
    world.until(lambda: world["a"].state is State.READY, 5.0)
    assert world["a"].contents("q") == bodies(0, 20)


@pytest.mark.parametrize("name", ["a", "b"])
def test_all_disks_full_and_a_backup_killed_loses_nothing(name: str) -> None:
    """It ended every holder, one after the other."""
    world = three()
    client = filled(world, 100)
    fail(world, "a", "b", "c")
    world["c"].kill()
    world.run(5.0)
    assert {world["a"].alive, world["b"].alive} == {True}
    assert world[name].contents("q") == bodies(0, 100)
    repair(world, "a", "b")
    client.publish("q", b"m100")
    world.until(lambda: client.confirmed == 101, 10.0)


def test_a_change_that_stalls_no_confirm_is_no_stall() -> None:
    """A backup that is listed late: confirms do not wait for it."""
    world = World()
    world.run(0.01)
    world.promote("a")
    fail(world, "a")
    world.run(2.0)
    cause = StallWatch(world["a"].node.role)  # type: ignore[arg-type]
    cause.look(world.clock)
    assert "the disk has not stored" not in str(cause.shown())
    repair(world, "a")
    world.until(lambda: len(world["a"].disk.in_sync.ids) == 3, 5.0)


def test_a_backup_that_has_kept_its_place_is_back_without_a_write() -> None:
    """Its set is in force already.  With a write, a primary whose disk is full stayed without it, and one whose disk is
    slow lost the link again during each write."""
    world = three()
    client = filled(world)
    fail(world, "a", "b")
    a, b = world["a"].node, world["b"].node
    version = a.local.persisted.in_sync.version
    assert isinstance(a.role, Primary)
    link = next(peer.link for peer in a.role.roster.ready() if peer.id == b.local.id)
    assert link is not None
    link.close()
    a.link_closed(link, "reset")
    assert len(a.role.ready()) == 1
    world.until(lambda: len(cast(Primary, a.role).ready()) == 2 and b.local.state is State.READY, 5.0)
    assert a.local.persisted.in_sync.version == version and a.local.disk.error == b.local.disk.error == ""
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 21)


def test_a_backup_that_has_kept_its_place_does_not_wait_for_a_set_that_is_not_stored() -> None:
    """b is promoted and expects c; its disk is full, and a, which comes first, needs a set that it does not store."""
    world = three()
    filled(world)
    world.cut("c", "b")
    world["a"].kill()
    world.promote("b")
    fail(world, "b")
    world["a"].boot()
    b = world["b"].node.role
    assert isinstance(b, Primary)
    world.until(lambda: bool(b.roster.record.not_stored), 10.0)
    assert world["b"].state is State.RECOVERING and "id-c" in b.roster.expected
    world.heal()
    world.until(lambda: world["b"].state is State.ACTIVE, 5.0)
    assert [peer.id for peer in b.ready()] == ["id-c"] and b.roster.record.not_stored
    client = Publisher(world["b"])
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 1)


def five(**settings: Any) -> World:
    world = World("abcde", safety="quorum", isolation_timeout=2.0, **settings)
    world.cluster()
    return world


def test_others_may_take_over_from_a_primary_whose_disk_does_not_let_it_confirm() -> None:
    world = five()
    client = filled(world)
    fail(world, "a")
    world["e"].kill()
    client.publish("q", b"m20")
    world.until(lambda: bool(world["a"].closed_clients), 20.0)
    assert "isolated: a (id-e" not in world["a"].closed_clients[0] and FULL in world["a"].closed_clients[0]
    assert world["a"].node.candidacy.score is None
    world.promote("b")
    world.until(lambda: world["b"].state is State.ACTIVE, 20.0)
    assert client.confirmed == 20 and world["b"].contents("q")[:20] == bodies(0, 20)


def test_a_primary_whose_disk_fails_keeps_its_clients_while_the_others_are_no_majority() -> None:
    """Its consumers go on; without its vote no other broker can be promoted."""
    world = five()
    filled(world)
    fail(world, "a")
    for name in "cde":
        world[name].kill()
    world.run(20.0)
    assert "linked" in world["a"].closed_clients[0], "for want of a majority, not for its disk"
    world = World(safety="quorum", isolation_timeout=2.0)
    world.cluster()
    filled(world)
    fail(world, "a")
    world["c"].kill()
    world.run(20.0)
    assert FULL in str(world["a"].node.stall()) and world["a"].closed_clients == []


def test_others_may_take_over_also_when_the_primary_does_not_see_that_they_hear_each_other() -> None:
    """a is linked to b alone, and hears from it that b and c are a majority."""
    world = World(safety="quorum", isolation_timeout=2.0)
    world.cluster()
    filled(world)
    fail(world, "a")
    world.cut("a", "c")
    world.until(lambda: bool(world["a"].closed_clients), 20.0)
    assert FULL in world["a"].closed_clients[0] and world["a"].node.candidacy.score is None
    world.promote("b")
    world.until(lambda: world["b"].state is State.ACTIVE and world["c"].state is State.READY, 20.0)
    assert world["c"].contents("q") == bodies(0, 20)


def test_brokers_that_cannot_store_a_vote_are_no_majority() -> None:
    """All disks are full: no other broker could be promoted, so the consumers stay."""
    world = World(safety="quorum", isolation_timeout=2.0)
    world.cluster()
    filled(world)
    for name in "abc":
        fail(world, name)
    local = world["b"].node.local
    with pytest.raises(StateNotStored):
        local.persist(epoch=local.epoch + 1)
    world.cut("a", "c")
    world.run(20.0)
    assert FULL in str(world["a"].node.stall()) and world["a"].closed_clients == []


def test_a_primary_with_a_slow_disk_gives_way_and_is_promoted_last() -> None:
    world = five()
    filled(world)
    a = world["a"].node
    disk = a.local.disk
    disk.slow, disk._next = "its disk takes 9.0 s for a write", 1e9
    a.local.changed()
    world.until(lambda: bool(world["a"].closed_clients), 5.0)
    assert "its disk takes 9.0 s" in world["a"].closed_clients[0] and "9.0 s" in str(status(world)["advice"])
    assert a.candidacy.score is None
    world.promote("b")
    world.until(lambda: world["b"].state is State.ACTIVE and a.local.state is State.READY, 20.0)
    disk.slow, disk._next = "its disk takes 9.0 s for a write", 1e9
    a.candidacy.look()
    assert a.candidacy.score == SLOW < LEAST_WHOLE
    world.run(1.0)
    disk._next = 0.0  # the next attempt is due
    world.until(lambda: disk.slow == "", 5.0)
    assert a.candidacy.score == world["c"].node.candidacy.score


def test_a_hint_of_the_time_before_is_forgotten_while_the_disk_fails() -> None:
    """`b` has claimed an epoch and is no primary: a hint that was kept until the disk is mended would be tried first,
    each time after the longest delay, and `c` would have no score meanwhile."""
    world = three()
    world["a"].kill()
    world.until(lambda: world["c"].node.candidacy.score is not None, 20)
    fail(world, "c")
    assert "cannot store its vote" in world.refused("b")
    role = cast(Backup, world["c"].node.role)
    role.follow(world["b"].node.local.settings.address)
    world.run(3.0)
    assert role.primary_address == ""
    repair(world, "c")
    world.until(lambda: world["c"].node.candidacy.score is not None, 3)
