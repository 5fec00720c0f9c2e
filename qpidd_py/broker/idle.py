"""Queues with a time limit for being idle: `x-expires`, and exclusive ones that wait for their owner.          Pure."""

from collections.abc import Iterable
from typing import Final, Protocol

from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.core.deadlines import Deadlines

DELETIONS: Final = 100
"""Of idle queues, at most, in one tick."""
OWNER_TIME: Final = 60.0
"""Seconds for which a replicated exclusive queue without a time limit waits for its owner after a fail-over."""


class Deletes(Protocol):
    """`Endings`."""

    def end_queues(self, queues: Iterable[DeclaredQueue]) -> None: ...

    def decides(self, queue: DeclaredQueue) -> bool: ...


class Idle:
    """Of one virtual host."""

    def __init__(self, endings: Deletes) -> None:
        self._endings = endings
        self.due: Deadlines[DeclaredQueue] = Deadlines()
        self._used: dict[DeclaredQueue, int] = {}  # their time begins with the next tick at which this position is safe

    def used(self, queue: DeclaredQueue, position: int = 0) -> None:
        """Its time limit, if it has one, begins again when `position` of the log is safe: until then the answer to its
        declaration is held back, and who asked for the queue is to find it."""
        if queue.expires is not None or queue.waits_for_its_owner:
            self._used[queue] = max(position, self._used.get(queue, 0))

    def dropped(self, queue: DeclaredQueue) -> None:
        self.due.drop(queue)
        self._used.pop(queue, None)

    def tick(self, now: float, safe: int) -> None:
        """Deletes those that were idle for their time limit; `now` in seconds, `safe` as of the engine.  One with a
        consumer is looked at again when that has gone."""
        if not self._used and not len(self.due):
            return
        for queue in [found for found, position in self._used.items() if position <= safe]:
            self.due.set(queue, now + (queue.expires or OWNER_TIME))
            del self._used[queue]
        for _ in range(DELETIONS):
            due = self.due.pop(now)
            if due is None:
                break
            if due in self._used:
                continue
            busy = due.core.consumer_count or due.waits_for_its_first_user or due.expires is None
            if (due.waits_for_its_owner or not busy) and self._endings.decides(due):
                self._endings.end_queues([due])
