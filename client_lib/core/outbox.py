"""The messages that a session has accepted and the broker has not confirmed (pure, not thread-safe by itself).

Theory.  An entry is in one of three places, and moves only forwards, except at a fail-over:

    add() -> waiting --sent()--> in flight --confirmed()/nacked()--> settled (gone)
                ^                    |
                +--- connection_lost-+

* `waiting` and `in flight` together are in the order of `add`, in-flight ones first; connection_lost() puts the
  in-flight ones back at the front of the waiting ones, so order survives any number of fail-overs.
* Delivery tags number the publishes of one channel from 1; they are meaningless after connection_lost().
* `unsettled` counts both places: it is exact at every moment.

An entry that had been on the wire before is marked `resent`: its second copy may be a duplicate.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outcome(Enum):
    PENDING = "pending"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    RETURNED = "returned"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class Entry:
    """One publish.  `payload` is the encoded property list, so that encoding errors reach the caller of send()."""

    message: Any
    owner: Any
    exchange: str
    routing_key: str
    mandatory: bool
    payload: bytes
    body: bytes
    message_id: str
    resent: bool = False
    outcome: Outcome = Outcome.PENDING
    error: Exception | None = None
    returned: tuple[int, str] | None = field(default=None)


class Outbox:
    def __init__(self) -> None:
        self._waiting: deque[Entry] = deque()
        self._in_flight: OrderedDict[int, Entry] = OrderedDict()
        self._next_tag = 1

    @property
    def unsettled(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def oldest_in_flight(self) -> Entry | None:
        return next(iter(self._in_flight.values()), None)

    @property
    def resent(self) -> int:
        """The number of unsettled entries that had been on the wire before."""
        return sum(entry.resent for entry in self.entries())

    def entries(self) -> list[Entry]:
        """All unsettled entries, oldest first."""
        return [*self._in_flight.values(), *self._waiting]

    def add(self, entry: Entry) -> None:
        self._waiting.append(entry)

    def send_next(self, limit: int) -> list[Entry]:
        """Moves up to `limit` waiting entries into flight, in order; the caller must then write them."""
        taken = []
        for _ in range(min(limit, len(self._waiting))):
            entry = self._waiting.popleft()
            self._in_flight[self._next_tag] = entry
            self._next_tag += 1
            taken.append(entry)
        return taken

    def take_next(self, limit: int) -> list[Entry]:
        """Removes up to `limit` waiting entries, in order; for transactions, where nothing is confirmed one by one."""
        return [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]

    def settled(self, delivery_tag: int, multiple: bool) -> list[Entry]:
        """Removes the entries that a basic.ack or basic.nack of the broker names, oldest first.

        Unknown tags are ignored; with `multiple` the tag 0 means everything in flight."""
        if not multiple:
            entry = self._in_flight.pop(delivery_tag, None)
            return [] if entry is None else [entry]
        done = []
        while self._in_flight:
            tag = next(iter(self._in_flight))
            if delivery_tag and tag > delivery_tag:
                break
            done.append(self._in_flight.popitem(last=False)[1])
        return done

    def returned(self, message_id: str | None, reply_code: int, reply_text: str) -> Entry | None:
        """basic.return; the broker's ack for the message follows."""
        return mark_returned(self._in_flight.values(), message_id, reply_code, reply_text)

    def connection_lost(self) -> int:
        """Moves everything in flight back to the front of the waiting entries.  Returns how many were in flight."""
        count = len(self._in_flight)
        for entry in reversed(self._in_flight.values()):
            entry.resent = True
            entry.returned = None
            self._waiting.appendleft(entry)
        self._in_flight.clear()
        self._next_tag = 1
        return count

    def remove(self, entries: Iterable[Entry]) -> None:
        """Gives up some of the waiting entries."""
        gone = set(entries)
        self._waiting = deque(entry for entry in self._waiting if entry not in gone)

    def discard(self) -> list[Entry]:
        """Gives up all entries (the session failed or is closed); returns them, oldest first."""
        everything = self.entries()
        self._waiting.clear()
        self._in_flight.clear()
        return everything


def mark_returned(entries: Iterable[Entry], message_id: str | None, reply_code: int, reply_text: str) -> Entry | None:
    """Marks the oldest mandatory entry with this id that has not come back yet."""
    for entry in entries:
        if entry.mandatory and entry.returned is None and entry.message_id == message_id:
            entry.returned = (reply_code, reply_text)
            return entry
    return None


def some_ids(entries: Sequence[Entry], limit: int = 10) -> str:
    """The message ids, for a log line."""
    ids = ", ".join(entry.message_id for entry in entries[:limit])
    return ids if len(entries) <= limit else f"{ids} and {len(entries) - limit} more"
