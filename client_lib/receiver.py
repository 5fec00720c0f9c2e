"""Receiving, for the threaded API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from client_lib.core.subscription import Subscription
from client_lib.errors import ConnectionClosed, Empty, LinkClosed, SessionClosed
from client_lib.message import Message
from client_lib.waiting import Pausing, Waiting


class Receiving(Subscription):
    """Made by Session.receiver.  `fetch` may be called from many threads."""

    def __init__(self, waiting: Waiting, *arguments: Any) -> None:
        super().__init__(waiting.worker, *arguments)
        self._waiting = waiting

    def fetch(self, timeout: float | None = None) -> Message:
        """The next message; waits for `timeout` seconds (None: for ever, 0: not at all), then asks the broker whether
        the queue is empty.  During a fail-over it waits for the answer of the new broker, too, so it may take longer.

        Raises Empty: there is none, or all of `capacity` is fetched and not acknowledged; Timeout: no broker has
        answered (see `ChannelWorker.patience`); LinkClosed, ReceiverCancelled, SessionError, ConnectionError."""
        message = self.poll(timeout)
        if message is None and not self.one_by_one:
            self._waiting.run(self._waiting.core.receivers.asking([self]), self._waiting.worker.patience(timeout))
            message = self.poll(0)
        if message is None:
            raise Empty(f"no message in {self.source} within {timeout} s")
        return message

    def poll(self, timeout: float | None = None) -> Message | None:
        """As `fetch`, but does not ask the broker at the end: None if nothing has arrived here in time.  With a
        `capacity` of 0 each message is asked for, and `fetch` and `poll` differ in nothing else."""
        self._waiting.refuse_io_thread("fetch")
        with self._waiting.lock:
            message = self.take()
            if message is None and not self.one_by_one:
                message = self._wait(timeout)
        if message is None and self.one_by_one:
            return self._one_by_one(timeout)
        if message is not None and self._worker.events.enabled:
            self.note_fetched(message)
        return message

    def _one_by_one(self, timeout: float | None) -> Message | None:
        limit = None if timeout is None else timeout + self._waiting.worker.patience(timeout)
        return self._waiting.run(self._waiting.core.receivers.fetching_one(self, timeout), limit)

    def _wait(self, timeout: float | None) -> Message | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        self.waiting += 1
        self._worker.wake_others()
        try:
            with self._waiting.pausing(True) as pause:
                return self._take_later(deadline, pause)
        finally:
            self.waiting -= 1

    def _take_later(self, deadline: float | None, pause: Pausing) -> Message | None:
        while True:
            self.check()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            pause.wait(left)
            message = self.take()
            if message is not None:
                return message

    def __iter__(self) -> Iterator[Message]:
        """Messages until the receiver, its session or the connection is closed."""
        while True:
            try:
                yield self.fetch()
            except (LinkClosed, SessionClosed, ConnectionClosed):
                return

    def close(self, timeout: float | None = None) -> None:
        """Cancels the subscription; messages not fetched go back to the queue.  Harmless when repeated; does not wait
        in a callback.  Raises Timeout; it is closed nevertheless."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._waiting.finish(self._waiting.core.receivers.closing(self), deadline)
