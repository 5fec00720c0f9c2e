"""The rules of promotion at their edges: what a small mistake in `promotion.py` would change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ha.model.environment import Answer, Exchanged, Outcome
from ha.model.membership import HaState, InSync, Member
from ha.model.position import LAST_EPOCH, make
from ha.model.safety import Safety
from ha.model.status import State
from ha.model.view import Survey, View
from ha.promotion.case import ManagerRecord
from ha.promotion.claims import Claim
from ha.promotion.promotion import Refuse, decide

A, B, C, D = (Member(f"id-{name}", name, f"{name}:1") for name in "abcd")
BROKERS = ("a:1", "b:1", "c:1")
SET = InSync(1, "id-a", 3, (A, B, C))
PAIR = InSync(1, "id-a", 3, (A, B))
REFUSED, SILENT = Outcome.REFUSED, Outcome.SILENT


def view(member: Member = B, sequence: int = 100, in_sync: InSync = SET, **fields: Any) -> View:
    values: dict[str, Any] = {"id": member.id, "name": member.name, "address": member.address}
    values |= {"state": State.READY, "epoch": in_sync.epoch, "leader": in_sync.leader, "whole": True}
    values |= {"position": make(1, sequence), "in_sync": in_sync, "instance": member.instance}
    values |= {"led": ((member.id, in_sync.epoch),)}
    return View(**{**values, **fields})


def broken(member: Member = B, **fields: Any) -> View:
    """One that was restarted."""
    return view(member, **{"state": State.JOINING, "whole": False, **fields})


def survey(*views: View, own: str = "id-b", **outcomes: Outcome) -> Survey:
    answers = {each.address: Answer(Outcome.ANSWERED, each.to_json()) for each in views}
    answers |= {f"{name}:1": Answer(outcome) for name, outcome in outcomes.items()}
    return Survey.of(own, answers)


def verdict(me: View, seen: Survey, mode: str = "manager", brokers: tuple[str, ...] = BROKERS, **how: Any) -> Any:
    return decide(me, seen, Safety(mode, brokers, 2.0), **how)


def refusal(me: View, seen: Survey, *rest: Any, **how: Any) -> str:
    found = verdict(me, seen, *rest, **how)
    assert isinstance(found, Refuse), found
    return found.text.partition(" cannot be promoted: ")[2]


def claim(me: View, seen: Survey, *rest: Any, **how: Any) -> Claim:
    found = verdict(me, seen, *rest, **how)
    assert isinstance(found, Claim), found
    return found


# ---- what the registry says --------------------------------------------------------------------------------------


def state(name: str, in_sync: InSync = SET, epoch: int = 1, leader: str = "id-a") -> HaState:
    return HaState(f"id-{name}", epoch, leader, in_sync)


def test_nothing_is_on_record_without_a_registry() -> None:
    assert not ManagerRecord().registry and ManagerRecord().newest == InSync() and not ManagerRecord().covers(InSync())


def test_what_was_read_is_a_registry_with_what_the_manager_knows_too() -> None:
    record = ManagerRecord.read(Exchanged((state("a", PAIR),), gone=frozenset({"id-c"})), SET.shrink(["id-c"]))
    assert record.registry and record.gone == {"id-c"} and record.newest == SET.shrink(["id-c"])
    assert ManagerRecord.read(Exchanged()).known == InSync()


def test_the_newest_set_is_the_one_with_the_highest_key() -> None:
    """Not the one with most members."""
    smaller = SET.shrink(["id-c"])
    assert ManagerRecord((state("a", smaller), state("b", SET))).newest == smaller


def test_the_registry_covers_what_it_knows_itself() -> None:
    newer = SET.shrink(["id-c"])
    assert ManagerRecord((state("a"),), registry=True).covers(SET)
    assert ManagerRecord((state("a", newer), state("b")), registry=True).covers(SET)
    assert not ManagerRecord((state("a"),), registry=True).covers(newer)
    assert not ManagerRecord((state("a"),)).covers(SET)
    assert ManagerRecord(registry=True).covers(InSync()) and not ManagerRecord(registry=True).covers(SET)
    assert not ManagerRecord(known=newer, registry=True).covers(newer)


UNRECORDED = InSync(2, "id-b", 4, (A, B))
"""The first set of `b`, which it has stored and not recorded: all lost power then."""


def test_a_set_that_its_leader_has_not_recorded_yet_is_certain_if_that_leader_is_heard() -> None:
    claimed = (state("a"), state("b", SET, 2, "id-b"))
    record, leader = ManagerRecord(claimed, registry=True), view(in_sync=UNRECORDED)
    assert record.covers(UNRECORDED, (view(C), leader))
    assert not record.covers(UNRECORDED) and not record.covers(UNRECORDED, (view(A, in_sync=UNRECORDED),))
    assert not record.covers(UNRECORDED, (broken(in_sync=UNRECORDED),)), "it does not know what it may have forgotten"
    assert not record.covers(UNRECORDED, (view(in_sync=SET),)), "another has told of it"
    assert not ManagerRecord(claimed).covers(UNRECORDED, (leader,)), "there is no registry"
    later = ManagerRecord((*claimed, state("c", SET, 3, "id-c")), registry=True)
    assert not later.covers(UNRECORDED, (leader,)), "the leader of a later epoch may have made a newer one"
    lost = ManagerRecord((state("a"),), registry=True)
    assert not lost.covers(UNRECORDED, (leader,)), "the registry lacks its claim, so it may lack others"


def test_such_a_leader_does_not_wait_for_a_member_that_does_not_answer() -> None:
    record = ManagerRecord((state("a"), state("b", SET, 2, "id-b")), registry=True)
    me = view(in_sync=UNRECORDED, state=State.JOINING, doubt=True, stood=True)
    assert claim(me, survey(view(C), a=SILENT), record=record).whole
    assert "does not answer" in refusal(me, survey(view(C), a=SILENT), record=ManagerRecord(registry=True))


def settled(outcomes: dict[str, Outcome], gone: set[str], *sets: InSync) -> dict[str, Outcome]:
    record = ManagerRecord(tuple(state("a", each) for each in sets), gone=frozenset(gone))
    return dict(record.settle(Survey((), outcomes), SET).outcomes)


def test_a_silent_broker_whose_node_was_fenced_is_dead() -> None:
    found = settled({"a:1": SILENT, "c:1": SILENT}, {"id-a"})
    assert found == {"a:1": REFUSED, "c:1": SILENT}


@pytest.mark.parametrize("outcome", [Outcome.ANSWERED, REFUSED])
def test_one_that_was_fenced_and_is_heard_again_lives(outcome: Outcome) -> None:
    assert settled({"a:1": outcome}, {"id-a"}) == {"a:1": outcome}


def test_an_address_that_a_living_broker_has_had_stays_silent() -> None:
    other = InSync(1, "id-a", 1, (Member("id-x", "x", "a:1"),))
    assert settled({"a:1": SILENT}, {"id-a"}, other) == {"a:1": SILENT}


# ---- fresh, or not -----------------------------------------------------------------------------------------------

NEW: dict[str, Any] = {"in_sync": InSync(), "epoch": 0, "leader": "", "state": State.JOINING, "whole": False}


def test_a_set_that_the_manager_knows_is_no_fresh_cluster() -> None:
    text = refusal(view(B, **NEW), survey(view(A, **NEW), c=SILENT), record=ManagerRecord(known=SET))
    assert text == "it is joining an active cluster, and c may hold more but does not answer"


def test_an_epoch_that_was_claimed_is_no_fresh_cluster() -> None:
    text = refusal(view(B, **{**NEW, "epoch": 1}), survey(view(C, **NEW), a=SILENT))
    assert text == "it is joining an active cluster, and broker  has claimed epoch 1 but does not answer"


def test_a_fresh_cluster_is_claimed_when_everybody_is_heard_or_down() -> None:
    seen = survey(view(A, **NEW), c=REFUSED)
    assert claim(view(B, **NEW), seen) == Claim(1, InSync(), (B,), False, {})
    assert "it is new, and c:1 does not answer" in refusal(view(B, **NEW), survey(view(A, **NEW), c=SILENT))
    assert claim(view(B, **NEW), survey(view(A, **NEW), c=SILENT), "availability").epoch == 1
    assert claim(view(B, **NEW), survey(view(A, **NEW), c=SILENT), "quorum").epoch == 1
    assert claim(view(B, **NEW), survey(view(A, **NEW), c=SILENT), record=ManagerRecord(registry=True)).epoch == 1


def test_a_fresh_pair_of_which_one_is_silent_is_not_claimed() -> None:
    text = refusal(view(B, **NEW), survey(a=SILENT), "quorum", ("b:1",))
    assert text == "a:1 may hold more but does not answer, and the others are no majority"


# ---- epochs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "heard", "recorded", "known", "expected"),
    [(1, 1, 1, 1, 2), (4, 1, 1, 1, 5), (1, 4, 1, 1, 5), (1, 1, 4, 1, 5), (1, 1, 1, 4, 5)],
)
def test_a_claim_is_above_all_epochs_that_are_known(
    mine: int, heard: int, recorded: int, known: int, expected: int
) -> None:
    record = ManagerRecord((state("a", SET, recorded),), InSync(known, "id-a", 3, SET.members))
    me, other = view(B, epoch=mine), view(C, epoch=heard)
    assert claim(me, survey(other, a=REFUSED), record=record).epoch == expected


def test_the_last_epoch_may_be_claimed_and_none_after_it() -> None:
    seen = survey(view(C), a=REFUSED)
    assert claim(view(epoch=LAST_EPOCH - 1), seen).epoch == LAST_EPOCH
    assert refusal(view(epoch=LAST_EPOCH), seen) == f"the last epoch, {LAST_EPOCH}, is used up"
    assert "is primary" in refusal(view(epoch=LAST_EPOCH), survey(view(A, state=State.ACTIVE), view(C)))


def test_only_what_the_whole_hold_is_counted_on() -> None:
    found = claim(view(), survey(view(C, 90, writer="id-a"), broken(A, position=make(1, 80))))
    assert found.positions == {"id-c": (make(1, 90), "id-a")} and found.whole and found.base == SET


# ---- R1, R2, and the list ----------------------------------------------------------------------------------------


def test_a_reachable_primary_is_named_however_the_order() -> None:
    assert refusal(view(), survey(view(C), view(A, state=State.ACTIVE)), force=True) == "a is primary (active)"
    cut_off = view(A, state=State.ACTIVE, isolated=True)
    assert claim(view(), survey(view(C), cut_off), "quorum").epoch == 2


def test_a_living_twin_is_named_and_one_that_is_primary_even_more() -> None:
    twin = view(Member("id-b", "b", "x:1", "2"))
    seen = Survey((view(A), view(C)), {}, {"a:1": "id-a", "c:1": "id-c"}, (twin,))
    assert refusal(view(), seen, force=True).startswith("b at x:1 is running and has the same identity")
    leading = Survey((view(A), view(C)), {}, seen.ids, (view(Member("id-b", "b", "x:1", "2"), state=State.ACTIVE),))
    assert refusal(view(), leading) == "b is primary (active)"


def test_a_broker_that_is_on_no_list_is_refused() -> None:
    stranger, seen = view(Member("id-b", "b", "x:1")), survey(view(A), view(C))
    assert refusal(stranger, seen, force=True) == "it is x:1, not in ha-brokers-url (a:1, b:1, c:1)"
    changed = InSync(1, "id-a", 4, (A, B, C), ("a:1", "c:1"))
    text = refusal(view(), survey(view(A, in_sync=changed), view(C)))
    assert text == "it is no longer a member of the cluster (a:1, c:1)"
    assert claim(view(address=""), seen).epoch == 2, "its address is not known"
    assert claim(stranger, seen, brokers=()).epoch == 2, "there is no list"


def test_quorum_needs_a_majority_of_the_list_our_own_address_included() -> None:
    assert claim(view(), survey(view(C), a=REFUSED), "quorum").epoch == 2
    assert refusal(view(), survey(a=REFUSED, c=REFUSED), "quorum", force=True) == "1 brokers heard, 2 needed"
    nameless = view(address="")
    assert refusal(nameless, survey(view(C), a=REFUSED), "quorum") == "1 brokers heard, 2 needed"
    assert claim(nameless, survey(view(C), view(A)), "quorum").epoch == 2
    stranger = view(D)
    assert refusal(view(), survey(stranger, a=REFUSED, c=REFUSED), "quorum") == "1 brokers heard, 2 needed"


# ---- R2: cut off -------------------------------------------------------------------------------------------------

FIVE = tuple(Member(f"id-{name}", name, f"{name}:1") for name in "abcde")
FIVE_SET = InSync(1, "id-a", 3, FIVE)
FIVE_BROKERS = tuple(member.address for member in FIVE)


@pytest.mark.parametrize(("silent", "refused"), [("a", False), ("ac", False), ("acd", True), ("acde", True)])
def test_the_silent_must_not_be_so_many_that_the_others_are_no_majority(silent: str, refused: bool) -> None:
    outcomes: Any = {name: SILENT if name in silent else REFUSED for name in "acde"}
    me, seen = view(B, in_sync=FIVE_SET), survey(**outcomes)
    if refused:
        text = refusal(me, seen, "manager", FIVE_BROKERS)
        names = ", ".join(f"{name}:1" for name in silent)
        assert text == f"{names} may hold more but does not answer, and the others are no majority"
    else:
        assert claim(me, seen, "manager", FIVE_BROKERS).epoch == 2
    assert claim(me, seen, "availability", FIVE_BROKERS).epoch == 2
    assert claim(me, seen, "manager", FIVE_BROKERS, force=True).epoch == 2


def forgetful(member: Member) -> View:
    """A new disk at this member's address."""
    return replace(view(member, **NEW), id=f"{member.id}-2", lost=True)


@pytest.mark.parametrize("silent", ["", "a", "ac"])
@pytest.mark.parametrize("safety", ["manager", "quorum", "availability"])
def test_a_broker_that_has_lost_what_it_knew_counts_as_silent(silent: str, safety: str) -> None:
    outcomes: Any = {name: SILENT if name in silent else REFUSED for name in "ac"}
    me, lost = view(B, in_sync=FIVE_SET), forgetful(FIVE[4])
    seen = survey(lost, view(FIVE[3], in_sync=FIVE_SET), **outcomes)
    if silent == "ac" and safety != "availability":
        text = refusal(me, seen, safety, FIVE_BROKERS)
        names = "a:1, c:1 may hold more but does not answer and e:1 has lost what it knew"
        assert text == f"{names}, and the others are no majority"
    else:
        assert claim(me, seen, safety, FIVE_BROKERS).lost == {"id-e-2"}


def test_a_new_broker_that_hears_of_a_lost_one_does_not_take_its_cluster_for_new() -> None:
    text = refusal(view(B, **NEW), survey(view(A, **NEW), forgetful(Member("id-c", "c", "c:1"))))
    assert text.startswith("it is new, and c:1 has lost what it knew: it may hold more")
    alone = claim(view(B, **NEW), survey(view(A, **NEW), view(Member("id-c", "c", "c:1"), **NEW)))
    assert not alone.lost


def test_of_three_one_that_is_alone_is_refused_and_of_two_it_goes_on() -> None:
    assert "are no majority" in refusal(view(), survey(a=SILENT, c=SILENT))
    assert claim(view(in_sync=PAIR), survey(a=SILENT), brokers=("a:1", "b:1")).epoch == 2


def test_of_four_two_are_no_majority() -> None:
    members = (*SET.members, D)
    me = view(in_sync=InSync(1, "id-a", 3, members))
    seen = survey(view(C, in_sync=me.in_sync), a=SILENT, d=SILENT)
    assert "are no majority" in refusal(me, seen, "manager", (*BROKERS, "d:1"))
    assert claim(me, survey(view(C, in_sync=me.in_sync), a=SILENT, d=REFUSED), "manager", (*BROKERS, "d:1")).epoch == 2


def test_with_a_registry_a_whole_member_needs_no_majority_and_others_do() -> None:
    record, alone = ManagerRecord((state("b"),), registry=True), survey(a=SILENT, c=SILENT)
    assert claim(view(), alone, record=record).epoch == 2
    assert "are no majority" in refusal(broken(), alone, record=record)


# ---- R4: a whole member ------------------------------------------------------------------------------------------


def test_the_ready_whole_member_that_is_furthest_ahead_is_named() -> None:
    seen = survey(view(A, 150), view(C, 170))
    assert refusal(view(), seen) == "c (ready, position 1.170) is ahead of position 1.100"
    assert refusal(view(), survey(view(A, 170), view(C, 150))).startswith("a (ready, position 1.170) is ahead")
    assert claim(view(), seen, behind=True).epoch == 2
    assert claim(view(), seen, force=True).epoch == 2
    assert claim(view(), survey(view(A, 100), view(C, 90))).epoch == 2


@pytest.mark.parametrize(
    "other",
    [
        view(C, 200, state=State.CATCHUP),
        view(C, 200, whole=False),
        view(Member("id-x", "x", "c:1"), 200),
        view(C, 200, in_sync=SET, state=State.JOINING),
    ],
)
def test_one_that_is_not_ready_or_not_whole_or_no_member_is_not_ahead(other: View) -> None:
    assert claim(view(), survey(other, a=REFUSED)).epoch == 2


def test_who_holds_more_by_position_and_not_by_name_is_ahead() -> None:
    assert "c (ready" in refusal(view(), survey(view(A, 101), view(C, 102)))
    assert "a (ready" in refusal(view(), survey(view(A, 102), view(C, 101)))


# ---- R4: doubt ---------------------------------------------------------------------------------------------------


def test_a_member_in_doubt_needs_the_leader_of_the_newest_set_and_the_one_it_has_granted() -> None:
    me = view(doubt=True)
    text = "it was disconnected, and a, which may have gone on without it, does not answer"
    assert refusal(me, survey(view(C), a=SILENT)) == text
    assert claim(view(), survey(view(C), a=SILENT)).epoch == 2, "no doubt"
    assert claim(me, survey(view(C), a=REFUSED)).epoch == 2
    assert claim(me, survey(view(C), view(A))).epoch == 2
    assert claim(me, survey(view(C), a=SILENT), "availability").epoch == 2
    assert claim(me, survey(view(C), a=SILENT), "quorum").epoch == 2
    assert claim(me, survey(view(C), a=SILENT), force=True).epoch == 2
    assert claim(me, survey(view(C), a=SILENT), record=ManagerRecord((state("b"),), registry=True)).epoch == 2
    granted = view(doubt=True, epoch=2, leader="id-c")
    assert refusal(granted, survey(view(A), c=SILENT)) == text.replace("and a,", "and c,")
    unknown = view(doubt=True, epoch=2, leader="0123456789")
    assert refusal(unknown, survey(view(A), c=SILENT)) == text.replace("and a,", "and broker 01234567,")
    own = view(doubt=True, epoch=2, leader="id-b", led=(("id-b", 2),))
    assert claim(own, survey(view(A), c=SILENT)).epoch == 3, "its own claim"


def test_a_former_primary_in_doubt_is_no_silent_leader_of_its_own() -> None:
    own = InSync(1, "id-b", 3, (A, B, C))
    assert claim(view(in_sync=own, doubt=True), survey(view(A), c=SILENT)).epoch == 2


def test_one_that_stood_still_needs_every_other_member() -> None:
    me = view(doubt=True, stood=True)
    text = "it was disconnected, and c, which may know that it was dropped, does not answer"
    assert refusal(me, survey(view(A), c=SILENT)) == text
    assert claim(me, survey(view(A), c=REFUSED)).epoch == 2
    assert claim(view(doubt=True), survey(view(A), c=SILENT)).epoch == 2, "it ran all the time"
    assert claim(view(stood=True), survey(view(A), c=SILENT)).epoch == 2, "no doubt"


# ---- R5: who is not whole ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("me", "what"),
    [
        (broken(state=State.CATCHUP), "it is still catching up"),
        (broken(), "it is joining an active cluster"),
        (broken(state=State.READY), "it is not in the in-sync set (a, c)"),
        (view(state=State.JOINING), "it is not in the in-sync set (a, c)"),
        (view(), "it is not in the in-sync set (a, c)"),
    ],
)
def test_whole_members_that_answer_are_named_first(me: View, what: str) -> None:
    newer = SET.shrink(["id-b"])
    seen = survey(view(A, 70, in_sync=newer), view(C, 80))
    assert refusal(me, seen) == f"{what}; c (ready, position 1.80) can"
    assert refusal(me, survey(view(A, 80, in_sync=newer), view(C, 70))) == f"{what}; a (ready, position 1.80) can"


JOINING = "it is joining an active cluster"


@pytest.mark.parametrize("mode", ["manager", "quorum", "availability"])
def test_a_silent_member_may_be_whole(mode: str) -> None:
    found = verdict(broken(), survey(broken(C), a=SILENT), mode)
    if mode == "availability":
        assert isinstance(found, Claim)
    else:
        assert found.text.endswith(f"{JOINING}, and a may hold more but does not answer")
    assert isinstance(verdict(broken(), survey(broken(C), a=SILENT), mode, force=True), Claim)


@pytest.mark.parametrize(
    ("mode", "me", "why"),
    [
        ("manager", broken(), ""),
        ("availability", broken(), ""),
        ("manager", broken(state=State.CATCHUP), "it is still catching up, and a may return with more"),
        ("availability", broken(state=State.CATCHUP), "it is still catching up, and a may return with more"),
        ("quorum", broken(state=State.CATCHUP), "it is still catching up, and a may return with more"),
        (
            "quorum",
            broken(),
            f"{JOINING}, and a may hold more: a host that refuses a connection may still run a broker."
            " Start it, or use force",
        ),
    ],
)
def test_a_member_that_is_down_may_return_with_more(mode: str, me: View, why: str) -> None:
    found = verdict(me, survey(broken(C), a=REFUSED), mode)
    assert (found.text if isinstance(found, Refuse) else "").endswith(why) and isinstance(found, Claim) == (not why)


def test_no_broker_is_down_for_one_that_is_catching_up_or_has_a_quorum() -> None:
    seen = survey(broken(A), broken(C))
    assert claim(broken(state=State.CATCHUP), seen).epoch == 2 and claim(broken(), seen, "quorum").epoch == 2


def test_the_silent_broker_with_the_highest_ballot_may_be_primary() -> None:
    """It is no member of the newest set that is known."""
    me, newest = broken(epoch=4, leader="0123456789"), SET.shrink(["id-c"])
    seen = survey(broken(A, in_sync=newest), c=SILENT)
    text = f"{JOINING}, and broker 01234567 has claimed epoch 4 but does not answer"
    assert refusal(me, seen) == text
    assert claim(me, survey(broken(A, in_sync=newest), c=REFUSED)).epoch == 5
    assert claim(me, seen, "availability").epoch == 5
    own = broken(epoch=4, leader="id-b")
    assert claim(own, seen).epoch == 5
    assert claim(broken(epoch=4, leader="id-a"), seen).epoch == 5, "it has answered"


REFUSAL = "may hold more: a host that refuses a connection may still run a broker. Start it, or use force"


def test_with_a_registry_whom_the_set_on_record_replaces_may_hold_more() -> None:
    newest = SET.shrink(["id-c"])
    record = ManagerRecord((replace(state("a", newest), replaced=(C,)),), registry=True)
    silent, refused = survey(broken(A, in_sync=newest), c=SILENT), survey(broken(A, in_sync=newest), c=REFUSED)
    me = broken(epoch=4, leader="id-x")
    assert refusal(me, silent, record=record) == f"{JOINING}, and c may hold more but does not answer"
    assert refusal(me, refused, record=record) == f"{JOINING}, and c {REFUSAL}"
    assert claim(broken(), silent, "availability", record=record).epoch == 2
    assert claim(broken(), refused, "availability", record=record).epoch == 2
    gone = replace(record, gone=frozenset({"id-c"}))
    assert claim(broken(), silent, record=gone).epoch == claim(broken(), refused, record=gone).epoch == 2
    in_force = ManagerRecord((*record.states, state("b", newest)), registry=True)
    assert claim(broken(), silent, record=in_force).holders == newest.members
    assert claim(broken(), silent, record=gone).holders == (*newest.members, C)
    assert claim(broken(in_sync=newest), silent).epoch == 2, "without a registry that is no question"


def test_members_of_the_set_before_one_that_the_registry_lacks_may_hold_more() -> None:
    older, heard = SET.shrink(["id-a"]), InSync(1, "id-a", 9, (A, B))
    entries = replace(state("a", SET), replaced=(A,)), replace(state("c", older), replaced=(B, A))
    record = ManagerRecord(entries, registry=True)
    assert older.key > SET.key, "only the newest entry counts"
    assert record.replaced(heard) == (C,), "neither a nor b: they are members of the set itself"
    assert "c may hold more but" in refusal(broken(), survey(broken(A, in_sync=heard), c=SILENT), record=record)


def test_whom_the_set_replaces_counts_while_it_is_on_one_of_the_lists() -> None:
    def record(*brokers: str) -> ManagerRecord:
        return ManagerRecord(
            (replace(state("a", InSync(1, "id-a", 4, (A, B), brokers)), replaced=(C,)),), registry=True
        )

    def case(brokers: tuple[str, ...], heard: tuple[str, ...]) -> dict[str, Any]:
        others = survey(broken(A, in_sync=InSync(1, "id-a", 3, (A, B), heard)), c=SILENT)
        return {"seen": others, "brokers": ("a:1", "b:1"), "record": record(*brokers)}

    short, long = ("a:1", "b:1"), ("a:1", "b:1", "c:1")
    me = broken(in_sync=InSync(1, "id-a", 2, (A, B), short))
    assert claim(me, **case(short, short)).holders == (A, B)
    assert "c may hold more" in refusal(me, **case(short, long))
    assert "c may hold more" in refusal(me, **case(long, short))


def test_who_is_gone_takes_no_living_address_along() -> None:
    record = ManagerRecord((replace(state("a", SET), replaced=(Member("id-d", "d", "d:1"),)),), registry=True)
    assert replace(record, gone=frozenset({"id-a", "id-d"})).dead(SET) == {"a:1", "d:1"}
    other = InSync(2, "id-b", 9, (B, Member("id-e", "e", "a:1")))
    assert replace(record, gone=frozenset({"id-a", "id-d"})).dead(other) == {"d:1"}


def test_nothing_was_confirmed_where_no_set_is_on_record() -> None:
    me = broken(in_sync=InSync(), epoch=1, leader="id-b")
    seen = survey(broken(A, in_sync=InSync(), epoch=0, leader=""), c=SILENT)
    assert claim(me, seen, record=ManagerRecord((state("b", InSync(), 1, "id-b"),), registry=True)).epoch == 2


def test_of_those_that_are_not_whole_the_best_copy_wins() -> None:
    seen = survey(broken(A, position=make(1, 120)), broken(C, position=make(1, 110)))
    assert refusal(broken(), seen) == f"{JOINING}; a (joining, position 1.120) holds more"
    assert claim(broken(), survey(broken(A), broken(C, position=make(1, 90)))).epoch == 2
    assert claim(broken(), survey(a=REFUSED, c=REFUSED)).epoch == 2
    other = survey(broken(A, position=make(1, 110)), broken(C, position=make(1, 120)))
    assert refusal(broken(), other) == f"{JOINING}; c (joining, position 1.120) holds more"


def test_a_whole_copy_is_better_than_a_longer_one() -> None:
    removed = SET.shrink(["id-c"])
    seen = survey(broken(A, position=make(1, 120), in_sync=removed), view(C, 50, in_sync=removed))
    assert refusal(broken(), seen) == f"{JOINING}; c (ready, position 1.50) holds more"


def test_the_copy_of_a_broker_that_has_left_the_cluster_does_not_count() -> None:
    left = InSync(1, "id-a", 4, (A, B), ("a:1", "b:1"))
    seen = survey(broken(A, in_sync=left), broken(C, position=make(1, 120)))
    assert claim(broken(), seen).epoch == 2
    # Only the registry says so: it was never in force.
    record = ManagerRecord((state("a", left),), registry=True)
    text = refusal(broken(), survey(broken(A), broken(C, position=make(1, 120))), record=record)
    assert text == f"{JOINING}; c (joining, position 1.120) holds more"
    seen = survey(broken(D, position=make(1, 120)), a=REFUSED, c=REFUSED)
    assert "holds more" in refusal(broken(), seen, "manager", ()), "there is no list"


# ---- R5: who is meant by our own id ------------------------------------------------------------------------------


def own(member: Member, me: Member, address: str = "b:1") -> Any:
    """The verdict on a broker that is not whole, where the newest set has `member`, which is not heard."""
    in_sync = InSync(1, "id-b", 3, (member,))
    return verdict(broken(me, in_sync=in_sync, address=address), survey(a=REFUSED, c=REFUSED))


@pytest.mark.parametrize(
    ("member", "me", "is_me"),
    [
        (Member("id-b", "b", "b:1", "1"), Member("id-b", "b", "b:1", "1"), True),
        (Member("id-b", "b", "b:1", "1"), Member("id-b", "b", "b:1", "2"), True),
        (Member("id-b", "b", "x:1", "1"), Member("id-b", "b", "b:1", "1"), True),
        (Member("id-b", "b", "x:1", ""), Member("id-b", "b", "b:1", "1"), True),
        (Member("id-b", "b", "x:1", "1"), Member("id-b", "b", "b:1", "2"), False),
        (Member("id-x", "b", "b:1", "1"), Member("id-b", "b", "b:1", "1"), False),
        (Member("id-x", "b", "x:1", ""), Member("id-b", "b", "b:1", ""), False),
    ],
)
def test_a_member_with_our_id_is_ourselves_in_this_life_or_at_our_address(
    member: Member, me: Member, is_me: bool
) -> None:
    assert isinstance(own(member, me), Claim if is_me else Refuse)


@pytest.mark.parametrize(("address", "is_me"), [("b:1", True), ("a:1", False)])
def test_without_an_address_it_is_ourselves_where_we_have_not_asked(address: str, is_me: bool) -> None:
    member, me = Member("id-b", "b", address, "1"), Member("id-b", "b", "", "2")
    in_sync = InSync(1, "id-b", 3, (member,))
    found = verdict(broken(me, in_sync=in_sync, address=""), survey(broken(C, in_sync=in_sync), a=SILENT))
    assert isinstance(found, Claim if is_me else Refuse)


# ---- who is expected ---------------------------------------------------------------------------------------------


def test_the_whole_and_the_silent_are_expected_and_the_old_primary_only_if_it_answers() -> None:
    assert claim(view(), survey(view(A), view(C))).members == (B, A, C)
    assert claim(view(), survey(view(C), a=SILENT)).members == (B, C)
    assert claim(view(), survey(view(A), c=SILENT)).members == (B, A, C)
    assert claim(view(), survey(view(A), c=REFUSED)).members == (B, A)
    assert claim(view(), survey(broken(A), broken(C))).members == (B,)
    assert claim(view(), survey(a=REFUSED, c=REFUSED)).members == (B,)


def test_who_is_expected_is_named_as_it_names_itself() -> None:
    again = Member("id-c", "new name", "c:1", "7")
    found = claim(view(), survey(view(again), a=REFUSED))
    assert [member.name for member in found.members] == ["b", "new name"]
