"""What the logs of all primaries say, decoded by the observer itself: which operation brought a copy into a queue,
which one took it out, and which configuration was there at what time.

The log of one ballot is a `Chapter`; it goes on where its leader's copy of the chapter before it ended (`base`).  A
*log* is one broker's: its chapters, the newest first, each with the last position that this broker has of it.  A copy
is told by its body, so a dead letter of it has its name, too.

The observer believes the records, not the bookkeeping of a broker: a removal that is only in the memory of the primary
that has decided it is in no log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from qpidd_py.amqp.fields import decode_table
from qpidd_py.broker.shadow import WAITING
from qpidd_py.core import Batch
from qpidd_py.core.batch import HEADER_SIZE, records
from tests.simulator.records import Ballot

END = 1 << 64
Log = tuple[tuple["Chapter", int], ...]
"""(chapter, the last position of it), the newest first."""


@dataclass(frozen=True)
class Change:
    """A queue, an exchange or a binding is there from this position on, or not any more."""

    position: int
    at: float
    """Virtual seconds."""
    there: bool


@dataclass(eq=False)
class Chapter:
    """What the primary of one ballot has appended."""

    ballot: Ballot
    before: Log
    """What its leader held when it began."""
    arrivals: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    """(queue, copy) -> (number of the queue, id)."""
    order: list[tuple[int, int, str]] = field(default_factory=list)
    """(id, number of the queue, copy), as they came."""
    removals: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Number of a queue -> (position, lowest id, highest id)."""
    returns: dict[int, list[tuple[int, int, int, int, int]]] = field(default_factory=dict)
    """Number of a queue -> (position, lowest id, highest id, how often these came back if they return now, level)."""
    deleted: dict[int, int] = field(default_factory=dict)
    """Number of a queue -> position of its deletion."""
    names: dict[int, str] = field(default_factory=dict)
    """Number of a queue -> its name."""
    changes: dict[str, list[Change]] = field(default_factory=dict)
    """Object, as `records.Declared` names it -> what became of it."""
    end: int = 0
    """The last position."""

    def whole(self) -> Log:
        """The log of its leader, as it is now."""
        return ((self, END), *self.before)


class Ledger:
    """All chapters."""

    def __init__(self) -> None:
        self.chapters: dict[Ballot, Chapter] = {}
        self.twins: list[Chapter] = []
        """Those of which another broker with the same identity has begun one, which only a gambling manager allows."""

    def open(self, ballot: Ballot, leader: str, base: int) -> Chapter:
        """The chapter of a new primary, which held the log of (epoch of `base`, `leader`) up to `base`."""
        before = self.chapters.get((base >> 48, leader))
        if ballot in self.chapters:
            self.twins.append(self.chapters[ballot])
        chapter = self.chapters[ballot] = Chapter(ballot, ((before, base), *before.before) if before else ())
        return chapter

    def log_of(self, ballot: Ballot) -> Log:
        chapter = self.chapters.get(ballot)
        return chapter.whole() if chapter is not None else ()

    def logs_up_to(self, position: int) -> list[Log]:
        """What a broker may hold that has got there; two only where two have claimed one epoch."""
        chapters = [each for each in self.chapters.values() if each.ballot[0] == position >> 48]
        return [((chapter, position), *chapter.before) for chapter in chapters]

    def append(self, leader: str, batch: Batch, now: float) -> list[tuple[str, str, int]]:
        """A primary has sealed a batch.  What it brought: queue, copy, id."""
        chapter = self.chapters[batch.last >> 48, leader]
        chapter.end, before = batch.last, len(chapter.order)
        for operation, _, position, numbers, payload in records(bytes(batch)[HEADER_SIZE:]):
            if operation == "enqueue":
                _enqueue(chapter, position, numbers, payload[2])
            elif operation == "dequeue":
                removals = chapter.removals.setdefault(numbers[0], [])
                removals += ((position, low, high) for low, high in payload)
            elif operation == "returned":
                returns = chapter.returns.setdefault(numbers[0], [])
                for low, high, count, waits, level in payload:
                    returns.append((position, low, high, count + (not waits), level))
            elif operation == "config":
                _configure(chapter, position, now, decode_table(payload)[0])
        log = chapter.whole()
        return [(name_of_queue(log, number), name, id) for id, number, name in chapter.order[before:]]


def _enqueue(chapter: Chapter, position: int, numbers: list[int], body: bytes) -> None:
    name = body.partition(b"|")[0].decode("latin-1")
    for number in numbers:
        chapter.order.append((position, number, name))
        chapter.arrivals.setdefault((name_of_queue(chapter.whole(), number), name), []).append((number, position))


def _configure(chapter: Chapter, position: int, now: float, operation: dict[str, Any]) -> None:
    verb, what = operation["op"], operation.get("name", "")
    if verb == "queue.declare":
        chapter.names[operation["number"]] = what
    elif verb == "exchange.declare" and "number" in operation:
        chapter.names[operation["number"]] = WAITING + what
    elif verb == "queue.delete":
        chapter.deleted[operation["number"]] = position
    for each, there in _changed(chapter.whole(), operation):
        chapter.changes.setdefault(each, []).append(Change(position, now, there))


def _changed(log: Log, operation: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    verb = operation["op"]
    if verb in ("bind", "unbind"):
        yield f"binding {operation['destination']} {operation['source']}", verb == "bind"
        return
    kind, _, how = verb.partition(".")
    if how not in ("declare", "delete"):
        return
    yield f"{kind} {operation['name']}", how == "declare"
    if how == "delete":  # its bindings go with it
        bindings = {each for chapter, _ in log for each in chapter.changes if each.startswith("binding ")}
        yield from ((each, False) for each in sorted(bindings) if operation["name"] in each.split()[1:])


def name_of_queue(log: Log, number: int) -> str:
    return next((chapter.names[number] for chapter, _ in log if number in chapter.names), "")


def arrivals(log: Log, queue: str, name: str) -> list[tuple[int, int]]:
    """How a copy came into a queue, by this log: (number of the queue, id)."""
    found = ((each, end) for chapter, end in log for each in chapter.arrivals.get((queue, name), ()))
    return [each for each, end in found if each[1] <= end]


def removed(log: Log, number: int, id: int) -> bool:
    """Does this log say that the message left the queue, or went with it?"""
    for chapter, end in log:
        deletion = chapter.deleted.get(number)
        if deletion is not None and id < deletion <= end:
            return True
        for position, low, high in chapter.removals.get(number, ()):
            if low <= id <= high and position <= end:
                return True
    return False


def returns(log: Log, number: int, id: int, level: int) -> int:
    """How often the message has come back at the end of this log, when all that is handed out returns; as far as the
    log counts it.  `level`: of its priority; a record is about all levels (0) or about one, and others' ids lie between
    its own."""
    for chapter, end in log:
        for position, low, high, count, about in reversed(chapter.returns.get(number, ())):
            if low <= id <= high and position <= end and about in (0, level):
                return count
    return 0


def history_of(log: Log, what: str) -> list[Change]:
    """What became of an object, in order."""
    found = [change for chapter, end in log for change in chapter.changes.get(what, ()) if change.position <= end]
    return sorted(found, key=lambda change: change.position)


def absences(log: Log, what: str, since: float, until: float) -> list[int]:
    """Positions of the changes by which an object was not there at some time from `since` to `until`; 0 if it had never
    been there."""
    found, position, there, began = [], 0, False, 0.0
    for change in history_of(log, what):
        if not there and began <= until and change.at >= since:
            found.append(position)
        position, there, began = change.position, change.there, change.at
    return [*found, position] if not there and began <= until else found


def writer(log: Log, position: int) -> Ballot:
    """Under which ballot this position of the log was written."""
    return next(chapter.ballot for chapter, _ in log if chapter.ballot[0] == position >> 48)


def has(log: Log, ballot: Ballot, position: int) -> bool:
    """Is this position, as the primary of that ballot wrote it, in the log?"""
    return any(chapter.ballot == ballot and position <= end for chapter, end in log)
