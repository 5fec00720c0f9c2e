"""How a session of the asyncio API waits: for the answers to its commands, and for a state.

`client_lib.waiting` has the same methods for the threaded API.  Work that takes several answers is written as steps, a
generator that yields futures (`client_lib.steps`).  All futures are completed in the event loop.

For its steps, a cancelled call is one that timed out: Timeout is thrown into them and they undo what they must (a
commit that is not written is withdrawn, a subscription is cancelled, a message that arrives too late goes back).  The
call does not wait for that and raises CancelledError.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from client_lib.aio.monitor import ALL, LoopMonitor, ends, expire
from client_lib.core.ledger import Disposition
from client_lib.core.session_core import SessionCore
from client_lib.core.subscription import Subscription
from client_lib.errors import Empty, MessagingError, Timeout
from client_lib.link.link import Link
from client_lib.message import Message
from client_lib.steps import Steps
from client_lib.unheard import raise_first

LOGGER = logging.getLogger("client_lib")
T = TypeVar("T")


class Owner(Protocol):
    """The part of a connection that its sessions use."""

    def own_loop(self) -> asyncio.AbstractEventLoop: ...

    def close_session(self, session: Waiting) -> None: ...


class Waiting:
    """One per session."""

    def __init__(self, owner: Owner, link: Link, name: str, transactional: bool) -> None:
        self.monitor = LoopMonitor()
        self.core = SessionCore(link, name, self.monitor, transactional)
        self.worker = self.core.worker
        self.own_loop = owner.own_loop
        """The loop of the connection.  Raises RuntimeError in another one."""
        self._owner = owner
        self._arrivals = self.monitor.line(lambda: ALL if ends(self.worker.check) else 0)
        """The tasks that wait for a message of any receiver."""

    def settle(self, message: Message, disposition: Disposition) -> None:
        self.own_loop()
        self.core.settle(message, disposition)

    def settle_all(self, disposition: Disposition) -> None:
        self.own_loop()
        self.core.settle_all(disposition)

    def message_arrived(self) -> None:
        """A receiver has a message that is not fetched yet: wakes all tasks that wait for any receiver."""
        if self._arrivals:
            self._arrivals.wake(len(self._arrivals))

    async def next_receiver(self, timeout: float | None) -> Subscription:
        """The receiver that has the oldest message.  Raises Empty, when the broker has none either; Timeout."""
        receiver = await self._first_receiver(timeout)
        if receiver is None:
            await self.run(self.core.receivers.asking(self.core.receivers.all()), self.worker.patience(timeout))
            receiver = await self._first_receiver(0)
        if receiver is None:
            raise Empty(f"no message for any receiver within {timeout} s")
        return receiver

    async def _first_receiver(self, timeout: float | None) -> Subscription | None:
        loop = self.own_loop()
        deadline = None if timeout is None else loop.time() + timeout
        woken = again = False
        while True:
            self.worker.check()
            receiver = self.core.receivers.ready()
            if receiver is not None:
                return receiver
            if again and not woken:
                return None
            left = None if deadline is None else max(0.0, deadline - loop.time())
            woken, again = await self._arrivals.wait(left, again), True

    async def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """False at the timeout.  Raises what ends the session meanwhile."""
        self.own_loop()
        reached = await self.monitor.wait_for(lambda: predicate() or ends(self.worker.check), timeout)
        if not predicate():
            self.worker.check()
        return reached

    async def answer(self, future: Future[T], timeout: float | None) -> T:
        """Waits for the answer to a command.  Raises Timeout: then it is not asked again."""
        return await self.run(_single(future), timeout)

    async def run(self, steps: Steps[T], timeout: float | None = None) -> T:
        """Runs all steps, waiting for each; at the timeout Timeout is thrown into them, so that they undo what they
        must."""
        loop = self.own_loop()
        deadline = None if timeout is None else loop.time() + timeout
        try:
            future = next(steps)
            while True:
                try:
                    result = await self._answer(future, loop, deadline)
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

    async def _answer(self, future: Future[Any], loop: asyncio.AbstractEventLoop, deadline: float | None) -> Any:
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
            raise Timeout(f"no answer of the broker in time{self.worker.trouble}")
        return future.result()

    async def finish(self, steps: Steps[None], timeout: float | None) -> None:
        """As `run`, for closing: what ended the session before is no error."""
        try:
            await self.run(steps, timeout)
        except Timeout:
            raise
        except MessagingError:
            pass

    # -- the end

    async def sync(self, timeout: float | None) -> None:
        """Waits until all is confirmed and all acknowledgements are written.  Raises Timeout, the first refusal."""
        await self._settled(timeout)
        self.core.raise_failure()

    async def _settled(self, timeout: float | None) -> None:
        if not await self.wait_for(self.core.idle, timeout):
            count = self.worker.publishing.outbox.unsettled
            raise Timeout(f"{count} messages unsettled after {timeout} s{self.worker.trouble}")
        self.worker.check()

    async def drain(self, deadline: float | None) -> None:
        """Waits for unsettled messages and does what the addresses ask for at close, as far as possible."""
        loop, told = self.own_loop(), self.worker.ending.told
        try:
            await self._settled(None if deadline is None else deadline - loop.time())
            await self.run(self.core.ending(), None if deadline is None else deadline - loop.time())
        except MessagingError as error:
            self.worker.ending.told = told
            LOGGER.debug("%s: %s", self.worker.name, error)

    async def close(self, timeout: float | None) -> None:
        """Drains, then closes the channel; cancelled, it closes at once.  Harmless when repeated.  Raises what was
        refused or is in doubt."""
        loop = self.own_loop()
        try:
            await self.drain(None if timeout is None else loop.time() + timeout)
        finally:
            self._owner.close_session(self)
        raise_first(self.worker.take_unheard())

    def forked(self, error: MessagingError | None) -> None:
        """In the child after fork(2)."""
        self.core.forked(error)


def _complete(answered: asyncio.Future[bool]) -> None:
    if not answered.done():
        answered.set_result(True)


def _single(future: Future[T]) -> Steps[T]:
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
