"""Which brokers hear which (`ha/model/hearing.py`)."""

from __future__ import annotations

from typing import Any

import pytest

from ha.model.environment import Answer, Outcome
from ha.model.hearing import HEARD_MAX, Hearing, ages
from ha.model.membership import Member
from ha.model.protocol import encode_control
from ha.model.pulse import Pulse
from ha.model.view import View
from ha.primary.peer import Peer
from ha.primary.primary import Primary
from qpidd_py.errors import LinkError
from tests.unit.ha.world import World

OTHERS = ("b:1", "c:1", "d:1")


def hearing() -> tuple[World, Hearing]:
    world = World("a")
    world.clock = 100.0
    return world, Hearing(world["a"])


def test_a_broker_that_has_answered_was_heard() -> None:
    world, found = hearing()
    found.answered("b:1")
    world.clock += 6.2504
    assert found.ages() == {"b:1": 6.25}


def test_one_that_asks_was_heard_when_our_answers_reach_it() -> None:
    world, found = hearing()
    found.said("b:1", {"c:1": 0.5}, "a:1")
    assert found.ages() == {}
    found.said("b:1", {"c:1": 0.5, "a:1": 2.0}, "a:1")
    assert found.ages() == {"b:1": 2.0}
    world.clock += 1.0
    found.said("b:1", {"a:1": 5.0}, "a:1")
    assert found.ages() == {"b:1": 3.0}, "the last time"


def test_the_largest_number_of_which_one_has_heard_the_others() -> None:
    world, found = hearing()
    assert found.apart(OTHERS, 0.0) == 0
    found.said("b:1", {}, "a:1")
    assert found.apart(OTHERS, 100.0) == 1
    found.said("c:1", {"b:1": 2.0, "a:1": 0.0, "x:1": 0.0}, "a:1")
    assert found.apart(OTHERS, 98.0) == 2, "neither we, nor a stranger"
    assert found.apart(OTHERS, 98.25) == 1, "b may be dead since"
    world.clock += 1.0
    assert found.apart(OTHERS, 100.25) == 0
    found.said("c:1", {}, "a:1")
    assert found.apart(OTHERS, 98.0) == 1, "what it said last counts"


def test_one_that_two_have_heard_has_heard_both() -> None:
    """Also if its own questions and answers do not reach us."""
    _, found = hearing()
    found.said("b:1", {"d:1": 1.0}, "a:1")
    found.said("c:1", {"d:1": 2.0}, "a:1")
    assert found.apart(OTHERS, 98.0) == 3
    assert found.apart(OTHERS, 98.5) == 2, "c may not hear it any more"


def test_it_is_in_questions_and_answers() -> None:
    world = World(safety="quorum")
    world.cluster()
    world["a"].kill()
    died = world.clock
    world.run(5.0)
    for name, other in ("bc", "cb"):
        assert dict(world[name].node.view().heard)[f"{other}:1"] < 5.0
    assert world["b"].node.local.cluster.apart(died) == 1, "only c is not b, and lives"


def test_a_backup_that_is_asked_tells_its_primary() -> None:
    """c asks b, and its questions do not reach a, which has to know that b and c could go on without it."""
    world = World(safety="quorum")
    world.cluster()
    told: list[tuple[str, dict[str, float]]] = []
    local: Any = world["a"].node.local
    local.cluster.asked = lambda member, heard: told.append((member.id, dict(heard)))
    world.run(5.0)
    told.clear()
    world.run(5.0)
    assert told == [], "its own questions need no answer of this kind"
    world["c"].node.local.cluster.ask_all(1.0, lambda answers: None, addresses=["b:1"])
    world.until(lambda: bool(told), 2.0)
    assert [id for id, _ in told] == ["id-b"] and told[0][1]["a:1"] < 5.0
    world["c"].node.local.cluster.ask_all(1.0, lambda answers: None, addresses=["b:1"])
    world.until(lambda: len(told) > 1, 2.0)
    assert told[1][1]["c:1"] < 3.0, "since then b knows that its answer has reached c"
    world.run(5.0)
    assert len(told) == 2


def test_a_backup_that_has_not_said_who_it_is_tells_nothing() -> None:
    world = World(safety="quorum")
    world.cluster()
    role = world["a"].node.role
    assert isinstance(role, Primary)
    with pytest.raises(LinkError, match="control heard in phase hello"):
        role._arrivals.on_control(Peer(Member("id-x"), Pulse(0, 0)), 0, encode_control("heard", heard={"c:1": 1.0}))


MANY = {f"{number}:1": 0 for number in range(HEARD_MAX + 1)}


@pytest.mark.parametrize(
    "heard", ["c:1", 5, ["c:1"], {"c:1": "now"}, {"c:1": -0.001}, {"c:1": 1e12}, {"b:1": 1, "c:1": None}, MANY]
)
def test_something_else_is_an_invalid_answer(heard: object) -> None:
    view = World("a")["a"].node.view().to_json()
    assert View.from_json({**view, "heard": {"c:1": 1}}).heard == (("c:1", 1.0),)
    with pytest.raises(LinkError, match="not who was heard"):
        View.from_json({**view, "heard": heard})


def test_as_many_as_a_broker_may_have_heard_at_any_time() -> None:
    found = {address: age for age, address in enumerate(list(MANY)[1:])}
    assert ages({"heard": {**found, "1:1": 999_999_999_999}}) == {**found, "1:1": 999_999_999_999.0}
    assert ages({}) == ages({"heard": None}) == {}


def test_a_stranger_is_not_remembered() -> None:
    world = World()
    world.cluster()
    local = world["a"].node.local
    local.cluster._note(
        {"x:1": Answer(Outcome.ANSWERED, {**world["b"].node.view().to_json(), "id": "x", "address": "x:1"})}
    )
    assert "x:1" not in local.cluster._hearing.ages() and "x:1" not in local.cluster._hearing._said
