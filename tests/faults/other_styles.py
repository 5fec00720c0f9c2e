"""The asyncio and the pika-style interface behind what `styles.py` asks for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import pika

from client_lib import InDoubt, Message, Timeout, aio
from client_lib.failover import FailoverConnection
from tests.faults.styles import Consumer, Place, Publisher, Received, Settled

T = TypeVar("T")
ANSWER = 60.0
"""Seconds for any call that crosses over to the loop."""


# ---- asyncio --------------------------------------------------------------------------------------------------------


class Asyncio:
    """All clients of a run in one event loop, which has a thread.  A context manager."""

    name = "asyncio"

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="asyncio style", daemon=True)

    def __enter__(self) -> Asyncio:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER)

    def publisher(self, place: Place, capacity: int, settled: Settled, **options: Any) -> Publisher:
        return self.run(AsyncioPublisher.open(self, place, capacity, settled, **options))

    def consumer(self, place: Place, capacity: int, drop_duplicates: bool, **options: Any) -> Consumer:
        return self.run(AsyncioConsumer.open(self, place, capacity, drop_duplicates, **options))


class AsyncioPublisher:
    transaction = ""

    def __init__(self, style: Asyncio, connection: aio.Connection, sender: aio.Sender) -> None:
        self._style, self._connection, self._sender = style, connection, sender

    @classmethod
    async def open(
        cls, style: Asyncio, place: Place, capacity: int, settled: Settled, **options: Any
    ) -> AsyncioPublisher:
        connection = await aio.Connection(**options).open(30)
        session = await connection.session()
        await session.declare_exchange(place.exchange, "fanout", durable=True)
        for queue in (place.work, place.audit):
            await session.declare_queue(queue, durable=True, arguments=dict(place.arguments))
            await session.bind_queue(queue, place.exchange)
        sender = session.queue_sender(
            "", place.exchange, capacity, mandatory=True, on_settled=lambda _message, id, error: settled(id, error)
        )
        return cls(style, connection, sender)

    def send(self, id: str, body: bytes) -> None:
        self._style.run(self._send(Message(body, id=id)))

    async def _send(self, message: Message) -> None:
        await self._sender.send(message, sync=False)

    def unsettled(self) -> int:
        return self._sender.unsettled()

    def settle(self, timeout: float) -> None:
        self._style.run(self._sender.sync(timeout))

    def close(self, timeout: float) -> int:
        return len(self._style.run(self._connection.close(timeout)))


class AsyncioConsumer:
    def __init__(
        self, style: Asyncio, connection: aio.Connection, session: aio.Session, receiver: aio.Receiver
    ) -> None:
        self._style, self._connection, self._session, self._receiver = style, connection, session, receiver

    @classmethod
    async def open(
        cls, style: Asyncio, place: Place, capacity: int, drop_duplicates: bool, **options: Any
    ) -> AsyncioConsumer:
        connection = await aio.Connection(**options).open(30)
        session = await connection.session()
        await session.declare_queue(place.work, durable=True, arguments=dict(place.arguments))
        receiver = await session.queue_receiver(place.work, capacity, drop_duplicates=drop_duplicates)
        return cls(style, connection, session, receiver)

    def fetch(self, timeout: float) -> Received | None:
        try:
            message = self._style.run(self._receiver.fetch(timeout))
        except Timeout:  # also without a broker for long
            return None
        return Received(str(message.id), message.body, message.redelivered, message.resent, message)

    def acknowledge(self, received: Received) -> None:
        self._style.run(self._session.acknowledge(received.handle, sync=False))

    def settle(self, timeout: float) -> None:
        self._style.run(self._session.sync(timeout))
        self._style.run(self._session.fence(timeout))

    def close(self, timeout: float) -> None:
        self._style.run(self._connection.close(timeout))


# ---- pika style -----------------------------------------------------------------------------------------------------


class PikaStyle:
    """Programs written for pika: each publish waits for its confirm, as BlockingConnection's do."""

    name = "pika"

    def publisher(self, place: Place, capacity: int, settled: Settled, **options: Any) -> Publisher:
        return PikaPublisher(place, settled, **options)

    def consumer(self, place: Place, capacity: int, drop_duplicates: bool, **options: Any) -> Consumer:
        return PikaConsumer(place, capacity, drop_duplicates=drop_duplicates, **options)


def _properties(id: str) -> Any:
    return pika.BasicProperties(delivery_mode=2, message_id=id)


class PikaPublisher:
    transaction = ""

    def __init__(self, place: Place, settled: Settled, **options: Any) -> None:
        self._place, self._settled = place, settled
        self._connection = FailoverConnection(**options)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._channel.exchange_declare(place.exchange, "fanout", durable=True)
        for queue in (place.work, place.audit):
            self._channel.queue_declare(queue, durable=True, arguments=dict(place.arguments))
            self._channel.queue_bind(queue, place.exchange)

    def send(self, id: str, body: bytes) -> None:
        self._channel.basic_publish(self._place.exchange, "", body, _properties(id), mandatory=True)
        self._settled(id, None)

    def unsettled(self) -> int:
        return self._channel.unconfirmed

    def settle(self, timeout: float) -> None:
        self._channel.wait_for_confirms(timeout)

    def close(self, timeout: float) -> int:
        left = self._channel.unconfirmed
        with contextlib.suppress(InDoubt):
            self._connection.close()
        return left


class PikaConsumer:
    """Uses the generator; one thread takes and acknowledges."""

    def __init__(self, place: Place, capacity: int, **options: Any) -> None:
        self._connection = FailoverConnection(**options)
        self._channel = self._connection.channel()
        self._channel.queue_declare(place.work, durable=True, arguments=dict(place.arguments))
        self._channel.basic_qos(prefetch_count=capacity)
        self._queue = place.work

    def fetch(self, timeout: float) -> Received | None:
        method, properties, body = next(self._channel.consume(self._queue, inactivity_timeout=timeout))
        if method is None:
            return None
        resent = bool((properties.headers or {}).get("x-resent"))
        return Received(properties.message_id, body or b"", method.redelivered, resent, method.delivery_tag)

    def acknowledge(self, received: Received) -> None:
        self._channel.basic_ack(received.handle)

    def settle(self, timeout: float) -> None:
        self._channel.basic_qos(prefetch_count=1)  # its answer comes after the acknowledgements

    def close(self, timeout: float) -> None:
        self._connection.close()
