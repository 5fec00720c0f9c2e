"""Runs of publishes that wait, what releases them, and what is due, without a connection or a log."""

from __future__ import annotations

import pytest

from qpidd_py.core.confirms import Confirms, Sender


class World:
    """One log; senders publish into it, and what is due is written down as (sender, tag)."""

    def __init__(self) -> None:
        self.confirms = Confirms()
        self.position = 0
        self.tags: dict[Sender, int] = {}

    def sender(self) -> Sender:
        sender = Sender()
        self.tags[sender] = 0
        return sender

    def publish(self, sender: Sender, count: int = 1) -> list[bool]:
        """Into a replicated queue; whether each began a run."""
        began = []
        for _ in range(count):
            self.position += 1
            self.tags[sender] += 1
            began.append(self.confirms.add(sender, self.tags[sender], self.position, self.position, False, False))
        return began

    def unlogged(self, sender: Sender, until: int = 0, refused: bool = False) -> bool:
        self.tags[sender] += 1
        return self.confirms.add(sender, self.tags[sender], until, self.position + 1, True, refused)

    def due(self) -> list[tuple[Sender, int]]:
        return [(sender, sender.confirm_to) for sender in self.confirms.take_due()]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def sender(world: World) -> Sender:
    return world.sender()


# ---- runs ---------------------------------------------------------------------------------------------------------


def test_what_follows_on_in_the_log_is_one_run_of_64(world: World, sender: Sender) -> None:
    assert world.publish(sender, 130) == [n % 64 == 0 for n in range(130)]
    assert world.confirms.waiting == 130


def test_a_message_of_another_sender_between_begins_a_new_run(world: World, sender: Sender) -> None:
    other = world.sender()
    assert world.publish(sender) + world.publish(other) + world.publish(sender) == [True, True, True]


def test_what_has_no_position_of_its_own_joins_what_rests_on_the_same(world: World, sender: Sender) -> None:
    assert [world.unlogged(sender, until) for until in (5, 5, 6)] == [True, False, True]
    assert world.publish(sender) == [True]


def test_a_refused_one_stands_alone(world: World, sender: Sender) -> None:
    world.unlogged(sender, 5)
    assert (world.unlogged(sender, 5, refused=True), world.unlogged(sender, 5)) == (True, True)


def test_the_ring_grows_around_what_waits(world: World) -> None:
    senders = [world.sender() for _ in range(40)]
    for sender in senders:
        world.publish(sender)
    assert world.confirms.release_to(30)
    for _ in range(10):
        for sender in senders:
            world.publish(sender)
    assert world.confirms.waiting == 410
    world.due()
    world.confirms.release_to(world.position)
    assert (world.confirms.waiting, world.due()) == (0, [(sender, 11) for sender in [*senders[30:], *senders[:30]]])


# ---- released -----------------------------------------------------------------------------------------------------


def test_nothing_is_due_before_the_last_of_its_run_is_safe(world: World, sender: Sender) -> None:
    world.publish(sender, 3)
    assert (world.confirms.release_to(2), world.due(), world.confirms.waiting) == (False, [], 3)
    assert (world.confirms.release_to(3), world.due(), world.confirms.waiting) == (True, [(sender, 3)], 0)


def test_each_sender_is_due_once(world: World, sender: Sender) -> None:
    other = world.sender()
    for _ in range(3):
        world.publish(sender)
        world.publish(other)
    world.confirms.release_to(5)
    assert world.due() == [(sender, 3), (other, 2)]
    assert world.due() == []


def test_only_the_first_that_makes_a_sender_due_is_reported(world: World, sender: Sender) -> None:
    assert [world.confirms.confirm(sender, tag) for tag in (1, 2)] == [True, False]
    assert world.due() == [(sender, 2)]
    assert world.confirms.confirm(sender, 3)


def test_an_acknowledged_front_waits_for_nothing(world: World, sender: Sender) -> None:
    world.publish(sender, 70)
    assert [world.confirms.acknowledge(position) for position in (2, 1, 3)] == [False, True, False]
    assert (world.due(), world.confirms.waiting) == ([(sender, 3)], 67)


def test_acknowledgements_cross_the_end_of_a_run(world: World, sender: Sender) -> None:
    world.publish(sender, 66)
    for position in range(66, 0, -1):
        world.confirms.acknowledge(position)
    assert (world.due(), world.confirms.waiting) == ([(sender, 66)], 0)


def test_an_acknowledgement_of_what_does_not_wait_releases_nothing(world: World, sender: Sender) -> None:
    other = world.sender()
    world.publish(sender)
    world.position += 5
    world.publish(other)
    world.unlogged(other, 100)
    assert not any(world.confirms.acknowledge(position) for position in (2, 6, 8, 50))
    assert (world.due(), world.confirms.waiting) == ([], 3)


def test_what_waits_for_nothing_itself_waits_for_those_before_it(world: World, sender: Sender) -> None:
    world.publish(sender)
    world.unlogged(sender)
    assert (world.due(), world.confirms.waiting) == ([], 1)
    world.confirms.release_to(1)
    assert world.due() == [(sender, 2)]


def test_what_rests_on_a_position_waits_for_it(world: World, sender: Sender) -> None:
    world.unlogged(sender, 7)
    assert (world.confirms.release_to(6), world.confirms.release_to(7)) == (False, True)
    assert world.due() == [(sender, 1)]


# ---- told ---------------------------------------------------------------------------------------------------------


def test_what_is_acknowledged_behind_one_that_waits_is_told_once(world: World, sender: Sender) -> None:
    world.publish(sender, 5)
    for position in (2, 4):
        assert not world.confirms.acknowledge(position)
    assert world.confirms.acknowledged() == [(sender, 2), (sender, 4)]
    assert world.confirms.acknowledged() == []
    world.confirms.acknowledge(5)
    assert world.confirms.acknowledged() == [(sender, 5)]
    world.confirms.release_to(5)
    assert world.due() == [(sender, 5)]


def test_what_is_due_anyhow_is_not_told(world: World, sender: Sender) -> None:
    world.publish(sender, 3)
    world.confirms.acknowledge(1)
    world.confirms.acknowledge(3)
    assert world.confirms.acknowledged() == [(sender, 3)]
    assert world.due() == [(sender, 1)]


# ---- refused ------------------------------------------------------------------------------------------------------


def test_a_refused_publish_is_never_due(world: World, sender: Sender) -> None:
    world.publish(sender)
    world.unlogged(sender, refused=True)
    world.confirms.release_to(1)
    assert (world.due(), world.confirms.waiting) == ([(sender, 1)], 0)


def test_a_refused_one_lets_the_next_through(world: World, sender: Sender) -> None:
    world.publish(sender)
    world.unlogged(sender, refused=True)
    world.publish(sender)
    world.confirms.release_to(2)
    assert world.due() == [(sender, 3)]


# ---- ends ---------------------------------------------------------------------------------------------------------


def test_a_forgotten_sender_is_not_due_and_stops_no_other(world: World, sender: Sender) -> None:
    other = world.sender()
    for one in (sender, other, sender):
        world.publish(one)
    world.confirms.forget(sender)
    assert world.confirms.waiting == 1
    assert world.confirms.release_to(2)
    assert world.due() == [(other, 1)]
    world.publish(sender)
    assert world.confirms.release_to(world.position)
    assert world.due() == [(sender, 3)]


def test_when_all_is_forgotten_nothing_is_ever_due(world: World, sender: Sender) -> None:
    other, idle = world.sender(), world.sender()
    world.publish(sender, 70)
    world.publish(other)
    world.confirms.confirm(idle, 1)
    assert world.confirms.forget_all() == [sender, other]
    assert (world.confirms.release_to(world.position), world.due(), world.confirms.waiting) == (False, [], 0)
