"""Sending, for the asyncio API: a window of unconfirmed messages, and tasks that wait for room or for a confirm.

    sender = await session.sender("orders", capacity=1000)
    await sender.send(Message({"id": 1}))                # the broker has it
    for order in orders:
        await sender.send(Message(order), sync=False)    # waits only for room
    await sender.sync()                                  # the broker has them all

**Cancellation.**  A `send` that is cancelled before the message is taken has done nothing; with sync=False it can only
be cancelled then.  Once the message is taken it stays with the library, is sent again after a fail-over, and counts as
unsettled until the broker has answered; if the broker does not take it, the next call of `send` or `sync` says so.
Only waiting ends early.  Who must know prefers `timeout=` to `asyncio.timeout`: the errors tell the two cases apart.

**Order.**  Messages are taken in the order in which `send` was called, over all tasks; nobody overtakes a task that
waits for room.

**The loop.**  While there is room `send` has nothing to wait for.  Every BURST messages it lets the loop run all the
same, so that a tight loop cannot keep the loop from writing, reading and heartbeats.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from client_lib.aio.monitor import ALL, expire
from client_lib.aio.waiting import leave
from client_lib.core.outbox import Entry, Outcome
from client_lib.core.window import Window
from client_lib.errors import InDoubt, MessagingError
from client_lib.message import Message

if TYPE_CHECKING:
    from client_lib.aio.session import Session

BURST = 64
"""Messages that a tight loop may send before others run: 0.5 ms; without a limit a window of 100 000 stops the loop for
0.4 s.  Costs 10 % of the rate."""


class Sender(Window):
    """Made by Session.sender.  May be used by many tasks.

    A message is kept until the broker confirms it, over any number of fail-overs.  What the broker does not take raises
    Rejected or Returned: from `send` of that message, with sync=False from the next call of `send` or `sync`, one
    failure a call.  With an `on_settled` callback failures go there instead (and confirms too): it is called as
    callback(message, message_id, error or None) in the event loop, must be quick and must not raise; it is a plain
    function, which may create tasks.

    In a transactional session the commit is the confirm: `send` does not wait for one, and it is `commit` that raises
    what became of the messages."""

    _session: Session

    def __init__(self, session: Session, *arguments: Any, **options: Any) -> None:
        super().__init__(session, *arguments, **options)
        refuse_coroutine_function("on_settled", self._on_settled)
        self._room = session.monitor.line(self._places)
        self._confirms: dict[Entry, asyncio.Future[bool]] = {}
        self._burst = 0
        """Messages taken without a turn of the loop."""
        self._paused = False
        self._filled = False
        """The window was full and has not fallen to its low-water mark since: nobody is woken for one place."""

    async def send(self, message: Message | bytes | str, sync: bool = True, timeout: float | None = None) -> str:
        """Takes the message, waits for the confirm and returns its id; with sync=False does not wait for the confirm.

        Waits while `capacity` messages are unsettled.  `timeout` in seconds for all waiting together.
        Raises InsufficientCapacity (not taken), InDoubt (taken, no confirm in time), SendError, LinkClosed,
        SessionError, ConnectionError, and TypeError/ValueError of the encoder (not taken)."""
        session = self._session
        loop = session.own_loop()
        deadline = None if timeout is None else loop.time() + timeout
        self.raise_failure()
        if self.full() or self._paused or self._room.occupied:
            await self._wait_for_room(deadline)
        else:
            self._let_the_loop_run(loop)
        try:
            entry = self.entry(message)
            self.add(entry)
        finally:
            self._admit()
        session.wake()
        if sync and session.transaction is None:
            await self._wait_for(entry, deadline)
        return entry.message_id

    async def sync(self, timeout: float | None = None) -> None:
        """Waits until everything sent is settled, in a transaction: written.  Raises InDoubt, or the first failure."""
        if not await self._session.wait_for(self.calm, timeout):
            raise InDoubt(f"{self._pending} messages without a confirm after {timeout} s; they are still kept")
        self.raise_failure()

    async def close(self, timeout: float | None = None) -> None:
        """Waits for the confirms, then takes no more messages.  Harmless when repeated.

        Raises what `sync` raises; the sender is closed all the same, also when cancelled, and what is unconfirmed is
        still kept."""
        loop = self._session.own_loop()
        if self.error is not None:
            return
        deadline = None if timeout is None else loop.time() + timeout
        steps = self._session.closing_sender(self)
        try:
            await self.sync(timeout)
        except asyncio.CancelledError:
            leave(steps)
            raise
        finally:
            await self._session.finish(steps, None if deadline is None else max(0.0, deadline - loop.time()))

    def _let_the_loop_run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Who sends next must wait for a turn of the loop, if many have not.  They wait before their message is taken:
        a task that is cancelled there has sent nothing, and nobody overtakes it."""
        self._burst += 1
        if self._burst >= BURST:
            self._paused = True
            loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._paused, self._burst = False, 0
        self._admit()

    async def _wait_for_room(self, deadline: float | None) -> None:
        again = False
        while True:
            left = None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())
            woken = await self._room.wait(left, again)
            self.check()
            if not self.full():
                return
            if not woken:
                raise self.no_room()
            again = True

    async def _wait_for(self, entry: Entry, deadline: float | None) -> None:
        loop = asyncio.get_running_loop()
        confirm = self._confirms[entry] = loop.create_future()
        timer = None if deadline is None else loop.call_at(deadline, expire, confirm)
        try:
            await confirm
        finally:
            del self._confirms[entry]
            if timer is not None:
                timer.cancel()
        if entry.outcome is Outcome.PENDING:
            raise InDoubt(f"in doubt: no confirm for {entry.message_id}; it is kept and will be sent again")
        self.raise_outcome(entry)

    # -- for the channel worker

    def settled(self, entry: Entry) -> bool:
        """Books a settled entry, and wakes exactly those who wait for it or for the room it left."""
        wanted = super().settled(entry)
        confirm = self._confirms.get(entry)
        if confirm is not None and not confirm.done():
            confirm.set_result(True)
        self._admit()
        return wanted

    def _admit(self) -> None:
        """Called whenever room may have been left, also by a task that was let in and did not use its place."""
        if self.full():
            self._filled = True
        elif self._room:
            self._room.wake(self._places())

    def _places(self) -> int:
        """How many of those who wait for room may go on; once the window was full, none before a quarter is free."""
        if self._over():
            return ALL
        if self._paused or self.full() or (self._filled and not self.roomy()):
            return 0
        self._filled = False
        return self.available() - self._room.going

    def _over(self) -> bool:
        try:
            self.check()
        except MessagingError:
            return True
        return False

    def report(self, entry: Entry) -> None:
        """Calls the application's callback."""
        if self._on_settled is None:
            return
        answer: object = self._on_settled(entry.message, entry.message_id, entry.error)  # type: ignore[arg-type]
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError("on_settled returned a coroutine, which nobody awaits; let it create a task")


def refuse_coroutine_function(name: str, callback: Any) -> None:
    """Raises TypeError for a callback that would have to be awaited."""
    called = getattr(callback, "__call__", None)  # noqa: B004 - the method itself is looked at
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(called):
        raise TypeError(f"{name} must be a plain function, not a coroutine function: {callback!r}; it may create tasks")
