"""A takeover by itself: what it asks, for how long it waits, and what it answers.  Its node is a double."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ha.model.environment import Answer, Json, Outcome
from ha.model.membership import Member
from ha.model.settings import NodeSettings
from ha.model.status import State
from ha.model.view import View
from ha.promotion.promoter import Wish
from ha.promotion.takeover import RETURN_LIMIT, Takeover

PRIMARY = View("id-a", "a", "a:1", State.ACTIVE, 1, "id-a", 9, True)
WISH = Wish(takeover=True)


class Node:
    """Of broker b, a backup that follows a."""

    def __init__(self, **settings: Any) -> None:
        self.id, self.member = "id-b", Member("id-b", "b", "b:1")
        times = {"heartbeat": 1.0, "promote_timeout": 2.0, "registry_timeout": 3.0, "relocate_timeout": 50.0}
        self.settings = NodeSettings(name="b", address="b:1", brokers=("a:1", "b:1"), **{**times, **settings})
        self.state = State.READY
        self.stopped = False
        self.promoter: object | None = None
        self.follows = True
        self.requests: list[tuple[Any, ...]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.promoted: list[tuple[Any, Any]] = []
        self.replies: list[Json] = []
        self.env = SimpleNamespace(log=lambda *_: None, request=self._request, after=self._after)
        self.ended = False
        self.attempt = Takeover(cast(Any, self), self, PRIMARY, WISH, [self.replies.append, self.replies.append])

    def _request(self, *arguments: Any) -> None:
        self.requests.append(arguments)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self.later.append((seconds, call))

    @property
    def may_follow(self) -> bool:
        return self.promoter is not None or self.follows

    def takeover_ended(self) -> None:
        self.ended = True

    def promote(self, reply: Any, wish: Any) -> None:
        self.promoted.append((reply, wish))

    def begun(self) -> Node:
        self.attempt.start()
        return self

    def answer(self, outcome: Outcome = Outcome.ANSWERED, error: str = "") -> None:
        self.requests[0][4](Answer(outcome, error=error))

    def look(self) -> None:
        """The next time that it looks."""
        seconds, call = self.later.pop(0)
        assert seconds == 0.25, "a quarter of a heartbeat"
        call()

    @property
    def over(self) -> bool:
        return self.ended


@pytest.mark.parametrize(
    ("settings", "step"),
    [({}, 2.0), ({"registry": "pacemaker"}, 3.0), ({"registry": "pacemaker", "registry_timeout": 1.0}, 2.0)],
)
def test_the_primary_is_asked_to_hand_over_and_has_the_time_for_it(settings: dict[str, Any], step: float) -> None:
    node = Node(**settings).begun()
    address, method, arguments, limit, _ = node.requests[0]
    assert (address, method, arguments) == ("a:1", "ha.relocate", {"to": "id-b"})
    assert limit == 50.0 + 2 * step + node.settings.dead_after + RETURN_LIMIT
    assert not node.over and len(node.later) == 1


@pytest.mark.parametrize("timeout", [0.25, 0.5])
def test_a_registry_that_is_not_used_takes_no_time(timeout: float) -> None:
    node = Node(promote_timeout=timeout, registry_timeout=9.0).begun()
    assert node.requests[0][3] == 50.0 + 2 * timeout + node.settings.dead_after + RETURN_LIMIT


@pytest.mark.parametrize(("promoter", "follows"), [(None, True), (object(), False), (object(), True)])
def test_it_goes_on_for_as_long_as_it_follows_or_is_being_promoted(promoter: object | None, follows: bool) -> None:
    node = Node().begun()
    node.promoter, node.follows = promoter, follows
    for _ in range(3):
        node.look()
    assert not node.over and node.promoted == [] and len(node.later) == 1


@pytest.mark.parametrize("state", [State.READY, State.ACTIVE])
def test_one_that_does_not_follow_any_more_and_was_not_asked_tries_by_itself(state: State) -> None:
    node = Node().begun()
    node.state, node.follows = state, state is not State.READY
    node.look()
    assert node.over and node.promoted == [(node.attempt.replies[0], WISH)] * 2 and node.later == []
    node.answer()
    assert node.replies == [], "the answer comes too late"


def test_a_host_that_refuses_is_dead() -> None:
    node = Node().begun()
    node.answer(Outcome.REFUSED)
    assert node.over and [wish for _, wish in node.promoted] == [WISH, WISH] and node.replies == []
    node.look()
    assert len(node.promoted) == 2 and node.later == []


def test_everybody_who_asked_is_told_that_it_is_done() -> None:
    node = Node().begun()
    node.state = State.RECOVERING
    node.answer()
    assert node.over and node.replies == [{"ok": True, "result": {}}] * 2 and node.promoted == []


@pytest.mark.parametrize(
    ("outcome", "error", "why"),
    [
        (Outcome.ANSWERED, "a switch-over is under way", "a switch-over is under way"),
        (Outcome.SILENT, "", "it does not answer"),
        (Outcome.SILENT, "no route", "no route"),
        (Outcome.ANSWERED, "", "it has handed over, but this broker is ready"),
    ],
)
def test_everybody_who_asked_is_told_why_not(outcome: Outcome, error: str, why: str) -> None:
    node = Node().begun()
    node.answer(outcome, error)
    text = f"b cannot be promoted: a is primary, and {why}"
    assert node.over and node.replies == [{"ok": False, "error": text}] * 2
    node.look()
    assert node.promoted == []


def test_a_broker_that_is_stopped_says_and_does_nothing_more() -> None:
    node = Node().begun()
    node.stopped = True
    node.follows = False
    node.answer()
    node.look()
    assert not node.over and (node.replies, node.promoted, node.later) == ([], [], [])
