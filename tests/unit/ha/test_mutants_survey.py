"""Rounds of questions at their edges: what a small mistake in `survey.py` or `view.py` would change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ha.model.environment import Answer, Json, Outcome
from ha.model.membership import InSync, Member
from ha.model.status import State
from ha.model.survey import Both, Round
from ha.model.view import Survey, View

ANSWERED, SILENT, REFUSED = Outcome.ANSWERED, Outcome.SILENT, Outcome.REFUSED


class Asked:
    """As much of the environment as a round needs; answers come when the test says so."""

    def __init__(self) -> None:
        self.requests: dict[str, Callable[[Answer], None]] = {}
        self.arguments: list[tuple[str, str, Json, float]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.found: list[dict[str, Outcome]] = []

    def now(self) -> float:
        return 7.0

    def request(self, address: str, method: str, arguments: Json, timeout: float, done: Any) -> None:
        self.arguments.append((address, method, arguments, timeout))
        self.requests[address] = done

    def after(self, delay: float, call: Callable[[], None]) -> None:
        self.timers.append((delay, call))

    def done(self, answers: dict[str, Answer]) -> None:
        self.found.append({address: answer.outcome for address, answer in answers.items()})

    def round(self, *addresses: str, **how: Any) -> Round:
        env: Any = self
        return Round(env, addresses, "ha.ask", {"of": "a"}, 2.0, self.done, **how)

    def answer(self, address: str, outcome: Outcome = ANSWERED, **result: Any) -> None:
        self.requests[address](Answer(outcome, result))

    def time_is_over(self) -> None:
        for _, call in self.timers:
            call()


class TestARound:
    def test_asks_everybody_and_waits_for_all(self) -> None:
        asked = Asked()
        round_ = asked.round("b:1", "c:1")
        assert asked.arguments == [("b:1", "ha.ask", {"of": "a"}, 2.0), ("c:1", "ha.ask", {"of": "a"}, 2.0)]
        assert (round_.started, [delay for delay, _ in asked.timers]) == (7.0, [2.0])
        asked.answer("b:1")
        assert (asked.found, round_.over) == ([], False)
        assert [answer.outcome for answer in round_.answers.values()] == [ANSWERED, SILENT]
        asked.answer("c:1", REFUSED)
        asked.time_is_over()
        assert (asked.found, round_.over) == ([{"b:1": ANSWERED, "c:1": REFUSED}], True)

    def test_ends_with_the_time(self) -> None:
        asked = Asked()
        asked.round("b:1", "c:1")
        asked.answer("c:1")
        asked.time_is_over()
        asked.answer("b:1")
        assert asked.found == [{"b:1": SILENT, "c:1": ANSWERED}]

    def test_ends_when_it_is_told_to_or_has_enough(self) -> None:
        asked = Asked()
        asked.round("b:1", "c:1").end()
        assert asked.found == [{"b:1": SILENT, "c:1": SILENT}]
        asked = Asked()
        asked.round("b:1", "c:1", "d:1", enough=lambda answer: "enough" in answer.result)
        asked.answer("c:1")
        assert asked.found == []
        asked.answer("b:1", enough=True)
        assert asked.found == [{"b:1": ANSWERED, "c:1": ANSWERED, "d:1": SILENT}]

    def test_that_is_cancelled_says_nothing(self) -> None:
        asked = Asked()
        round_ = asked.round("b:1")
        round_.cancel()
        asked.answer("b:1")
        asked.time_is_over()
        assert (asked.found, round_.over) == ([], True)

    def test_waits_only_for_those_it_has_to_wait_for(self) -> None:
        asked = Asked()
        asked.round("b:1", "c:1", wait_for=["c:1", "x:1"])
        asked.answer("c:1")
        assert asked.found == [{"b:1": SILENT, "c:1": ANSWERED}]

    @pytest.mark.parametrize(("addresses", "how"), [((), {}), (("b:1",), {"wait_for": ["x:1"]})])
    def test_that_waits_for_no_answer_ends_after_it_was_made(self, addresses: tuple[str, ...], how: Any) -> None:
        asked = Asked()
        asked.round(*addresses, **how)
        assert (asked.found, [delay for delay, _ in asked.timers]) == ([], [0.0])
        asked.time_is_over()
        assert asked.found == [dict.fromkeys(addresses, SILENT)]

    def test_its_answers_are_its_own(self) -> None:
        asked = Asked()
        round_ = asked.round("b:1")
        round_.answers["b:1"] = Answer(ANSWERED)
        assert round_.answers["b:1"].outcome is SILENT


@pytest.mark.parametrize("backwards", [False, True])
def test_both_answers_are_waited_for(backwards: bool) -> None:
    found: list[tuple[int, str]] = []
    both: Both[int, str] = Both(lambda one, other: found.append((one, other)))
    calls: list[Callable[[], None]] = [lambda: both.first(0), lambda: both.second("")]
    for call in reversed(calls) if backwards else calls:
        assert found == []
        call()
    assert found == [(0, "")]


def view(id: str = "id-b", **fields: Any) -> View:
    values: dict[str, Any] = {"name": "b", "address": "b:1", "state": State.READY, "epoch": 3, "leader": "id-a"}
    return View(id=id, **{**values, "position": 9, "whole": True, "instance": "life", **fields})


class TestAView:
    @pytest.mark.parametrize("name", ["whole", "doubt", "stood", "isolated"])
    @pytest.mark.parametrize("value", [False, True])
    def test_survives_the_way(self, name: str, value: bool) -> None:
        fields: dict[str, Any] = {"primary": "a:1", "in_sync": InSync(3, "id-a", 2, (view().member,)), name: value}
        said = view(**fields)
        assert View.from_json(said.to_json()) == said

    def test_of_an_older_version_has_no_doubts(self) -> None:
        least: dict[str, Any] = {"id": "id-b", "state": "ready", "epoch": 3, "position": 9, "whole": True}
        least["in_sync"] = InSync().to_json()
        found = View.from_json(least)
        assert found == View("id-b", "", "", State.READY, 3, "", 9, True)
        assert (found.doubt, found.stood, found.isolated) == (False, False, False)

    @pytest.mark.parametrize(
        ("state", "isolated", "leads"),
        [(State.ACTIVE, False, True), (State.ACTIVE, True, False), (State.READY, False, False)],
    )
    def test_of_a_primary_leads_unless_it_is_isolated(self, state: State, isolated: bool, leads: bool) -> None:
        assert view(state=state, isolated=isolated).leads is leads


def survey(*views: View, **outcomes: Outcome) -> Survey:
    answers = {each.address: Answer(ANSWERED, each.to_json()) for each in views}
    return Survey.of("id-a", answers | {f"{name}:1": Answer(outcome) for name, outcome in outcomes.items()}, "mine")


class TestASurvey:
    def test_a_broken_answer_is_silence_and_the_others_count(self) -> None:
        answers = {"b:1": Answer(ANSWERED, {"id": "id-b"}), "c:1": Answer(ANSWERED, view("id-c").to_json())}
        found = Survey.of("id-a", answers, "mine")
        assert (found.outcomes, [each.id for each in found.views]) == ({"b:1": SILENT, "c:1": ANSWERED}, ["id-c"])

    def test_the_own_answer_is_left_out_and_the_next_one_counts(self) -> None:
        own, other = view("id-a", address="a:1", instance="mine"), view("id-c", address="c:1")
        found = survey(own, other)
        assert (found.outcomes, found.ids) == ({"c:1": ANSWERED}, {"c:1": "id-c"})

    def test_a_twin_is_no_other_broker(self) -> None:
        found = survey(view("id-a", address="x:1", instance="other"))
        assert (found.views, [twin.address for twin in found.twins], found.ids) == ((), ["x:1"], {})

    def test_a_view_without_an_address_has_the_one_that_was_asked(self) -> None:
        found = Survey.of("id-a", {"b:1": Answer(ANSWERED, view(address="").to_json())}, "mine")
        assert [each.address for each in found.views] == ["b:1"]
        found = Survey.of("id-a", {"alias:1": Answer(ANSWERED, view().to_json())}, "mine")
        assert [each.address for each in found.views] == ["b:1"]

    def test_a_member_is_its_process_or_its_restart_and_no_copy_elsewhere(self) -> None:
        member = Member("id-b", "b", "b:1", "life")
        here, restarted = view(address="new:1"), view(instance="next")
        assert survey(here).of_member(member) == here
        assert survey(restarted).of_member(member) == restarted
        assert survey(restarted, here).of_member(member) == here
        assert survey(view(address="x:1", instance="next")).of_member(member) is None
        assert survey(view("id-c")).of_member(member) is None
        anywhere = view(address="x:1", instance="next")
        assert survey(anywhere).of_member(replace(member, address="")) is None, "the member may be its copy"

    def test_outcomes_of_members(self) -> None:
        member = Member("id-b", "b", "b:1", "life")
        assert survey(view()).outcome(member) is ANSWERED
        assert survey(b=REFUSED).outcome(member) is REFUSED
        assert survey(view("id-c", address="b:1")).outcome(member) is SILENT
        assert survey().outcome(member) is SILENT

    def test_the_fate_of_a_broker_known_by_its_id(self) -> None:
        listed = InSync(3, "id-a", 1, (Member("id-b", "b", "b:1", "life"),))
        assert survey(view("id-x", address="x:1")).fate("id-x", listed) is ANSWERED
        assert survey(b=REFUSED, c=SILENT).fate("id-b", listed) is REFUSED
        assert survey(b=REFUSED, c=SILENT).fate("id-x", listed) is SILENT
        assert survey(b=REFUSED).fate("id-x", listed) is REFUSED
