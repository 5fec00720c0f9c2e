"""Receiving, for the asyncio API.

    receiver = await session.receiver("orders", capacity=100)
    async for message in receiver:
        await handle(message)
        await session.acknowledge(message, sync=False)

**Cancellation.**  A `fetch` that is cancelled, or whose `asyncio.timeout` expires, has taken no message: what had
arrived for it goes to the next call.

**The loop.**  While there are messages `fetch` has nothing to wait for.  Every BURST messages it lets the loop run
nevertheless.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

from client_lib.aio.monitor import ALL, ends
from client_lib.aio.waiting import Waiting
from client_lib.core.subscription import Subscription
from client_lib.errors import ConnectionClosed, Empty, LinkClosed, SessionClosed
from client_lib.message import Message

BURST = 64
"""Messages that a tight loop may fetch before others run."""


class Receiving(Subscription):
    """Made by Session.receiver.  `fetch` may be called by many tasks."""

    def __init__(self, waiting: Waiting, *arguments: Any) -> None:
        super().__init__(waiting.worker, *arguments)
        self._waiting = waiting
        self._line = waiting.monitor.line(lambda: ALL if ends(self.check) else 0)
        self._burst = 0

    async def fetch(self, timeout: float | None = None) -> Message:
        """The next message; waits for `timeout` seconds (None: for ever, 0: not at all), then asks the broker whether
        the queue is empty.  During a fail-over it waits for the answer of the new broker, too, so it may take longer.

        Raises Empty: there is none, or all of `capacity` is fetched and not acknowledged; Timeout: no broker has
        answered (see `ChannelWorker.patience`); LinkClosed, ReceiverCancelled, SessionError, ConnectionError."""
        message = await self.poll(timeout)
        if message is None and not self.one_by_one:
            await self._waiting.run(self._waiting.core.receivers.asking([self]), self._waiting.worker.patience(timeout))
            message = await self.poll(0)
        if message is None:
            raise Empty(f"no message in {self.source} within {timeout} s")
        return message

    async def poll(self, timeout: float | None = None) -> Message | None:
        """As `fetch`, but does not ask the broker at the end: None if nothing has arrived here in time.  With a
        `capacity` of 0 each message is asked for, and `fetch` and `poll` differ in nothing else."""
        loop = self._waiting.own_loop()
        deadline = None if timeout is None else loop.time() + timeout
        await self._let_others_run()
        woken = again = False
        while True:
            message = self.take()
            if message is not None:
                break
            if self.one_by_one:
                return await self._one_by_one(timeout)
            self.check()
            if again and not woken:
                return None
            left = None if deadline is None else max(0.0, deadline - loop.time())
            self._worker.wake_others()
            woken, again = await self._line.wait(left, again), True
        self.note_fetched(message)
        return message

    async def _one_by_one(self, timeout: float | None) -> Message | None:
        limit = None if timeout is None else timeout + self._waiting.worker.patience(timeout)
        return await self._waiting.run(self._waiting.core.receivers.fetching_one(self, timeout), limit)

    async def _let_others_run(self) -> None:
        """Called before a message is taken, so a task that is cancelled here loses no message."""
        self._burst += 1
        if self._burst >= BURST:
            self._burst = 0
            await asyncio.sleep(0)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """`async for` gives messages until the receiver, its session or the connection is closed."""
        try:
            return await self.fetch()
        except (LinkClosed, SessionClosed, ConnectionClosed):
            raise StopAsyncIteration from None

    async def close(self, timeout: float | None = None) -> None:
        """Cancels the subscription; messages not fetched go back to the queue.  Harmless when repeated.

        Raises Timeout; it is closed nevertheless, also when cancelled."""
        await self._waiting.finish(self._waiting.core.receivers.closing(self), timeout)

    # -- for the channel worker

    @property
    def hungry(self) -> bool:
        return bool(self._line) and not self._buffer

    def arrived(self, message: Message) -> None:
        """Keeps a message and wakes one task for it."""
        super().arrived(message)
        self._line.wake(1)
        self._waiting.message_arrived()
