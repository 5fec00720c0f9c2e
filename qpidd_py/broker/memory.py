"""Memory: publishers wait while the process holds more than its limit.

    below ──limit──▶ above: publishers get connection.blocked and are not read ──RELIEF of the limit──▶ below

Consumers, management and links go on.  What counts is the resident memory of the process, measured at each tick.  In
between a publisher can bring hundreds of MiB, so the core calls `grown` when its segments have grown by some of what
was left.  With a page file messages leave memory long before (`pager`).

A backup has no publishers of its own: it tells its primary, which then stops its own (`HaHooks.limited`).

Where the system gives no more before that limit is reached (`ulimit -v`, no overcommitment), the reserve of the core is
used (`core/memory.pyx`): publishers wait until the system has given it again (`ReserveWatch`).  Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.pager import Pager

log = logging.getLogger(__name__)

RELIEF: Final = 0.9
"""Share of the limit below which publishers go on."""
STEP: Final = 1 / 64
"""Share of the limit by which segments grow between two looks, with a page file."""
TRIM: Final = 1.0
"""Least seconds between two attempts to give memory back to the system while publishers wait."""
CAUSE: Final = "memory"
RESERVE_CAUSE: Final = "memory reserve"
RETRY: Final = 1.0
"""Least seconds between two attempts to take the reserve again."""


class MemoryWatch:
    """The memory of one broker."""

    def __init__(self, broker: Broker, limit: int, resident: Callable[[], int], pager: Pager | None = None) -> None:
        """`limit`: octets.  `resident` measures the memory of the process, in octets."""
        self._broker = broker
        self._limit = limit
        self._resident = resident
        self._pager = pager
        if pager is not None:
            pager.on_left = self.grown
        self._used = resident()
        self._held = broker.engine.pool.held()
        self._trimmed = float("-inf")
        self.above = False
        broker.engine.on_full = self.grown
        self._set_room(self._used)

    def tick(self, now: float) -> None:
        """Call several times a second; `now` in seconds of a monotonic clock."""
        engine, used = self._broker.engine, self._resident()
        if self.above and used >= RELIEF * self._limit and now - self._trimmed >= TRIM:
            self._trimmed = now
            engine.pool.trim()
            used = self._resident()
        if not self.above and used >= self._limit:
            self.full()
        elif self.above and used < RELIEF * self._limit:
            self._end(used)
        self._used, self._held = used, engine.pool.held()
        if self._pager is not None:
            self._pager.now = now
            self._pager.relieve(used)
        self._set_room(used)

    def look(self) -> None:
        """While the journal is read there are no turns, which would look."""
        if self._broker.engine.pool.held() > self._broker.engine.room:
            self.grown()

    def grown(self) -> None:
        """Segments take more memory than `room`, or less since some have left."""
        used = self._used + self._broker.engine.pool.held() - self._held
        if used >= self._limit:
            self.full()
        if self._pager is not None:
            self._pager.relieve(used)
        self._set_room(used)

    def _set_room(self, used: int) -> None:
        room = max(self._limit - used, 0)
        if self._pager is not None:
            room = min(room, int(STEP * self._limit))
        self._broker.engine.room = self._broker.engine.pool.held() + room

    def full(self) -> None:
        """The limit is reached."""
        if self.above:
            return
        self.above = True
        reason = f"memory: the limit of {self._limit >> 20} MiB is reached (memory-limit)"
        log.error("%s; publishers wait", reason)
        self._broker.limit(CAUSE, reason)

    def _end(self, used: int) -> None:
        self.above = False
        log.warning("memory: %d MiB of %d MiB are used; publishers go on", used >> 20, self._limit >> 20)
        self._broker.limit(CAUSE, "")


class ReserveWatch:
    """The reserve of memory of one broker."""

    def __init__(self, broker: Broker, hold: Callable[[], bool], uses: Callable[[], int]) -> None:
        """`hold` takes the reserve if it is not there, and says whether it is; `uses`: how often it was used."""
        self._broker = broker
        self._hold = hold
        self._uses = uses
        self._seen = uses()
        self._tried = float("-inf")
        self.gone = False
        broker.engine.on_short = self.short
        hold()

    def tick(self, now: float) -> None:
        """Call several times a second; `now` in seconds of a monotonic clock."""
        if self._uses() != self._seen:
            self._seen = self._uses()
            self._tried = now
            self.short()
        if self.gone and now - self._tried >= RETRY:
            self._tried = now
            self._broker.engine.pool.trim()
            if self._hold():
                self._end()

    def short(self) -> None:
        """An allocation has failed."""
        if not self.gone:
            self.gone = True
            reason = "memory: the system gives no more"
            log.error("%s; the reserve is used, and publishers wait", reason)
            self._broker.limit(RESERVE_CAUSE, reason)

    def _end(self) -> None:
        self.gone = False
        log.warning("memory: there is a reserve again; publishers go on")
        self._broker.limit(RESERVE_CAUSE, "")
