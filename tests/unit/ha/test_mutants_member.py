"""What a broker says of itself and whom it asks, at the edges: what a small mistake in `local_member.py`,
`meetings.py`, `changes.py` or `role.py` would change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ha.model.environment import Answer, Outcome
from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync, Member
from ha.model.settings import NodeSettings
from ha.model.status import State
from ha.model.twins import Sightings
from ha.model.view import View
from ha.primary.changes import Drop, Enlist, First, Rename
from ha.primary.meetings import Meetings
from qpidd_py.errors import LinkError
from tests.unit.ha.world import World

A, B, C = (Member(f"id-{name}", name, f"{name}:1") for name in "abc")


def member(mode: str = "quorum", brokers: tuple[str, ...] = ("a:1", "b:1", "c:1"), **state: Any) -> LocalMember:
    settings = NodeSettings(name="a", address="a:1", safety=mode, brokers=brokers)
    anything: Any = SimpleNamespace(now=lambda: 100.0)
    return LocalMember(settings, anything, anything, anything, HaState("id-a", **state), "life-1")


class TestWhatItSaysOfItself:
    @pytest.mark.parametrize(
        ("whole", "acknowledged", "led", "ever"),
        [(False, 0, set(), False), (True, 0, set(), True), (False, 7, set(), True), (False, 0, {3}, True)],
    )
    def test_it_was_whole_once(self, whole: bool, acknowledged: int, led: set[int], ever: bool) -> None:
        local = member()
        local.whole, local.acknowledged, local.led = whole, acknowledged, led
        assert local.ever_whole is ever

    @pytest.mark.parametrize(
        ("mode", "isolation", "isolated"),
        [("quorum", "no majority", True), ("quorum", "", False), ("manager", "no majority", False)],
    )
    def test_only_with_a_quorum_an_isolated_primary_says_so(self, mode: str, isolation: str, isolated: bool) -> None:
        facts: Any = SimpleNamespace(position=5, primary_address="", doubt=False, stood=False, isolation=isolation)
        assert member(mode).view(facts).isolated is isolated

    @pytest.mark.parametrize(("given", "address"), [("x:2", "x:2"), ("", "a:1")])
    def test_its_address_is_the_one_it_was_given(self, given: str, address: str) -> None:
        local = member()
        local.set_address(given)
        assert (local.settings.address, local.member.address) == (address, address)

    def test_a_primary_has_no_doubt_and_did_not_stand_aside(self) -> None:
        world = World()
        world.cluster()
        view = world["a"].node.role.view()
        assert (view.doubt, view.stood) == (False, False)


class TestWhomItAsks:
    def test_without_a_list_everyone_may_be_a_broker(self) -> None:
        assert member("manager", ()).cluster.is_broker("x:1")
        assert not member().cluster.is_broker("x:1")

    def test_not_itself_under_an_address_that_it_had(self) -> None:
        moved = Member("id-a", "a", "old:1")
        assert member(in_sync=InSync(1, "id-a", 1, (moved, B))).cluster.others() == ["b:1", "c:1"]

    def test_members_that_are_on_no_list(self) -> None:
        stranger = Member("id-x", "x", "x:1")
        assert member(in_sync=InSync(1, "id-a", 1, (A, stranger))).cluster.others() == ["b:1", "c:1", "x:1"]

    def test_everybody_is_everybody_else(self) -> None:
        local = member(in_sync=InSync(1, "id-a", 1, (A, B), ("b:1", "d:1")))
        assert local.cluster.everybody() == ["b:1", "d:1", "c:1"]

    def test_an_answer_of_its_own_is_none_and_one_of_its_twin_is(self) -> None:
        local = member()
        answers = {
            f"{instance}:1": Answer(Outcome.ANSWERED, _view(instance).to_json()) for instance in ("life-1", "life-2")
        }
        found = local.cluster.survey(answers)
        assert [twin.instance for twin in found.twins] == ["life-2"]
        assert list(found.outcomes) == ["life-2:1"]


class TestWhatAnswersSay:
    """To a broker that asks everybody."""

    def answered(self, local: LocalMember, answers: dict[str, dict[str, Any]]) -> list[str]:
        """The kinds of events that come of it."""
        events: list[str] = []
        env: Any = SimpleNamespace(
            now=lambda: 100.0,
            after=lambda delay, call: None,
            log=lambda level, text: None,
            event=lambda kind, **fields: events.append(kind),
            request=lambda address, method, arguments, timeout, done: done(Answer(Outcome.ANSWERED, answers[address])),
        )
        local.env, local.sightings = env, Sightings(env)
        local.cluster.ask_all(1.0, lambda found: None, addresses=answers)
        return events

    @pytest.mark.parametrize(("instance", "address"), [("life-1", "host:1"), ("life-2", "a:1")])
    def test_its_own_answer_says_where_it_is(self, instance: str, address: str) -> None:
        local = member()
        said = _view(instance).to_json()
        assert self.answered(local, {"host:1": said}) == ([] if instance == "life-1" else ["twin"])
        assert local.settings.address == address

    def test_an_answer_may_name_no_instance(self) -> None:
        local = member()
        local.instance = ""
        said = _view("").to_json()
        del said["instance"]
        assert self.answered(local, {"host:1": said}) == []
        assert local.settings.address == "host:1"

    def test_a_newer_set_says_whom_to_ask(self) -> None:
        local = member()
        newer = InSync(2, "id-b", 1, (B,), ("b:1", "d:1"))
        other = View("id-b", "b", "b:1", State.READY, 2, "id-b", 0, True, newer)
        self.answered(local, {"b:1": other.to_json()})
        assert (local.cluster.latest(), local.cluster.everybody()) == (["b:1", "d:1"], ["b:1", "c:1", "d:1"])


def _view(instance: str) -> View:
    """Of a process with the id of `member`."""
    fields: dict[str, Any] = {"state": State.JOINING, "epoch": 0, "leader": "", "position": 0, "whole": False}
    return View(id="id-a", name="a", address=f"{instance}:1", in_sync=InSync(), instance=instance, **fields)


class TestMeetings:
    def setup_method(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.twins: list[tuple[str, str]] = []
        self.meetings = Meetings(
            lambda peer, number: self.asked.append((cast(str, peer), number)),
            lambda first, second, hello: self.twins.append((cast(str, first), cast(str, second))),
        )

    def begin(self, first: str, second: str) -> None:
        self.meetings.begin(cast(Any, first), cast(Any, second), {"of": second})

    def answer_all(self) -> None:
        for peer, number in reversed(self.asked):
            self.meetings.answered(cast(Any, peer), number)

    def test_a_hello_that_is_repeated_asks_no_second_time(self) -> None:
        self.begin("b", "b2")
        self.begin("b", "b2")
        assert [peer for peer, _ in self.asked] == ["b", "b2"]

    def test_two_meetings_at_a_time_are_told_apart(self) -> None:
        self.begin("b", "b2")
        self.begin("c", "c2")
        assert [peer for peer, _ in self.asked] == ["b", "b2", "c", "c2"]
        self.answer_all()
        assert self.twins == [("c", "c2"), ("b", "b2")]

    def test_only_those_wait_whose_place_becomes_free(self) -> None:
        self.begin("b", "b2")
        self.begin("c", "c2")
        assert self.meetings.left(cast(Any, "c2")) == []
        assert self.meetings.left(cast(Any, "b")) == [("b2", {"of": "b2"})]
        self.answer_all()
        assert self.twins == []


def test_confirms_wait_for_every_change_but_that_a_backup_is_listed() -> None:
    peer: Any = SimpleNamespace(member=B)
    waits = {change.what: change.stalls for change in (First(), Enlist(peer), Drop("c"), Rename(("a:1",), "b:1"))}
    assert waits == {
        "the first set of a new primary": True,
        f"backup {B} is listed": False,
        "c is dropped": True,
        "b:1 leaves the cluster": True,
    }


def test_a_link_that_is_broken_off_is_gone_at_once() -> None:
    world = World()
    world.cluster()
    primary: Any = world["a"].node.role
    before = list(primary._links)
    primary.break_link(before[0], LinkError("it says nonsense"))
    assert list(primary._links) == before[1:]
