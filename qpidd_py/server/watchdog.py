"""Notices that one turn of the event loop takes long, whatever runs in it: everybody waits meanwhile.

`TurnSelector` (`loop.py`) knows since when a turn goes on.  A thread looks at it every
`PERIOD`, not the loop, which is what stands still.  While a turn is late the thread notes where the main thread is;
what the core does holds the interpreter, so the thread comes to it only when that has ended, with the call still on
the stack.  `Watch` decides what is worth a line, and is pure.  The rest is shell.
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, NamedTuple

from qpidd_py.server.loop import LIMIT, BrokerLoop, TurnSelector

log = logging.getLogger(__name__)

PERIOD: Final = 0.05
"""Seconds between two looks."""
HANGS: Final = 5.0
"""Seconds after which a turn that has not ended is told."""
QUIET: Final = 10.0
"""Seconds between two lines about late turns; those between are counted."""
_FRAMES: Final = 12
_GUARD: Final = "_guard"
"""A function that calls its argument `work`, which has no frame of its own when it is the core's."""


class Late(NamedTuple):
    """A turn to be told of."""

    hangs: bool
    """It has not ended."""
    seconds: float
    where: str


class Watch:
    """What is told of late turns; times in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._seen = self._told_hanging = 0.0
        self._where = ""
        self._told = float("-inf")
        self._more = 0

    def look(self, now: float, began: float, late: list[tuple[float, float]], where: Callable[[], str]) -> list[Late]:
        """Those to be told of.  `began`: of the present turn, 0 for none; `late`: those that have ended since the last
        look; `where` says what the main thread does."""
        found = [each for begin, took in late if (each := self._ended(now, begin, took))]
        if began and now - began > LIMIT and began != self._seen:
            self._seen, self._where = began, where()
        if began and now - began > HANGS and began != self._told_hanging:
            self._told_hanging = began
            self._where = where()
            found.append(Late(True, now - began, self._where))
        return found

    def _ended(self, now: float, began: float, took: float) -> Late | None:
        if now - self._told < QUIET:
            self._more += 1
            return None
        where = self._where if began == self._seen else "it has ended before the watchdog looked"
        more, self._more, self._told = self._more, 0, now
        return Late(False, took, where + (f"; {more} others before it were late" if more else ""))


def stack(frame: FrameType | None) -> str:
    """The innermost calls, the innermost first, in one line."""
    calls: list[str] = []
    while frame is not None and len(calls) < _FRAMES:
        code = frame.f_code
        work = f" of {frame.f_locals.get('work')!r}" if code.co_name == _GUARD else ""
        calls.append(f"{code.co_name}{work} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(calls)


class Watchdog:
    """Watches the loop of the thread that makes it."""

    def __init__(self, turns: TurnSelector) -> None:
        self._turns = turns
        self._watch = Watch()
        self._main = threading.get_ident()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(PERIOD):
            late = [self._turns.late.pop(0) for _ in range(len(self._turns.late))]
            for found in self._watch.look(time.monotonic(), self._turns.began, late, self._where):
                if found.hangs:
                    log.warning(
                        "a turn of the event loop goes on for %.1f s already, all clients wait: %s",
                        found.seconds,
                        found.where,
                    )
                else:
                    log.warning("a turn of the event loop took %.0f ms: %s", found.seconds * 1000, found.where)

    def _where(self) -> str:
        return stack(sys._current_frames().get(self._main))


def run_watched(main: Coroutine[Any, Any, int]) -> int:
    """Runs it in a loop of its own, as `asyncio.run` does."""
    turns = TurnSelector()
    watchdog = Watchdog(turns)
    try:
        with asyncio.Runner(loop_factory=lambda: BrokerLoop(turns)) as runner:
            return runner.run(main)
    finally:
        watchdog.stop()
