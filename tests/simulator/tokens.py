"""Fencing tokens, as the consumers of one queue get them (I26)."""

from __future__ import annotations

from tests.simulator.records import Ballot
from tests.simulator.scheduler import Violation


class Tokens:
    """Of one queue with one consumer at a time."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}
        """Token -> consumer, as client and life."""
        self._bounds: dict[int, tuple[int, int]] = {}
        """Epoch -> the lowest and the highest token."""
        self._last: dict[tuple[Ballot, str], int] = {}
        """Of each copy of a message."""

    def given(self, consumer: str, token: int, ballot: Ballot, copy: str) -> None:
        """A primary has handed out a message.  Raises Violation."""
        if token <= 0:
            raise Violation(f"I26: {consumer} got {copy} without a token")
        if self._owners.setdefault(token, consumer) != consumer:
            raise Violation(f"I26: {consumer} has token {token:#x}, and so has {self._owners[token]}")
        low, high = self._bounds.get(ballot[0], (token, token))
        self._bounds[ballot[0]] = min(low, token), max(high, token)
        for epoch, (lowest, highest) in self._bounds.items():
            if (epoch < ballot[0] and highest >= token) or (epoch > ballot[0] and lowest <= token):
                raise Violation(f"I26: {consumer} has token {token:#x} in epoch {ballot[0]}, not in line with {epoch}")
        before = self._last.get((ballot, copy), 0)
        if token < before:
            raise Violation(f"I26: {consumer} got {copy} with token {token:#x}, after another one with {before:#x}")
        self._last[ballot, copy] = token
