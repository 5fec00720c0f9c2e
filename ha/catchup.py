"""The primary's work list for one joining backup: bounded slices between live batches.

The cut is the end of the log when the backup's list of ids was complete.  Everything after it reaches the backup live;
this plan sends what lies before it and is missing, per queue: ids to drop, messages in slices, then a MERGE that puts
them into their places.  Queues are compared when their turn comes, so whatever was consumed meanwhile is not sent.

Formulas: sent + unsent = (messages of the primary up to the cut) - held;  under_way <= WINDOW slices.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ha.environment import Configuration, Link
from ha.protocol import Kind, encode_drop, encode_merge
from qpidd_py.core import Catchup, Queue

WINDOW: Final = 4
"""Slices under way: enough to keep the pipe full, few enough that live batches never wait long behind them."""
TURN: Final = 64
"""Most frames sent by one call, so that ten thousand queues with a word to drop do not hold up the broker."""


class Plan:
    """What one backup lacks; `step` sends as much of it as may go now."""

    def __init__(self, configuration: Configuration, held: dict[tuple[int, int], bytes], cut: int, limit: int) -> None:
        """`limit`: octets of a slice, about."""
        self._held = held
        self._limit = limit
        self._queues: deque[tuple[Queue, int]] = deque(configuration.replicated())
        self._work: Catchup | None = None
        self._merge = False
        self.cut = cut
        self.under_way = 0
        self.queues = len(self._queues)
        self.slices = 0
        self.octets = 0

    @property
    def queues_left(self) -> int:
        return len(self._queues) + (self._work is not None)

    @property
    def done(self) -> bool:
        return self._work is None and not self._queues

    def step(self, link: Link) -> bool:
        """Send what may be sent now.  True when the call stopped only for its own bound: call again next turn."""
        frames = 0
        while not self.done and self.under_way < WINDOW:
            if frames >= TURN:
                return True
            frames += self._advance(link)
        return False

    def _advance(self, link: Link) -> int:
        work = self._work
        if work is None:
            return self._next_queue(link)
        if work.queue.deleted:
            # The deletion travels live, and nothing of this queue may follow it.
            self._work = None
            return 0
        return self._slice(work, link)

    def _next_queue(self, link: Link) -> int:
        queue, uid = self._queues.popleft()
        if queue.deleted:
            return 0
        self._merge = False
        self._work = Catchup(queue, self._held.pop((queue.number, uid), b""), self.cut)
        drops = self._work.drops()
        if not drops:
            return 0
        link.send_frame(Kind.DROP, self.cut, encode_drop(queue.number, drops))
        return 1

    def _slice(self, work: Catchup, link: Link) -> int:
        records = work.slice(self._limit)
        if records:
            self.under_way += 1
            self.slices += 1
            self.octets += len(records)
            self._merge = True
            link.send_frame(Kind.SLICE, self.cut, records)
            return 1
        self._work = None
        if not self._merge:
            return 0
        link.send_frame(Kind.MERGE, self.cut, encode_merge(work.queue.number))
        return 1
