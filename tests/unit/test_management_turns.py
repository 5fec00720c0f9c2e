"""Requests that wait for the page file cost nothing meanwhile, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from qpidd_py.management.patience import Reading
from qpidd_py.management.turns import AGAIN, AT_ONCE, BACKLOG, Turns


class Loop:
    """Carries out what is deferred, one call at a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self._next: Any = None
        self.turns = Turns(self._defer, lambda: self.now)

    def _defer(self, seconds: float, work: Any) -> None:
        self.pauses.append(seconds)
        self._next = work

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.now += self.pauses[-1]
            work, self._next = self._next, None
            if work is None:
                return
            work()


def channel_of() -> Any:
    """A channel of a connection of its own."""
    connection = SimpleNamespace(opened=True, core=SimpleNamespace(backlog=0), channels={})
    core = SimpleNamespace(pause=lambda: None, resume=lambda: None)
    connection.channels[1] = channel = SimpleNamespace(connection=connection, number=1, core=core)
    channel.connection = _Key(connection)
    return channel


class _Key:
    """A namespace that can be a key."""

    def __init__(self, fields: Any) -> None:
        self.__dict__.update(vars(fields))


@pytest.mark.parametrize("waiting", [1, 2, AT_ONCE + 2])
def test_who_waits_for_a_disk_costs_no_turns(waiting: int) -> None:
    loop, steps = Loop(), list[Reading]()

    def request() -> Iterator[Reading]:
        for _ in range(2):
            steps.append(Reading())
            yield steps[-1]

    channels = [channel_of() for _ in range(waiting)]
    for channel in channels:
        loop.turns.add(channel, request())
    loop.run(1000)
    assert loop.now > (1000 - waiting - 1) * AGAIN - 1e-6 and len(steps) == waiting
    for number, reading in enumerate(steps[:waiting]):
        reading()
        assert len(steps) == waiting + number + 1, "the next step is made in that call"
        reading()
    assert len(steps) == 2 * waiting, "once"
    for reading in steps[waiting:]:
        reading()
    loop.run(1000)
    assert loop.pauses[-1] == 0.0 or loop.pauses[-1] == AGAIN
    assert not loop.turns._asleep and not loop.turns._waiting and not loop.turns._served


def test_who_does_not_read_its_answers_gets_no_further_one() -> None:
    """Also when its page has come: it is read again when there is room."""
    loop, steps = Loop(), list[Reading]()

    def request() -> Iterator[Reading]:
        while len(steps) < 2:
            steps.append(Reading())
            yield steps[-1]

    channel = channel_of()
    loop.turns.add(channel, request())
    loop.run(3)
    channel.connection.core.backlog = BACKLOG + 1
    steps[0]()
    loop.run(3)
    assert len(steps) == 1
    channel.connection.core.backlog = BACKLOG
    loop.run(3)
    assert len(steps) == 2


def test_a_connection_whose_output_is_just_not_too_much_goes_on_at_once() -> None:
    loop, steps = Loop(), list[Reading]()

    def request() -> Iterator[Reading | None]:
        steps.append(Reading())
        yield steps[-1]
        steps.append(Reading())
        yield None
        steps.append(Reading())

    channel = channel_of()
    loop.turns.add(channel, request())
    loop.run(3)
    channel.connection.core.backlog = BACKLOG
    steps[0]()
    assert len(steps) == 2
    loop.run(3)
    assert len(steps) == 3, "it goes on by itself"


def test_nobody_need_wait_for_a_page() -> None:
    reading = Reading()
    reading()
    assert reading.come


def test_one_that_has_ended_is_forgotten_while_the_disk_hangs() -> None:
    loop, reading = Loop(), Reading()
    channel = channel_of()
    loop.turns.add(channel, iter([reading]))
    loop.run(3)
    channel.connection.opened = False
    loop.run(5)
    assert not loop.turns._asleep and not loop.turns._waiting and not loop.turns._served
    reading()
    assert not loop.turns._served


def test_others_are_answered_meanwhile() -> None:
    loop, done = Loop(), []

    def waits() -> Iterator[Reading]:
        while len(done) < 20:
            yield Reading()

    def works() -> Iterator[None]:
        yield None
        done.append(loop.now)

    for _ in range(AT_ONCE + 2):
        loop.turns.add(channel_of(), waits())
    for _ in range(20):
        loop.turns.add(channel_of(), works())
    loop.run(100)
    assert len(done) == 20 and done[-1] < 3 * AGAIN
