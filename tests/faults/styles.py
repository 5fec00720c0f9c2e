"""The client library's interfaces, each behind the same two small ones, so that a scenario can be played with any."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from client_lib import Connection, Message, Session, Timeout, TransactionAborted, TransactionUnknown

BATCH: Final = 10
"""Messages of a transaction."""
Settled = Callable[[str, Exception | None], None]


@dataclass(frozen=True)
class Place:
    """One group's exchange and queues; the exchange copies everything to both queues."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of the queues."""

    @property
    def exchange(self) -> str:
        return f"{self.name}.fanout"

    @property
    def work(self) -> str:
        return f"{self.name}.work"

    @property
    def audit(self) -> str:
        return f"{self.name}.audit"


@dataclass(frozen=True)
class Received:
    id: str
    body: bytes
    redelivered: bool
    resent: bool
    handle: Any
    """For `acknowledge`."""


class Publisher(Protocol):
    """Sends to a place, whose exchange and queues it declares.  Calls `settled` for each message, from any thread."""

    transaction: str
    """In which the next message is sent; "" for none."""

    def send(self, id: str, body: bytes) -> None:
        """Blocks while the window is full."""

    def unsettled(self) -> int: ...

    def settle(self, timeout: float) -> None:
        """Waits until everything is settled."""

    def close(self, timeout: float) -> int:
        """How many messages are in doubt."""


class Consumer(Protocol):
    """Receives from a place's work queue, which it declares."""

    def fetch(self, timeout: float) -> Received | None: ...

    def acknowledge(self, received: Received) -> None: ...

    def settle(self, timeout: float) -> None:
        """Waits until the broker has read all acknowledgements."""

    def close(self, timeout: float) -> None: ...


class Style(Protocol):
    """One of the library's interfaces."""

    name: str

    def publisher(self, place: Place, capacity: int, settled: Settled, **options: Any) -> Publisher: ...

    def consumer(self, place: Place, capacity: int, drop_duplicates: bool, **options: Any) -> Consumer: ...


def declare(session: Session, place: Place) -> None:
    session.declare_exchange(place.exchange, "fanout", durable=True)
    for queue in (place.work, place.audit):
        session.declare_queue(queue, durable=True, arguments=dict(place.arguments))
        session.bind_queue(queue, place.exchange)


class ThreadedPublisher:
    transaction = ""

    def __init__(self, place: Place, capacity: int, settled: Settled, **options: Any) -> None:
        self._connection = Connection(**options).open(30)
        self._session = self._connection.session()
        declare(self._session, place)
        self._sender = self._session.queue_sender(
            "", place.exchange, capacity, mandatory=True, on_settled=lambda _message, id, error: settled(id, error)
        )

    def send(self, id: str, body: bytes) -> None:
        self._sender.send(Message(body, id=id), sync=False)

    def unsettled(self) -> int:
        return self._sender.unsettled()

    def settle(self, timeout: float) -> None:
        self._sender.sync(timeout)

    def close(self, timeout: float) -> int:
        return len(self._connection.close(timeout))


class TransactedPublisher:
    """Commits every BATCH messages.  What was aborted is not tried again: the messages after it are new ones."""

    def __init__(self, place: Place, capacity: int, settled: Settled, **options: Any) -> None:
        self._connection = Connection(**options).open(30)
        with self._connection.session() as session:
            declare(session, place)
        self._session = self._connection.session(transactional=True)
        self._sender = self._session.queue_sender("", place.exchange, capacity)
        self._settled = settled
        self._batch: list[str] = []
        self._numbers = itertools.count(1)
        self._place = place
        self._next()

    def _next(self) -> None:
        self._batch = []
        self.transaction = f"{self._place.name}/{id(self)}/{next(self._numbers)}"

    def send(self, id: str, body: bytes) -> None:
        self._batch.append(id)
        with contextlib.suppress(TransactionAborted):  # so does commit()
            self._sender.send(Message(body, id=id), sync=False)
        if len(self._batch) >= BATCH:
            self.settle(30)

    def unsettled(self) -> int:
        return len(self._batch)

    def settle(self, timeout: float) -> None:
        error: Exception | None = None
        try:
            self._session.commit(timeout)
        except TransactionAborted as aborted:
            error = aborted
            self._session.rollback(timeout)
        except TransactionUnknown as unknown:
            error = unknown
        batch = self._batch
        self._next()
        for each in batch:
            self._settled(each, error)

    def close(self, timeout: float) -> int:
        return len(self._connection.close(timeout))


class ThreadedConsumer:
    def __init__(self, place: Place, capacity: int, drop_duplicates: bool, **options: Any) -> None:
        self._connection = Connection(**options).open(30)
        self._session = self._connection.session()
        self._session.declare_queue(place.work, durable=True, arguments=dict(place.arguments))
        self._receiver = self._session.queue_receiver(place.work, capacity, drop_duplicates=drop_duplicates)

    def fetch(self, timeout: float) -> Received | None:
        try:
            message = self._receiver.fetch(timeout)
        except Timeout:  # also without a broker for long
            return None
        return Received(str(message.id), message.body, message.redelivered, message.resent, message)

    def acknowledge(self, received: Received) -> None:
        self._session.acknowledge(received.handle, sync=False)

    def settle(self, timeout: float) -> None:
        self._session.sync(timeout)
        self._session.fence(timeout)

    def close(self, timeout: float) -> None:
        self._connection.close(timeout)


class Threaded:
    """The API of qpid.messaging."""

    name = "threaded"

    def publisher(self, place: Place, capacity: int, settled: Settled, **options: Any) -> Publisher:
        return ThreadedPublisher(place, capacity, settled, **options)

    def consumer(self, place: Place, capacity: int, drop_duplicates: bool, **options: Any) -> Consumer:
        return ThreadedConsumer(place, capacity, drop_duplicates, **options)


class Transacted(Threaded):
    """Senders with transactions; receivers as ever."""

    name = "transacted"

    def publisher(self, place: Place, capacity: int, settled: Settled, **options: Any) -> Publisher:
        return TransactedPublisher(place, capacity, settled, **options)
