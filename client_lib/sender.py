"""Sending: a window of unconfirmed messages onto one exchange and routing key."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from client_lib.errors import CapacityTimeout, ClientError, InDoubt
from client_lib.message import Message
from client_lib.outbox import Entry, Outcome

if TYPE_CHECKING:
    from client_lib.session import Session

SettledCallback = Callable[[Message, str, ClientError | None], None]


class Sender:
    """Made by Session.sender.  May be used from many threads; messages of one thread keep their order.

    A message is kept until the broker confirms it, over any number of fail-overs.  What the broker does not take raises
    Rejected or Returned: from `send(sync=True)` of that message, otherwise from the next call of `send` or `sync`, one
    failure a call.  With an `on_settled` callback failures go there instead (and confirms too): it is called as
    callback(message, message_id, error or None) in the I/O thread, must not block and must not raise."""

    def __init__(
        self,
        session: Session,
        routing_key: str,
        exchange: str,
        capacity: int,
        mandatory: bool,
        on_settled: SettledCallback | None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.routing_key, self.exchange = routing_key, exchange
        self.capacity, self.mandatory = capacity, mandatory
        self._session = session
        self._on_settled = on_settled
        self._pending = 0
        # A sender that waits for room is woken only when a quarter of the window is free: one thread switch for many
        # messages instead of one for each.
        self._low_water = capacity - max(1, capacity // 4)
        self._blocked = 0
        self._failures: deque[ClientError] = deque()

    def send(self, message: Message | bytes | str, sync: bool = False, timeout: float | None = None) -> str:
        """Takes the message and returns its id; with `sync` waits for the confirm.

        Blocks while `capacity` messages are unsettled.  `timeout` in seconds for all waiting together.
        Raises CapacityTimeout (not taken), InDoubt (taken, no confirm in time), DeliveryFailed, SessionFailed,
        ConnectionFailed, Closed, and TypeError/ValueError of the encoder (not taken)."""
        if not isinstance(message, Message):
            message = Message(message)
        session = self._session
        deadline = None if timeout is None else time.monotonic() + timeout
        message_id = message.id or session.next_message_id()
        routing_key = self.routing_key if message.subject is None or self.routing_key else message.subject
        entry = Entry(
            message=message,
            owner=self,
            exchange=self.exchange,
            routing_key=routing_key,
            mandatory=self.mandatory,
            payload=message.encode(message_id),
            body=message.body,
            message_id=message_id,
        )
        with session.condition:
            self._raise_failure()
            self._wait_for_room(deadline)
            session.check()  # the end of a session makes room as well
            self._pending += 1
            session.outbox.add(entry)
        session.wake()
        if sync:
            self._wait_for(entry, deadline)
        return message_id

    def sync(self, timeout: float | None = None) -> None:
        """Waits until everything sent is settled.  Raises InDoubt, or the first failure."""
        session = self._session
        with session.condition:
            if not session.wait_for(lambda: self._pending == 0 or bool(self._failures), timeout):
                raise InDoubt(f"{self._pending} messages without a confirm after {timeout} s; they are still kept")
            self._raise_failure()

    def unsettled(self) -> int:
        """Messages without a confirm, exact."""
        with self._session.condition:
            return self._pending

    def available(self) -> int:
        """Messages that can be sent without blocking."""
        with self._session.condition:
            return max(0, self.capacity - self._pending)

    def close(self, timeout: float | None = None) -> None:
        """Waits for the confirms; the window is all a sender has."""
        self.sync(timeout)

    # -- called with the session's lock held

    def _raise_failure(self) -> None:
        self._session.check()
        if self._failures:
            raise self._failures.popleft()

    def _wait_for_room(self, deadline: float | None) -> None:
        if self._pending < self.capacity:
            return
        self._session.refuse_io_thread("send with a full window")
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        self._blocked += 1
        try:
            if not self._session.wait_for(lambda: self._pending <= self._low_water, timeout) and (
                self._pending >= self.capacity
            ):
                raise CapacityTimeout(f"{self._pending} messages unsettled, capacity {self.capacity}")
        finally:
            self._blocked -= 1

    def _wait_for(self, entry: Entry, deadline: float | None) -> None:
        session = self._session
        session.refuse_io_thread("send(sync=True)")
        with session.condition:
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            session.sync_waiters += 1
            try:
                done = session.wait_for(lambda: entry.outcome is not Outcome.PENDING, timeout)
            finally:
                session.sync_waiters -= 1
            if not done:
                raise InDoubt(f"no confirm for {entry.message_id}; the message is still kept")
            if entry.error is not None:
                if entry.error in self._failures:
                    self._failures.remove(entry.error)  # type: ignore[arg-type]
                raise entry.error

    def settled(self, entry: Entry) -> bool:
        """Books a settled entry (session's lock held); True if somebody waits for the room it left."""
        self._pending -= 1
        if isinstance(entry.error, ClientError) and self._on_settled is None:
            self._failures.append(entry.error)
        return self._pending == 0 or (self._blocked > 0 and self._pending <= self._low_water)

    def report(self, entry: Entry) -> None:
        """Calls the application's callback (without the lock)."""
        if self._on_settled is not None:
            self._on_settled(entry.message, entry.message_id, entry.error)  # type: ignore[arg-type]
