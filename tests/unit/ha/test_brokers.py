"""The cluster's brokers, changed at run time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ha.model.membership import InSync, Member
from ha.model.safety import Safety, fragile
from ha.model.settings import HaSettings, NodeSettings
from ha.model.status import State
from ha.primary.brokers import changed
from qpidd_py.errors import ConfigError, LinkError
from qpidd_py.option_values import Address
from tests.unit.ha.test_ha_cluster import filled
from tests.unit.ha.world import Publisher, World

MEMBERS = {name: Member(f"id-{name}", name, f"{name}:1") for name in "abcde"}


def in_sync(names: str) -> InSync:
    return InSync(1, "id-a", 3, tuple(MEMBERS[name] for name in names))


def safety(mode: str, names: str = "abc") -> Safety:
    return Safety(mode, tuple(f"{name}:1" for name in names), 1.0)


def member(world: World, action: str, address: str = "", of: str = "a") -> dict[str, Any]:
    """Ask a broker and wait for its answer."""
    replies: list[dict[str, Any]] = []
    arguments = {"action": action, "address": address}
    assert world[of].requests.request("ha.member", arguments, replies.append, "")
    world.until(lambda: bool(replies))
    return replies[0]


def brokers(world: World, of: str = "a") -> str:
    return "".join(address[0] for address in member(world, "list", of=of)["result"]["brokers"])


def cluster(names: str, member_names: str, **settings: Any) -> World:
    """A world in which only some of the brokers are members from the start."""
    world = World(names, **settings)
    for host in world.hosts.values():
        host.kill()
        host.settings = replace(host.settings, brokers=tuple(f"{name}:1" for name in member_names))
    for name in member_names:
        world[name].boot()
    world.run(0.01)
    world.promote("a")
    ready(world, member_names)
    return world


def ready(world: World, names: str, primary: str = "a") -> None:
    world.until(lambda: all(world[name].state is State.READY for name in names if name != primary))


# ---- what may be changed


def test_one_address_at_a_time() -> None:
    assert changed(in_sync("abc"), safety("manager"), "add", "d:1", "a:1") == ("a:1", "b:1", "c:1", "d:1")
    assert changed(in_sync("abc"), safety("manager"), "remove", "b:1", "a:1") == ("a:1", "c:1")
    assert changed(in_sync("abc"), safety("manager"), "add", "b:1", "a:1") == ("a:1", "b:1", "c:1")


@pytest.mark.parametrize(
    ("action", "address", "text"),
    [
        ("remove", "d:1", "d:1 is not a member, expected one of a:1, b:1, c:1"),
        ("remove", "a:1", "a:1 is the primary: relocate it first"),
    ],
)
def test_what_must_not_be_changed(action: str, address: str, text: str) -> None:
    with pytest.raises(LinkError, match=text):
        changed(in_sync("abc"), safety("manager"), action, address, "a:1")


def test_under_quorum_the_set_must_be_large_enough_for_the_new_list() -> None:
    with pytest.raises(LinkError, match="of 4 brokers 2 would be in sync, 3 needed"):
        changed(in_sync("ab"), safety("quorum"), "add", "d:1", "a:1")
    with pytest.raises(LinkError, match="of 2 brokers 1 would be in sync, 2 needed"):
        changed(in_sync("ab"), safety("quorum"), "remove", "b:1", "a:1")
    assert changed(in_sync("ab"), safety("quorum"), "remove", "c:1", "a:1") == ("a:1", "b:1")


def test_a_member_of_the_set_must_be_known_by_an_address_of_the_list() -> None:
    moved = replace(in_sync("ab"), members=(MEMBERS["a"], Member("id-b", "b", "10.0.0.2:1")))
    with pytest.raises(LinkError, match=r"b is in sync at 10\.0\.0\.2:1, which is no member's"):
        changed(moved, safety("manager"), "add", "d:1", "a:1")


def majorities(names: Iterable[str]) -> list[frozenset[str]]:
    everybody = sorted(names)
    return [frozenset(some) for some in itertools.combinations(everybody, len(everybody) // 2 + 1)]


@pytest.mark.parametrize("size", range(1, 8))
def test_majorities_of_lists_that_follow_each_other_meet(size: int) -> None:
    before = "abcdefgh"[:size]
    for one, other in itertools.product(majorities(before), majorities(before + "z")):
        assert one & other
    two_steps = [one & other for one, other in itertools.product(majorities(before), majorities(before + "yz"))]
    assert (frozenset() in two_steps) == (size % 2 == 1), "two steps at once would not do"


# ---- in a cluster


def test_a_new_broker_joins_and_an_old_one_leaves_without_a_restart() -> None:
    world = cluster("abcd", "abc", safety="quorum")
    filled(world)
    world["c"].kill()
    world.until(lambda: "id-c" not in world["a"].disk.in_sync)
    assert member(world, "remove", "c:1") == {"ok": True, "result": {"brokers": ["a:1", "b:1"]}}
    assert member(world, "add", "d:1")["result"]["brokers"] == ["a:1", "b:1", "d:1"]
    world["d"].boot()
    ready(world, "bd")
    assert [brokers(world, of=name) for name in "abd"] == ["abd"] * 3
    world["a"].kill()
    world.promote("d")
    world.until(lambda: world["d"].state is State.ACTIVE)
    assert world["d"].contents("q") == [b"m%d" % number for number in range(20)]
    client = Publisher(world["d"])
    client.publish("q", b"more")
    world.until(lambda: client.confirmed == 1)


def test_a_stranger_is_refused_until_it_is_added() -> None:
    world = cluster("abcd", "abc")
    member(world, "remove", "c:1")
    world["d"].boot()
    world.run(3.0)
    assert world["d"].state is State.JOINING
    assert "id-d" not in world["a"].disk.in_sync
    assert "it is no longer a member of the cluster (a:1, b:1)" in world["d"].node.advice()
    member(world, "add", "d:1")
    ready(world, "bd")


def test_a_removed_broker_leaves_the_set_is_sent_away_and_cannot_be_promoted() -> None:
    world = cluster("abc", "abc", safety="quorum")
    client = filled(world)
    member(world, "remove", "c:1")
    assert world["a"].disk.in_sync.ids == {"id-a", "id-b"}
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 21)
    world.run(3.0)
    assert not world["c"].node.local.whole
    assert b"m20" not in world["c"].contents("q")
    world["a"].kill()
    world.run(0.1)
    assert "it is no longer a member of the cluster (a:1, b:1)" in world.refused("c", force=True)


def test_a_removed_broker_can_come_back() -> None:
    world = cluster("abc", "abc")
    filled(world)
    member(world, "remove", "c:1")
    world.run(1.0)
    member(world, "add", "c:1")
    ready(world, "bc")
    assert world["c"].contents("q") == world["a"].contents("q")


def test_votes_of_removed_brokers_do_not_count() -> None:
    """Of a b c d e, three are removed: a and b are all there is, and one of them alone is no majority."""
    world = cluster("abcde", "abcde", safety="quorum")
    for name in "cde":
        assert member(world, "remove", f"{name}:1")["ok"]
    world["a"].kill()
    world.run(0.1)
    assert "1 brokers heard, 2 needed" in world.refused("b")


def test_only_an_active_primary_changes_the_members() -> None:
    world = World()
    world.cluster()
    assert "b is a backup (ready); the primary is a:1" in member(world, "add", "d:1", of="b")["error"]
    assert "found 'rename', expected list, add or remove" in member(world, "rename")["error"]
    assert "found '', expected HOST:PORT" in member(world, "add")["error"]


def test_a_second_change_waits_until_the_first_is_safe() -> None:
    world = cluster("abcd", "abc")
    world.pause("b")
    replies: list[dict[str, Any]] = []
    world["a"].requests.request("ha.member", {"action": "add", "address": "d:1"}, replies.append, "")
    assert "not safe yet" in member(world, "remove", "c:1")["error"]
    assert replies == []
    world.resume("b")
    world.until(lambda: bool(replies))
    assert replies[0]["ok"]
    assert member(world, "remove", "c:1")["ok"]


def test_the_administrator_who_asked_for_a_change_hears_of_the_end_of_the_primary() -> None:
    world = cluster("abcd", "abc", registry=True)
    world.registry_lost = {"a"}
    replies: list[dict[str, Any]] = []
    world["a"].requests.request("ha.member", {"action": "add", "address": "d:1"}, replies.append, "")
    world.run(3.0)
    assert replies == []
    world.cut("a", "b", "c")
    world.run(2.0)
    world.promote("b")
    world.heal()
    world.until(lambda: bool(replies))
    assert "no longer primary" in replies[0]["error"]
    assert brokers(world, of="b") == "abc"


def test_the_list_survives_a_restart_of_everybody() -> None:
    world = cluster("abcd", "abc")
    member(world, "add", "d:1")
    world["d"].boot()
    ready(world, "bcd")
    for name in "abcd":
        world[name].kill()
    for name in "abcd":
        world[name].boot()
    world.promote("b")
    ready(world, "acd", primary="b")
    assert brokers(world, of="c") == "abcd"


def test_a_broker_that_was_away_while_all_others_were_replaced_finds_the_new_ones() -> None:
    """It knows only a, which is no member any more, and a knows who came after it."""
    world = cluster("abc", "ab")
    member(world, "remove", "b:1")
    world.run(0.1)
    assert world["b"].node.local.cluster.others() == ["a:1"]
    world["b"].kill()
    world["c"].settings = replace(world["c"].settings, brokers=("a:1", "c:1"))
    member(world, "add", "c:1")
    world["c"].boot()
    ready(world, "c")
    world["a"].kill()
    world.promote("c")
    world["a"].boot()
    ready(world, "a", primary="c")
    member(world, "remove", "a:1", of="c")
    world.run(0.1)
    member(world, "add", "b:1", of="c")
    world["b"].boot()
    ready(world, "b", primary="c")


def test_a_candidate_also_asks_those_that_came_after_its_list_was_made() -> None:
    """b was cut off when d came; then all others restart, so b has the best copy, but d must be asked first."""
    world = cluster("abcd", "abc")
    filled(world)
    world.cut("b", "a", "c", "d")
    world.until(lambda: "id-b" not in world["a"].disk.in_sync, 10.0)
    member(world, "add", "d:1")
    world["d"].boot()
    ready(world, "cd")
    for name in "acd":
        world[name].kill()
    for name in "acd":
        world[name].boot()
    world.heal()
    world.pause("d")
    assert "d may hold more but does not answer" in world.refused("b")
    world.resume("d")
    world.promote("b")
    assert world["b"].contents("q") == [b"m%d" % number for number in range(20)]
    ready(world, "acd", primary="b")


# ---- one rule for the start and for changes


@pytest.mark.parametrize("mode", ["quorum", "manager", "availability"])
@pytest.mark.parametrize("size", range(2, 6))
def test_with_what_a_removal_leaves_a_broker_starts(mode: str, size: int) -> None:
    names = "abcde"[:size]
    try:
        left = changed(in_sync(names), safety(mode, names), "remove", "b:1", "a:1")
    except LinkError as error:
        assert str(error).endswith("found quorum with 1 broker, wanted 2 or more; add another one first")
        with pytest.raises(ConfigError, match="found quorum with 1 broker, wanted 2 or more"):
            NodeSettings("a", brokers=("a:1",), safety=mode)
        assert (mode, size) == ("quorum", 2)
    else:
        assert NodeSettings("a", brokers=left, safety=mode).brokers == left
        options = HaSettings(ha_safety=mode, ha_brokers_url=tuple(Address("h", port) for port in range(1, size)))
        assert len(options.ha_brokers_url) == len(left)


def test_one_address_twice_makes_no_quorum() -> None:
    with pytest.raises(ConfigError, match="found quorum with 1 broker"):
        HaSettings(ha_safety="quorum", ha_brokers_url=(Address("h", 1), Address("h", 1)))


def test_two_under_quorum_are_said_to_be_few() -> None:
    assert fragile("quorum", ("a:1", "b:1")).startswith("quorum with 2 brokers, wanted 3 or more: nothing is confirmed")
    assert fragile("quorum", "abc") == fragile("manager", "ab") == ""
