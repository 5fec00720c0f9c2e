"""Receiving: a subscription to one queue that outlives its connections."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from client_lib.dedup import DuplicateFilter, Verdict
from client_lib.errors import ClientError, Closed, Empty
from client_lib.ledger import Disposition
from client_lib.message import Message

if TYPE_CHECKING:
    from client_lib.session import Session


@dataclass(slots=True, eq=False)
class Delivery:
    """Where a message came from; `copies` are the (generation, delivery tag) pairs settled together with it."""

    receiver: Receiver
    generation: int
    delivery_tag: int
    copies: list[tuple[int, int]] = field(default_factory=list)


class Receiver:
    """Made by Session.receiver.  `fetch` may be called from many threads.

    Messages wait in a buffer of at most `capacity`; those still in it when a connection is lost are dropped, for the
    broker delivers them again.  With a duplicate filter each id is handed out once (see `client_lib.dedup`)."""

    def __init__(
        self,
        session: Session,
        queue: str,
        consumer_tag: str,
        capacity: int,
        no_ack: bool,
        exclusive: bool,
        duplicates: DuplicateFilter[Delivery] | None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.queue, self.consumer_tag = queue, consumer_tag
        self.capacity, self.no_ack, self.exclusive = capacity, no_ack, exclusive
        self.duplicates = duplicates
        self.error: ClientError | None = None
        self._session = session
        self._buffer: deque[Message] = deque()
        self.waiting = 0

    def fetch(self, timeout: float | None = None) -> Message:
        """The next message; waits for `timeout` seconds (None: for ever, 0: not at all).

        Raises Empty, Closed, ReceiverCancelled, SessionFailed, ConnectionFailed."""
        session = self._session
        session.refuse_io_thread("fetch")
        deadline = None if timeout is None else time.monotonic() + timeout
        with session.condition:
            while True:
                message = self._take()
                if message is not None:
                    break
                self._check()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise Empty(f"no message in {self.queue} within {timeout} s")
                self.waiting += 1
                try:
                    session.condition.wait(left)
                finally:
                    self.waiting -= 1
        session.events.message("deliver", self.queue, message.id, message.redelivered)
        return message

    def __iter__(self) -> Iterator[Message]:
        """Messages until the receiver, its session or the connection is closed."""
        while True:
            try:
                yield self.fetch()
            except Closed:
                return

    def available(self) -> int:
        """Messages that `fetch` can look at without waiting."""
        with self._session.condition:
            return len(self._buffer)

    def close(self) -> None:
        """Cancels the subscription; messages not fetched go back to the queue."""
        self._session.close_receiver(self)

    # -- called with the session's lock held

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
        self._session.check()

    def _take(self) -> Message | None:
        """The next message that may be handed out; answers duplicates on the way."""
        while self._buffer:
            message = self._buffer.popleft()
            delivery = message._delivery
            if delivery is None or self.duplicates is None:
                verdict, first = Verdict.NEW, None
            else:
                verdict, first = self.duplicates.offer(message.id, delivery)
            if verdict is Verdict.NEW:
                if delivery is not None and not self.no_ack:
                    self._session.fetched[delivery] = message
                return message
            if self.no_ack or delivery is None:
                continue
            if first is not None:
                first.copies += [(delivery.generation, delivery.delivery_tag), *delivery.copies]
            else:
                self._session.settle_tag(delivery.generation, delivery.delivery_tag, Disposition.ACCEPT)
        return None

    def arrived(self, message: Message) -> None:
        self._buffer.append(message)

    def drain(self) -> list[Message]:
        """Empties the buffer and returns what was in it."""
        left = list(self._buffer)
        self._buffer.clear()
        return left
