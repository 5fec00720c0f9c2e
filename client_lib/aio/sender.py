"""Sending, for the asyncio API: a window of unconfirmed messages, and tasks that wait for room or for a confirm.

    sender = await session.sender("orders", capacity=1000)
    await sender.send(Message({"id": 1}))                # the broker has it
    for order in orders:
        await sender.send(Message(order), sync=False)    # waits only for room
    await sender.sync()                                  # the broker has them all

**Cancellation.**  A `send` that is cancelled before the message is taken has done nothing; with sync=False it can only
be cancelled then.  Once the message is taken it stays with the library, is sent again after a fail-over, and counts as
unsettled until the broker has answered; if the broker does not take it, the next call of `send` or `sync` says so.
Only the waiting ends early.  To tell the two cases apart, use `timeout=`, which raises different errors, instead of
`asyncio.timeout`.

**Order.**  Messages are taken in the order in which `send` was called, over all tasks; no task overtakes one that waits
for room.

**The loop.**  While there is room `send` has nothing to wait for.  Every BURST messages it lets the event loop run
nevertheless, so a tight loop cannot block writing, reading and heartbeats.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from client_lib.aio.monitor import ALL, ends, expire
from client_lib.aio.waiting import Waiting, leave
from client_lib.core.outbox import Entry, Outcome
from client_lib.core.window import Window
from client_lib.errors import InDoubt
from client_lib.message import Message

BURST = 64
"""Messages that a tight loop may send before others run: 0.5 ms; without a limit a window of 100 000 stops the loop for
0.4 s.  Costs 10 % of the rate."""


class Sending(Window):
    """Made by Session.sender.  May be used by many tasks.

    A message is kept until the broker confirms it, over any number of fail-overs.  A message that the broker refuses
    raises Rejected or Returned: from its own `send`, with sync=False from the next call of `send` or `sync`, one
    failure per call.  With an `on_settled` callback failures and confirms go there instead: it is called as
    callback(message, message_id, error or None) in the event loop, must be quick and must not raise; it is a plain
    function, which may create tasks.

    In a transactional session the commit is the confirm: `send` does not wait for one, and `commit` raises the
    failures."""

    def __init__(self, waiting: Waiting, *arguments: Any) -> None:
        super().__init__(waiting.worker, *arguments)
        self._waiting = waiting
        waiting.own_loop()
        refuse_coroutine_function("on_settled", self._on_settled)
        self._room = waiting.monitor.line(self._places)
        self._confirms: dict[Entry, asyncio.Future[bool]] = {}
        self._burst = 0
        """Messages taken without a turn of the loop."""
        self._paused = False
        self._filled = False
        """The window was full and has not fallen to its low-water mark since; no task is woken for a single place."""

    async def send(self, message: Message | bytes | str, sync: bool = True, timeout: float | None = None) -> str:
        """Takes the message, waits for the confirm and returns its id; with sync=False does not wait for the confirm.

        Waits while `capacity` messages are unsettled.  `timeout` in seconds for all waiting together.
        Raises InsufficientCapacity (not taken), InDoubt (taken, no confirm in time), SendError, LinkClosed,
        SessionError, ConnectionError, and TypeError/ValueError of the encoder (not taken)."""
        worker = self._worker
        loop = self._waiting.own_loop()
        deadline = None if timeout is None else loop.time() + timeout
        self.raise_failure()
        if self.full() or self._paused or self._room.occupied:
            if not self._capacity:
                raise self.no_room()
            await self._wait_for_room(deadline)
        else:
            self._let_the_loop_run(loop)
        try:
            entry = self.entry(message)
            self.add(entry)
        finally:
            self._admit()
        worker.wake()
        if sync and worker.transaction is None:
            await self._wait_for(entry, deadline)
        return entry.message_id

    async def sync(self, timeout: float | None = None) -> None:
        """Waits until everything sent is settled, in a transaction: written.  Raises InDoubt, or the first failure."""
        if not await self._waiting.wait_for(self.calm, timeout):
            text = f"{self._pending} messages without a confirm after {timeout} s; they are still kept"
            raise InDoubt(text + self._worker.trouble)
        self.raise_failure()

    async def close(self, timeout: float | None = None) -> None:
        """Waits for the confirms, then takes no more messages.  Harmless when repeated.

        Raises what `sync` raises; the sender is closed nevertheless, also when cancelled, and what is unconfirmed is
        still kept."""
        loop = self._waiting.own_loop()
        if self.error is not None:
            return
        deadline = None if timeout is None else loop.time() + timeout
        steps = self._waiting.core.senders.closing(self)
        try:
            await self.sync(timeout)
        except asyncio.CancelledError:
            leave(steps)
            raise
        finally:
            await self._waiting.finish(steps, None if deadline is None else max(0.0, deadline - loop.time()))

    def _let_the_loop_run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Waits for a turn of the loop if many messages were sent without one.  The task waits before its message is
        taken: if it is cancelled there it has sent nothing, and no other task overtakes it."""
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
            text = f"in doubt: no confirm for {entry.message_id}; it is kept and will be sent again"
            raise InDoubt(text + self._worker.trouble)
        self.raise_outcome(entry)

    # -- for the channel worker

    def settled(self, entry: Entry) -> bool:
        """Books a settled entry and wakes exactly the tasks that wait for it or for the room it left."""
        wanted = super().settled(entry)
        confirm = self._confirms.get(entry)
        if confirm is not None and not confirm.done():
            confirm.set_result(True)
        self._admit()
        return wanted

    def _admit(self) -> None:
        """Called whenever there may be room, also by a task that was woken and did not use its place."""
        if self.full():
            self._filled = True
        elif self._room:
            self._room.wake(self._places())

    def _places(self) -> int:
        """How many tasks that wait for room may continue; after the window was full, none before a quarter of it is
        free."""
        if ends(self.check):
            return ALL
        if self._paused or self.full() or (self._filled and not self.roomy()):
            return 0
        self._filled = False
        return self.available() - self._room.going

    def report(self, entry: Entry) -> None:
        """Calls the application's callback."""
        if self._on_settled is None:
            super().report(entry)
            return
        answer: object = self._on_settled(entry.message, entry.message_id, entry.error)  # type: ignore[arg-type]
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError("on_settled returned a coroutine, which is not awaited; create a task instead")


def refuse_coroutine_function(name: str, callback: Any) -> None:
    """Raises TypeError for a callback that would have to be awaited."""
    called = getattr(callback, "__call__", None)  # noqa: B004 - the method itself is looked at
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(called):
        raise TypeError(f"{name} must be a plain function, not a coroutine function: {callback!r}; it may create tasks")
