"""Which segments go to the page file, and when they come back.  Pure; `qpidd_py.core.paging` has the theory.

What of lazy queues can leave does so however much memory is used (`qpidd_py.core.lazy`); of the rest:

    used memory   0 ───── BEGIN ───────────── WAIT ────────── limit
                  stays   the youngest are    and publishers   publishers get connection.blocked (`memory`)
                          written to the file are not read
                                              while it is behind

The file is not recovered: it makes room, and promises nothing.  When it cannot be written, segments stay in memory,
and the limit of the memory does its work.  When it cannot be read, or has other octets than were written, this broker's
copy of some messages is lost (`qpidd_py.core.paging`, rot): they wait, an alarm says so, and the plug-in is told, so
that a whole backup takes over.  A broker that can help itself by reading its journal again (`restarts`) ends with
`PageError`.
"""

from __future__ import annotations

import errno
import heapq
import logging
from collections.abc import Callable
from typing import Final, Protocol

from qpidd_py.broker.broker import Broker
from qpidd_py.core import Lazy, Page, Paging, reading
from qpidd_py.errors import PageError
from qpidd_py.logrules import log_notice

log = logging.getLogger(__name__)

BEGIN: Final = 0.6
"""Share of the memory limit above which segments leave."""
WAIT: Final = 0.8
"""Share above which publishers wait for the file."""
GO_ON: Final = 0.75
"""Share below which they go on."""
FLOOR: Final = 1 / 8
"""Share that segments may always take."""
FLIGHT: Final = 1 / 8
"""Share that may be on its way to the file."""
YOUNG: Final = 32
"""Segments that stay because their messages are probably consumed soon; at most a quarter of what may stay."""
AHEAD: Final = 8
"""Segments that are read ahead of the consumers of a queue, at most."""
READS: Final = 4
"""Segments that are being read at a time."""
RETRY: Final = 5.0
"""Seconds between two attempts on a full disk."""
FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
CAUSE: Final = "page file"
ROT: Final = "rot"
"""Name of the alarm."""
LOOK: Final = 5.0
"""Seconds until what waits for a message that cannot be read looks whether it has left."""
NAMED: Final = 5
"""Queues that the alarm names."""


class File(Protocol):
    """The page file.  What it is told to do is done later, in order, reads first; `Pager` hears the result."""

    def write(self, page: Page) -> None: ...

    def read(self, page: Page) -> None: ...

    def shrink(self, slots: int) -> None:
        """Nothing behind so many slots is needed."""
        ...


class Pager:
    """The page file of one broker, as the loop sees it."""

    def __init__(self, broker: Broker, paging: Paging, file: File, limit: int, name: str = "the page file") -> None:
        """`limit`: of the memory, in octets; `name`: of the file, for people."""
        self._broker = broker
        self._pool = broker.engine.pool
        self._paging = paging
        self._lazy = Lazy(paging)
        self._common = broker.configurations.common
        self._common.paged = True
        self._file = file
        self._name = name
        self._limit = limit
        self._slots = Slots()
        self._reading = 0
        self._retry_at = 0.0
        self.now = 0.0
        """Seconds of a monotonic clock."""
        self.reason = ""
        """Why nothing is written; empty while it can be."""
        self._gave_up = False
        self.restarts: Callable[[], bool] = lambda: False
        """True if a restart brings back what cannot be read, and nothing else does."""
        self._rotten = 0
        """Octets that could not be read back when the alarm was last looked at."""
        self._where = ""
        self._look_at = 0.0
        self._waits = self._relieving = self._in_use = False
        self.on_left: Callable[[], None] = lambda: None
        """Called when segments have left memory."""
        segments = limit // self._pool.segment_size
        self._young = min(YOUNG, segments // 16)
        paging.ahead = max(1, min(AHEAD, segments // 32))
        paging.on_wanted = self.read
        self._pool.keep = min(self._pool.keep, limit // 16)

    # ---- out --------------------------------------------------------------------------------------------------------

    def relieve(self, used: int) -> None:
        """Write what is too much.  `used`: octets of the process, with what it keeps for reuse."""
        pool = self._pool
        busy = used - (pool.held() - pool.allocated)
        excess = busy - int(BEGIN * self._limit)
        most = pool.allocated - int(FLOOR * self._limit)
        octets = min(excess, most, int(FLIGHT * self._limit)) - pool.leaving
        self._vacate()
        if not self._gave_up and self.now >= self._retry_at and not self._relieving:
            self._relieving = True
            for page in self._leaving(octets):
                page.place = self._slots.take(-(-page.octets // pool.segment_size))
                self._file.write(page)
            self._relieving = False
        self._look_behind(busy)
        self._look_for_rot()
        self.read()
        scarce = octets > 0 or not self._common.lazy  # lazy queues come and go, which is no news
        in_use = self._slots.end > 0 and (self._in_use or (pool.paged > 0 and scarce))
        if in_use != self._in_use:
            self._in_use = in_use
            log_notice(log, "%s", "messages leave memory" if self._in_use else "the page file is empty again")
            self._tell("begun" if self._in_use else "ended")

    def _leaving(self, octets: int) -> list[Page]:
        """What of lazy queues can leave, and so much of the others."""
        room = int(FLIGHT * self._limit) - self._pool.leaving
        pages = self._lazy.leave(self._common.lazy, max(room, 0)) if self._common.lazy else []
        return pages + self._paging.leave(octets, self._young) if octets > 0 else pages

    def _tell(self, result: str, reason: str = "") -> None:
        if self._broker.hooks is not None:
            self._broker.hooks.paging(result, reason)

    def _look_behind(self, busy: int) -> None:
        behind = self._pool.leaving > 0 and busy > (GO_ON if self._waits else WAIT) * self._limit
        if behind != self._waits:
            self._waits = behind
            text = f"{self._pool.leaving >> 20} MiB are on their way to the page file" if behind else ""
            self._broker.limit(CAUSE, text, tell=False)

    def _vacate(self) -> None:
        end = self._slots.end
        for place in self._paging.vacated():
            self._slots.give(place)
        if self._slots.end < end:
            self._file.shrink(self._slots.end)

    def wrote(self, page: Page, error: OSError | None) -> None:
        """From the file."""
        if error is None:
            self._paging.left(page)
            if self.reason and not self._gave_up:
                self.reason = ""
                log_notice(log, "the page file can be written again")
        else:
            self._paging.stay(page)
            self._slots.give(page.place)
            self._refused(error)
        self.on_left()

    def _refused(self, error: OSError) -> None:
        self._retry_at = self.now + RETRY
        for_good = error.errno not in FULL
        if not self.reason or (for_good and not self._gave_up):
            self.reason = f"the page file cannot be written: {error.strerror}; messages stay in memory"
            log.error("%s", self.reason)
            self._tell("failed", self.reason)
        self._gave_up = self._gave_up or for_good

    # ---- back -------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read what is wanted, some at a time.  What there is no memory for now is tried again when some has left."""
        try:
            while self._reading < READS and (page := self._paging.next_read()) is not None:
                self._reading += 1
                self._file.read(page)
        except MemoryError:
            log.warning("no memory for a segment of the page file; its consumers wait")

    def arrived(self, page: Page, error: OSError | None) -> None:
        """From the file.  Raises PageError if a restart helps."""
        self._reading -= 1
        try:
            if error is not None:
                raise PageError(f"the page file cannot be read: {error}") from error
            self._paging.arrived(page)
        except PageError as found:
            if self.restarts():
                raise
            self._spoilt(page, str(found))
        self.read()

    # ---- rot --------------------------------------------------------------------------------------------------------

    def _spoilt(self, page: Page, error: str) -> None:
        """The plug-in hears of it before anybody who waits for the page does."""
        self._where = f"{self._name}, {page.octets} octets at offset {page.place[0] * self._pool.segment_size}"
        log.error("rot: %s: %s", self._where, error)
        self._paging.spoilt(page)
        self._broker.damaged(self._where)
        if not self._rotten:
            self._say()
        self._look_at = self.now

    def _look_for_rot(self) -> None:
        """Some of it was found by who reads at once.  Raises PageError if a restart helps."""
        if self._pool.rotten and self.restarts():
            raise PageError(self._rot())
        due = self.now >= self._look_at
        if due or self._pool.rotten != self._rotten:
            self._say()
        if due:
            self._look_at = self.now + LOOK
            self._paging.look_again()

    def _say(self) -> None:
        self._rotten = self._pool.rotten
        reason = self._rot() if self._rotten else ""
        if reason != self._broker.alarms.get(ROT, ""):
            (log.error if reason else log.warning)("rot: %s", reason or "no message waits any more that cannot be read")
            self._broker.damaged(reason)
            self._broker.alarm(ROT, reason)

    def _rot(self) -> str:
        """What cannot be read, and of which queues."""
        found = reading.rotten_queues(self._broker.engine)
        named = [f"{queue.name} ({number})" for queue, number in found[:NAMED]]
        more = [f"{len(found) - NAMED} more"] if len(found) > NAMED else []
        if not found:
            return ""
        total, queues = sum(number for _, number in found), ", ".join(named + more)
        what = f"{total} messages cannot be read back, and wait: queue {queues}"
        return f"{what}; last found in {self._where or self._name}"

    def shown(self) -> dict[str, object]:
        """Octets, but for `waits`: how often something had to wait for a segment, and `at_once`: how often everybody
        had; for management."""
        pool = self._pool
        return {
            "octets": pool.paged,
            "file": self._slots.end * pool.segment_size,
            "written": pool.written,
            "read": pool.loaded,
            "waits": self._paging.waits,
            "at_once": pool.at_once,
            "reason": self.reason,
            "rotten": pool.rotten,
        }


class Slots:
    """Which slots of the file are taken; the first free ones are given out, so that the file can shrink at its end."""

    def __init__(self) -> None:
        self.end = 0
        """No slot from here on is taken."""
        self._free: set[int] = set()
        self._first: list[int] = []
        """A heap of those in `_free`, and of some that are not any more."""

    def take(self, number: int) -> tuple[int, ...]:
        return tuple(self._take() for _ in range(number))

    def _take(self) -> int:
        while self._first:
            slot = heapq.heappop(self._first)
            if slot in self._free:
                self._free.remove(slot)
                return slot
        self.end += 1
        return self.end - 1

    def give(self, slots: tuple[int, ...]) -> None:
        for slot in slots:
            self._free.add(slot)
            heapq.heappush(self._first, slot)
        while self.end - 1 in self._free:
            self.end -= 1
            self._free.remove(self.end)
