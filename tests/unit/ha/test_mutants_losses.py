"""When a lost backup stops counting, step by step: what a small mistake in `losses.py` would change."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ha.model.environment import Answer, Outcome
from ha.model.membership import InSync, Member
from ha.model.status import State
from ha.model.view import Survey, View
from ha.primary.losses import Losses

ANSWERED, SILENT, REFUSED = Outcome.ANSWERED, Outcome.SILENT, Outcome.REFUSED
INTERVAL, PATIENCE, DEAD_AFTER = 1.0, 3.0, 10.0


class Asked:
    """A survey under way."""

    def __init__(self, started: float, done: Callable[[dict[str, Answer]], None]) -> None:
        self.started, self.done = started, done
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """What the losses see; the test says what time it is and what the others answer."""

    def __init__(self, probes: bool = True) -> None:
        self.time = 100.0
        self.rounds: list[Asked] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.removed: list[list[str]] = []
        self.deposed, self.may_shrink, self.unfrozen = False, True, 0
        self.patience = PATIENCE
        self.spent: set[str] = set()
        self.signs: list[tuple[str, float]] = []
        """Of life: address and moment."""
        safety = SimpleNamespace(
            probes=probes,
            patience=lambda survey, members, in_sync: self.patience,
        )
        env = SimpleNamespace(now=lambda: self.time, after=lambda delay, call: self.timers.append((delay, call)))
        local: Any = SimpleNamespace(
            env=env,
            safety=safety,
            keeps=False,
            spent=self.spent,
            may_shrink=lambda ids: self.may_shrink,
            settings=SimpleNamespace(heartbeat=INTERVAL, dead_after=DEAD_AFTER),
            persisted=SimpleNamespace(in_sync=InSync()),
            cluster=SimpleNamespace(
                refusals=SimpleNamespace(alive=lambda address, at: self.signs.append((address, at))),
                ask_all=self._ask,
                survey=lambda answers: Survey.of("id-a", answers, "mine"),
            ),
        )
        primary: Any = SimpleNamespace(learn=lambda survey: self.deposed, unfreeze=self._unfreeze)
        self.losses = Losses(local, lambda peers: self.removed.append([peer.id for peer in peers]), primary)

    def _ask(self, timeout: float, done: Callable[[dict[str, Answer]], None]) -> Asked:
        assert timeout == INTERVAL
        self.rounds.append(Asked(self.time, done))
        return self.rounds[-1]

    def _unfreeze(self) -> None:
        self.unfrozen += 1

    def peer(self, name: str = "b", heard: float = 99.0, dropped: bool = False) -> Any:
        member = Member(f"id-{name}", name, f"{name}:1", name)
        pulse = SimpleNamespace(heard=heard)
        return SimpleNamespace(id=member.id, member=member, pulse=pulse, lost_at=self.time, dropped=dropped)

    def answer(self, number: int, **outcomes: Outcome | View) -> None:
        """What the survey with this number (from 0) finds out."""
        answers = {}
        for name, outcome in outcomes.items():
            found = Answer(ANSWERED, outcome.to_json()) if isinstance(outcome, View) else Answer(outcome)
            answers[f"{name}:1"] = found
        self.rounds[number].done(answers)


def alive(name: str = "b", whole: bool = True) -> View:
    values: dict[str, Any] = {"state": State.READY, "epoch": 1, "leader": "id-a", "position": 9, "instance": name}
    return View(id=f"id-{name}", name=name, address=f"{name}:1", whole=whole, **values)


def test_without_probes_it_is_removed_at_once() -> None:
    world = World(probes=False)
    world.losses.lost(world.peer())
    assert (world.removed, world.rounds) == ([["id-b"]], [])
    world.losses.suspect(world.peer())
    assert world.rounds == []


def test_one_that_refuses_is_removed_after_a_survey_that_began_after_the_loss() -> None:
    world = World()
    world.losses.watch()
    world.losses.lost(world.peer())
    assert len(world.rounds) == 2
    world.answer(0, b=REFUSED)
    assert (world.removed, world.unfrozen) == ([], 1)
    world.answer(1, b=REFUSED)
    assert (world.removed, world.unfrozen) == ([["id-b"]], 2)
    assert world.timers == []


def test_a_survey_of_the_first_suspicion_counts_for_a_loss_by_silence() -> None:
    world = World()
    peer = world.peer(heard=99.0)
    world.losses.suspect(peer)
    world.losses.suspect(peer)
    assert len(world.rounds) == 1
    world.answer(0, b=REFUSED)
    assert world.removed == []
    world.losses.lost(peer, silent=True)
    assert (len(world.rounds), world.removed) == (1, [["id-b"]])


def test_a_survey_under_way_since_the_suspicion_is_waited_for() -> None:
    world = World()
    peer = world.peer()
    world.losses.suspect(peer)
    world.losses.lost(peer, silent=True)
    assert (len(world.rounds), world.removed) == (1, [])
    world.answer(0, b=REFUSED)
    assert world.removed == [["id-b"]]


@pytest.mark.parametrize(("heard", "rounds"), [(99.5, 1), (99.6, 2)])
def test_a_survey_is_too_old_for_one_that_was_heard_when_it_began(heard: float, rounds: int) -> None:
    world = World()
    world.losses.watch()
    world.answer(0, b=REFUSED)
    world.losses.lost(world.peer(heard=heard), silent=True)
    assert (len(world.rounds), world.removed) == (rounds, [["id-b"]] if rounds == 1 else [])


@pytest.mark.parametrize(("heard", "rounds"), [(99.5, 1), (99.6, 2)])
def test_a_suspicion_needs_no_second_survey(heard: float, rounds: int) -> None:
    world = World()
    world.losses.watch()
    world.answer(0)
    world.losses.suspect(world.peer(heard=heard))
    assert len(world.rounds) == rounds


def test_a_suspicion_begins_no_survey_while_one_is_under_way() -> None:
    world = World()
    world.losses.watch()
    world.losses.suspect(world.peer(heard=99.9))
    assert len(world.rounds) == 1


def test_a_loss_that_is_no_silence_needs_a_survey_of_its_own() -> None:
    world = World()
    world.losses.watch()
    world.answer(0, b=REFUSED)
    world.losses.lost(world.peer(heard=90.0))
    assert (len(world.rounds), world.removed) == (2, [])


def test_what_was_heard_last_is_a_sign_of_life() -> None:
    world = World()
    world.losses.lost(world.peer(heard=90.0))
    assert world.signs == [("b:1", 90.0)]


@pytest.mark.parametrize(("away", "gone"), [(PATIENCE - 0.1, False), (PATIENCE, True)])
def test_a_silent_one_is_removed_when_the_patience_is_over(away: float, gone: bool) -> None:
    world = World()
    world.losses.lost(world.peer())
    world.time += away
    world.answer(0, b=SILENT)
    assert world.removed == ([["id-b"]] if gone else [])
    assert [delay for delay, _ in world.timers] == ([] if gone else [INTERVAL / 2])


@pytest.mark.parametrize(("away", "gone"), [(DEAD_AFTER, False), (DEAD_AFTER + 0.1, True)])
def test_one_that_lives_has_time_to_come_back(away: float, gone: bool) -> None:
    world = World()
    world.patience = 0.0
    world.losses.lost(world.peer())
    world.time += away
    world.answer(0, b=alive())
    assert world.removed == ([["id-b"]] if gone else [])


@pytest.mark.parametrize(("away", "gone"), [(PATIENCE - 0.1, False), (PATIENCE, True)])
def test_one_that_lives_and_tells_both_sides_the_same_is_waited_for(away: float, gone: bool) -> None:
    world = World()
    world.losses.lost(world.peer())
    world.time += away
    world.answer(0, b=alive(whole=False))
    assert world.removed == ([["id-b"]] if gone else [])


@pytest.mark.parametrize(("dropped", "whole"), [(True, True), (False, False)])
def test_one_that_lives_and_was_dropped_or_is_empty_is_removed_at_once(dropped: bool, whole: bool) -> None:
    world = World()
    world.patience = 0.0
    world.losses.lost(world.peer(dropped=dropped))
    world.answer(0, b=alive(whole=whole))
    assert world.removed == [["id-b"]]


@pytest.mark.parametrize(("whole", "spent"), [(True, set()), (False, {"id-b"})])
def test_one_that_says_that_it_is_not_whole_has_nothing_of_what_cannot_be_read(whole: bool, spent: set[str]) -> None:
    world = World()
    world.losses.lost(world.peer())
    world.answer(0, b=alive(whole=whole))
    assert world.spent == spent


def test_it_looks_again_while_one_is_lost_and_only_then() -> None:
    world = World()
    world.losses.lost(world.peer())
    world.answer(0, b=SILENT)
    ((_, again),) = world.timers
    again()
    again()
    assert len(world.rounds) == 2
    world.losses.back("id-b")
    world.answer(1, b=REFUSED)
    again()
    assert (world.removed, len(world.rounds), len(world.timers)) == ([], 2, 1)


def test_those_who_are_gone_are_removed_and_the_others_waited_for() -> None:
    world = World()
    world.losses.lost(world.peer("b"))
    world.losses.lost(world.peer("c"))
    world.answer(1, b=REFUSED, c=SILENT)
    assert (world.removed, len(world.timers)) == ([["id-b"]], 1)
    world.time += PATIENCE
    world.timers[0][1]()
    assert len(world.rounds) == 2  # the first one is still under way
    world.answer(0, c=SILENT)
    assert world.removed == [["id-b"]]  # it is older than the one that has judged
    world.timers[0][1]()
    world.answer(2, c=SILENT)
    assert world.removed == [["id-b"], ["id-c"]]


def test_an_older_survey_that_ends_later_judges_no_broker() -> None:
    world = World()
    world.losses.lost(world.peer("b"))
    world.losses.lost(world.peer("c"))
    world.answer(1, b=SILENT, c=SILENT)
    world.answer(0, b=REFUSED, c=REFUSED)
    assert (world.removed, world.unfrozen) == ([], 1)


def test_none_is_removed_while_the_rest_would_be_too_few() -> None:
    world = World()
    world.may_shrink = False
    world.losses.lost(world.peer())
    world.answer(0, b=REFUSED)
    assert (world.removed, len(world.timers)) == ([], 1)
    world.may_shrink = True
    world.timers[0][1]()
    world.answer(1, b=REFUSED)
    assert world.removed == [["id-b"]]


def test_a_deposed_primary_removes_none() -> None:
    world = World()
    world.losses.lost(world.peer())
    world.deposed = True
    world.answer(0, b=REFUSED)
    assert (world.removed, world.unfrozen) == ([], 0)


def test_nothing_happens_after_the_end() -> None:
    world = World()
    world.losses.lost(world.peer())
    world.losses.stop()
    assert world.rounds[0].cancelled
    world.answer(0, b=REFUSED)
    assert (world.removed, world.unfrozen) == ([], 0)


def test_looking_again_ends_with_the_role() -> None:
    world = World()
    world.losses.lost(world.peer())
    world.answer(0, b=SILENT)
    world.losses.stop()
    world.timers[0][1]()
    assert len(world.rounds) == 1


def test_after_a_pause_old_answers_do_not_count_and_the_time_begins_again() -> None:
    world = World()
    peer = world.peer()
    world.losses.lost(peer)
    world.time += PATIENCE
    world.losses.resumed()
    assert (peer.lost_at, world.rounds[0].cancelled, len(world.rounds)) == (world.time, True, 2)
    world.answer(1, b=SILENT)
    assert world.removed == []
    world.time += PATIENCE
    world.timers[0][1]()
    world.answer(2, b=SILENT)
    assert world.removed == [["id-b"]]


def test_after_a_pause_the_survey_before_it_judges_no_broker() -> None:
    world = World()
    peer = world.peer()
    world.losses.lost(peer)
    world.answer(0, b=SILENT)
    world.losses.resumed()
    assert len(world.rounds) == 2
    world.losses.lost(world.peer("c"), silent=True)
    assert world.removed == []
    world.losses.watch()
    assert len(world.rounds) == 2
