"""A backup takes over another content by a difference, and a power cut or a kill comes at any operation of its disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from qpidd_py.errors import QpiddError
from qpidd_py.store import journal
from qpidd_py.store.journal import Journal
from qpidd_py.store.layout import Kind
from qpidd_py.store.recovery import Damaged
from qpidd_py.store.replay import Replay
from tests.support.memory_disk import PowerCut
from tests.unit.store.follower import Follower
from tests.unit.store.test_journal_crashes import act

Patch = pytest.MonkeyPatch
MOST = 60
"""Histories within which a mistake is found."""


def live(follower: Follower, rng: random.Random) -> None:
    """Some differences, and an end at any operation of the disk."""
    follower.disk.cut_after = rng.choice((0, rng.randrange(1, 60)))
    try:
        for _ in range(rng.randrange(1, 4)):
            if follower.broker.vhost.queues and rng.random() < 0.2:
                follower.lead()
                follower.commit()
            follow(follower, rng)
    except PowerCut:
        pass
    if rng.random() < 0.3:
        follower.disk.kill()
    else:
        follower.disk.power_cut(rng)


def follow(follower: Follower, rng: random.Random) -> None:
    number = rng.randrange(2)
    follower.follow(number)
    try:
        take_over(follower, number, rng)
    finally:
        follower.cut_off()


def take_over(follower: Follower, number: int, rng: random.Random) -> None:
    done = False
    for _ in range(rng.randrange(1, 40)):
        if not done and follower.step():
            done = True
            follower.finish()
        if rng.random() < 0.4:
            act(follower.primaries[number], rng)
        if rng.random() < 0.3:
            follower.commit()
        if rng.random() < 0.01:
            follower.journal.leave()
            follower.differs = True
            return


def run(seed: int) -> Follower:
    rng = random.Random(seed)
    follower = Follower(rng)
    for primary in follower.primaries:
        for _ in range(20):
            act(primary, rng)
    for _ in range(6):
        live(follower, rng)
        while True:
            follower.disk.cut_after = rng.choice((0, 0, rng.randrange(1, 6)))
            try:
                follower.restart()
                break
            except PowerCut:
                follower.disk.power_cut(rng)
    return follower


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_difference_counts_as_a_whole_or_not_at_all(first: int) -> None:
    assert sum(run(seed).taken for seed in range(first, first + 20)) > 20


def taken_though_it_is_not_complete(patch: Patch) -> None:
    def apply(self: Any, frames: Any) -> None:
        found = list(frames)
        self._taken = {frame.number for frame in found if frame.kind == Kind.DIFFERENCE}
        original(self, found)

    original = Replay.apply
    patch.setattr(Replay, "apply", apply)


def removed_before_the_difference_begins(patch: Patch) -> None:
    """What the primary does not have goes at once."""

    def part(self: Any, kind: int, body: bytes) -> None:
        if kind == Kind.DROP and self._difference:
            self._difference = 0
            self._add_frame(Kind.GIVEN_UP, b"")
            self._add_frame(Kind.DROP, body)
            self._add_frame(Kind.DIFFERENCE, b"")
            self._difference = self._number
            return
        original(self, kind, body)

    original = Journal.part
    patch.setattr(Journal, "part", part)


def nothing_says_that_it_was_given_up(patch: Patch) -> None:
    def roll(self: Any, base: int = 0, given_up: bool = False) -> None:
        original(self, base)

    original = Journal._roll
    patch.setattr(Journal, "_roll", roll)


def the_journal_begins_within_a_difference(patch: Patch) -> None:
    def roll(self: Any, *arguments: Any, **how: Any) -> None:
        original(self, *arguments, **how)
        self._mixed = False

    original = Journal._roll
    patch.setattr(Journal, "_roll", roll)
    patch.setattr(journal, "SLACK", 0)


def content_in_parts(patch: Patch) -> None:
    """What takes the place of all that is there is written as if it continued that."""

    def roll(self: Any, base: int = 0, given_up: bool = False) -> None:
        original(self, 0, given_up)

    original = Journal._roll
    patch.setattr(Journal, "_roll", roll)


def places_of_removed_messages_block(patch: Patch) -> None:
    """A primary sends again what the backup had removed on its own."""

    def apply(self: Any, frames: Any) -> None:
        for frame in frames:
            patch.setattr(Replay, "_merge_all", nothing if frame.kind == Kind.DIFFERENCE else merge_all)
            original(self, [frame])
            if self.ended:
                return

    merge_all, original = Replay._merge_all, Replay.apply
    nothing = lambda self: None  # noqa: E731
    patch.setattr(Replay, "apply", apply)


MISTAKES = [
    places_of_removed_messages_block,
    content_in_parts,
    taken_though_it_is_not_complete,
    removed_before_the_difference_begins,
    nothing_says_that_it_was_given_up,
    the_journal_begins_within_a_difference,
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_noticed(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, QpiddError, Damaged)):
        for seed in range(MOST):
            run(seed)
