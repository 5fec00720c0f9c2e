"""Mistakes about the connections on which brokers ask each other."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ha.asker import Asker, _Request
from ha.environment import Answer, Outcome
from tests.simulator.mistakes_safety import patched


def take_silence_for_a_death() -> AbstractContextManager[None]:
    """A connection that nobody answers says that its broker is gone."""

    def expire(self: Asker, request: _Request) -> None:
        request.finish(Answer(Outcome.REFUSED))
        old(self, request)

    old = Asker._expire
    return patched(Asker, _expire=expire)
