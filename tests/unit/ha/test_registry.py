"""The manager's registry: changes of the in-sync set; a shrink and a promotion exclude each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from ha.model.environment import Exchanged, StateNotStored
from ha.model.membership import HaState, InSync, Member
from ha.model.settings import NodeSettings
from ha.promotion.claims import Claim, contradicted
from ha.registry.recorder import FIRST_DELAY, LAST_DELAY, Recorder
from tests.unit.ha.own_changes import Change, Owner

A, B, C = (Member(f"id-{name}", name, f"{name}:1") for name in "abc")
SET = InSync(1, A.id, 3, (A, B, C))
Done = Callable[[Exchanged], None]


class Store:
    """Linearizable: each step is one atom; an exchange is two of them, in this order or, on purpose, in the other."""

    def __init__(self, write_first: bool = True) -> None:
        self.entries: dict[str, HaState] = {}
        self._write_first = write_first

    def steps(self, state: HaState | None, done: Done, answers: bool = True) -> list[Callable[[], None]]:
        """What an exchange does; without an answer its caller learns only that it has failed."""
        seen: list[tuple[HaState, ...]] = []

        def write() -> None:
            if state is not None:
                self.entries[state.id] = state

        def read() -> None:
            seen.append(tuple(self.entries.values()))

        def last(step: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                step()
                done(Exchanged(seen[0]) if answers else Exchanged(error="no answer"))

            return run

        return [write, last(read)] if self._write_first else [read, last(write)]


class Actor:
    """A primary without the rest of a broker: what the recorder asks of its node, steps taken one by one."""

    def __init__(self, store: Store, lost_answers: int = 0, registry: bool = True) -> None:
        self.settings = NodeSettings("a", registry=registry)
        self.persisted = HaState(A.id, 1, A.id, SET)
        self.env: Any = self
        self.store = store
        self.pending: list[Callable[[], None]] = []
        self.lost_answers = lost_answers
        self.deposed_by: tuple[int, str] | None = None
        self.lines: list[str] = []
        self.delays: list[float] = []
        self.disk_error = ""
        self.recorder = Recorder(cast(Any, self), self.depose, Owner())

    def now(self) -> float:
        return 0.0

    def log(self, level: str, text: str) -> None:
        self.lines.append(text)

    def after(self, delay: float, call: Callable[[], None]) -> None:
        self.delays.append(delay)
        self.pending.append(call)

    def exchange(self, state: HaState | None, timeout: float, done: Done) -> None:
        self.lost_answers -= 1
        self.pending += self.store.steps(state, done, answers=self.lost_answers < 0)

    def persist(self, in_sync: InSync, vouched: tuple[int, str, int]) -> None:
        if self.disk_error:
            raise StateNotStored(self.disk_error)
        self.persisted = self.persisted.advance(in_sync=in_sync, vouched=vouched)

    def depose(self, ballot: tuple[int, str], reason: str, address: str) -> None:
        self.deposed_by = ballot
        self.recorder.stop()

    def step(self) -> None:
        self.pending.pop(0)()

    def drain(self) -> None:
        while self.pending:
            self.step()


def change(done: list[InSync], make: Callable[[InSync], InSync | None], stalls: bool = True) -> Change:
    return Change("a change", make, done.append, stalls)


def schedules(store: Store, lost_answers: int) -> Iterator[tuple[bool, bool]]:
    """Every order in which the steps of one shrink (b is dropped) and of one promotion (of b) can be mixed; of each,
    whether the set came into force and whether the claim stands."""
    claim = Claim(2, SET, (B, C))
    steps = 2 + 3 * lost_answers + 2
    for turns in itertools.combinations(range(steps), 2):
        yield _played(store, lost_answers, claim, [turn in turns for turn in range(steps)])


def _played(store: Store, lost_answers: int, claim: Claim, order: list[bool]) -> tuple[bool, bool]:
    """`order`: whether each turn is the candidate's."""
    store.entries.clear()
    primary = Actor(store, lost_answers)
    in_force: list[InSync] = []
    verdicts: list[str] = []
    vote = HaState(B.id, 2, B.id, SET)
    candidate = store.steps(vote, lambda end: verdicts.append(contradicted(claim, B.id, end)))
    primary.recorder.want(change(in_force, lambda in_sync: in_sync.shrink([B.id])))
    for candidates in order:
        if candidates:
            candidate.pop(0)()
        elif primary.pending:
            primary.step()
    primary.drain()
    assert (primary.deposed_by is None) == bool(in_force)
    return bool(in_force), verdicts == [""]


@pytest.mark.parametrize("lost_answers", [0, 1, 2])
def test_a_shrink_and_a_promotion_never_both_succeed(lost_answers: int) -> None:
    found = set(schedules(Store(), lost_answers))
    assert (True, True) not in found
    assert {(True, False), (False, True)} <= found


def test_that_check_fails_when_the_registry_is_read_before_it_is_written() -> None:
    assert (True, True) in set(schedules(Store(write_first=False), 0))


def test_without_a_registry_a_change_is_in_force_at_once() -> None:
    actor = Actor(Store(), registry=False)
    in_force: list[InSync] = []
    actor.recorder.want(change(in_force, lambda in_sync: in_sync.shrink([B.id])))
    assert [in_sync.ids for in_sync in in_force] == [{A.id, C.id}]
    assert not actor.pending
    assert actor.recorder.idle


def test_what_is_wanted_while_a_change_comes_into_force_has_its_turn_behind_it() -> None:
    actor = Actor(Store(), registry=False)
    order: list[str] = []

    def first(in_sync: InSync) -> None:
        actor.recorder.want(Change("second", lambda it: it, lambda it: order.append("second")))
        order.append("first")

    actor.recorder.want(Change("first", lambda it: it, first))
    assert order == ["first", "second"]


def test_changes_are_made_one_after_the_other_from_the_set_in_force() -> None:
    actor = Actor(Store())
    in_force: list[InSync] = []

    def enforce(in_sync: InSync) -> None:
        assert actor.persisted.in_sync == in_sync
        in_force.append(in_sync)

    actor.recorder.want(Change(B.id, lambda in_sync: in_sync.shrink([B.id]), enforce))
    actor.recorder.want(Change(C.id, lambda in_sync: in_sync.shrink([C.id]), enforce))
    assert actor.recorder.stalling == B.id
    actor.step()
    assert in_force == []
    actor.step()
    assert [(in_sync.version, len(in_sync.ids)) for in_sync in in_force] == [(4, 2)]
    assert actor.recorder.stalling == C.id
    actor.drain()
    assert [(in_sync.version, len(in_sync.ids)) for in_sync in in_force] == [(4, 2), (5, 1)]
    assert actor.store.entries[A.id].in_sync == in_force[-1]
    assert actor.recorder.stalling == ""


def test_a_change_that_is_no_longer_wanted_is_passed_over_unless_it_was_begun() -> None:
    actor = Actor(Store())
    in_force: list[InSync] = []
    wanted = [True, True]
    actor.recorder.want(change(in_force, lambda it: it.shrink([B.id]) if wanted[0] else None))
    actor.recorder.want(change(in_force, lambda it: it.shrink([C.id]) if wanted[1] else None))
    wanted[:] = [False, False]
    actor.drain()
    assert [in_sync.ids for in_sync in in_force] == [{A.id, C.id}]


def test_an_exchange_without_an_answer_is_repeated_with_the_same_set_and_longer_pauses() -> None:
    actor = Actor(Store(), lost_answers=6)
    in_force: list[InSync] = []
    numbers = itertools.count(1)
    actor.recorder.want(change(in_force, lambda it: replace(it, version=it.version + next(numbers))))
    actor.step()
    actor.step()
    assert actor.recorder.error == "no answer"
    assert in_force == []
    actor.drain()
    assert [in_sync.version for in_sync in in_force] == [SET.version + 1]
    assert actor.delays == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert (actor.delays[0], actor.delays[-1]) == (FIRST_DELAY, LAST_DELAY)
    assert actor.recorder.error == ""
    assert actor.lines == ["the registry cannot be used: no answer", "the registry can be used again"]


def test_an_answer_that_comes_after_the_role_has_ended_is_ignored() -> None:
    actor = Actor(Store())
    in_force: list[InSync] = []
    actor.recorder.want(change(in_force, lambda it: it.shrink([B.id])))
    actor.store.entries[B.id] = HaState(B.id, 9, B.id)
    actor.recorder.stop()
    actor.drain()
    assert in_force == []
    assert actor.deposed_by is None
    actor.recorder.want(change(in_force, lambda it: it))
    assert not actor.pending


def test_the_watch_finds_a_rival_and_knows_when_the_registry_was_reached() -> None:
    actor = Actor(Store(), lost_answers=1)
    actor.recorder.watch()
    actor.recorder.watch()
    assert len(actor.pending) == 2, "one look at a time"
    actor.drain()
    assert actor.recorder.error == "no answer"
    actor.store.entries[B.id] = HaState(B.id, 2, B.id)
    actor.recorder.watch()
    actor.drain()
    assert actor.deposed_by == (2, B.id)


@pytest.mark.parametrize("left", [None, HaState(A.id, 0, A.id, SET), HaState(A.id, 1, A.id, replace(SET, version=2))])
def test_a_registry_that_has_forgotten_is_written_again(left: HaState | None) -> None:
    actor = Actor(Store())
    actor.store.entries = {A.id: left} if left else {}
    actor.recorder.watch()
    actor.drain()
    assert actor.store.entries[A.id] == actor.persisted.entry(actor.persisted.in_sync, ())
    assert actor.lines == ["the registry has forgotten our in-sync set; it is written again"]
    actor.recorder.watch()
    actor.drain()
    assert len(actor.lines) == 1


def test_a_rival_in_a_registry_that_has_forgotten_comes_first() -> None:
    actor = Actor(Store())
    actor.store.entries = {B.id: HaState(B.id, 2, B.id)}
    actor.recorder.watch()
    actor.drain()
    assert actor.deposed_by == (2, B.id)
    assert A.id not in actor.store.entries
