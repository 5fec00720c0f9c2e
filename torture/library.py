"""Load by `client_lib`, which does fail-over and re-sending itself.  Shell."""

from __future__ import annotations

from typing import Final

from client_lib import Connection, InDoubt, Message, MessagingError, Session, Timeout
from testkit.pace import Pace
from testkit.record import body_of
from torture.context import Context

CAPACITY: Final = 200
SETTLE: Final = 30.0
"""Seconds that the last messages have to be confirmed; the cluster is whole by then."""


def _connection(context: Context) -> Connection:
    urls = ",".join(f"{host}:{port}" for host, port in context.addresses)
    return Connection(
        urls, heartbeat=1, connect_timeout=context.connect_timeout, reconnect_interval_max=0.5,
        client_id=context.record.client, username=context.login[0], password=context.login[1],
    )  # fmt: skip


class Producer:
    """A window of unconfirmed messages at a rate; the library sends messages in doubt again after a broken
    connection."""

    def __init__(self, context: Context, queue: str) -> None:
        self._context = context
        self._queue = queue
        context.record.begin(queue)

    def run(self) -> None:
        context = self._context
        with _connection(context) as connection:
            session = connection.session()
            session.declare_queue(self._queue, durable=True)
            sender = session.sender(self._queue, capacity=CAPACITY, on_settled=self._settled)
            number, pace = 0, Pace(context.rate)
            while not context.stopping.is_set():
                pace.wait()
                if not sender.available():
                    continue
                number += 1
                id = f"{context.record.client}:{number}"
                context.record.message("invoke", id)
                sender.send(Message(body_of(id), id=id), sync=False)
            try:
                sender.sync(SETTLE)
            except InDoubt as error:
                context.record.fact(f"unsettled at the end: {error}")

    def _settled(self, _message: Message, id: str, error: MessagingError | None) -> None:
        self._context.record.message("ok" if error is None else "nack", id)
        if error is None:
            self._context.slot.add()


class Consumer:
    """Acknowledges every message; duplicates are not dropped, since the checker counts them."""

    def __init__(self, context: Context, queue: str) -> None:
        self._context = context
        self._queue = queue
        context.record.begin(queue)

    def run(self) -> None:
        context = self._context
        with _connection(context) as connection:
            session = connection.session()
            session.declare_queue(self._queue, durable=True)
            receiver = session.receiver(self._queue, capacity=100)
            while not context.stopping.is_set():
                try:
                    message = receiver.fetch(timeout=0.1)
                except Timeout:  # also without a broker for long
                    continue
                id = str(message.id)
                context.record.received(id, message.body, message.redelivered, message.resent)
                if _acknowledge(session, message):
                    context.record.message("ack", id)
                    context.slot.add()
            try:
                session.sync(timeout=5.0)
            except Timeout as error:
                context.record.fact(f"acknowledgements unwritten at the end: {error}")


def _acknowledge(session: Session, message: Message) -> bool:
    """False: its connection was lost before, so that the broker delivers it again."""
    delivery = message._delivery
    alive = delivery is not None and delivery in session._waiting.worker.deliveries.fetched
    session.acknowledge(message, sync=False)
    return alive
