"""What queues of special kinds promise beside what all do: I27, I28, I30, I31, I33 and I34 of `history.py`.  Raises
Violation.

Stated by what clients sent and by what the logs say came and went; no broker is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulator import ledger
from tests.simulator.ledger import Chapter, Log
from tests.simulator.records import Ballot, Contents
from tests.simulator.scheduler import Violation
from tests.simulator.topology import LATER, ONCE, QUEUES

if TYPE_CHECKING:
    from tests.simulator.history import History

SKEW = 0.06
"""Seconds by which the wall clocks of two brokers differ at most, and what is rounded."""
KEYS = 1_000_000
"""That a queue remembers which does not say how many."""


class Kinds:
    """Of one run."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.began: dict[Ballot, float] = {}
        """When these primaries began to lead."""
        self._stays: dict[str, dict[Ballot, float]] = {}
        """Queue -> when its consumer came, at the latest, to the primary of this ballot."""
        self._timeouts: dict[str, int] = {}

    def _now(self) -> float:
        return self._history.simulation.scheduler.now

    def same(self, name: str, queue: str) -> list[str]:
        """All that may be there for this copy: those with its key, where a key enters once."""
        key = self._history.copies[name].key
        return [each for each, copy in self._history.copies_in(queue) if copy.key == key] if queue in ONCE else [name]

    # ---- a primary has written this into its log ------------------------------------------------------------------

    def arrived(self, ballot: Ballot, queue: str, name: str, id: int) -> None:
        copy, log, counts = self._history.copies.get(name), self._history.ledger.log_of(ballot), self._history.counts
        if copy is None:
            return
        if queue in ONCE:
            self._check_once(log, queue, name, id)
        counts["values"] += queue == "values"
        counts["letters"] += queue not in copy.queues
        if copy.delay and queue != LATER:
            counts["due"] += 1
            if self._now() < copy.at + copy.delay - SKEW:
                raise Violation(f"I28: {name} is in {queue} at {self._now():.4f}, before {copy.at + copy.delay:.4f}")

    def _check_once(self, log: Log, queue: str, name: str, id: int) -> None:
        """I27."""
        came = [
            (each[1], each[0], twin) for twin in self.same(name, queue) for each in ledger.arrivals(log, queue, twin)
        ]
        number = next(each[1] for each in came if each[0] == id)
        before = max((each for each in came if each[0] < id and each[1] == number), default=None)
        if before is None:
            return
        arguments: Any = QUEUES[queue].arguments
        most, seconds = arguments.get("x-deduplication-window", KEYS), arguments.get("x-deduplication-time", 0) / 1000
        if seconds and self._now() - self._history.copies[before[2]].at >= seconds - SKEW:
            return
        if len(_between(log, number, before[0], id)) < most:
            raise Violation(
                f"I27: {name} enters {queue} at {id:#x}, and its key came with {before[2]} at {before[0]:#x}"
            )

    def confirmed(self, name: str, queues: tuple[str, ...]) -> None:
        """For the count of what was published again, though it was confirmed."""
        same = [self._history.copies[each] for queue in queues if queue in ONCE for each in self.same(name, queue)]
        self._history.counts["confirmed again"] += sum(bool(copy.confirmed) for copy in same) > 1

    def stays(self, queue: str, ballot: Ballot, since: float, timeout: int) -> None:
        """A consumer has been told that it consumes, which it had asked for at this time."""
        self._stays.setdefault(queue, {})[ballot] = since
        self._timeouts[queue] = timeout

    def check_homes(self, chapter: Chapter, before: int, rate: float) -> None:
        """What a primary, whose clock goes at this rate, has appended behind `before`.  I33, I34."""
        for queue, timeout in self._timeouts.items():
            for change in chapter.changes.get(f"queue {queue}", ()):
                since = max(self.began[chapter.ballot], self._stays[queue].get(chapter.ballot, 0.0))
                if change.position > before and not change.there and change.at < since + timeout / rate - SKEW:
                    raise Violation(f"I33: {queue} is deleted at {change.at:.2f}, before {since + timeout / rate:.2f}")
                self._history.counts["homes given up"] += change.position > before and not change.there
        for queue in self._history.alone.values():
            if f"queue {queue}" in chapter.changes:
                raise Violation(f"I34: {queue}, which is exclusive, is in the log of {chapter.ballot}")

    # ---- a message is missing -------------------------------------------------------------------------------------

    def may_leave(self, queue: str, name: str, log: Log, said: bool) -> bool:
        """May the broker itself have taken it out?  `said`: by its log it has.  A new primary looks through its last
        values before its log begins."""
        arguments: Any = QUEUES[queue].arguments if queue in QUEUES else {}
        copy, (number, id) = self._history.copies[name], ledger.arrivals(log, queue, name)[-1]
        if queue == "values":
            return self._newest(copy.key, log)[0] > id
        if queue == "brief":
            return said and self._now() >= copy.at + arguments["x-message-ttl"] / 1000 - SKEW
        if queue == "short":
            return said and len(_between(log, number, id, ledger.END)) >= arguments["x-max-length"]
        return said

    # ---- what a new primary, or the last one, has -----------------------------------------------------------------

    def _newest(self, value: str, log: Log) -> tuple[int, str]:
        """Of those with this value that came by this log: id and name."""
        copies = [name for name, copy in self._history.copies_in("values") if copy.key == value]
        return max(((id, name) for name in copies for _, id in ledger.arrivals(log, "values", name)), default=(0, ""))

    def check_values(self, who: str, contents: Contents, log: Log) -> None:
        """I30."""
        for value in {copy.key for _, copy in self._history.copies_in("values")}:
            _, name = self._newest(value, log)
            gone = name and name not in contents.get("values", {})
            if gone and not self._excused(name) and name not in self._history.acknowledged.get("values", ()):
                raise Violation(f"I30: {name}, the last one of {value}, is not in values of {who}")

    def _excused(self, name: str) -> bool:
        return self._history.copies[name].excused

    def check_end(self, contents: Contents, ready: dict[str, int]) -> None:
        """I30, I31.  `ready`: by queue; nobody holds anything."""
        values = [self._history.copies[name].key for name in contents.get("values", {})]
        if twice := sorted({value for value in values if values.count(value) > 1}):
            raise Violation(f"I30: at the end values has {', '.join(twice)} more than once")
        for queue, count in ready.items():
            most: Any = QUEUES[queue].arguments.get("x-max-length", count) if queue in QUEUES else count
            if count > most:
                raise Violation(f"I31: at the end {queue} has {count} messages, more than {most}")


def _between(log: Log, number: int, low: int, high: int) -> list[int]:
    """Ids of what came into the queue of this number behind `low` and before `high`."""
    came = ((each, end) for chapter, end in log for each in chapter.order)
    return [each[0] for each, end in came if each[1] == number and low < each[0] < high and each[0] <= end]
