"""Queues with a time limit for being idle: `x-expires`, and exclusive ones that wait for their owner.          Pure."""

from typing import Final

from qpidd_py.broker.endings import Deletes
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.core.deadlines import Deadlines

DELETIONS: Final = 100
"""Of idle queues, at most, in one tick."""
OWNER_TIME: Final = 60.0
"""Seconds for which a replicated exclusive queue without a time limit waits for its owner after a fail-over."""


class Idle:
    """Of one virtual host."""

    def __init__(self, vhost: Deletes) -> None:
        self._vhost = vhost
        self.due: Deadlines[DeclaredQueue] = Deadlines()
        self._used: dict[DeclaredQueue, None] = {}  # their time begins with the next tick

    def used(self, queue: DeclaredQueue) -> None:
        """Its time limit, if it has one, begins again."""
        if queue.expires is not None or queue.waits_for_its_owner:
            self._used[queue] = None

    def dropped(self, queue: DeclaredQueue) -> None:
        self.due.drop(queue)
        self._used.pop(queue, None)

    def tick(self, now: float) -> None:
        """Deletes those that were idle for their time limit; `now` in seconds.  One with a consumer is looked at again
        when that has gone."""
        for queue in self._used:
            self.due.set(queue, now + (queue.expires or OWNER_TIME))
        self._used.clear()
        for _ in range(DELETIONS):
            due = self.due.pop(now)
            if due is None:
                break
            busy = due.core.consumer_count or due.waits_for_its_first_user or due.expires is None
            if (due.waits_for_its_owner or not busy) and self._vhost.decides(due):
                self._vhost.remove_queue(due)
