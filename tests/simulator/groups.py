"""Message groups, as the consumers of one queue see them (I29)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tests.simulator.scheduler import Violation


class Holder(Protocol):
    """One of the consumers."""

    @property
    def stream(self) -> str:
        """It and its connection."""

    @property
    def attached(self) -> str:
        """The primary that has its connection; empty when that has given the connection up, whether it knows or not."""

    @property
    def holds(self) -> Iterable[str]:
        """Copies that it has not settled."""


class Groups:
    """What came last of each group, by connection."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], int] = {}
        self._back: set[tuple[str, str]] = set()
        """Connection and copy: it was given back, and may come again."""

    def given(self, consumer: Holder, others: Iterable[Holder], name: str, groups: dict[str, str]) -> None:
        """A consumer got a copy.  `groups`: of each copy.  Raises Violation."""
        group = groups[name]
        if not consumer.attached:
            return  # its connection is over, and this was under way
        for other in others:
            if other is consumer or other.attached != consumer.attached:
                continue
            if held := [each for each in other.holds if groups[each] == group]:
                text = f"{name} of group {group}, and {other.stream} holds {', '.join(held)}"
                raise Violation(f"I29: {consumer.stream} gets {text}")
        self._check_order(consumer.stream, group, name)

    def _check_order(self, stream: str, group: str, name: str) -> None:
        if (stream, name) in self._back:
            self._back.remove((stream, name))
            return
        where, number = _place(stream, group, name)
        if number <= self._last.get(where, 0):
            raise Violation(f"I29: {stream} gets {name} of group {group} behind number {self._last[where]}")
        self._last[where] = number

    def gave_back(self, stream: str, name: str) -> None:
        self._back.add((stream, name))


def _place(stream: str, group: str, name: str) -> tuple[tuple[str, str, str], int]:
    key, _, attempt = name.partition("@")
    producer, _, number = key.partition(".")
    return (stream, group, f"{producer}@{attempt}"), int(number)
