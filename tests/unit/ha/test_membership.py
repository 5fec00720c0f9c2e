"""Members, in-sync sets and what is on disk: each rule by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ha.model.membership import HaState, InSync, Member
from qpidd_py.errors import InvariantError, LinkError

A = Member("id-a", "a", "a:1", "life-1")
B = Member("id-b", "b", "b:1", "life-2")
C = Member("id-c", "c", "c:1", "life-3")
SET = InSync(3, "id-a", 7, (A, B, C), ("a:1", "b:1", "c:1"))


# ---- Member ------------------------------------------------------------------------------------------------------


def test_a_member_needs_an_id_only() -> None:
    assert (A.name, Member("x").name, Member("x").address, Member("x").instance) == ("a", "", "", "")


@pytest.mark.parametrize(
    "other", [Member("id-a"), Member("id-a", "z"), Member("id-a", "", "z:1"), Member("id-a", "", "", "z")]
)
def test_the_id_alone_says_whether_members_are_equal(other: Member) -> None:
    full = Member("id-a", "a", "a:1", "1")
    assert full == other and hash(full) == hash(other) and not full < other and not other < full


def test_members_are_ordered_by_id() -> None:
    assert sorted([Member("b", "1"), Member("a", "2")]) == [Member("a"), Member("b")]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("x", "1"), ("x", "1"), True),
        (("x", "1"), ("x", "2"), False),
        (("x", ""), ("x", "2"), True),
        (("x", "1"), ("x", ""), True),
        (("x", ""), ("x", ""), True),
        (("x", "1"), ("y", "1"), False),
        (("x", ""), ("y", ""), False),
        (("x", "1"), ("y", "2"), False),
    ],
)
def test_one_life_has_one_id_and_one_instance_where_both_are_known(
    one: tuple[str, str], other: tuple[str, str], same: bool
) -> None:
    members = [Member(id, instance=instance) for id, instance in (one, other)]
    assert members[0].same_life(members[1]) is same


@pytest.mark.parametrize("member", [A, Member("id-a", "a", "a:1")])
def test_a_member_survives_the_wire(member: Member) -> None:
    value = member.to_json()
    assert ("instance" in value) == bool(member.instance)
    found = Member.from_json(value)
    assert (found.id, found.name, found.address, found.instance) == ("id-a", "a", "a:1", member.instance)


def test_what_a_member_does_not_say_is_empty() -> None:
    found = Member.from_json({"id": "x"})
    assert (found.name, found.address, found.instance) == ("", "", "")


@pytest.mark.parametrize("value", [None, [], "id", {}, {"id": 3}, {"id": None}, {"id": ""}, {"name": "a"}, ["id"]])
def test_what_is_not_a_member_is_refused(value: Any) -> None:
    with pytest.raises(LinkError, match="not a member"):
        Member.from_json(value)


@pytest.mark.parametrize(
    ("member", "shown"),
    [
        (Member("0123456789", "a", "a:1"), "a"),
        (Member("0123456789", "", "a:1"), "a:1"),
        (Member("0123456789", "a"), "a"),
        (Member("0123456789"), "01234567"),
    ],
)
def test_people_see_the_name_else_the_address_else_the_beginning_of_the_id(member: Member, shown: str) -> None:
    assert str(member) == shown


# ---- InSync ------------------------------------------------------------------------------------------------------


def test_the_first_set_of_all_is_the_smallest() -> None:
    assert InSync() == InSync(0, "", 0, (), ()) and InSync().key == (0, "", 0)


def test_a_member_is_found_by_its_id() -> None:
    assert SET.member("id-b") is B and SET.member("id-x") is None
    assert "id-b" in SET and "id-x" not in SET


def test_a_set_lists_a_life_not_an_id() -> None:
    assert SET.lists(B) and SET.lists(Member("id-b"))
    assert not SET.lists(Member("id-b", instance="life-9")) and not SET.lists(Member("id-x"))


def test_who_is_added_is_in_the_next_version_once() -> None:
    again = Member("id-b", "b", "b:2", "life-9")
    grown = SET.grow(again)
    assert grown.key == (3, "id-a", 8) and grown.brokers == SET.brokers
    assert [str(member.instance) for member in grown.members] == ["life-1", "life-9", "life-3"]
    assert SET.shrink(["id-b"]).grow(again).members == (A, again, C)


def test_who_is_removed_is_not_in_the_next_version() -> None:
    smaller = SET.shrink(["id-b", "id-x"])
    assert smaller.key == (3, "id-a", 8) and smaller.members == (A, C) and smaller.brokers == SET.brokers


def test_the_first_set_of_a_new_primary_keeps_the_brokers_and_counts_on() -> None:
    first = SET.succeed(4, "id-c", [C, B, C])
    assert first == InSync(4, "id-c", 8, (B, C), SET.brokers, unsure=4)


def test_what_is_not_sure_stays_so_until_the_next_primary_is_not_sure_either() -> None:
    first = SET.succeed(4, "id-c", [C])
    assert InSync().succeed(1, "id-a", [A]).unsure == SET.succeed(4, "id-c", [C], complete=True).unsure == 0
    assert first.succeed(5, "id-a", [A], complete=True).unsure == 4
    assert first.grow(A).shrink(["id-a"]).change_brokers(("a:1",)).unsure == 4
    assert first.succeed(6, "id-a", [A]).unsure == 6
    assert InSync.from_json(first.to_json()) == first and "unsure" not in SET.to_json()
    with pytest.raises(LinkError, match="unsure"):
        InSync.from_json({**SET.to_json(), "unsure": 1 << 16})


def test_a_new_primary_is_on_its_own_list_and_nobody_else_enters() -> None:
    """It was removed by a set that was never in force.  Who has no address is on no list."""
    d, nowhere = Member("id-d", "d", "d:1"), Member("id-e", "e")
    removed = replace(SET, brokers=("a:1",))
    assert removed.succeed(4, "id-c", [C, d]).brokers == ("a:1", C.address)
    assert removed.succeed(4, "id-a", [A, C, d]).brokers == ("a:1",)
    assert removed.succeed(4, "id-e", [nowhere, d]).brokers == ("a:1",)
    assert replace(SET, brokers=()).succeed(4, "id-c", [C]).brokers == ()


@pytest.mark.parametrize("epoch", [2, 3])
def test_the_first_set_of_a_new_primary_needs_a_higher_epoch(epoch: int) -> None:
    with pytest.raises(InvariantError, match=f"3 to {epoch}"):
        SET.succeed(epoch, "id-c", [C])


def test_a_broker_that_leaves_the_list_leaves_the_set() -> None:
    changed = SET.change_brokers(("a:1", "c:1"), "b:1")
    assert changed == InSync(3, "id-a", 8, (A, C), ("a:1", "c:1"))


def test_a_broker_that_enters_the_list_moves_no_other() -> None:
    """Not even a member whose address is not known."""
    unknown = SET.grow(Member("id-d"))
    changed = unknown.change_brokers(("a:1", "b:1", "c:1", "e:1"))
    assert changed.ids == {"id-a", "id-b", "id-c", "id-d"}
    assert changed.brokers == ("a:1", "b:1", "c:1", "e:1") and changed.version == unknown.version + 1


def test_a_set_survives_the_wire() -> None:
    found = InSync.from_json(SET.to_json())
    assert found == SET and [member.instance for member in found.members] == ["life-1", "life-2", "life-3"]
    assert InSync.from_json(InSync().to_json()) == InSync()


@pytest.mark.parametrize("missing", ["leader", "brokers"])
def test_what_a_set_does_not_say_is_empty(missing: str) -> None:
    value = SET.to_json()
    del value[missing]
    found = InSync.from_json(value)
    assert not getattr(found, missing) and found.members == SET.members


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": None},
        {"epoch": "3"},
        {"version": None},
        {"version": "7"},
        {"members": None},
        {"members": {}},
        {"members": "abc"},
        {"members": [{"id": ""}]},
        {"brokers": "a:1"},
        {"brokers": {"a:1": 1}},
        {"brokers": ["a:1", 2]},
        {"brokers": [2]},
    ],
)
def test_what_is_not_a_set_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(LinkError, match="not a"):
        InSync.from_json({**SET.to_json(), **changes})


@pytest.mark.parametrize("value", [None, [], "set", 3])
def test_what_is_no_mapping_is_no_set(value: Any) -> None:
    with pytest.raises(LinkError, match="not an in-sync set"):
        InSync.from_json(value)


# ---- HaState -----------------------------------------------------------------------------------------------------


def test_a_new_broker_has_promised_nothing() -> None:
    assert HaState("id-a") == HaState("id-a", 0, "", InSync())


def test_a_state_survives_the_disk() -> None:
    state = HaState("id-a", 3, "id-b", SET)
    assert HaState.from_json(state.to_json()) == state


STATE = HaState("id-a", 3, "id-b", SET)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"epoch": 4, "leader": "id-a"},
        {"leader": "id-c"},
        {"in_sync": SET.shrink(["id-c"])},
        {"epoch": 4, "in_sync": SET.shrink(["id-c"])},
    ],
)
def test_ballot_and_set_may_stay_or_grow(changes: dict[str, Any]) -> None:
    new = STATE.advance(**changes)
    assert all(getattr(new, name) == value for name, value in changes.items())


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 2},
        {"epoch": 2, "leader": "id-z"},
        {"leader": "id-a"},
        {"in_sync": InSync(3, "id-a", 6)},
        {"in_sync": InSync(2, "id-z", 9)},
        {"epoch": 4, "in_sync": InSync(3, "id-a", 6)},
        {"epoch": 2, "in_sync": SET.shrink(["id-c"])},
    ],
)
def test_neither_ballot_nor_set_may_go_back(changes: dict[str, Any]) -> None:
    with pytest.raises(InvariantError, match="would go back"):
        STATE.advance(**changes)
