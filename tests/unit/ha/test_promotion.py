"""The rules of promotion, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ha.model.environment import Answer, Exchanged, Outcome
from ha.model.membership import HaState, InSync, Member
from ha.model.position import make
from ha.model.safety import Safety
from ha.model.status import State
from ha.model.view import Survey, View
from ha.promotion.case import ManagerRecord
from ha.promotion.claims import Claim, ClaimRequest, contradicted, decide_claims, grant
from ha.promotion.promotion import Refuse, decide

NAMES = "abc"
MEMBERS = {name: Member(f"id-{name}", name, f"{name}:1") for name in NAMES}
BROKERS = tuple(f"{name}:1" for name in NAMES)
SET = InSync(1, "id-a", 3, tuple(MEMBERS.values()))


MANAGER, QUORUM = Safety("manager", BROKERS, 2.0), Safety("quorum", BROKERS, 2.0)


def view(name: str, state: State = State.READY, sequence: int = 100, whole: bool = True, in_sync: InSync = SET) -> View:
    vote, led = (in_sync.epoch, in_sync.leader), ((f"id-{name}", in_sync.epoch),)
    return View(f"id-{name}", name, f"{name}:1", state, *vote, make(1, sequence), whole, in_sync, led=led)


def survey(*views: View, **silent: Outcome) -> Survey:
    answers = {view.address: Answer(Outcome.ANSWERED, view.to_json()) for view in views}
    answers |= {f"{name}:1": Answer(outcome) for name, outcome in silent.items()}
    return Survey.of("id-b", answers)


def verdict(me: View, seen: Survey, safety: str = "manager", force: bool = False) -> Refuse | Claim:
    return decide(me, seen, Safety(safety, BROKERS, 2.0), force)


def refusal(me: View, seen: Survey, safety: str = "manager", force: bool = False) -> str:
    found = verdict(me, seen, safety, force)
    assert isinstance(found, Refuse)
    return found.text


def claim(me: View, seen: Survey, safety: str = "manager", force: bool = False) -> Claim:
    found = verdict(me, seen, safety, force)
    assert isinstance(found, Claim), found
    return found


def first_of(claim: Claim) -> InSync:
    """The first set of b under that claim."""
    return claim.base.succeed(claim.epoch, "id-b", claim.members)


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


def test_the_copy_of_a_removed_broker_does_not_count() -> None:
    """It cannot be promoted, so none could."""
    newest = SET.change_brokers(("b:1", "c:1"), "a:1")
    removed = view("a", State.CATCHUP, whole=False)
    restarted = replace(view("b", State.JOINING, whole=False, in_sync=newest), position=0)
    empty_c = replace(view("c", State.JOINING, whole=False, in_sync=newest), position=0)
    assert isinstance(verdict(restarted, survey(removed, empty_c)), Claim)


def test_restarted_broker_needs_every_member_answered_or_dead() -> None:
    me = view("b", State.JOINING, whole=False)
    assert isinstance(verdict(me, survey(a=Outcome.REFUSED, c=Outcome.REFUSED)), Claim)
    seen = survey(a=Outcome.SILENT, c=Outcome.REFUSED)
    assert "a may hold more but does not answer" in refusal(me, seen)
    assert isinstance(verdict(me, seen, "availability"), Claim)
    assert isinstance(verdict(me, seen, force=True), Claim)


def test_deposed_primary_that_holds_everything_may_return() -> None:
    assert isinstance(verdict(view("b", State.JOINING), survey(view("c", sequence=90))), Claim)


def test_fresh_cluster_needs_everybody_accounted_for() -> None:
    """A silent broker may hold everything, and we may be the ones that lost their disks."""
    me = view("b", State.JOINING, 0, False, InSync())
    found = claim(me, survey(a=Outcome.REFUSED, c=Outcome.REFUSED))
    assert (found.epoch, [member.name for member in found.members]) == (1, ["b"])
    alone = survey(a=Outcome.SILENT, c=Outcome.REFUSED)
    assert "a:1 does not answer: it may hold more. If you know that the cluster is new, use force" in refusal(me, alone)
    assert isinstance(verdict(me, alone, "availability"), Claim)
    assert isinstance(verdict(me, alone, force=True), Claim)


def test_fresh_cluster_needs_a_majority_under_quorum() -> None:
    me = view("b", State.JOINING, 0, False, InSync())
    fresh_c = replace(view("c", State.JOINING, 0, False, InSync()), epoch=0)
    assert isinstance(verdict(me, survey(fresh_c, a=Outcome.SILENT), "quorum"), Claim)
    assert "1 brokers heard" in refusal(me, survey(a=Outcome.SILENT, c=Outcome.REFUSED), "quorum", force=True)


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


def request(
    epoch: int = 2, position: int = 100, base: InSync = SET, whole: bool = True, behind: bool = False
) -> ClaimRequest:
    return ClaimRequest(epoch, MEMBERS["b"], make(1, position), base, whole=whole, behind=behind)


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


def test_a_manager_that_knows_may_take_one_that_is_behind_and_nothing_worse() -> None:
    me, ahead = view("b"), survey(view("c", sequence=101), a=Outcome.REFUSED)
    found = decide(me, ahead, MANAGER, behind=True)
    assert isinstance(found, Claim)
    assert found.whole
    assert grant(view("c", sequence=101), request(behind=True)) == ""
    assert "knows in-sync set" in grant(view("c", in_sync=SET.shrink(["id-b"])), request(behind=True))
    assert "the claimant is not" in grant(view("c"), request(behind=True, whole=False))
    removed = survey(view("c", in_sync=SET.shrink(["id-b"])), a=Outcome.REFUSED)
    assert isinstance(decide(me, removed, MANAGER, behind=True), Refuse)
    copy = view("b", State.CATCHUP, whole=False)
    best = survey(*(replace(view(name, State.CATCHUP, 200, whole=False)) for name in "ac"))
    assert isinstance(decide(copy, best, MANAGER, behind=True), Refuse)


@pytest.mark.parametrize("state", [State.JOINING, State.READY, State.RECOVERING, State.ACTIVE])
def test_a_whole_member_denies_the_claim_of_one_that_is_not(state: State) -> None:
    """When it was asked it may have said that it had lost its memory, and have become primary since."""
    assert "c (" in grant(view("c", state), request(whole=False))
    assert "whole member of the in-sync set, and the claimant is not" in grant(view("c", state), request(whole=False))
    assert grant(view("c", state, whole=False), request(whole=False)) == ""
    assert grant(view("c", state), request(whole=False, base=SET.shrink(["id-c"]).grow(MEMBERS["a"]))) == ""


def test_a_request_keeps_its_content_on_the_wire() -> None:
    for sent in (request(), request(whole=False), request(behind=True)):
        assert ClaimRequest.from_json(sent.to_json()) == sent


def test_one_denial_is_enough() -> None:
    found = Claim(2, SET, ())
    yes = Answer(Outcome.ANSWERED, {"granted": True, "id": "id-c"})
    no = Answer(Outcome.ANSWERED, {"granted": False, "reason": "why not"})
    assert decide_claims(found, {"a:1": Answer(Outcome.SILENT), "c:1": yes}, MEMBERS["b"], MANAGER) == ""
    assert decide_claims(found, {"a:1": no, "c:1": yes}, MEMBERS["b"], MANAGER) == "why not"
    assert decide_claims(found, {"a:1": Answer(Outcome.SILENT), "c:1": yes}, MEMBERS["b"], QUORUM) == ""
    assert "1 brokers, 2 needed" in decide_claims(found, {"c:1": Answer(Outcome.SILENT)}, MEMBERS["b"], QUORUM)


# ---- with a registry


def recorded(*states: HaState) -> ManagerRecord:
    return ManagerRecord(states, registry=True)


def entry(name: str, in_sync: InSync = SET, epoch: int = 0) -> HaState:
    return HaState(f"id-{name}", epoch or in_sync.epoch, f"id-{name}" if epoch else in_sync.leader, in_sync)


def by_registry(me: View, seen: Survey, record: ManagerRecord) -> Refuse | Claim:
    return decide(me, seen, MANAGER, record=record)


def refused_by_registry(me: View, seen: Survey, record: ManagerRecord) -> str:
    found = by_registry(me, seen, record)
    assert isinstance(found, Refuse)
    return found.text


ALONE = survey(a=Outcome.SILENT, c=Outcome.SILENT)


def test_a_whole_member_of_the_recorded_set_needs_no_other() -> None:
    doubting = replace(view("b"), doubt=True)
    assert isinstance(by_registry(doubting, ALONE, recorded(entry("a"))), Claim)
    assert isinstance(by_registry(doubting, ALONE, recorded(entry("c", InSync()), entry("a"))), Claim)
    assert "no majority" in refusal(doubting, ALONE)
    assert "was disconnected" in refusal(doubting, survey(view("c"), a=Outcome.SILENT))


def test_a_silent_broker_whose_node_was_fenced_is_dead() -> None:
    restarted = view("b", State.JOINING, whole=False)
    entries = (entry("a"), entry("b"))
    seen = survey(a=Outcome.SILENT, c=Outcome.REFUSED)
    assert "a may hold more" in refused_by_registry(restarted, seen, recorded(*entries))
    gone = ManagerRecord(entries, registry=True, gone=frozenset({"id-a", "id-c"}))
    assert isinstance(by_registry(restarted, seen, gone), Claim)
    answering = survey(view("a"), c=Outcome.REFUSED)
    assert "a (ready" in refused_by_registry(restarted, answering, gone)
    other = ManagerRecord(entries, registry=True, gone=frozenset({"id-c"}))
    assert "a may hold more" in refused_by_registry(restarted, seen, other)
    found = by_registry(view("b"), survey(a=Outcome.REFUSED, c=Outcome.SILENT), other)
    assert isinstance(found, Claim)
    assert [member.name for member in found.members] == ["b"]


def test_a_refusal_proves_nothing_where_there_is_a_registry() -> None:
    """A firewall refuses, and so does a closed port of a broker that lives: a and c may hold all that was confirmed."""
    restarted, seen = view("b", State.JOINING, whole=False), survey(a=Outcome.REFUSED, c=Outcome.REFUSED)
    text = refused_by_registry(restarted, seen, recorded(entry("a"), entry("b")))
    assert "a, c may hold more: a host that refuses a connection may still run a broker" in text
    fenced = ManagerRecord((entry("a"), entry("b")), registry=True, gone=frozenset({"id-c"}))
    assert "and a may hold more: a host" in refused_by_registry(restarted, seen, fenced)
    assert isinstance(decide(restarted, seen, MANAGER), Claim)


def test_a_broker_that_a_recorded_set_lacks_may_hold_more() -> None:
    """a has put {a} on record, and was restarted before the set was in force: b holds what both had confirmed."""
    pair = InSync(1, "id-a", 2, (MEMBERS["a"], MEMBERS["b"]))
    alone = pair.shrink(["id-b"])
    restarted = view("a", State.JOINING, 0, False, alone)
    safety = Safety("manager", BROKERS[:2], 2.0)
    silent = Survey.of("id-a", {"b:1": Answer(Outcome.SILENT)})
    dead = Survey.of("id-a", {"b:1": Answer(Outcome.REFUSED)})
    unsure = replace(entry("a", alone), replaced=(MEMBERS["b"],))
    entries = (unsure, entry("b", pair))
    for seen, why in (silent, "b may hold more but does not answer"), (dead, "b may hold more: a host that refuses"):
        refused = decide(restarted, seen, safety, record=recorded(*entries))
        assert isinstance(refused, Refuse)
        assert why in refused.text
        fenced = ManagerRecord(entries, registry=True, gone=frozenset({"id-b"}))
        assert isinstance(decide(restarted, seen, safety, record=fenced), Claim)
        # The set is known to be in force, from one entry: b has lacked what was confirmed since.
        settled = recorded(entry("a", alone), entry("b", pair))
        assert isinstance(decide(restarted, seen, safety, record=settled), Claim)
        other = recorded(unsure, replace(entry("b", alone), epoch=2))
        assert isinstance(decide(restarted, seen, safety, record=other), Claim)


def test_a_set_that_the_registry_lacks_replaces_the_one_on_record() -> None:
    """a has stored the first set of its epoch, and died before it was on record."""
    on_record = InSync(1, "id-a", 5, SET.members, (*BROKERS, "d:1"))
    first = on_record.succeed(2, "id-a", [MEMBERS["a"]])
    restarted = view("a", State.JOINING, 0, False, first)
    record = recorded(replace(entry("b", on_record), replaced=(Member("id-d", "d", "d:1"),)))
    assert [member.name for member in record.replaced(first)] == ["b", "c", "d"]
    seen = survey(view("c", State.JOINING, whole=False), b=Outcome.REFUSED, d=Outcome.REFUSED)
    assert "b, d may hold more: a host" in refused_by_registry(restarted, seen, record)


def test_an_address_that_has_passed_to_another_broker_is_not_gone() -> None:
    successor = Member("id-d", "d", "a:1")
    entries = (entry("a"), entry("b", InSync(1, "id-b", 9, (MEMBERS["b"], successor))))
    gone = ManagerRecord(entries, registry=True, gone=frozenset({"id-a"}))
    seen = survey(a=Outcome.SILENT)
    assert gone.settle(seen, entries[1].in_sync).outcomes["a:1"] is Outcome.SILENT


def test_a_set_that_only_the_registry_knows_counts() -> None:
    without = SET.shrink(["id-b"])
    text = refused_by_registry(view("b"), survey(a=Outcome.SILENT, c=Outcome.REFUSED), recorded(entry("a", without)))
    assert "it is not in the in-sync set (a, c), and a may hold more but does not answer" in text
    fenced = ManagerRecord((entry("a", without), entry("c")), registry=True, gone=frozenset({"id-a", "id-c"}))
    found = by_registry(view("b"), survey(a=Outcome.REFUSED, c=Outcome.REFUSED), fenced)
    assert isinstance(found, Claim)
    assert (found.base, found.whole) == (without, False)


def test_a_registry_that_knows_less_than_a_broker_is_not_taken_for_certain() -> None:
    assert "no majority" in refused_by_registry(view("b"), ALONE, recorded())
    older = InSync(1, "id-a", 2, SET.members)
    assert "no majority" in refused_by_registry(view("b"), ALONE, recorded(entry("a", older)))


def test_who_is_not_whole_needs_a_majority_even_with_a_registry() -> None:
    me = view("b", State.JOINING, 0, False)
    assert "no majority" in refused_by_registry(me, ALONE, recorded(entry("a")))


def test_fresh_is_a_cluster_whose_registry_is_empty() -> None:
    me = view("b", State.JOINING, 0, False, InSync())
    assert isinstance(by_registry(me, ALONE, recorded()), Claim)
    claimed = recorded(entry("c", InSync(), 1))
    assert "no majority" in refused_by_registry(me, ALONE, claimed)
    found = by_registry(me, survey(a=Outcome.SILENT, c=Outcome.REFUSED), claimed)
    assert isinstance(found, Claim)
    assert found.epoch == 2


def test_the_epoch_is_above_every_ballot_on_record() -> None:
    found = by_registry(view("b"), survey(view("c"), a=Outcome.REFUSED), recorded(entry("a"), entry("c", SET, 9)))
    assert isinstance(found, Claim)
    assert found.epoch == 10


def test_what_the_registry_says_against_a_claim() -> None:
    found = Claim(2, SET, ())
    mine = entry("b", SET, 2)
    assert contradicted(found, "id-b", Exchanged((mine, entry("a"), entry("c", SET, 1)))) == ""
    assert "does not answer: why" in contradicted(found, "id-b", Exchanged(error="why"))
    assert "has claimed epoch 2 meanwhile" in contradicted(found, "id-b", Exchanged((mine, entry("c", SET, 2))))
    newer = entry("a", SET.shrink(["id-b"]))
    assert "was recorded meanwhile" in contradicted(found, "id-b", Exchanged((mine, newer)))


def test_a_broker_whose_removal_is_only_on_record_returns() -> None:
    """a has put on record that b leaves the list, and was restarted before that was in force: only b has all that was
    confirmed, and it was refused by everybody, since it is on no list."""
    removed = SET.change_brokers(("a:1", "c:1"), "b:1").shrink(["id-c"])
    record = recorded(replace(entry("a", removed), replaced=(MEMBERS["b"],)))
    restarted, incomplete = view("a", State.JOINING, 0, False), view("c", State.CATCHUP, 50, False)
    found = by_registry(view("b"), survey(restarted, incomplete), record)
    assert isinstance(found, Claim)
    assert (found.whole, found.base, first_of(found).brokers) == (False, removed, ("a:1", "c:1", "b:1"))
    assert "b (ready, position 1.100) holds more" in refused_by_registry(
        restarted, Survey.of("id-a", {"b:1": Answer(Outcome.ANSWERED, view("b").to_json())}), record
    )
    for seen in survey(incomplete, a=Outcome.SILENT), survey(incomplete, a=Outcome.REFUSED):
        assert "a may hold more" in refused_by_registry(view("b"), seen, record)


def test_a_broker_that_a_recorded_set_lacks_and_the_list_does_not_changes_no_list() -> None:
    """The list is that of ha-brokers-url, which no set repeats."""
    smaller = SET.shrink(["id-b", "id-c"])
    for brokers in (), BROKERS:
        listed = replace(smaller, brokers=brokers)
        record = recorded(replace(entry("a", listed), replaced=(MEMBERS["b"],)))
        found = by_registry(view("b"), survey(view("a", State.JOINING, 0, False)), record)
        assert isinstance(found, Claim)
        assert first_of(found).brokers == found.base.brokers == brokers


def test_a_broker_whose_removal_another_one_knows_does_not_return() -> None:
    removed = SET.change_brokers(("a:1", "c:1"), "b:1")
    record = recorded(replace(entry("a", removed), replaced=(MEMBERS["b"],)))
    told = survey(view("a", State.JOINING, 0, False), view("c", State.JOINING, 0, False, removed))
    assert "it is no longer a member of the cluster (a:1, c:1)" in refused_by_registry(view("b"), told, record)
    settled = recorded(entry("a", removed))
    untold = survey(view("a", State.JOINING, 0, False), view("c", State.JOINING, 0, False))
    assert "it is no longer a member of the cluster" in refused_by_registry(view("b"), untold, settled)
    for other in replace(view("b"), address="d:1"), replace(view("b"), id="id-x"):
        assert "it is no longer a member of the cluster" in refused_by_registry(other, untold, record)


# ---- members at run time


def test_who_is_no_longer_a_member_is_refused_even_by_force() -> None:
    changed = SET.change_brokers(("a:1", "c:1"), "b:1")
    found = refusal(view("b"), survey(view("c", in_sync=changed), a=Outcome.REFUSED), force=True)
    assert "it is no longer a member of the cluster (a:1, c:1)" in found


def test_quorum_counts_the_brokers_of_the_newest_list_only() -> None:
    changed = SET.change_brokers(("b:1", "c:1", "d:1", "e:1", "a:1"))
    me, others = view("b", in_sync=changed), survey(view("c", in_sync=changed), a=Outcome.SILENT)
    assert "2 brokers heard, 3 needed" in refusal(me, others, "quorum")
    strangers = SET.change_brokers(("b:1", "d:1", "e:1"))
    me, others = view("b", in_sync=strangers), survey(view("a"), view("c"))
    assert "1 brokers heard, 2 needed" in refusal(me, others, "quorum")
    found, yes = Claim(2, strangers, ()), Answer(Outcome.ANSWERED, {"granted": True, "id": "id-c"})
    assert "granted by 1 brokers, 2 needed" in decide_claims(found, {"c:1": yes}, MEMBERS["b"], QUORUM)
    assert decide_claims(found, {"d:1": yes}, MEMBERS["b"], QUORUM) == ""


def test_under_quorum_a_candidate_that_does_not_know_its_address_has_no_vote() -> None:
    me = replace(view("b"), address="")
    assert "1 brokers heard, 2 needed" in refusal(me, survey(view("c"), a=Outcome.REFUSED), "quorum")
    found, yes = Claim(2, SET, ()), Answer(Outcome.ANSWERED, {"granted": True, "id": "id-c"})
    assert "granted by 1 brokers, 2 needed" in decide_claims(found, {"c:1": yes}, Member("id-b"), QUORUM)
