"""Checks the numbers in received messages: duplicates, gaps, missing redelivered flags (pure).

A sender numbers its messages in the header `sn`, from 1.  Message ids `PREFIX:n` tell senders apart, so that the
numbers of several may come mixed; messages without an id count as those of one sender, as in Qpid's tool.  A message
with an id of another form, or without `sn`, is recognized by its id; the last IDS_MAX ids are remembered.  A message
with neither cannot be checked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import Protocol

from client_lib.event_runs import split_id

SN = "sn"
IDS_MAX = 100_000


class CheckFailed(Exception):
    """A message violates a check."""


class Numbered(Protocol):
    """The fields of a message that the checks use."""

    id: str | None
    properties: dict[str, object]
    redelivered: bool

    @property
    def resent(self) -> bool: ...


class Numbers:
    """A set of whole numbers that stays small while there are few gaps."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # inclusive

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number <= self._ends[index]

    def add(self, number: int) -> None:
        """It is not in the set."""
        index = bisect_right(self._starts, number)
        joins_before = index > 0 and self._ends[index - 1] == number - 1
        joins_after = index < len(self._starts) and self._starts[index] == number + 1
        if joins_before and joins_after:
            del self._starts[index]
            self._ends[index - 1] = self._ends.pop(index)
        elif joins_before:
            self._ends[index - 1] = number
        elif joins_after:
            self._starts[index] = number
        else:
            self._starts.insert(index, number)
            self._ends.insert(index, number)

    def remove(self, number: int) -> None:
        """It is in the set."""
        index = bisect_right(self._starts, number) - 1
        start, end = self._starts.pop(index), self._ends.pop(index)
        for first, last in ((number + 1, end), (start, number - 1)):
            if first <= last:
                self._starts.insert(index, first)
                self._ends.insert(index, last)


class SequenceTracker:
    """`verify`: a gap is an error.  `check_redelivered`: a duplicate that does not say so is an error."""

    def __init__(self, verify: bool = False, check_redelivered: bool = False) -> None:
        self._verify, self._check_redelivered = verify, check_redelivered
        self._numbers: dict[str, Numbers] = {}
        self._last: dict[str, int] = {}
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._journal: list[tuple[str, int, int] | str] = []

    def is_duplicate(self, message: Numbered) -> bool:
        """Books the message.  Raises CheckFailed."""
        found = message.properties.get(SN)
        number = found if isinstance(found, int) and not isinstance(found, bool) else None
        parts = split_id(message.id) if message.id else None
        if number is not None and (parts or not message.id):
            seen = self._seen_number(parts[0] if parts else "", number)
        else:
            seen = bool(message.id) and self._seen_id(str(message.id), number)
        if seen and self._check_redelivered and not (message.redelivered or message.resent):
            raise CheckFailed(
                f"message {message.id} (sn {number}) came twice, found the second without the redelivered flag,"
                " expected it, or the sender's mark that it was sent again"
            )
        return seen

    def keep(self) -> None:
        """Keeps what was booked: the messages are acknowledged, or the transaction is committed."""
        self._journal.clear()

    def undo(self) -> None:
        """Forgets what was booked since `keep`: the transaction was rolled back and its messages come again."""
        for entry in reversed(self._journal):
            if isinstance(entry, str):
                self._ids.pop(entry, None)
            else:
                sender, number, self._last[sender] = entry
                self._numbers[sender].remove(number)
        self._journal.clear()

    def _seen_number(self, sender: str, number: int) -> bool:
        numbers = self._numbers.setdefault(sender, Numbers())
        if number in numbers:
            return True
        last = self._last.get(sender, 0)
        self._check_gap(sender, last, number)
        numbers.add(number)
        self._last[sender] = max(last, number)
        self._journal.append((sender, number, last))
        return False

    def _seen_id(self, message_id: str, number: int | None) -> bool:
        if message_id in self._ids:
            return True
        if number is not None:
            last = self._last.get("", 0)
            self._check_gap("", last, number)
            self._last[""] = max(last, number)
        self._ids[message_id] = None
        if len(self._ids) > IDS_MAX:
            self._ids.popitem(last=False)
        self._journal.append(message_id)
        return False

    def _check_gap(self, sender: str, last: int, number: int) -> None:
        if self._verify and number > last + 1:
            raise CheckFailed(
                f"gap in the sequence{sender and f' of {sender}'}: found sn {number}, expected {last + 1}"
            )
