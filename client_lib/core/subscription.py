"""One receiver's messages, shared by the threaded and the asyncio API: the buffer between broker and application."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, Protocol

from client_lib.addresses.nodes import Node
from client_lib.core.notifying import Handler, Told, error_of, notifier, silent
from client_lib.core.transaction import Transaction
from client_lib.dedup import DuplicateFilter
from client_lib.delivery import Delivery
from client_lib.errors import MessagingError
from client_lib.event_runs import REDELIVERED, RESENT, Where
from client_lib.events import EventLog
from client_lib.message import Message, received, unread
from client_lib.monitor import Monitor

UNLIMITED = 0xFFFFFFFF
"""Qpid's name for a capacity without a limit."""
OVERHEAD = 1000
"""Octets of a message in the buffer besides its body, roughly."""


class Fetched(Protocol):
    fetched: OrderedDict[Delivery, Message]
    """What the application has and has not settled."""


class SubscriptionHost(Protocol):
    """The part of a session's worker that a subscription uses."""

    name: str
    monitor: Monitor
    transaction: Transaction | None
    events: EventLog
    where: Where
    max_buffered: int

    @property
    def deliveries(self) -> Fetched: ...

    def check(self) -> None: ...

    def renew(self, subscription: Subscription) -> None: ...

    def wake_others(self) -> None: ...

    def hold(self) -> None: ...


class Subscription:
    """A subscription to one queue that outlives its connections.  Raises ValueError.

    Messages wait in a buffer of at most `capacity`; those still in it when a connection is lost are dropped, because
    the broker delivers them again (not with `no_ack`).  With a duplicate filter each id is handed out once (see
    `client_lib.dedup`)."""

    def __init__(
        self,
        worker: SubscriptionHost,
        queue: str,
        consumer_tag: str,
        capacity: int | None,
        no_ack: bool,
        exclusive: bool,
        arguments: Mapping[str, Any] | None,
        duplicates: DuplicateFilter[Delivery] | None,
    ) -> None:
        """`capacity` None: no limit; 0: nothing is fetched ahead, each fetch asks for one message (basic.get)."""
        self.queue, self.consumer_tag = queue, consumer_tag
        self.no_ack, self.exclusive = no_ack, exclusive
        self.arguments = dict(arguments or {})
        self.duplicates = duplicates
        self.error: MessagingError | None = None
        self.failed: Told = silent
        """Called when the broker ends it."""
        self.established = False
        """The broker has accepted it once: it is restored after a fail-over."""
        self.waiting = 0
        """The number of calls that wait in fetch."""
        self.source = queue
        """The address or queue it was opened with."""
        self.node: Node | None = None
        self.browses = False
        """What it gets is asked for by `client_lib.core.polling`."""
        self.worker = self._worker = worker
        """Of its session."""
        self._capacity = None if capacity is None or capacity >= UNLIMITED else capacity
        self._buffer: deque[Message] = deque()
        self._octets = 0
        self.overfull = False
        """There is no other limit, and the buffer has more than `max_buffered` octets, or had and has half of it."""
        check_capacity(capacity)

    @property
    def capacity(self) -> int:
        """At most so many messages are fetched ahead; 65535 if there is no limit."""
        return 65535 if self._capacity is None else self._capacity

    @capacity.setter
    def capacity(self, capacity: int) -> None:
        """Subscribes again; does not wait."""
        check_capacity(capacity)
        if capacity != self._capacity:
            self._capacity = capacity
            self._worker.renew(self)

    @property
    def prefetch(self) -> int:
        """The value for basic.qos."""
        return min(self._capacity or 0, 65535)

    @property
    def one_by_one(self) -> bool:
        """Nothing is fetched ahead."""
        return self._capacity == 0 and not self.browses

    @property
    def hungry(self) -> bool:
        """A call waits for a message."""
        return self.waiting > 0 and not self._buffer

    def available(self) -> int:
        """Messages that `fetch` would return without waiting."""
        with self._worker.monitor:
            return len(self._buffer)

    def stuffed(self) -> bool:
        """The broker sends nothing more before something is acknowledged: all of `capacity` is in use."""
        with self._worker.monitor:
            return not self.no_ack and 0 < self.prefetch <= self._fetched() + len(self._buffer)

    def unsettled(self) -> int:
        """Messages that were fetched and not acknowledged, rejected or released."""
        with self._worker.monitor:
            return self._fetched()

    def _fetched(self) -> int:
        return sum(delivery.subscription is self for delivery in self._worker.deliveries.fetched)

    def build(self, method: Any, properties: Any, body: bytes) -> Message:
        """The message of a basic.deliver, as pika decoded it."""
        return received(method.exchange, method.routing_key, method.redelivered, properties, body)

    def unread(self, redelivered: bool, exchange: str, routing_key: str, payload: bytes, body: bytes) -> Message:
        """The message of a basic.deliver, whose property list `payload` is read when it is asked for."""
        return unread(Message, exchange, routing_key, redelivered, payload, body)

    def note_fetched(self, message: Message) -> None:
        """Records events for a message that the application gets now (without the lock)."""
        events, where = self._worker.events, self._worker.where
        if events.enabled:
            flags = (REDELIVERED if message.redelivered else 0) | (RESENT if message.resent else 0)
            events.message("deliver", self.queue, message.id, flags, where)
            if self.no_ack:
                events.message("ack", self.queue, message.id, 0, where)

    def check_error(self) -> None:
        """Raises the error that ended the receiver or its session, if there is one."""
        with self._worker.monitor:
            self.check()

    def get_error(self) -> MessagingError | None:
        """The error that `check_error` raises."""
        return error_of(self.check_error)

    def set_async_exception_notify_handler(self, handler: Handler | None) -> None:
        """As for a connection, for the end of the subscription by the broker."""
        self.failed = notifier(self, handler)

    # -- called with the session's lock held

    def check(self) -> None:
        """Raises the error that ended the subscription or its session, if there is one."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        self._worker.check()

    def take(self) -> Message | None:
        """The next message.  Raises TransactionAborted, TransactionUnknown."""
        transaction = self._worker.transaction
        if transaction is not None:
            transaction.check()
        if not self._buffer:
            return None
        message = self._buffer.popleft()
        if self._octets:
            self._taken(message)
        if not self.no_ack:
            self._worker.deliveries.fetched[message._delivery] = message  # type: ignore[index]
        return message

    def arrival(self) -> tuple[int, int] | None:
        """A number that orders buffered messages of several receivers by arrival; None if the buffer is empty."""
        delivery = self._buffer[0]._delivery if self._buffer else None
        return None if delivery is None else (delivery.generation, delivery.delivery_tag)

    def arrived(self, message: Message) -> None:
        self._buffer.append(message)
        if self.no_ack or not self._capacity:
            self._octets += len(message.body) + OVERHEAD
            if self._octets > self._worker.max_buffered:
                self.overfull = True
                self._worker.hold()

    def _taken(self, message: Message) -> None:
        self._octets = max(0, self._octets - len(message.body) - OVERHEAD)
        if self.overfull and self._octets <= self._worker.max_buffered // 2:
            self.overfull = False
            self._worker.wake_others()

    def drain(self) -> list[Message]:
        """Empties the buffer and returns its content."""
        left = list(self._buffer)
        self._buffer.clear()
        self._octets, self.overfull = 0, False
        return left


def check_capacity(capacity: int | None) -> None:
    if capacity is not None and capacity < 0:
        raise ValueError(f"capacity must be at least 0, not {capacity}")
