"""From one in-sync set to the next, step by step: what is written, stored and said, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ha.model.environment import Exchanged, StateNotStored
from ha.model.membership import HaState, InSync, Member
from ha.registry.recorder import FIRST_DELAY, LAST_DELAY, Recorder, overtaken
from tests.unit.ha.own_changes import Change, Owner

A, B, C = (Member(f"id-{name}", name, f"{name}:1") for name in "abc")
SET = InSync(2, "id-a", 3, (A, B, C))


class Node:
    """Of broker a, primary of epoch 2; the test answers for its registry and moves its clock."""

    def __init__(self, registry: str = "file") -> None:
        self.settings = SimpleNamespace(registry=registry, registry_timeout=4.0)
        self.persisted = HaState("id-a", 2, "id-a", SET)
        self.time = 5.0
        self.lines: list[str] = []
        self.deposed: list[tuple[Any, ...]] = []
        self.disk_error = ""
        self.asked: list[tuple[HaState | None, float, Callable[[Exchanged], None]]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.env = SimpleNamespace(now=lambda: self.time, log=self._log, exchange=self._exchange, after=self._after)
        self.recorder = Recorder(cast(Any, self), self.depose, Owner())

    def _log(self, level: str, text: str) -> None:
        self.lines.append(f"{level}: {text}")

    def _exchange(self, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        assert timeout == 4.0
        self.asked.append((state, timeout, done))

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self.later.append((seconds, call))

    def persist(self, **changes: Any) -> None:
        if self.disk_error:
            raise StateNotStored(self.disk_error)
        self.persisted = self.persisted.advance(**changes)

    def depose(self, *arguments: Any) -> None:
        self.deposed.append(arguments)

    def answer(self, *states: HaState, error: str = "") -> None:
        _, _, done = self.asked.pop(0)
        done(Exchanged(states, error))

    def wait(self) -> float:
        seconds, call = self.later.pop(0)
        call()
        return seconds


class Wanted:
    """A change that drops one member, and whether it is in force."""

    def __init__(self, node: Node, gone: str, stalls: bool = True) -> None:
        self.gone, self.sets = gone, list[InSync]()
        self.change = Change(f"{gone} is dropped", self._make, self.sets.append, stalls)
        node.recorder.want(self.change)

    def _make(self, in_sync: InSync) -> InSync | None:
        return in_sync.shrink([self.gone]) if self.gone in in_sync else None


def state(name: str, epoch: int = 2, leader: str = "id-a", in_sync: InSync = SET) -> HaState:
    return HaState(f"id-{name}", epoch, leader, in_sync)


# ---- rivals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((), None),
        ((state("a"),), None),
        ((state("b", 1, "id-z"), state("a")), None),
        ((state("b", 3, "id-b"), state("a")), state("b", 3, "id-b")),
        ((state("a"), state("b", 2, "id-b")), state("b", 2, "id-b")),
        ((state("b", 4, "id-b"), state("c", 3, "id-c")), state("b", 4, "id-b")),
        ((state("c", 3, "id-c"), state("b", 4, "id-b")), state("b", 4, "id-b")),
    ],
)
def test_a_rival_has_a_higher_ballot(states: tuple[HaState, ...], expected: HaState | None) -> None:
    assert overtaken(states, (2, "id-a")) == expected


# ---- a change ----------------------------------------------------------------------------------------------------


def test_a_new_recorder_is_idle_and_has_nothing_to_say() -> None:
    found = Node().recorder
    assert (found.idle, found.stalling, found.error, found.not_stored, found.reached) == (True, "", "", "", 5.0)


def test_a_set_is_on_record_then_on_our_disk_then_in_force() -> None:
    node = Node()
    wanted = Wanted(node, "id-c")
    assert (wanted.sets, node.recorder.idle, node.recorder.stalling) == ([], False, "id-c is dropped")
    ((written, _, _),) = node.asked
    smaller = SET.shrink(["id-c"])
    assert written == HaState("id-a", 2, "id-a", smaller) and node.persisted.in_sync == SET
    node.time = 9.0
    node.answer(state("a", in_sync=smaller))
    assert node.persisted.in_sync == smaller and wanted.sets == [smaller]
    assert node.recorder.idle and node.recorder.stalling == "" and node.recorder.reached == 9.0


def test_without_a_registry_it_is_in_force_when_our_disk_has_it() -> None:
    node = Node(registry="")
    wanted = Wanted(node, "id-c")
    assert node.asked == [] and wanted.sets == [SET.shrink(["id-c"])] and node.recorder.idle


def test_changes_wait_for_each_other() -> None:
    node = Node()
    first, second, third = (Wanted(node, each) for each in ("id-c", "id-c", "id-b"))
    assert len(node.asked) == 1
    node.answer(state("a"))
    assert len(first.sets) == 1 and len(node.asked) == 1 and not node.recorder.idle
    node.answer(state("a"))
    assert second.sets == [], "it was not wanted any more"
    assert third.sets == [SET.shrink(["id-c"]).shrink(["id-b"])] and node.recorder.idle


def test_what_is_wanted_while_one_comes_into_force_is_behind_it() -> None:
    node = Node(registry="")
    seen: list[str] = []

    def in_force(in_sync: InSync) -> None:
        Wanted(node, "id-b")
        seen.append(f"{len(in_sync.members)} {len(node.persisted.in_sync.members)} {node.recorder.idle}")

    node.recorder.want(Change("x", lambda in_sync: in_sync.shrink(["id-c"]), in_force))
    assert seen == ["2 2 False"] and node.persisted.in_sync.members == (A,) and node.recorder.idle


def test_confirms_wait_for_the_first_change_that_stalls_them() -> None:
    node = Node()
    Wanted(node, "id-c", stalls=False)
    assert node.recorder.stalling == ""
    Wanted(node, "id-b")
    assert node.recorder.stalling == "id-b is dropped"
    node.answer(state("a"))
    assert node.recorder.stalling == "id-b is dropped"


# ---- what does not answer, and what does not store ----------------------------------------------------------------


def test_an_exchange_is_repeated_later_and_later() -> None:
    node = Node()
    wanted = Wanted(node, "id-c")
    pauses = []
    for _ in range(6):
        (written, _, _) = node.asked[0]
        node.answer(error="no answer in time")
        pauses.append(node.wait())
        assert node.asked[0][0] == written
    assert pauses == [FIRST_DELAY, 0.2, 0.4, 0.8, LAST_DELAY, LAST_DELAY]
    assert node.recorder.error == "no answer in time" and node.recorder.reached == 5.0 and wanted.sets == []
    assert node.lines == ["error: the registry cannot be used: no answer in time"]
    node.answer(state("a"))
    assert node.recorder.error == "" and len(wanted.sets) == 1
    assert node.lines[1:] == ["notice: the registry can be used again"]


def test_a_disk_that_does_not_take_the_set_is_tried_again_from_the_first_pause_on() -> None:
    node = Node()
    wanted, other = Wanted(node, "id-c"), Wanted(node, "id-b")
    for _ in range(3):
        node.answer(error="x")
        node.wait()
    node.disk_error = "full"
    node.answer(state("a"))
    assert [node.wait() for _ in range(2)] == [FIRST_DELAY, 0.2] and node.asked == []
    assert (node.recorder.not_stored, node.recorder.idle, wanted.sets) == ("full", False, [])
    node.disk_error = ""
    node.wait()
    assert (node.recorder.not_stored, len(wanted.sets), len(node.asked)) == ("", 1, 1)
    node.answer(state("a"))
    assert len(other.sets) == 1


def test_each_change_begins_with_the_first_pause() -> None:
    node = Node()
    Wanted(node, "id-c")
    for _ in range(3):
        node.answer(error="x")
        node.wait()
    Wanted(node, "id-b")
    node.answer(state("a"))
    node.answer(error="x")
    assert node.wait() == FIRST_DELAY


# ---- the end of the role -----------------------------------------------------------------------------------------


def test_nothing_comes_into_force_after_the_end() -> None:
    node = Node()
    wanted, other = Wanted(node, "id-c"), Wanted(node, "id-b")
    node.recorder.stop()
    node.answer(state("a"))
    assert (wanted.sets, other.sets, node.asked, node.later, node.persisted.in_sync) == ([], [], [], [], SET)
    Wanted(node, "id-b")
    node.recorder.watch()
    assert node.asked == []


def test_what_waits_behind_a_change_that_ends_the_role_never_comes_into_force() -> None:
    node = Node(registry="")
    behind: list[Wanted] = []

    def in_force(in_sync: InSync) -> None:
        behind.append(Wanted(node, "id-b"))
        node.recorder.stop()

    node.recorder.want(Change("x", lambda in_sync: in_sync.shrink(["id-c"]), in_force))
    assert behind[0].sets == [] and node.persisted.in_sync.members == (A, B)


def test_there_is_no_watch_after_the_end() -> None:
    node = Node()
    node.recorder.stop()
    node.recorder.watch()
    assert node.asked == []


def test_what_waits_at_the_end_is_not_tried_again() -> None:
    node = Node()
    Wanted(node, "id-c")
    node.answer(error="x")
    node.recorder.stop()
    node.wait()
    assert node.asked == []
    unstored = Node(registry="")
    unstored.disk_error = "full"
    wanted = Wanted(unstored, "id-c")
    unstored.recorder.stop()
    unstored.disk_error = ""
    unstored.wait()
    assert wanted.sets == [] and unstored.persisted.in_sync == SET and unstored.later == []


@pytest.mark.parametrize(("leader", "address", "shown"), [("id-b", "b:1", "b"), ("id-x-0123456", "", "id-x-012")])
def test_a_rival_deposes_us_and_the_set_is_never_in_force(leader: str, address: str, shown: str) -> None:
    node = Node()
    wanted = Wanted(node, "id-c")
    node.answer(state("a"), state("b", 3, leader))
    reason = f"the registry knows of epoch 3, claimed by {shown}"
    assert node.deposed == [((3, leader), reason, address)]
    assert wanted.sets == [] and node.persisted.in_sync == SET


# ---- whom a set on record replaces -------------------------------------------------------------------------------


def test_a_set_on_record_names_the_holders_that_it_lacks_and_no_member() -> None:
    node = Node()
    node.recorder.holders = (A, B, C)
    Wanted(node, "id-c")
    ((written, _, _),) = node.asked
    assert written is not None and written.replaced == (C,)


def test_when_a_set_is_in_force_its_members_are_the_holders() -> None:
    node = Node()
    node.recorder.holders = (A, B, C)
    Wanted(node, "id-c")
    node.answer()
    assert node.recorder.holders == (A, B)
    Wanted(node, "id-b")
    ((written, _, _),) = node.asked
    assert written is not None and written.replaced == (B,), "c is no holder any more"


def test_a_set_in_force_is_recorded_as_such_by_the_next_watch() -> None:
    node = Node()
    node.recorder.holders = (A, B, C)
    Wanted(node, "id-c")
    node.answer()
    node.recorder.watch()
    node.answer(HaState("id-a", 2, "id-a", node.persisted.in_sync, (C,)))
    ((written, _, _),) = node.asked
    assert written == HaState("id-a", 2, "id-a", SET.shrink(["id-c"])) and written.replaced == ()
    assert node.lines == [], "nothing was forgotten"


# ---- the watch ---------------------------------------------------------------------------------------------------


def test_the_watch_reads_and_writes_nothing_one_at_a_time() -> None:
    node = Node()
    node.recorder.watch()
    node.recorder.watch()
    assert [written for written, _, _ in node.asked] == [None] and node.recorder.idle
    node.time = 8.0
    node.answer(state("a"))
    assert node.asked == [] and node.recorder.reached == 8.0
    node.recorder.watch()
    node.answer(error="x")
    assert node.recorder.error == "x" and node.asked == [] and node.recorder.reached == 8.0
    node.recorder.watch()
    assert len(node.asked) == 1


def test_there_is_no_watch_without_a_registry_or_while_something_changes() -> None:
    node = Node(registry="")
    node.recorder.watch()
    assert node.asked == []
    node = Node()
    Wanted(node, "id-c")
    node.recorder.watch()
    assert len(node.asked) == 1


OLDER = InSync(2, "id-a", 2, SET.members)


@pytest.mark.parametrize(
    ("found", "forgotten"),
    [
        ((state("a"),), False),
        ((state("b", 1, "id-z", OLDER), state("a")), False),
        ((), True),
        ((state("b"),), True),
        ((state("a", 1, "id-a"),), True),
        ((state("a", in_sync=OLDER),), True),
    ],
)
def test_a_registry_that_has_forgotten_us_is_written_again(found: tuple[HaState, ...], forgotten: bool) -> None:
    node = Node()
    node.recorder.watch()
    node.answer(*found)
    assert len(node.asked) == forgotten and len(node.lines) == forgotten
    if forgotten:
        assert node.asked[0][0] == node.persisted and node.recorder.stalling == ""
        node.answer(state("a"))
        assert node.recorder.idle and node.persisted.in_sync == SET


def test_what_was_forgotten_is_not_written_twice_when_something_changes_anyway() -> None:
    node = Node()
    node.recorder.watch()
    Wanted(node, "id-c")
    node.answer()
    node.answer(state("a"))
    assert node.asked == [] and node.recorder.idle


def test_a_rival_comes_before_what_was_forgotten() -> None:
    node = Node()
    node.recorder.watch()
    node.answer(state("b", 3, "id-b"))
    assert len(node.deposed) == 1 and node.asked == []


def test_the_watch_of_a_role_that_has_ended_says_nothing() -> None:
    node = Node()
    node.recorder.watch()
    node.recorder.stop()
    node.answer(state("b", 3, "id-b"))
    assert node.deposed == [] and node.asked == []
