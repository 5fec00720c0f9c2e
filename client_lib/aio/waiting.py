"""How a session of the asyncio API waits: for the answers to its commands, and for a state.

`client_lib.core.session_core` has everything that needs no waiting; work that takes several answers is written there as
steps, a generator that yields futures (`client_lib.core.steps`).  All futures are completed in the event loop.

For its steps, a cancelled call is one that timed out: Timeout is thrown into them and they undo what they must (a
commit that is not written is withdrawn, a subscription is cancelled, a message that arrives too late goes back).  The
call does not wait for that and raises CancelledError.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from client_lib.aio.monitor import ALL, LoopMonitor, expire
from client_lib.connecting.link import Link
from client_lib.core.session_core import SessionCore
from client_lib.core.steps import Steps
from client_lib.errors import MessagingError, Timeout

if TYPE_CHECKING:
    from client_lib.aio.connection import Connection

T = TypeVar("T")


class WaitingSession(SessionCore):
    """`client_lib.aio.session` adds what applications call."""

    monitor: LoopMonitor

    def __init__(self, connection: Connection, link: Link, name: str, transactional: bool = False) -> None:
        super().__init__(link, name, LoopMonitor(), transactional)
        self.connection = connection
        self.arrivals = self.monitor.line(lambda: ALL if self.ended() else 0)
        """The tasks that wait for a message of any receiver."""

    def own_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the connection.  Raises RuntimeError in another one."""
        return self.connection.own_loop()

    def ended(self) -> bool:
        """True if `check` would raise."""
        try:
            self.check()
        except MessagingError:
            return True
        return False

    def message_arrived(self) -> None:
        """A receiver has a message that is not fetched yet: wakes all tasks that wait for any receiver."""
        if self.arrivals:
            self.arrivals.wake(len(self.arrivals))

    async def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """False at the timeout.  Raises what ends the session meanwhile."""
        self.own_loop()
        reached = await self.monitor.wait_for(lambda: predicate() or self.ended(), timeout)
        if not predicate():
            self.check()
        return reached

    async def run(self, steps: Steps[T], timeout: float | None = None) -> T:
        """Runs all steps, waiting for each; at the timeout Timeout is thrown into them, so that they undo what they
        must."""
        loop = self.own_loop()
        deadline = None if timeout is None else loop.time() + timeout
        try:
            future = next(steps)
            while True:
                try:
                    result = await _answer(future, loop, deadline)
                except asyncio.CancelledError:
                    break_off(steps)
                    raise
                except Exception as error:
                    future = steps.throw(error)
                else:
                    future = steps.send(result)
        except StopIteration as stop:
            found: T = stop.value
            return found

    async def finish(self, steps: Steps[None], timeout: float | None) -> None:
        """As `run`, for closing: what ended the session before is no error."""
        try:
            await self.run(steps, timeout)
        except Timeout:
            raise
        except MessagingError:
            pass


async def _answer(future: Future[Any], loop: asyncio.AbstractEventLoop, deadline: float | None) -> Any:
    """The answer to a command.  After a timeout or cancellation the command is not repeated.  Raises Timeout."""
    answered: asyncio.Future[bool] = loop.create_future()
    future.add_done_callback(lambda _future: _complete(answered))
    timer = None if deadline is None else loop.call_at(deadline, expire, answered)
    try:
        await answered
    finally:
        if timer is not None:
            timer.cancel()
        future.cancel()  # no effect if it is answered, or if several tasks may wait for it
    if future.cancelled() or not future.done():
        raise Timeout("no answer of the broker in time")
    return future.result()


def _complete(answered: asyncio.Future[bool]) -> None:
    if not answered.done():
        answered.set_result(True)


def single(future: Future[T]) -> Steps[T]:
    """Steps with a single command."""
    result: T = yield future
    return result


def break_off(steps: Steps[Any]) -> None:
    """Lets the steps undo what they must, without waiting for the answers."""
    with contextlib.suppress(Exception):
        steps.throw(Timeout("cancelled"))
    steps.close()


def leave(steps: Steps[Any]) -> None:
    """Runs all steps without waiting for the answers."""
    with contextlib.suppress(MessagingError):
        for _ in steps:
            pass
