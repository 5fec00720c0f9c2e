"""Removing duplicates by message id (pure).

After a fail-over the same message can come twice: because a producer missed the confirm and sent it again, and because
a consumer's acknowledgement was lost with the connection.  What happens to the second copy depends on the application:

* the application is *done* with the first copy: the second is dropped and acknowledged on its behalf;
* the application is still *working* on the first copy: the second must not be acknowledged before the first (otherwise
  a crash now would lose the message) and must not be handed out.  It is attached to the first and settled together with
  it.

Only a copy that is marked as a possible second one (`x-resent`, `redelivered`) is a duplicate.  A message that comes
back under its id on purpose, from a dead-letter queue or a program that publishes it again, is not marked, and new.
For the same reason an id is remembered only when the message was accepted: after a rejection it may come back.

The filter remembers the last `window` finished ids; a duplicate that comes later than that passes.  Unfinished ones are
always remembered; there are at most as many as the receiver's capacity.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")


class Verdict(Enum):
    NEW = "new"
    DONE = "done"
    WORKING = "working"


class DuplicateFilter(Generic[T]):
    """`T` is what the filter returns for the first copy when a second one arrives."""

    def __init__(self, window: int = 10_000) -> None:
        if window < 1:
            raise ValueError(f"window must be at least 1, not {window}")
        self.window = window
        self.dropped = 0
        self._working: dict[str, T] = {}
        self._done: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._working) + len(self._done)

    def offer(self, message_id: str | None, first: T, marked: bool) -> tuple[Verdict, T | None]:
        """Says whether a copy may be handed out; if NEW, it counts as handed out from now on.

        Messages without an id, and those that are not `marked` as a possible copy, are always new."""
        if message_id is None:
            return Verdict.NEW, None
        if not marked:
            self._done.pop(message_id, None)
            self._working.setdefault(message_id, first)
            return Verdict.NEW, None
        if message_id in self._done:
            self._done.move_to_end(message_id)
            self.dropped += 1
            return Verdict.DONE, None
        working = self._working.get(message_id)
        if working is not None:
            self.dropped += 1
            return Verdict.WORKING, working
        self._working[message_id] = first
        return Verdict.NEW, None

    def finished(self, message_id: str | None) -> None:
        """The application accepted its copy; later copies are duplicates."""
        if message_id is None or self._working.pop(message_id, None) is None:
            return
        self._done[message_id] = None
        if len(self._done) > self.window:
            self._done.popitem(last=False)

    def released(self, message_id: str | None) -> None:
        """The application gave its copy back, or rejected it; the next one is new again."""
        if message_id is not None:
            self._working.pop(message_id, None)

    def forget(self, message_id: str | None) -> None:
        """Forgets an id, because its settlement was undone."""
        if message_id is not None:
            self._working.pop(message_id, None)
            self._done.pop(message_id, None)
