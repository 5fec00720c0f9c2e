"""The last changes of an exchange's bindings, for routes that follow them (`management/routes.py`).             Pure.

They are numbered from 1 without gaps, under a history of their own.  Who asks for more than is kept begins anew with
all bindings; so does who comes to another broker, which has another history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

KEPT: Final = 20_000
FED_PATH: Final = "x-qpid.fed.path"
"""Argument of a binding that a route has made: the tags of the brokers that it is for and comes by, with commas."""


class Change(NamedTuple):
    """One; without a routing key: all bindings to this destination are gone."""

    added: bool
    to_exchange: bool
    destination: str
    routing_key: bytes | None
    arguments: Mapping[str, Any]


class Followed:
    """Of one exchange."""

    def __init__(self, history: str) -> None:
        self.history, self.last = history, 0
        self._kept: deque[Change] = deque()

    def note(self, added: bool, key: tuple[str, bool, str, bytes, bytes], arguments: Mapping[str, Any]) -> None:
        """`key`: of the binding."""
        self._put(Change(added, *key[1:4], arguments))

    def note_lost(self, to_exchange: bool, destination: str) -> None:
        self._put(Change(False, to_exchange, destination, None, {}))

    def _put(self, change: Change) -> None:
        self.last += 1
        self._kept.append(change)
        if len(self._kept) > KEPT:  # nobody asks any more
            self._kept.clear()

    def after(self, number: int, most: int) -> list[Change] | None:
        """The first of them behind a number, before which they are forgotten; None: they are not kept any more."""
        seen = number - (self.last - len(self._kept))
        if seen < 0 or number > self.last:
            return None
        for _ in range(seen):
            self._kept.popleft()
        return list(islice(self._kept, most))
