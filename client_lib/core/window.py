"""The accounting of one sender, for the threaded and the asyncio API: unsettled messages and failures."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from client_lib.addresses.nodes import Node
from client_lib.addresses.once import Once
from client_lib.core.ending import Ending
from client_lib.core.notifying import Handler, Told, error_of, notifier, silent
from client_lib.core.outbox import Entry, Outcome
from client_lib.core.publishing import Publishing
from client_lib.core.subscription import check_capacity
from client_lib.core.transaction import Transaction
from client_lib.errors import InsufficientCapacity, LinkClosed, MessagingError, SendError
from client_lib.message import Message
from client_lib.monitor import Monitor

SettledCallback = Callable[[Message, str, MessagingError | None], None]


class WindowHost(Protocol):
    """The part of a session's worker that a window uses."""

    monitor: Monitor
    transaction: Transaction | None
    publishing: Publishing
    ending: Ending

    @property
    def trouble(self) -> str:
        """Why there is no connection, or empty."""

    def check(self) -> None: ...

    def wake(self) -> None: ...

    def write_now(self) -> bool: ...


class Window:
    """At most `capacity` unsettled messages to one exchange and routing key.  Raises ValueError.

    A message that the broker refuses is kept as a failure for the next call of the application; with an `on_settled`
    callback failures and confirms go there instead.  In a transaction messages on the wire take no room; they are
    settled with the transaction."""

    def __init__(
        self,
        worker: WindowHost,
        routing_key: str,
        exchange: str,
        capacity: int,
        mandatory: bool,
        on_settled: SettledCallback | None,
    ) -> None:
        self.routing_key, self.exchange, self.mandatory = routing_key, exchange, mandatory
        self.subject: str | None = None
        """For messages without one."""
        self.target = exchange or routing_key
        """What it was opened with: an address, a queue or an exchange."""
        self.node: Node | None = None
        self.once: Once | None = None
        """What makes its messages enter their queue once."""
        self.blocked = 0
        """The number of calls that wait for room."""
        self.error: MessagingError | None = None
        self._worker = worker
        self._on_settled = on_settled
        self._pending = 0
        self._written = 0  # of these, on the wire in a transaction
        self.failures: deque[SendError] = deque()
        self._threshold = 0.25
        self._failed: Told = silent
        self._set_capacity(capacity)

    @property
    def threshold(self) -> float:
        """The share of its capacity that has to be free before a call that waits for room goes on: one thread switch
        for many messages instead of one for each.  More than 0, at most 1."""
        return self._threshold

    @threshold.setter
    def threshold(self, threshold: float) -> None:
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0 < threshold <= 1:
            raise ValueError(f"threshold is {threshold!r}, expected more than 0 and at most 1")
        self._threshold = threshold
        self.capacity = self._capacity

    @property
    def capacity(self) -> int:
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: int) -> None:
        with self._worker.monitor:
            self._set_capacity(capacity)
            self._worker.monitor.notify_all()

    def unsettled(self) -> int:
        """Messages without a confirm, or in a transaction that is not committed; exact."""
        with self._worker.monitor:
            return self._pending

    def available(self) -> int:
        """Messages that can be sent without blocking."""
        with self._worker.monitor:
            return max(0, self._capacity - self._pending + self._written)

    def check_error(self) -> None:
        """Raises the error that ended the sender or its session, if there is one."""
        with self._worker.monitor:
            self.check()

    def get_error(self) -> MessagingError | None:
        """The error that `check_error` raises."""
        return error_of(self.check_error)

    def set_async_exception_notify_handler(self, handler: Handler | None) -> None:
        """As for a connection, for each message that could not be placed and has no `on_settled`."""
        self._failed = notifier(self, handler)

    # -- for the two senders; the session's lock is held but in `entry`

    def entry(self, message: Message | bytes | str) -> Entry:
        """The publish of a message.  Raises TypeError and ValueError of the encoder."""
        if not isinstance(message, Message):
            message = Message(message)
        if self.once is not None:
            self.once.check(message.id, message.properties, self._worker.transaction is not None)
        message_id = message.id or self._worker.publishing.next_message_id()
        routing_key = self.routing_key or (self.subject if message.subject is None else message.subject) or ""
        return self._worker.publishing.entry(
            message,
            self,
            self.exchange,
            routing_key,
            self.mandatory,
            message.encode(message_id, False, routing_key, self.subject),
            message.body,
            message_id,
        )

    def add(self, entry: Entry) -> None:
        self._pending += 1
        self._worker.publishing.outbox.add(entry)

    def check(self) -> None:
        """Raises the error that ended the sender, its session or its transaction, if there is one."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        self._worker.check()

    def full(self) -> bool:
        """No room now, or a commit or rollback is under way, which nothing may overtake."""
        transaction = self._worker.transaction
        if transaction is None:
            return self._pending >= self._capacity
        return transaction.ending or self._pending - self._written >= self._capacity

    def no_room(self) -> InsufficientCapacity:
        """The error for a message that was not taken."""
        transaction = self._worker.transaction
        if transaction is not None and transaction.ending:
            return InsufficientCapacity("a commit or rollback is under way")
        count = self._pending - self._written
        return InsufficientCapacity(f"{count} messages unsettled, capacity {self._capacity}{self._worker.trouble}")

    def roomy(self) -> bool:
        """True if there is enough room to wake a waiting caller."""
        transaction = self._worker.transaction
        if transaction is None:
            return self._pending <= self._low_water
        return not transaction.ending and self._pending - self._written <= self._low_water

    def calm(self) -> bool:
        """True if there is nothing to wait for: all settled (in a transaction: written), or an error to raise."""
        return self._pending == self._written or bool(self.failures)

    def raise_failure(self) -> None:
        """Raises the error that ended the sender or its session, or the oldest failure, once."""
        self.check()
        if self.failures:
            raise self.failures.popleft()

    def raise_outcome(self, entry: Entry) -> None:
        """Raises the failure of this entry, if there is one, so that no other call will."""
        if entry.error is not None:
            if entry.error in self.failures:
                self.failures.remove(entry.error)  # type: ignore[arg-type]
            elif entry.outcome is Outcome.FAILED:
                self._worker.ending.told = True
            raise entry.error

    def _set_capacity(self, capacity: int) -> None:
        check_capacity(capacity)
        self._capacity = capacity
        self._low_water = capacity - max(1, int(capacity * self._threshold))  # with capacity 0 there is never room

    # -- for the channel worker

    def written(self, _entry: Entry) -> bool:
        """Books an entry that was written in a transaction (lock held); True if a caller waits for that."""
        self._written += 1
        return self._pending == self._written or (self.blocked > 0 and self.roomy())

    def settled(self, entry: Entry) -> bool:
        """Books a settled entry (lock held); True if a caller waits for the room it left."""
        self._pending -= 1
        if self._written:
            self._written -= 1
        if self._on_settled is None and isinstance(entry.error, SendError) and entry.outcome is not Outcome.FAILED:
            self.failures.append(entry.error)
            self._worker.publishing.failing[self] = None
        return self._pending == 0 or (self.blocked > 0 and self.roomy())

    def report(self, entry: Entry) -> None:
        """Calls the application's callback (without the lock)."""
        if self._on_settled is not None:
            self._on_settled(entry.message, entry.message_id, entry.error)  # type: ignore[arg-type]
        elif entry.error is not None:
            self._failed(entry.error)

    def end(self) -> bool:
        """Takes no more messages (lock held); False if it was so before."""
        if self.error is not None:
            return False
        self.error = LinkClosed(f"the sender to {self.target} is closed")
        self._worker.monitor.notify_all()
        return True
