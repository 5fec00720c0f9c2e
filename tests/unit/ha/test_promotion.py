"""The rules of promotion, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ha.environment import Answer, Outcome
from ha.membership import InSync, Member
from ha.position import make
from ha.promotion import Claim, ClaimRequest, Refuse, Survey, View, decide, decide_claims, grant
from ha.status import State

NAMES = "abc"
MEMBERS = {name: Member(f"id-{name}", name, f"{name}:1") for name in NAMES}
SET = InSync(1, "id-a", 3, tuple(MEMBERS.values()))


def view(name: str, state: State = State.READY, sequence: int = 100, whole: bool = True, in_sync: InSync = SET) -> View:
    return View(
        f"id-{name}", name, f"{name}:1", state, in_sync.epoch, in_sync.leader, make(1, sequence), whole, in_sync
    )


def survey(*views: View, **silent: Outcome) -> Survey:
    answers = {view.address: Answer(Outcome.ANSWERED, view.to_json()) for view in views}
    answers |= {f"{name}:1": Answer(outcome) for name, outcome in silent.items()}
    return Survey.of("id-b", answers)


def verdict(me: View, seen: Survey, safety: str = "manager", force: bool = False) -> Refuse | Claim:
    return decide(me, seen, safety, 2, force)


def refusal(me: View, seen: Survey, safety: str = "manager", force: bool = False) -> str:
    found = verdict(me, seen, safety, force)
    assert isinstance(found, Refuse)
    return found.text


def claim(me: View, seen: Survey, safety: str = "manager", force: bool = False) -> Claim:
    found = verdict(me, seen, safety, force)
    assert isinstance(found, Claim), found
    return found


def test_ready_member_claims_the_next_epoch_without_the_dead_primary() -> None:
    found = claim(view("b"), survey(view("c"), a=Outcome.REFUSED))
    assert found.epoch == 2
    assert found.base == SET
    assert {member.name for member in found.members} == {"b", "c"}


def test_silent_old_primary_is_not_expected_but_a_silent_backup_is() -> None:
    pair = survey(a=Outcome.SILENT, c=Outcome.SILENT)
    assert "no majority" in refusal(view("b"), pair)
    found = claim(view("b"), survey(a=Outcome.SILENT, c=Outcome.SILENT), force=True)
    assert {member.name for member in found.members} == {"b", "c"}


@pytest.mark.parametrize("state", [State.RECOVERING, State.ACTIVE])
def test_a_reachable_primary_refuses_even_by_force(state: State) -> None:
    assert "a is primary" in refusal(view("b"), survey(view("a", state)), force=True)


def test_a_member_that_is_ahead_is_named() -> None:
    text = refusal(view("b"), survey(view("c", sequence=101), a=Outcome.REFUSED))
    assert "c (ready, position 1.101) is ahead of position 1.100" in text


def test_ahead_but_not_in_the_newest_set_does_not_matter() -> None:
    newer = SET.shrink(["id-c"])
    assert claim(view("b", in_sync=newer), survey(view("c", sequence=200), a=Outcome.REFUSED)).base == newer


def test_removed_member_is_refused_when_a_member_is_reachable() -> None:
    newer = SET.shrink(["id-b"])
    assert "c (ready" in refusal(view("b"), survey(view("c", in_sync=newer), a=Outcome.REFUSED))


def test_catching_up_is_refused() -> None:
    me = view("b", State.CATCHUP, whole=False)
    assert "still catching up" in refusal(me, survey(view("c"), a=Outcome.REFUSED))
    assert "may return with more" in refusal(me, survey(a=Outcome.REFUSED, c=Outcome.REFUSED))


def test_best_copy_wins_when_every_member_has_restarted() -> None:
    partial = view("b", State.CATCHUP, whole=False)
    empty_a = replace(view("a", State.JOINING, whole=False), position=0)
    empty_c = replace(view("c", State.JOINING, whole=False), position=0)
    assert isinstance(verdict(partial, survey(empty_a, empty_c)), Claim)
    restarted = replace(view("b", State.JOINING, whole=False), position=0)
    partial_c = view("c", State.CATCHUP, whole=False)
    assert "c (catchup" in refusal(restarted, survey(empty_a, partial_c))


def test_restarted_broker_needs_every_member_answered_or_dead() -> None:
    me = view("b", State.JOINING, whole=False)
    assert isinstance(verdict(me, survey(a=Outcome.REFUSED, c=Outcome.REFUSED)), Claim)
    seen = survey(a=Outcome.SILENT, c=Outcome.REFUSED)
    assert "a may hold more but does not answer" in refusal(me, seen)
    assert isinstance(verdict(me, seen, "availability"), Claim)
    assert isinstance(verdict(me, seen, force=True), Claim)


def test_deposed_primary_that_holds_everything_may_return() -> None:
    assert isinstance(verdict(view("b", State.JOINING), survey(view("c", sequence=90))), Claim)


def test_fresh_cluster_needs_a_majority_accounted_for() -> None:
    me = view("b", State.JOINING, 0, False, InSync())
    found = claim(me, survey(a=Outcome.SILENT, c=Outcome.REFUSED))
    assert (found.epoch, [member.name for member in found.members]) == (1, ["b"])
    alone = survey(a=Outcome.SILENT, c=Outcome.SILENT)
    assert "a:1, c:1 may hold more" in refusal(me, alone)
    assert isinstance(verdict(me, alone, "availability"), Claim)
    assert isinstance(verdict(me, alone, force=True), Claim)


def test_granted_claim_of_a_silent_broker_counts() -> None:
    fresh = replace(view("b", State.JOINING, 0, False, InSync()), epoch=1, leader="id-a")
    assert "has claimed epoch 1 but does not answer" in refusal(fresh, survey(a=Outcome.SILENT, c=Outcome.REFUSED))
    ready = replace(view("b"), epoch=2, leader="id-c", doubt=True)
    assert "c, which may have gone on without it" in refusal(ready, survey(a=Outcome.REFUSED, c=Outcome.SILENT))
    assert isinstance(verdict(ready, survey(a=Outcome.REFUSED, c=Outcome.REFUSED)), Claim)


def test_quorum_needs_a_majority_heard() -> None:
    assert "1 brokers heard, 2 needed" in refusal(view("b"), survey(a=Outcome.SILENT, c=Outcome.REFUSED), "quorum")


def test_epoch_is_above_everything_seen() -> None:
    assert claim(view("b"), survey(replace(view("c"), epoch=7))).epoch == 8


def test_nonsense_is_silence() -> None:
    seen = Survey.of("id-b", {"a:1": Answer(Outcome.ANSWERED, {"id": 3})})
    assert seen.views == ()
    assert seen.outcomes == {"a:1": Outcome.SILENT}


def request(epoch: int = 2, position: int = 100, base: InSync = SET) -> ClaimRequest:
    return ClaimRequest(epoch, MEMBERS["b"], make(1, position), base)


def test_claim_is_granted_once_for_each_ballot() -> None:
    assert grant(view("c"), request()) == ""
    voted = replace(view("c"), epoch=2, leader="id-b")
    assert grant(voted, request()) == ""
    assert "has seen epoch 2" in grant(replace(voted, leader="id-c"), request())
    assert "has seen epoch 3" in grant(replace(voted, epoch=3), request())


def test_claim_is_denied_by_who_knows_more() -> None:
    assert "knows in-sync set" in grant(view("c", in_sync=SET.shrink(["id-b"])), request())
    assert "is ahead" in grant(view("c", sequence=101), request())
    assert grant(view("c", sequence=101, whole=False), request()) == ""


def test_one_denial_is_enough() -> None:
    found = Claim(2, SET, ())
    yes = Answer(Outcome.ANSWERED, {"granted": True, "id": "id-c"})
    no = Answer(Outcome.ANSWERED, {"granted": False, "reason": "why not"})
    assert decide_claims(found, {"a:1": Answer(Outcome.SILENT), "c:1": yes}, "id-b", "manager", 2) == ""
    assert decide_claims(found, {"a:1": no, "c:1": yes}, "id-b", "manager", 2) == "why not"
    assert decide_claims(found, {"a:1": Answer(Outcome.SILENT), "c:1": yes}, "id-b", "quorum", 2) == ""
    assert "1 brokers, 2 needed" in decide_claims(found, {"c:1": Answer(Outcome.SILENT)}, "id-b", "quorum", 2)
