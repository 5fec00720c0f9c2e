"""How tasks wait: asyncio's stand-in for `threading.Condition`.

Theory.  The application, the sessions and pika run in one thread, so nobody is kept out: entering the monitor does
nothing, and whatever happens between two `await` is atomic.  What remains is waking the right tasks, and no others:

* A task waits in a `WaitingLine`.  Whoever makes room for one calls `wake(1)`: the first in the line goes on.
* A woken task runs later, and must look again: the connection may have been lost meanwhile, or somebody else was
  quicker.  It then waits on with `again=True`, at the front.  Who wants to overtake nobody waits while the line is
  `occupied`: that counts those who were woken and have not run yet.
* A task that is cancelled between being woken and running passes the wake-up on, else it would be lost and the next in
  line would sleep beside a full buffer.
* `notify_all` is what the sessions call when something has ended, was restored or may go on.  It asks each line in
  which somebody waits, once, how many `may_go`: no task runs only to find that nothing has changed for it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType

ALL = sys.maxsize
"""How many may go on when waiting is over."""


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

    def notify_all(self) -> None:
        """Wakes as many in each line as may go on now."""
        for line in list(self._busy):
            line.wake(line.may_go())

    def line(self, may_go: Callable[[], int]) -> WaitingLine:
        """`may_go` says how many may go on now, not counting those who are `going`; it is quick and never raises."""
        return WaitingLine(self._busy, may_go)

    async def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits until `predicate` was true at some `notify_all`; False after `timeout` seconds.

        It may have become false again when the task runs: for the caller what counts is that it was true."""
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
        """Lets the first `count` go on."""
        while count > 0 and self._line:
            future, _ = self._line.popitem(last=False)
            if not future.done():  # else its task was cancelled or timed out, and has not run yet
                future.set_result(True)
                self.going += 1
                count -= 1
        self._tidy()

    async def wait(self, timeout: float | None = None, again: bool = False) -> bool:
        """Until woken; False after `timeout` seconds.  `again`: was woken for nothing, and waits on at the front."""
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


def _woken(future: asyncio.Future[bool]) -> bool:
    return future.done() and not future.cancelled() and future.result()
