"""How tasks wait: asyncio's stand-in for `threading.Condition`.

Theory.  The application, the sessions and the connection run in one thread, so no mutual exclusion is needed: entering
the monitor does nothing, and code between two `await` is atomic.  What remains is to wake the right tasks only:

* A task waits in a `WaitingLine`.  Code that makes room for one task calls `wake(1)`: the first in the line continues.
* A woken task runs later and must check again: the connection may have been lost meanwhile, or another task was
  quicker.  It then waits again with `again=True`, at the front.  A task that must not overtake others waits while the
  line is `occupied`, which also counts tasks that were woken and have not run yet.
* A task that is cancelled between being woken and running passes the wake-up on; otherwise it would be lost, and the
  next task would sleep although there is something for it.
* `notify_all` is what the sessions call when something has ended, was restored or may go on.  It asks each line that is
  not empty once how many `may_go`, so no task runs only to find that nothing has changed for it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType

from client_lib.errors import MessagingError

ALL = sys.maxsize
"""How many tasks may continue when waiting is over."""


class LoopMonitor:
    """One per session and connection; belongs to one event loop."""

    def __init__(self) -> None:
        self._busy: dict[WaitingLine, None] = {}

    def __enter__(self) -> LoopMonitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @property
    def lock(self) -> LoopMonitor:
        return self

    def notify_all(self) -> None:
        """Wakes as many tasks of each line as may continue now."""
        for line in list(self._busy):
            line.wake(line.may_go())

    def line(self, may_go: Callable[[], int]) -> WaitingLine:
        """`may_go` says how many may go on now, not counting those who are `going`; it is quick and never raises."""
        return WaitingLine(self._busy, may_go)

    async def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits until `predicate` was true at some `notify_all`; False after `timeout` seconds.

        It may be false again when the task runs; the caller only needs that it was true."""
        if predicate():
            return True
        return await self.line(lambda: ALL if predicate() else 0).wait(timeout)


class WaitingLine:
    """Tasks that wait for the same thing, first come, first served."""

    def __init__(self, busy: dict[WaitingLine, None], may_go: Callable[[], int]) -> None:
        self.may_go = may_go
        self.going = 0
        """How many were woken and have not run yet."""
        self._busy = busy
        self._line: OrderedDict[asyncio.Future[bool], None] = OrderedDict()

    def __len__(self) -> int:
        """How many wait and have not been woken."""
        return len(self._line)

    @property
    def occupied(self) -> bool:
        return self.going > 0 or bool(self._line)

    def wake(self, count: int = 1) -> None:
        """Lets the first `count` tasks continue."""
        while count > 0 and self._line:
            future, _ = self._line.popitem(last=False)
            if not future.done():  # otherwise its task was cancelled or timed out and has not run yet
                future.set_result(True)
                self.going += 1
                count -= 1
        self._tidy()

    async def wait(self, timeout: float | None = None, again: bool = False) -> bool:
        """Waits until woken; False after `timeout` seconds.  `again`: waits at the front, after a wake-up without
        effect."""
        if timeout is not None and timeout <= 0:
            return False
        loop = asyncio.get_running_loop()
        future = self._join(loop.create_future(), again)
        timer = None if timeout is None else loop.call_later(timeout, expire, future)
        try:
            return await future
        except asyncio.CancelledError:
            if _woken(future):
                self.wake(1)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self.going -= _woken(future)
            self._line.pop(future, None)
            self._tidy()

    def _join(self, future: asyncio.Future[bool], again: bool) -> asyncio.Future[bool]:
        self._line[future] = None
        if again:
            self._line.move_to_end(future, last=False)
        self._busy[self] = None
        return future

    def _tidy(self) -> None:
        if not self._line:
            self._busy.pop(self, None)


def expire(future: asyncio.Future[bool]) -> None:
    """For a timer: the time is up."""
    if not future.done():
        future.set_result(False)


def ends(check: Callable[[], None]) -> bool:
    """True if `check` raises what ends the waiting."""
    try:
        check()
    except MessagingError:
        return True
    return False


def _woken(future: asyncio.Future[bool]) -> bool:
    return future.done() and not future.cancelled() and future.result()
