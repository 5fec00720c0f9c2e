"""Two living brokers with one identity: a copied data directory (`ha/model/twins.py`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ha.model.environment import Answer, Outcome
from ha.model.membership import HaState, InSync, Member
from ha.model.protocol import Kind, encode_control
from ha.model.safety import Safety
from ha.model.settings import HaSettings
from ha.model.status import State
from ha.model.twins import SAY_AGAIN, Sightings, with_new_identity
from ha.model.view import Survey, View
from ha.primary.meetings import Meetings
from ha.promotion.claims import Claim, decide_claims
from ha.promotion.promotion import Refuse, decide
from ha.shell.identity import load_state
from qpidd_py.errors import ConfigError
from qpidd_py.option_values import Address
from tests.unit.ha.test_ha_cluster import filled
from tests.unit.ha.world import Host, Publisher, World


def copied(world: World, of: str, name: str = "x", address: str = "", **settings: Any) -> Host:
    """A broker with a copy of another one's data directory; it listens at `x:1`, and says that it is at `address`."""
    original = world[of]
    given = replace(original.settings, name=name, address=address, **settings)
    host = world.hosts[f"{name}:1"] = Host(world, name, given)
    host.disk = original.disk
    host.boot()
    return host


def changes(world: World, name: str = "a") -> int:
    return world[name].disk.in_sync.version


def instances(world: World, name: str = "a") -> list[str]:
    """Of the processes that the newest set of a broker lists."""
    return [member.instance for member in world[name].disk.in_sync.members]


def complaints(world: World, name: str) -> list[str]:
    return [line for line in world.lines if f" {name} error: " in line and "has the identity" in line]


class TestAClone:
    def test_of_a_backup_ends_and_disturbs_no_other(self) -> None:
        world = World()
        world.cluster()
        client = filled(world)
        before = changes(world)
        clone = copied(world, "b")
        world.until(lambda: bool(clone.ended), 5)
        world.run(5)
        assert "--new-identity" in clone.ended and "b (b:1)" in clone.ended
        assert world["b"].state is State.READY
        assert changes(world) == before
        client.publish("q", b"m20")
        world.until(lambda: client.confirmed == 21, 1)
        assert len(complaints(world, "a")) == 1
        (shown,) = world["a"].node.local.sightings.shown()
        assert shown["name"] == "x" and shown["other"] == "b (b:1)"
        assert [kind for kind, _ in world["a"].events].count("twin") == 1

    def test_of_a_backup_at_a_listed_address(self) -> None:
        world = World()
        world.cluster()
        world["c"].kill()
        world.run(1)
        before = changes(world)
        world["c"].disk = world["b"].disk
        world["c"].boot()
        world.until(lambda: bool(world["c"].ended), 5)
        world.run(3)
        assert changes(world) == before and world["b"].state is State.READY

    def test_of_the_primary(self) -> None:
        world = World()
        world.cluster()
        before = changes(world)
        clone = copied(world, "a")
        world.until(lambda: bool(clone.ended), 5)
        world.run(3)
        assert world["a"].state is State.ACTIVE and changes(world) == before
        assert clone.node.local.settings.address == "", "it has taken the primary's address for its own"
        assert complaints(world, "a")

    def test_that_comes_again_and_again_is_complained_of_once_a_minute(self) -> None:
        world = World()
        world.cluster()
        clone = copied(world, "b")
        for _ in range(20):
            world.until(lambda: bool(clone.ended), 5)
            world.run(0.01)
            clone.boot()
        assert len(complaints(world, "a")) == 1
        assert world["a"].node.local.sightings.shown()[0]["count"] >= 20

    def test_with_a_new_identity_is_let_in_when_its_address_is_a_member_s(self) -> None:
        """It could not be asked, so a promotion would wait for it for ever, once it is the only one that holds all."""
        world = World()
        world.cluster()
        clone = copied(world, "b")
        world.until(lambda: bool(clone.ended), 5)
        world.run(0.01)
        clone.disk = with_new_identity(clone.disk, "another")
        clone.boot()
        world.run(3)
        assert clone.state is State.JOINING and "another" not in world["a"].disk.in_sync
        world["a"].requests.request("ha.member", {"action": "add", "address": "x:1"}, lambda reply: None, "")
        world.until(lambda: clone.state is State.READY, 5)
        assert world["b"].state is State.READY and clone.node.local.settings.address == "x:1"


class TestARestartedBroker:
    def test_whose_old_link_is_half_open_gets_in_when_that_is_known_dead(self) -> None:
        """Its host has lost its power, and it comes back elsewhere before the primary has noticed."""
        world = World(safety="quorum")
        world.cluster()
        old = world["b"]
        old.alive = False  # no link is closed: no process is told
        new = copied(world, "b", address="b:1")
        world.run(0.3)
        assert new.node.local.state is not State.READY and not new.ended
        took = 0.3 + world.until(lambda: new.state is State.READY, 5)
        assert took < old.settings.dead_after + 0.5
        assert not new.ended and not complaints(world, "a")

    def test_on_its_old_address_likewise(self) -> None:
        world = World()
        world.cluster()
        world["b"].alive = False
        world["b"].boot()
        world.until(lambda: world["b"].state is State.READY, 5)
        assert not world["b"].ended

    def test_that_was_killed_waits_for_nothing(self) -> None:
        world = World()
        world.cluster()
        world["b"].kill()
        world.run(0.01)
        world["b"].boot()
        assert world.until(lambda: world["b"].state is State.READY, 5) < 0.2

    def test_a_twin_that_dies_while_it_waits_is_no_twin(self) -> None:
        world = World()
        world.cluster()
        world.pause("b")
        clone = copied(world, "b")
        world.run(0.1)
        clone.kill()
        world.resume("b")
        world.run(3)
        assert world["b"].state is State.READY and not world["b"].ended
        assert not complaints(world, "a")

    def test_a_paused_broker_whose_place_was_taken_is_told_when_it_wakes_up(self) -> None:
        world = World()
        world.cluster()
        world.pause("b")
        clone = copied(world, "b", address="b:1")
        world.until(lambda: clone.state is State.READY, 5)
        world.resume("b")
        world.run(20)
        # It may hold what no other broker has: it stays, and its place is its own again when the copy was stopped.
        assert clone.state is State.READY and not clone.ended and not world["b"].ended
        assert "--new-identity" in world["b"].node.advice()
        assert len(complaints(world, "a")) == 1
        assert len([line for line in world.lines if " b notice: the link to" in line]) == 1
        clone.kill()
        world.until(
            lambda: not world["b"].node.advice() and world["b"].node.local.member.instance in instances(world), 5
        )


class TestTheVote:
    """Two copies of one vote make no two majorities."""

    def test_a_copy_does_not_take_the_address_of_its_original(self) -> None:
        """a goes on with a copy of c, which says that it is at c's address; the real c lets b be promoted."""
        world = World(safety="quorum")
        world.cluster()
        clone = copied(world, "c")
        world.cut("a", "b", "c")
        world.cut("x", "b")
        world.run(3)
        client = Publisher(world["a"])
        world["a"].configuration.declare("q")
        client.publish("q", b"only here")
        world.run(2)
        confirmed = client.confirmed
        world["b"].promote()
        world.until(lambda: world["b"].state.is_primary, 3)
        assert clone.node.local.settings.address == ""
        assert not confirmed, "a majority by the word of a copy"

    def test_a_twins_claim_is_denied(self) -> None:
        world = World(safety="quorum")
        world.cluster()
        clone = copied(world, "c")
        world.cut("x", "a")
        world["a"].kill()
        assert "same identity" in world.refused("x") or "identity" in world.refused("x", force=True)
        answer = world["c"].node.claimed(_request(clone))
        assert not answer["granted"] and "identity" in answer["reason"]
        assert world["c"].disk.epoch == 1

    def test_one_identity_at_two_addresses_votes_once(self) -> None:
        names = ("a:1", "b:1", "c:1", "d:1", "e:1")
        claim = Claim(2, InSync(), ())
        granted = {address: Answer(Outcome.ANSWERED, {"granted": True, "id": "twin"}) for address in ("b:1", "c:1")}
        safety = Safety("quorum", names, 0.0)
        assert "granted by 2 brokers, 3 needed" in decide_claims(claim, granted, Member("a", "a", "a:1"), safety)
        other = {**granted, "c:1": Answer(Outcome.ANSWERED, {"granted": True, "id": "c"})}
        assert decide_claims(claim, other, Member("a", "a", "a:1"), safety) == ""

    def test_a_majority_is_not_heard_by_twins(self) -> None:
        me, twin = _view("a", instance="1"), _view("a", "c:1", instance="2")
        answers = {"b:1": Answer(Outcome.SILENT), "c:1": Answer(Outcome.ANSWERED, twin.to_json())}
        survey = Survey.of(me.id, answers, me.instance)
        assert [view.instance for view in survey.twins] == ["2"] and not survey.views
        for force in (False, True):
            verdict = decide(me, survey, Safety("quorum", ("a:1", "b:1", "c:1"), 0.0), force)
            assert isinstance(verdict, Refuse)
        verdict = decide(me, survey, Safety("availability", ("a:1", "b:1", "c:1"), 0.0), True)
        assert isinstance(verdict, Refuse) and "same identity" in verdict.text


class TestWholeIsAnInstance:
    def test_the_original_is_not_whole_by_what_its_copy_holds(self) -> None:
        """b's place is taken by its copy while b is cut off; b is not promoted as the member of the newest set."""
        newest = InSync(1, "id-a", 5, (Member("id-a", "a", "a:1", "1"), Member("id-b", "x", "", "copy")))
        me = _view("id-b", "b:1", "original", whole=True, state=State.READY, in_sync=replace(newest, version=4))
        behind = _view("id-c", "c:1", "3", in_sync=newest)
        answers = {"a:1": Answer(Outcome.REFUSED), "c:1": Answer(Outcome.ANSWERED, behind.to_json())}
        survey = Survey.of(me.id, answers, me.instance)
        claim = decide(me, survey, Safety("manager", ("a:1", "b:1", "c:1"), 0.0))
        assert isinstance(claim, Refuse) or not claim.whole
        same = replace(me, instance="copy")
        claim = decide(same, Survey.of(me.id, answers, "copy"), Safety("manager", ("a:1", "b:1", "c:1"), 0.0))
        assert not isinstance(claim, Refuse) and claim.whole

    def test_a_copy_of_a_silent_primary_is_not_its_next_life(self) -> None:
        """The set is {a}; a copy of a's directory elsewhere must not take the silence of a for its own death."""
        alone = InSync(1, "id-a", 5, (Member("id-a", "a", "a:1", "1"),))
        copy = _view("id-a", "", "2", in_sync=alone)
        safety = Safety("manager", ("a:1", "b:1"), 0.0)
        silent = Survey.of("id-a", {"a:1": Answer(Outcome.SILENT), "b:1": Answer(Outcome.REFUSED)}, "2")
        verdict = decide(copy, silent, safety)
        assert isinstance(verdict, Refuse) and "a may hold more but does not answer" in verdict.text
        gone = Survey.of("id-a", {"a:1": Answer(Outcome.REFUSED), "b:1": Answer(Outcome.REFUSED)}, "2")
        assert not isinstance(decide(copy, gone, safety), Refuse)
        nowhere = replace(alone, members=(Member("id-a", "a", "", "1"),))  # the set's a is a copy, address unknown
        original = replace(copy, address="a:1", in_sync=nowhere)
        assert isinstance(decide(original, gone, safety), Refuse)
        there = replace(copy, address="a:1")  # restarted in its place
        b_gone = Survey.of("id-a", {"b:1": Answer(Outcome.REFUSED)}, "2")
        assert not isinstance(decide(there, b_gone, safety), Refuse)

    def test_the_original_is_not_expected_in_the_place_of_its_copy(self) -> None:
        """A new primary's first set must not make the original of a member's copy a member by its own instance: it
        would be promoted next, without what the copy had acknowledged.  Nor does its position count for the copy's."""
        copied = Member("id-c", "x", "", "copy")
        newest = InSync(1, "id-a", 5, (Member("id-b", "b", "b:1", "2"), copied))
        me = _view("id-b", "b:1", "2", whole=True, state=State.READY, in_sync=newest)
        original = _view("id-c", "c:1", "original", whole=True)
        answers = {"a:1": Answer(Outcome.SILENT), "c:1": Answer(Outcome.ANSWERED, original.to_json())}
        claim = decide(me, Survey.of(me.id, answers, me.instance), Safety("quorum", ("a:1", "b:1", "c:1"), 0.0))
        assert not isinstance(claim, Refuse) and claim.whole
        assert original.member.instance not in [member.instance for member in claim.members]
        assert claim.positions == {}

    @pytest.mark.parametrize("place", ["", "d:1"], ids=["address unknown", "elsewhere"])
    def test_the_original_does_not_answer_for_its_silent_copy(self, place: str) -> None:
        """b and c have restarted, both empty.  The only copy of what was confirmed is at the silent copy of c."""
        copied = Member("id-c", "x", place, "copy")
        newest = InSync(1, "id-c", 5, (Member("id-b", "b", "b:1", "2"), copied))
        me = _view("id-b", "b:1", "3", in_sync=newest)
        original = _view("id-c", "c:1", "original", in_sync=newest)
        answers = {"a:1": Answer(Outcome.REFUSED), "c:1": Answer(Outcome.ANSWERED, original.to_json())}
        survey = Survey.of(me.id, answers, me.instance)
        verdict = decide(me, survey, Safety("quorum", ("a:1", "b:1", "c:1"), 0.0))
        assert isinstance(verdict, Refuse) and "x may hold more but does not answer" in verdict.text
        assert survey.fate("id-c", newest) is Outcome.SILENT


class TestANewIdentity:
    STATE = HaState("old", 7, "a", InSync(7, "a", 3, (Member("a"), Member("old", "b", "b:1"))))

    def test_keeps_what_must_not_be_granted_and_is_no_member(self, tmp_path: Path) -> None:
        file, first = load_state(tmp_path)
        file.store(replace(self.STATE, id=first.id))
        _, state = load_state(tmp_path, new_identity=True)
        assert state.id not in ("", first.id)
        assert (state.ballot, state.in_sync) == (self.STATE.ballot, self.STATE.in_sync)
        assert state.id not in state.in_sync
        assert load_state(tmp_path)[1] == state, "it is stored, and kept when it is not asked for"

    def test_is_for_members_of_a_cluster_only(self) -> None:
        with pytest.raises(ConfigError, match="new-identity: found yes without ha-cluster"):
            HaSettings(new_identity=True)
        brokers = (Address("h", 1), Address("h", 2))
        settings = HaSettings(ha_cluster=True, new_identity=True, ha_brokers_url=brokers, ha_safety="availability")
        assert settings.new_identity


class TestMeetings:
    def test_both_must_answer_this_question(self) -> None:
        asked: list[tuple[Any, int]] = []
        found: list[Any] = []
        meetings = Meetings(lambda peer, number: asked.append((peer, number)), lambda *twins: found.append(twins))
        one, two, other = object(), object(), object()
        meetings.begin(one, two, {})  # type: ignore[arg-type]
        ((_, number), _) = asked
        meetings.answered(one, number)  # type: ignore[arg-type]
        meetings.answered(one, number)  # type: ignore[arg-type]
        meetings.answered(other, number)  # type: ignore[arg-type]
        meetings.answered(two, number + 1)  # type: ignore[arg-type]
        assert not found
        meetings.answered(two, number)  # type: ignore[arg-type]
        assert found == [(one, two, {})]
        assert not meetings.left(one)  # type: ignore[arg-type]

    @pytest.mark.parametrize("kind", ["welcome", "unknown"])
    def test_a_waiting_link_may_do_nothing_else(self, kind: str) -> None:
        world = World()
        world.cluster()
        world.pause("b")
        clone = copied(world, "b", address="b:1")
        world.run(0.05)
        link = clone.links[-1]
        link.send_frame(Kind.CONTROL, 0, encode_control(kind))
        world.run(0.05)
        assert not link.other.open, "the primary has not closed it"
        world.resume("b")
        world.run(1)
        assert world["b"].state is State.READY

    def test_sightings_speak_again_after_a_while(self) -> None:
        world = World("a")
        sightings = Sightings(world["a"])
        twin, other = Member("1", "x"), Member("1", "b", "b:1")
        for _ in range(3):
            sightings.seen(twin, other, "it is refused")
        world.clock += SAY_AGAIN + 1
        sightings.seen(twin, other, "it is refused")
        assert len([line for line in world.lines if "it is refused" in line]) == 2


def _view(
    id: str,
    address: str = "a:1",
    instance: str = "",
    whole: bool = False,
    state: State = State.JOINING,
    in_sync: InSync | None = None,
) -> View:
    in_sync = in_sync or InSync()
    name = address[:1] or "x"
    epoch, leader = in_sync.epoch, in_sync.leader
    return View(id, name, address, state, epoch, leader, 10, whole, in_sync, instance=instance)


def _request(host: Host) -> Any:
    from ha.promotion.claims import ClaimRequest

    return ClaimRequest(9, host.node.local.member, host.node.role.position, host.disk.in_sync)
