"""The primary's work list for one joining backup: bounded slices between live batches.

The cut is the end of the log when the backup's list of ids was complete.  Everything after it reaches the backup live.
This plan sends what lies before the cut and is missing, per queue: ids to drop, messages in slices, then a MERGE that
puts them in order.  A queue is compared when its turn comes, so messages consumed meanwhile are not sent.

Formulas: sent + unsent = (messages of the primary up to the cut) - held;  under_way <= WINDOW slices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ha.model.difference import count
from ha.model.environment import Configuration, Link
from ha.model.protocol import KEYS, Kind, encode_drop, encode_merge
from qpidd_py.core import Catchup, Queue, decode_ids

WINDOW: Final = 4
"""Slices under way: enough to keep the connection busy, few enough that live batches do not wait long."""
LONG_SET: Final = 4096
"""Octets of an encoded id set."""
TURN: Final = 64
"""Most frames sent by one call, so that ten thousand queues with ids to drop do not block the broker."""
RATE_WINDOW: Final = 5.0
"""Seconds over which the rate of a catch-up is measured."""


class Plan:
    """What one backup lacks; `step` sends as much of it as may be sent now."""

    def __init__(
        self,
        configuration: Configuration,
        held: dict[tuple[int, int], bytes],
        cut: int,
        limit: int,
        again: Callable[[], None] = lambda: None,
    ) -> None:
        """`limit`: approximate octets of a slice; `again` is called when messages that `step` lacked have been read."""
        self._held = held
        self._limit = limit
        self._again = again
        self._queues: deque[tuple[Queue, int]] = deque(configuration.replicated())
        self._work: Catchup | None = None
        self._merge = False
        self._finished = 0
        self._work_held = 0
        self.cut = cut
        self.under_way = 0
        self.queues = len(self._queues)
        self.slices = 0
        self.octets = 0

    @property
    def queues_left(self) -> int:
        return len(self._queues) + (self._work is not None)

    @property
    def messages(self) -> int:
        """Number of messages sent so far."""
        return self._finished + (self._work.messages if self._work else 0)

    @property
    def done(self) -> bool:
        return self._work is None and not self._queues

    @property
    def hole(self) -> str:
        """Name of the queue whose next message cannot be read here: nothing is sent until it has left; or empty."""
        return self._work.queue.name if self._work is not None and self._work.rotten else ""

    def remaining(self) -> tuple[int, int]:
        """Approximate messages and octets still to be sent.  Examines every remaining queue: for queries, not for
        every tick."""
        messages = octets = 0
        if self._work is not None:
            present = _present(self._work.queue)
            left = min(self._work.left, present - self._work_held - self._work.messages)
            messages, octets = _sizes(self._work.queue, left)
        for queue, uid in self._queues:
            left = _present(queue) - _count_of(self._held.get((queue.number, uid), b""))
            more_messages, more_octets = _sizes(queue, left)
            messages, octets = messages + more_messages, octets + more_octets
        return messages, octets

    def step(self, link: Link) -> bool:
        """Send what may be sent now.  True if only the bound on frames stopped it: call again in the next turn."""
        frames = 0
        while not self.done and self.under_way < WINDOW:
            if frames >= TURN:
                return True
            sent = self._advance(link)
            if sent is None:
                break
            frames += sent
        return False

    def _advance(self, link: Link) -> int | None:
        """Frames sent; None when the next messages have to be read first."""
        work = self._work
        if work is None:
            return self._next_queue(link)
        if work.queue.deleted:
            # The deletion is sent live, and no slice of this queue may follow it.
            self._finish_queue(work)
            return 0
        return self._slice(work, link)

    def _next_queue(self, link: Link) -> int:
        queue, uid = self._queues.popleft()
        if queue.deleted:
            return 0
        self._merge = False
        held = self._held.pop((queue.number, uid), b"")
        known = decode_ids(self._held.pop((KEYS + queue.number, uid), b""))
        after = known[-1][1] if known else 0
        self._work, self._work_held = Catchup(queue, held, self.cut, self._again, after), _count_of(held)
        drops = self._work.drops()
        if not drops:
            return 0
        link.send_frame(Kind.DROP, self.cut, encode_drop(queue.number, drops))
        return 1

    def _slice(self, work: Catchup, link: Link) -> int | None:
        records = work.slice(self._limit)
        if records is None:
            return None
        if records:
            self.under_way += 1
            self.slices += 1
            self.octets += len(records)
            self._merge = True
            link.send_frame(Kind.SLICE, self.cut, records)
            return 1
        self._finish_queue(work)
        if not self._merge:
            return 0
        link.send_frame(Kind.MERGE, self.cut, encode_merge(work.queue.number))
        return 1

    def _finish_queue(self, work: Catchup) -> None:
        self._work = None
        self._finished += work.messages


def _present(queue: Queue) -> int:
    return queue.ready + queue.unacked


def _sizes(queue: Queue, messages: int) -> tuple[int, int]:
    """(messages, their octets at the queue's average size)."""
    present = _present(queue)
    messages = max(0, min(messages, present))
    return messages, queue.bytes * messages // present if present else 0


def _count_of(held: bytes) -> int:
    """Number of ids in a set; estimated for a long one, in which most runs are one id in two octets."""
    return count(decode_ids(held)) if len(held) <= LONG_SET else len(held) // 2


class Progress:
    """The progress of one backup."""

    def __init__(self, now: float) -> None:
        self.reported = now
        self._seen: deque[tuple[float, int, int]] = deque([(now, 0, 0)])

    def note(self, now: float, octets: int, messages: int) -> None:
        """Record the totals sent so far."""
        self._seen.append((now, octets, messages))
        while now - self._seen[1][0] > RATE_WINDOW:
            self._seen.popleft()

    def rates(self) -> tuple[float, float]:
        """Recent octets and messages per second."""
        (start, octets, messages), (end, more_octets, more_messages) = self._seen[0], self._seen[-1]
        if end <= start:
            return 0.0, 0.0
        return (more_octets - octets) / (end - start), (more_messages - messages) / (end - start)
