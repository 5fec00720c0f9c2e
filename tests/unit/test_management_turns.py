"""Requests that wait for the page file are looked at again after a pause, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from qpidd_py.management.turns import AGAIN, AT_ONCE, Turns


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
    loop, looks, come = Loop(), [0], False

    def request() -> Iterator[bool]:
        while not come:
            looks[0] += 1
            yield True

    channels = [channel_of() for _ in range(waiting)]
    for channel in channels:
        loop.turns.add(channel, request())
    loop.run(1000)
    assert loop.now > 1000 / (waiting + 2) * AGAIN
    assert waiting < looks[0] <= waiting * (2 + loop.now / AGAIN)


def test_others_are_answered_meanwhile() -> None:
    loop, done = Loop(), []

    def waits() -> Iterator[bool]:
        while len(done) < 20:
            yield True

    def works() -> Iterator[bool]:
        yield False
        done.append(loop.now)

    for _ in range(AT_ONCE + 2):
        loop.turns.add(channel_of(), waits())
    for _ in range(20):
        loop.turns.add(channel_of(), works())
    loop.run(100)
    assert len(done) == 20 and done[-1] < 3 * AGAIN
