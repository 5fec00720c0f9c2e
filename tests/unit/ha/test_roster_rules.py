"""The roster by itself: who counts, from when on and until when.  Its primary, node and registry are doubles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ha.model.difference import Origin
from ha.model.environment import Json
from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync, Member, Membership
from ha.model.position import epoch_of, make
from ha.model.pulse import Pulse
from ha.model.safety import Safety
from ha.primary.changes import Change, Drop
from ha.primary.lag import Lags
from ha.primary.peer import Peer, Phase
from ha.primary.roster import Roster
from ha.promotion.claims import Claim

A, B, C, D = (Member(f"id-{name}", name, f"{name}:1") for name in "abcd")
BROKERS = ("a:1", "b:1", "c:1")
NOW = 7.5
LINK = cast(Any, object())


class Engine:
    """A log of sets."""

    def __init__(self) -> None:
        self.position: int = make(2, 10)
        self.log: list[Membership] = []
        self.flushed = 0

    def log_membership(self, payload: bytes) -> int:
        self.log.append(Membership.decode(payload))
        self.position += 1
        return self.position

    def flush(self) -> None:
        self.flushed = self.position


class Record:
    """Keeps what is wanted until `run`."""

    def __init__(self, node: Node, roster: Roster) -> None:
        self._node = node
        self._roster = roster
        self.wanted: list[Change] = []
        self.under_way: InSync | None = None
        self.stopped = False

    def want(self, change: Change) -> None:
        self.wanted.append(change)

    def run(self) -> bool:
        """The oldest comes into force, if it is still wanted."""
        change = self.wanted.pop(0)
        in_sync = self._roster.next_set(change, self._node.persisted.in_sync)
        if in_sync is not None:
            self._node.persisted = self._node.persisted.advance(in_sync=in_sync)
            self._roster.in_force(change, in_sync)
        return in_sync is not None

    def stop(self) -> None:
        self.stopped = True


class Node:
    """Of broker a, primary of epoch 2."""

    def __init__(self, in_sync: InSync, mode: str) -> None:
        self.persisted = HaState("id-a", 2, "id-a", in_sync)
        self.safety = Safety(mode, BROKERS, 1.0)
        self.id, self.hole, self.spent = "id-a", "", set[str]()
        self.lineage = {1: Origin("id-b"), 2: Origin("id-a")}
        self.engine = Engine()
        self.events: list[tuple[str, Json]] = []
        self.lines: list[str] = []
        self.env = SimpleNamespace(now=lambda: NOW, log=self._log, event=self._event)
        self.cluster = SimpleNamespace(is_broker=lambda address: address in BROKERS)

    def _log(self, level: str, text: str) -> None:
        self.lines.append(text)

    def _event(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))

    may_shrink, needs = LocalMember.may_shrink, LocalMember.needs


class Primary:
    """Notes what it is told, and what counted then."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.calls: list[str] = []

    def update_safe(self) -> None:
        self.calls.append("update_safe")

    def check_active(self) -> None:
        self.calls.append("check_active")

    def listed(self, peer: Peer) -> None:
        self.calls.append(f"listed {peer.member}")

    def kept(self, peer: Peer) -> None:
        self.calls.append(f"kept {peer.member}")

    def dismiss_strangers(self, counting: set[str]) -> None:
        self.calls.append(f"counting {' '.join(sorted(counting))}")


class World:
    """A roster that expects some."""

    def __init__(self, *expected: Member, members: tuple[Member, ...] = (A,), mode: str = "quorum") -> None:
        self.node = Node(InSync(2, "id-a", 3, members), mode)
        self.primary = Primary(self.node)
        self.roster = Roster(cast(Any, SimpleNamespace(local=self._real(), depose=None)), expected)
        self.roster._primary, self.roster._local = cast(Any, self.primary), cast(Any, self.node)
        self.record = Record(self.node, self.roster)
        self.roster.record = cast(Any, self.record)

    def _real(self) -> Any:
        return SimpleNamespace(env=self.node.env)

    def begun(self, **positions: int) -> World:
        """The first set is in force."""
        lineage = self.node.lineage
        writers = {epoch: origin.leader for epoch, origin in lineage.items()}
        said = {f"id-{name}": (at, writers.get(epoch_of(at), "")) for name, at in positions.items()}
        self.roster.begin(Claim(2, InSync(), (), positions=said), make(2, 10))
        self.record.run()
        self.primary.calls.clear()
        return self

    def add(self, member: Member, acked: int = make(2, 9), **fields: Any) -> Peer:
        """It counts."""
        peer = self.peer(member, acked=acked, **fields)
        self.roster.counting.append(peer)
        return peer

    @staticmethod
    def peer(member: Member, phase: Phase = Phase.COMPLETE, link: Any = LINK, **fields: Any) -> Peer:
        return Peer(member, Pulse(NOW, NOW), phase=phase, link=link, **fields)

    @property
    def in_sync(self) -> InSync:
        return self.node.persisted.in_sync

    @property
    def counting(self) -> list[str]:
        return [str(peer.member) for peer in self.roster.counting]


SETTLED = ["update_safe", "check_active"]


# ---- the first set -----------------------------------------------------------------------------------------------


def test_before_the_first_set_is_in_force_nothing_is_confirmed_and_no_broker_has_recovered() -> None:
    world = World(members=(A, B))
    roster = world.roster
    assert (roster.may_confirm, roster.removing, roster.changing, roster.steady) == (False, False, None, 0)
    assert not roster.recovered
    roster.begin(Claim(2, InSync(), (), holders=(A, B)), make(2, 10))
    assert not roster.recovered and not roster.may_confirm
    assert world.roster.record.holders == (A, B)
    world.record.run()
    assert roster.recovered and roster.may_confirm and roster.steady == make(2, 11)
    assert world.node.engine.log == [Membership(InSync(2, "id-a", 3, (A, B)))]
    assert world.node.engine.flushed == make(2, 11)
    assert world.primary.calls == SETTLED


def test_a_set_that_is_enforced_before_the_first_one_confirms_nothing() -> None:
    world = World(members=(A, B))
    world.roster.in_force(Drop(""), world.in_sync)
    assert not world.roster.may_confirm


def test_a_new_primary_below_a_majority_confirms_nothing() -> None:
    assert not World(members=(A,)).begun().roster.may_confirm
    assert World(members=(A,), mode="manager").begun().roster.may_confirm


@pytest.mark.parametrize(
    ("said", "acked"),
    [
        (None, 0),
        (0, 0),
        (make(1, 4), make(1, 4)),
        (make(2, 10), make(2, 10)),
        (make(2, 30), make(2, 10)),
        (make(3, 1), 0),
    ],
)
def test_an_expected_backup_holds_what_it_said_as_far_as_we_hold_it(said: int | None, acked: int) -> None:
    """Not what it has beyond us, and nothing of an epoch that is not in our log."""
    world = World(B, members=(A, B)).begun(**({} if said is None else {"b": said}))
    (peer,) = world.roster.counting
    assert (peer.member, peer.phase, peer.acked, peer.lost_at) == (B, Phase.AWAY, acked, NOW)
    assert (peer.pulse.heard, peer.pulse.spoken) == (NOW, NOW)
    assert not world.roster.recovered


def test_a_backup_that_said_nothing_is_taken_to_hold_nothing_of_an_epoch_that_everybody_knows() -> None:
    """Epoch 0 is in the log of a cluster that was never promoted before."""
    world = World(B, members=(A, B))
    world.node.lineage[0] = Origin("")
    world.begun()
    assert world.roster.counting[0].acked == 0


# ---- places ------------------------------------------------------------------------------------------------------


def test_the_place_of_a_broker_is_the_one_that_is_not_being_removed() -> None:
    world = World().begun()
    world.add(B, removal=make(2, 5))
    world.add(C)
    again = world.add(B)
    assert world.roster.find("id-b") is again and world.roster.find("id-x") is None
    again.removal = make(2, 8)
    assert world.roster.find("id-b") is None


def test_who_comes_back_whole_takes_its_place_and_stays() -> None:
    world = World(members=(A, B, C)).begun()
    old, other = world.add(B, make(2, 7), reported=True, link=None), world.add(C)
    world.roster.remove([old, other])
    new = world.peer(B, Phase.HELLO)
    world.roster.keep_place(new, old)
    assert world.roster.counting == [new, other] and (new.acked, new.reported) == (make(2, 7), True)
    world.record.run()
    assert world.in_sync.members == (A, B) and not new.removal and other.removal


# ---- arrivals ----------------------------------------------------------------------------------------------------


def test_a_complete_backup_is_listed_and_counts_from_then_on() -> None:
    world = World(members=(A,)).begun()
    peer = world.peer(B, target=make(2, 9))
    world.roster.enlist(peer)
    assert (peer.target, peer.whole) == (0, True) and world.counting == []
    (change,) = world.record.wanted
    assert not change.stalls
    assert world.record.run()
    assert world.counting == ["b"] and world.in_sync.key == (2, "id-a", 4) and world.in_sync.members == (A, B)
    assert world.node.engine.log[-1] == Membership(world.in_sync, "id-b")
    assert world.primary.calls == ["listed b", *SETTLED] and world.roster.may_confirm


def test_an_expected_backup_that_is_listed_keeps_its_place_and_is_expected_no_more() -> None:
    world = World(B, C, members=(A, B, C)).begun()
    (peer, _) = world.roster.counting
    peer.link, peer.phase = LINK, Phase.COMPLETE
    world.roster.enlist(peer)
    world.record.run()
    assert world.counting == ["b", "c"] and [*world.roster.expected] == ["id-c"]


def test_an_expected_backup_that_kept_its_place_waits_for_no_set_that_cannot_be_stored() -> None:
    """The disk is full, and a set with another one waits for it, for ever."""
    world = World(B, members=(A, B)).begun()
    (old,) = world.roster.counting
    peer = world.peer(B)
    world.roster.keep_place(peer, old)
    world.record.under_way = world.in_sync.grow(C)
    world.roster.enlist(peer)
    assert world.record.wanted == [] and world.roster.recovered and world.in_sync.members == (A, B)
    assert world.node.engine.log[-1] == Membership(world.in_sync, "id-b")


@pytest.mark.parametrize("case", ["removed by the set under way", "lost its place", "the first set", "nothing"])
def test_another_one_is_listed_in_its_turn(case: str) -> None:
    world = World(B, C, members=(A, B, C))
    if case == "the first set":
        world.roster.begin(Claim(2, InSync(), ()), make(2, 10))
    else:
        world.begun()
    peer = world.peer(B)
    if case != "lost its place":
        world.roster.keep_place(peer, world.roster.counting[0])
    under_way = world.in_sync.shrink({"id-b" if case.startswith("removed") else "id-c"})
    world.record.under_way = None if case == "nothing" else under_way
    before = len(world.record.wanted)
    world.roster.enlist(peer)
    assert len(world.record.wanted) == before + 1 and "id-b" in world.roster.expected


def test_one_that_takes_the_place_of_its_former_life_counts_once() -> None:
    world = World(members=(A, B, C)).begun()
    former, going = world.add(B), world.add(B, removal=make(2, 40))
    other = world.add(C)
    peer = world.peer(B)
    world.roster.enlist(peer)
    world.record.run()
    assert world.roster.counting == [going, other, peer] and former not in world.roster.counting


def test_one_that_was_lost_while_it_was_listed_counts_by_the_link_on_which_it_is_back() -> None:
    """A registry that is slow: the answer comes when the backup has lost its link and has come back with its place."""
    world = World(B, C, members=(A, B, C)).begun()
    old = world.roster.counting[0]
    old.link, old.phase = LINK, Phase.COMPLETE
    world.roster.enlist(old)
    change = world.record.wanted.pop()
    in_sync = world.roster.next_set(change, world.in_sync)
    assert in_sync is not None
    old.link, old.phase = None, Phase.AWAY
    new = world.peer(B, Phase.COPYING)
    world.roster.keep_place(new, old)
    world.roster.in_force(change, in_sync)
    assert world.roster.counting[0] is new and len(world.counting) == 2
    assert world.primary.calls == SETTLED and "id-b" in world.roster.expected
    new.link = None
    world.roster.in_force(change, in_sync)
    assert world.roster.counting[-1] is old and "listed b" in world.primary.calls


@pytest.mark.parametrize(
    "fields",
    [{"link": None}, {"phase": Phase.CLOSING}, {"link": None, "phase": Phase.AWAY}, {"acked": 4, "removal": 5}],
)
def test_one_that_is_gone_or_does_not_know_of_its_removal_is_not_listed(fields: dict[str, Any]) -> None:
    world = World(members=(A,)).begun()
    peer = world.peer(B, **fields)
    world.roster.enlist(peer)
    assert not world.record.run()
    assert world.counting == [] and world.in_sync.members == (A,) and world.primary.calls == []


def test_one_that_has_acknowledged_its_removal_may_be_listed() -> None:
    world = World(members=(A,)).begun()
    peer = world.peer(B, acked=5, removal=5)
    world.roster.enlist(peer)
    assert world.record.run() and peer.removal == 0 and world.roster.find("id-b") is peer


def test_one_that_is_no_broker_of_the_cluster_is_not_listed() -> None:
    world = World(members=(A,)).begun()
    world.roster.enlist(world.peer(D))
    assert not world.record.run()


# ---- losses ------------------------------------------------------------------------------------------------------


def test_the_lost_count_until_the_rest_has_acknowledged_the_removal() -> None:
    world = World(B, members=(A, B, C)).begun(b=make(2, 8))
    b, c = world.roster.counting[0], world.add(C)
    world.roster.remove([b])
    assert world.counting == ["b", "c"] and not b.removal
    world.record.run()
    position = world.node.engine.position
    assert (b.removal, c.removal, b.target) == (position, 0, 0) and world.roster.removing
    assert world.roster.expected == {} and world.primary.calls == SETTLED
    assert world.in_sync.members == (A, C) and world.node.engine.log[-1] == Membership(world.in_sync)
    c.acked = position - 1
    world.roster.release()
    assert world.counting == ["b", "c"] and world.roster.removing
    c.acked = position
    world.roster.release()
    assert world.counting == ["c"] and not world.roster.removing


def test_one_that_is_removed_while_it_is_complete_has_to_acknowledge_that_before_it_is_listed_anew() -> None:
    world = World(members=(A, B, C), mode="manager").begun()
    b, c = world.add(B), world.add(C, phase=Phase.COPYING)
    world.roster.remove([b, c])
    world.record.run()
    assert (b.target, c.target) == (b.removal, 0) and b.removal == c.removal == world.node.engine.position


def test_several_that_are_lost_leave_in_one_step_each_once() -> None:
    world = World(members=(A, B, C), mode="manager").begun()
    b, c = world.add(B), world.add(C)
    world.roster.remove([b])
    world.roster.remove([b, c])
    (change,) = world.record.wanted
    assert change.what == "b is dropped" and change.stalls
    world.record.run()
    assert world.in_sync.members == (A,)
    world.roster.remove([b])
    assert not world.record.run(), "it is not in the set"


def test_a_new_removal_after_one_that_is_in_force_is_a_change_of_its_own() -> None:
    world = World(members=(A, B, C), mode="manager").begun()
    b, c = world.add(B), world.add(C)
    world.roster.remove([b])
    world.record.run()
    first = b.removal
    world.roster.remove([c])
    assert world.record.run() and world.in_sync.members == (A,)
    assert (b.removal, c.removal) == (first, world.node.engine.position)


def test_a_removal_that_has_waited_leaves_a_majority() -> None:
    """Each was allowed when it was lost; the disk took none of the sets meanwhile."""
    world = World(members=(A, B, C)).begun()
    b, c = world.add(B), world.add(C)
    world.roster.remove([b])
    world.roster.remove([c])
    assert world.record.run() and world.in_sync.members == (A, C)
    assert b.removal and not c.removal and "kept c" in world.primary.calls
    world.roster.remove([c])
    assert not world.record.run() and world.in_sync.members == (A, C)


def test_a_removal_that_was_made_is_not_made_again_by_the_next_one() -> None:
    world = World(members=(A, B, C)).begun()
    b, c = world.add(B), world.add(C, make(2, 1))
    world.roster.remove([b])
    world.record.run()
    first = b.removal
    again = world.add(B, phase=Phase.COPYING)
    world.node.persisted = world.node.persisted.advance(in_sync=world.in_sync.grow(B))
    world.roster.remove([again])
    world.record.run()
    assert (b.removal, c.removal) == (first, 0) and again.removal == world.node.engine.position > first


def test_the_last_backup_that_is_removed_is_forgotten_at_once() -> None:
    world = World(members=(A, B), mode="manager").begun()
    world.roster.remove([world.add(B)])
    world.record.run()
    assert world.counting == [] and not world.roster.removing


def test_with_availability_a_loss_is_simply_forgotten() -> None:
    world = World(members=(A, B, C), mode="availability").begun()
    b, c = world.add(B), world.add(C, make(2, 1))
    world.roster.remove([b])
    world.record.run()
    assert world.roster.counting == [c]


def test_the_slowest_of_the_rest_decides_when_a_removal_is_forgotten() -> None:
    world = World(members=(A, B, C, D)).begun()
    b, c, d = world.add(B, removal=make(2, 5)), world.add(C, make(2, 4)), world.add(D, make(2, 6))
    world.roster.release()
    assert world.roster.counting == [b, c, d]
    c.acked = make(2, 5)
    world.roster.release()
    assert world.roster.counting == [c, d]


def test_what_one_that_is_going_has_acknowledged_holds_up_no_other_removal() -> None:
    world = World(members=(A, B, C, D)).begun()
    world.add(B, make(2, 1), removal=make(2, 5))
    d = world.add(D, make(2, 6))
    world.roster.release()
    assert world.roster.counting == [d]


def test_some_are_going_while_one_is() -> None:
    world = World(members=(A, B, C)).begun()
    world.add(B, removal=make(2, 20))
    world.add(C)
    world.roster.release()
    assert world.roster.removing


def test_until_a_removal_is_complete_others_may_rely_on_the_set_before_it() -> None:
    world = World(members=(A, B, C, D)).begun()
    b, c, d = world.add(B), world.add(C), world.add(D)
    before = world.in_sync
    assert world.roster.relied is before
    for peer in (b, d):  # the second while the first still counts
        world.roster.remove([peer])
        world.record.run()
        assert world.roster.removing and world.roster.relied is before
    c.acked = world.node.engine.position
    world.roster.release()
    assert world.roster.relied is world.in_sync and world.in_sync.members == (A, C)


def test_whoever_is_listed_again_is_relied_on_by_the_newest_set() -> None:
    world = World(members=(A, B, C)).begun()
    b = world.add(B)
    world.add(C)
    world.roster.remove([b])
    world.record.run()
    b.acked = b.removal
    world.roster.enlist(b)
    world.record.run()
    assert world.in_sync.members == (A, B, C) and world.roster.relied is world.in_sync


def test_another_list_of_brokers_is_named_at_once() -> None:
    """Majorities of lists that are two steps apart need not meet."""
    world = World(members=(A, B, C)).begun()
    world.add(B), world.add(C)
    world.roster.change_brokers(("a:1", "c:1"), "b:1", lambda: None)
    world.record.run()
    assert world.roster.removing and world.roster.relied is world.in_sync


# ---- the cluster's brokers ---------------------------------------------------------------------------------------


def test_a_broker_that_leaves_the_cluster_leaves_the_set_in_the_same_step() -> None:
    world = World(B, members=(A, B, C)).begun()
    b, c = world.roster.counting[0], world.add(C)
    done: list[str] = []
    world.roster.change_brokers(("a:1", "c:1"), "b:1", lambda: done.append("done"))
    assert world.roster.changing is not None and done == []
    assert world.record.wanted[0].what == "b:1 leaves the cluster" and world.record.wanted[0].stalls
    world.record.run()
    position = world.node.engine.position
    assert world.in_sync == InSync(2, "id-a", 4, (A, C), ("a:1", "c:1"))
    assert (b.removal, c.removal, world.roster.steady) == (position, 0, position)
    assert done == ["done"] and world.roster.changing is None and world.roster.expected == {}
    assert world.primary.calls == ["counting id-b id-c", *SETTLED]


def test_a_broker_that_enters_the_cluster_changes_no_member() -> None:
    world = World(members=(A, B, C)).begun()
    b, c = world.add(B), world.add(C)
    world.roster.change_brokers((*BROKERS, "d:1"), "", lambda: None)
    assert world.record.wanted[0].what == "d:1 enters the cluster"
    world.record.run()
    assert world.in_sync.members == (A, B, C) and (b.removal, c.removal) == (0, 0)
    assert world.roster.steady == world.node.engine.position


def test_strangers_are_dismissed_where_the_list_was_changed_at_run_time_only() -> None:
    world = World(members=(A, B)).begun()
    world.roster.release()
    assert world.primary.calls == []


def test_a_change_of_the_brokers_ends_with_the_role() -> None:
    world = World().begun()
    done: list[str] = []
    world.roster.change_brokers((*BROKERS, "d:1"), "", lambda: done.append("done"))
    world.roster.stop()
    assert world.record.stopped and done == ["done"]
    world.roster.stop()
    assert done == ["done"], "once"


# ---- what others see ---------------------------------------------------------------------------------------------


def test_ready_is_a_linked_complete_member() -> None:
    world = World(members=(A, B, C)).begun()
    ready = world.add(B)
    assert world.roster.ready() == [ready]
    spoiled = [world.peer(C, link=None), world.peer(C, Phase.COPYING), world.peer(D)]
    for peer in spoiled:
        world.roster.counting = [peer]
        assert world.roster.ready() == []


class Behind:
    """As `Lags`."""

    def shown(self, peer: Peer, position: int) -> Json:
        return {"behind": position}


def shown(world: World, *linked: Peer) -> list[Json]:
    return world.roster.shown(linked, cast(Lags, Behind()))


def test_everybody_who_counts_or_is_linked_is_shown_once() -> None:
    world = World(C, members=(A, B, C)).begun()
    linked = world.add(B, 5, received=6)
    stranger, unknown = world.peer(D, received=8), world.peer(Member(""))
    assert shown(world, linked, stranger, unknown) == [
        {**C.to_json(), "state": "away", "acked": 0, "counts": True, "behind": 0, "expected": True},
        {**B.to_json(), "state": "ready", "acked": 6, "counts": True, "behind": 6, "expected": False},
        # Complete, but not in force.
        {**D.to_json(), "state": "catchup", "acked": 8, "counts": False, "behind": 8, "expected": False},
    ]


def test_who_is_on_its_way_is_shown_as_that() -> None:
    world = World().begun()
    (found,) = shown(world, world.peer(B, Phase.COPYING))
    assert found["state"] == "catchup"
    (found,) = shown(world, world.peer(B, Phase.AWAY, None, acked=3, received=4))
    assert (found["state"], found["acked"]) == ("away", 3)
