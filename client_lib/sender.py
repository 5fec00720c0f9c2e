"""Sending, for the threaded API: a window of unconfirmed messages for one exchange and routing key."""

from __future__ import annotations

import time
from typing import Any

from client_lib.core.outbox import Entry, Outcome
from client_lib.core.window import Window
from client_lib.errors import ConnectionClosed, InDoubt, MessagingError, SessionClosed
from client_lib.message import Message
from client_lib.waiting import Waiting


class Sending(Window):
    """Made by Session.sender.  May be used from many threads; messages of one thread keep their order.

    A message is kept until the broker confirms it, over any number of fail-overs.  A message that the broker refuses
    raises Rejected or Returned: from its own `send`, with sync=False from the next call of `send` or `sync`, one
    failure per call.  With an `on_settled` callback failures and confirms go there instead: it is called as
    callback(message, message_id, error or None) in the I/O thread, must not block and must not raise.

    In a transactional session the commit is the confirm: `send` does not wait for one, and `commit` raises the
    failures."""

    def __init__(self, waiting: Waiting, *arguments: Any) -> None:
        super().__init__(waiting.worker, *arguments)
        self._waiting = waiting
        if self._on_settled is not None:
            waiting.calls_back()

    def send(self, message: Message | bytes | str, sync: bool = True, timeout: float | None = None) -> str:
        """Takes the message, waits for the confirm and returns its id; with sync=False does not wait for the confirm.

        Blocks while `capacity` messages are unsettled.  `timeout` in seconds for all waiting together.
        Raises InsufficientCapacity (not taken), InDoubt (taken, no confirm in time), SendError, LinkClosed,
        SessionError, ConnectionError, and TypeError/ValueError of the encoder (not taken)."""
        worker = self._worker
        deadline = None if timeout is None else time.monotonic() + timeout
        entry = self.entry(message)
        with self._waiting.lock:
            self.raise_failure()
            if self.full():
                self._wait_for_room(deadline)
                self.check()  # the end of a session makes room as well
            self.add(entry)
            written = sync and worker.write_now()
        if not written:
            worker.wake()
        if sync and worker.transaction is None:
            self._wait_for(entry, deadline)
        return entry.message_id

    def sync(self, timeout: float | None = None) -> None:
        """Waits until everything sent is settled, in a transaction: written.  Raises InDoubt, or the first failure."""
        with self._worker.monitor:
            if not self._waiting.wait_for(self.calm, timeout):
                text = f"{self._pending} messages without a confirm after {timeout} s; they are still kept"
                raise InDoubt(text + self._worker.trouble)
            self.raise_failure()

    def close(self, timeout: float | None = None) -> None:
        """Waits for the confirms, then takes no more messages.  Harmless when repeated; does not wait in a callback.

        Raises what `sync` raises; the sender is closed nevertheless, and unconfirmed messages are still kept."""
        if self.error is not None:
            return
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            if not self._waiting.in_io_thread():
                self.sync(timeout)
        except (SessionClosed, ConnectionClosed):
            pass
        finally:
            self._waiting.finish(self._waiting.core.senders.closing(self), deadline)

    def _wait_for_room(self, deadline: float | None) -> None:
        if not self._capacity:
            raise self.no_room()
        self._waiting.refuse_io_thread("send with a full window")
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        self.blocked += 1
        try:
            if not self._waiting.wait_for(self._room, timeout) and self.full():
                raise self.no_room()
        finally:
            self.blocked -= 1

    def _room(self) -> bool:
        return self.roomy() or self.error is not None

    def _wait_for(self, entry: Entry, deadline: float | None) -> None:
        waiting = self._waiting
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        publishing = self._worker.publishing
        with waiting.lock:
            publishing.sync_waiters += 1
            try:
                done = waiting.wait_for_broker(lambda: entry.outcome is not Outcome.PENDING, timeout, "send(sync=True)")
            except MessagingError:
                # A confirm that came before the end counts
                if entry.outcome is not Outcome.CONFIRMED:
                    raise
                done = True
            finally:
                publishing.sync_waiters -= 1
            if not done:
                text = f"in doubt: no confirm for {entry.message_id}; it is kept and will be sent again"
                raise InDoubt(text + self._worker.trouble)
            self.raise_outcome(entry)
