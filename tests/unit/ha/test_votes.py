"""A vote and a set are on disk before anything depends on them, and a vote is given once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ha.backup.backup import Backup
from ha.model.environment import Answer, Exchanged, Json, Outcome
from ha.model.membership import InSync, Member
from ha.model.position import make
from ha.model.safety import Safety
from ha.model.status import State
from ha.model.view import Survey
from ha.primary.primary import Primary
from ha.promotion.claims import (
    Claim,
    ClaimRequest,
    contradicted,
    decide_claims,
    denial,
    end_of_log,
    fell_silent,
    grant,
    has_the_end,
)
from tests.unit.ha.test_ha_cluster import filled
from tests.unit.ha.world import World


def cluster() -> World:
    world = World("abc", safety="quorum")
    world.cluster()
    return world


def claim_of(world: World, name: str, epoch: int) -> ClaimRequest:
    node = world[name].node
    return ClaimRequest(epoch, node.local.member, make(epoch, 0), node.local.persisted.in_sync)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_claim_is_on_disk_when_it_is_granted(name: str) -> None:
    """Of a primary, which is deposed by it, and of a backup."""
    world = cluster()
    claim = claim_of(world, "c", 2)
    answer = world[name].node.claimed(claim)
    assert answer["granted"]
    assert world[name].disk.ballot == claim.ballot == (2, "id-c")


def test_a_broker_that_was_restarted_knows_its_vote() -> None:
    world = cluster()
    world["b"].node.claimed(claim_of(world, "c", 2))
    world["b"].kill()
    world["b"].boot()
    answer = world["b"].node.claimed(claim_of(world, "a", 2))
    assert not answer["granted"] and "b has seen epoch 2" in answer["reason"]


def test_only_force_is_granted_whatever_is_known_here() -> None:
    """Not a ballot that is ours already: it may only have been heard of."""
    world = cluster()
    view = world["b"].node.view()
    old = replace(claim_of(world, "c", 2), base=InSync())
    assert "knows in-sync set" in grant(view, old)
    assert grant(view, replace(old, force=True)) == ""
    assert "knows in-sync set" in grant(replace(view, epoch=2, leader="id-c"), old)
    assert "has seen epoch" in grant(replace(view, epoch=2, leader="id-d"), replace(old, force=True))


def test_only_a_ready_member_of_the_base_denies_because_it_is_ahead() -> None:
    """A deposed primary holds what was never confirmed; one that was removed does not count."""
    world = cluster()
    view = replace(world["b"].node.view(), position=make(1, 100))
    claim = replace(claim_of(world, "c", 2), position=make(1, 99))
    assert "is ahead" in grant(view, claim)
    assert grant(view, replace(claim, position=make(1, 100))) == ""
    assert grant(view, replace(claim, behind=True)) == ""
    assert grant(replace(view, state=State.JOINING), claim) == ""
    assert grant(view, replace(claim, base=claim.base.shrink({"id-b"}))) == ""
    assert grant(replace(view, whole=False), claim) == ""


def answered(**answer: Any) -> dict[str, Answer]:
    """What b says to a claim of c."""
    error = answer.pop("error", "")
    return {"b:1": Answer(Outcome.ANSWERED, answer, error)}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"granted": False, "reason": "b is ahead"}, "b is ahead"),
        ({"error": "b is starting"}, "b is starting"),
        ({"granted": False, "reason": ""}, "denied"),
    ],
)
def test_what_is_not_granted_is_denied_for_whatever_reason(answer: Json, reason: str) -> None:
    me, safety = Member("id-c", "c", "c:1"), Safety("manager", ("a:1", "b:1", "c:1"), 2.0)
    assert decide_claims(Claim(2, InSync(), (me,)), answered(**answer), me, safety) == reason


def test_without_quorum_no_majority_has_to_grant() -> None:
    me, brokers = Member("id-c", "c", "c:1"), ("a:1", "b:1", "c:1")
    claim = Claim(2, InSync(), (me,))
    assert decide_claims(claim, {}, me, Safety("manager", brokers, 2.0)) == ""
    alone = "epoch 2 granted by 1 brokers, 2 needed"
    assert decide_claims(claim, {}, me, Safety("quorum", brokers, 2.0)) == alone
    assert decide_claims(claim, answered(granted=True, id="id-b"), me, Safety("quorum", brokers, 2.0)) == ""


def test_only_who_has_answered_the_question_has_to_answer_the_claim() -> None:
    asked = {"a:1": Outcome.ANSWERED, "b:1": Outcome.ANSWERED, "d:1": Outcome.SILENT, "e:1": Outcome.ANSWERED}
    survey = Survey((), asked)
    silent, refused = Answer(Outcome.SILENT), Answer(Outcome.REFUSED)
    answers = {"a:1": Answer(Outcome.ANSWERED), "b:1": refused, "d:1": silent}
    assert fell_silent(survey, answers) == ""
    assert fell_silent(survey, {**answers, "b:1": silent}) == "b:1 has answered, but not to the claim"


LIVES = [Member(f"id-{name}", name, f"{name}:1", "life") for name in "abc"]
A_LED = InSync(1, "id-a", 4, tuple(LIVES))


@pytest.mark.parametrize(
    ("claim", "answer", "known"),
    [
        ({}, {"end": 100}, True),
        ({}, {"end": 99}, True),
        ({}, {"end": 101}, False),
        ({}, {}, False),
        ({}, {"end": 100, "granted": False}, False),
        ({}, {"end": True}, False),
        ({}, {"end": -1}, False),
        ({"epoch": 3}, {"end": 100}, False),
        ({"whole": False}, {"end": 100}, False),
        ({"base": InSync()}, {"end": 100}, False),
    ],
)
def test_who_knows_the_end_of_the_log_of_the_primary_before(claim: Json, answer: Json, known: bool) -> None:
    wanted = Claim(**{"epoch": 2, "base": A_LED, "members": (), **claim})
    answers = answered(**{"granted": True, "id": "id-a", **answer}).values()
    assert has_the_end(wanted, answers, LIVES[1], 100) is known


def test_the_primary_before_knows_it_and_a_later_run_of_it_does_not() -> None:
    later = replace(LIVES[0], instance="next")
    assert [end_of_log(broker, 7, A_LED) for broker in (*LIVES, later)] == [{"end": 7}, {}, {}, {}]
    claim = Claim(2, A_LED, ())
    assert [has_the_end(claim, (), broker, 7) for broker in (*LIVES, later)] == [True, False, False, False]


def test_an_empty_registry_contradicts_nothing() -> None:
    assert contradicted(Claim(2, InSync(), ()), "id-c", Exchanged()) == ""


def test_a_claim_that_is_denied_leaves_the_vote() -> None:
    world = cluster()
    before = world["b"].disk
    assert not world["b"].node.claimed(claim_of(world, "c", 0))["granted"]
    assert world["b"].disk == before and world["b"].node.local.persisted == before


def test_a_set_is_on_the_disk_of_every_backup() -> None:
    world = cluster()
    assert {world[name].disk.in_sync for name in "abc"} == {world["a"].node.local.persisted.in_sync}
    assert len(world["b"].disk.in_sync.members) == 3


def test_who_votes_for_another_meanwhile_is_not_promoted() -> None:
    world = cluster()
    world["a"].kill()
    replies: list[Json] = []
    node = world["b"].node
    node.promote(replies.append)
    world.until(lambda: node.local.persisted.ballot == (2, "id-b"), 1.0)
    assert node.claimed(claim_of(world, "c", 3))["granted"] and not replies
    world.until(lambda: bool(replies), 1.0)
    assert replies[0]["error"] == "b cannot be promoted: epoch 3 was granted to another broker meanwhile"
    assert not node.local.state.is_primary and world["b"].disk.ballot == (3, "id-c")


def test_who_comes_back_with_less_than_it_has_acknowledged_loses_its_place() -> None:
    """Whatever it says of itself: what it has acknowledged over an earlier link it does not hold any more."""
    world = cluster()
    filled(world)
    role, backup = world["a"].node.role, world["b"].node
    assert isinstance(role, Primary) and isinstance(backup.role, Backup)
    link = backup.role.link
    assert link is not None and backup.local.whole
    link.close()
    backup.link_closed(link, "broken")
    backup.role._position = make(1, 1)
    world.until(lambda: any("b is no longer in-sync" in line for line in world.lines), 2.0)
    world.until(lambda: "id-b" in world["a"].disk.in_sync, 2.0)


def voted(name: str, **fields: Any) -> Answer:
    return Answer(Outcome.ANSWERED, {"granted": False, "reason": "", "id": f"id-{name}", "epoch": 2, **fields})


@pytest.mark.parametrize(("mode", "reason"), [("quorum", ""), ("manager", "b cannot store its vote: full")])
def test_a_broker_that_cannot_store_its_vote_abstains_where_a_majority_decides(mode: str, reason: str) -> None:
    members = tuple(Member(f"id-{name}", name, f"{name}:1") for name in "abc")
    claim = Claim(2, InSync(1, "id-a", 1, members), members)
    safety = Safety(mode, ("a:1", "b:1", "c:1"), 0.0)
    b = voted("b", reason="b cannot store its vote: full", abstains=True)
    assert decide_claims(claim, {"b:1": b, "c:1": voted("c", granted=True)}, members[0], safety) == reason
    alone = decide_claims(claim, {"b:1": b}, members[0], safety)
    assert alone.endswith("b cannot store its vote: full"), "two of three are needed"
    denied = voted("b", reason="no")
    assert decide_claims(claim, {"b:1": denied, "c:1": voted("c", granted=True)}, members[0], safety) == "no"


@pytest.mark.parametrize("mode", ["quorum", "manager", "availability"])
def test_a_broker_that_has_lost_its_vote_abstains_in_all_modes(mode: str) -> None:
    """If it was not counted as heard: then it is as good as silent."""
    members = tuple(Member(f"id-{name}", name, f"{name}:1") for name in "abc")
    unknown = Claim(2, InSync(1, "id-a", 1, members), members)
    known = replace(unknown, lost=frozenset({"id-b"}))
    safety = Safety(mode, ("a:1", "b:1", "c:1"), 0.0)
    lost = voted("b", reason="its votes are lost", abstains=True, lost=True)
    others = {"c:1": voted("c", granted=True)}
    assert decide_claims(known, {"b:1": lost, **others}, members[0], safety) == ""
    expected = "" if mode == "quorum" else "its votes are lost"
    assert decide_claims(unknown, {"b:1": lost, **others}, members[0], safety) == expected
    newer = voted("b", reason="knows a newer set", lost=True)
    assert decide_claims(known, {"b:1": newer, **others}, members[0], safety) == "knows a newer set"
    listed = voted("b", reason="its disk is full", abstains=True, lost=False)
    expected = "" if mode == "quorum" else "its disk is full"
    assert decide_claims(known, {"b:1": listed, **others}, members[0], safety) == expected
    assert denial(lost, known, safety) == "" and denial(voted("b", reason="no"), known, safety) == "no"
