"""Load by plain pika, as in typical programs: a list of addresses and a loop around everything.  Shell."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError, ChannelClosedByBroker, NackError, UnroutableError

from testkit.dial import dial
from testkit.pace import Pace
from testkit.queues import declare, rule_of
from testkit.record import body_of
from torture.context import Context

RETRY: Final = 0.05
"""Seconds between two attempts at the next address."""
HEARTBEAT: Final = 2
PATIENCE: Final = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 2000}
"""Of the kernel with a silent peer, seconds and ms.  pika itself looks every `heartbeat` + 5 s only, and twice."""
PREFETCH: Final = 100
ACK_EVERY: Final = 10
BATCH: Final = 5
"""Messages in one transaction."""
REFUSED: Final = 406
"""The whole transaction was refused, since a queue is full."""
TROUBLE: Final = (AMQPError, AMQPConnectorException, OSError)
"""The second escapes from pika when a broker stops answering in the middle of the handshake."""


class PlainClient:
    """The common part of all clients: connects again until it succeeds."""

    fenced = False
    """A new connection waits until the broker has ended the one before: everything sent on that one has then been done,
    or never will be."""
    heartbeat = HEARTBEAT
    removes = False
    """It is the one that reads, or purges, a queue with a rule."""

    def __init__(self, context: Context, queue: str) -> None:
        self._context = context
        self._queue = queue
        self._next = 0
        context.record.begin(queue, **rule_of(queue, self.removes))

    @contextmanager
    def _channel(self) -> Iterator[BlockingChannel | None]:
        """A channel on the first broker that accepts, or None; a lost connection ends the block."""
        host, port = self._context.addresses[self._next % len(self._context.addresses)]
        self._next += 1
        connection, channel = None, None
        try:
            connection = dial(self._parameters(host, port))
            opened = connection.channel()
            if self.fenced:  # refused while another connection has it
                opened.queue_declare(f"{self._context.record.client}.fence", exclusive=True, auto_delete=True)
            self._declare(opened)
            channel = opened
            self._context.record.fact(f"connected {host}")
            yield channel
        except TROUBLE as error:
            if channel is None:
                yield None
            else:
                self._context.record.fact(f"disconnected {host}: {type(error).__name__} {error}"[:200])
        finally:
            if connection is not None:
                with suppress(*TROUBLE):
                    connection.close()

    def run(self) -> None:
        while self._going:
            with self._channel() as channel:
                if channel is None:
                    time.sleep(RETRY)
                else:
                    self._serve(channel)

    def _serve(self, channel: BlockingChannel) -> None:
        """Works with one connection until it breaks or nothing is left to do."""
        raise NotImplementedError

    def _declare(self, channel: BlockingChannel) -> None:
        declare(channel, self._queue)

    def _parameters(self, host: str, port: int) -> pika.ConnectionParameters:
        """The AMQP handshake has twice the time of the TCP connection, but half a second at least."""
        timeout = self._context.connect_timeout
        return pika.ConnectionParameters(
            host, port, credentials=pika.PlainCredentials(*self._context.login), heartbeat=self.heartbeat,
            socket_timeout=timeout, stack_timeout=max(0.5, 2 * timeout), connection_attempts=1, tcp_options=PATIENCE,
            client_properties={"qpid.client_id": self._context.record.client},
        )  # fmt: skip

    def _properties(self, id: str, again: bool = False) -> pika.BasicProperties:
        headers = {"x-resent": True} if again else None
        return pika.BasicProperties(delivery_mode=2, message_id=id, headers=headers)

    def _received(self, method: Any, properties: Any, body: bytes) -> str:
        id, headers = str(properties.message_id), properties.headers or {}
        self._context.record.received(id, body, bool(method.redelivered), bool(headers.get("x-resent")))
        return id

    @property
    def _over(self) -> bool:
        return self._context.stopping.is_set()

    @property
    def _going(self) -> bool:
        return not self._over


class Producer(PlainClient):
    """Each message confirmed before the next.  With `resend` one in doubt is sent again, without it is forgotten."""

    mandatory = True

    def __init__(self, context: Context, queue: str, resend: bool) -> None:
        super().__init__(context, queue)
        self._resend = resend
        self._exchange, self._key = "", queue
        self._number = 0
        self._doubtful = ""

    @property
    def _going(self) -> bool:
        return bool(self._doubtful) or not self._over

    def _serve(self, channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        pace = Pace(self._context.rate)
        while self._going:
            pace.wait()
            self._publish(channel)

    def _publish(self, channel: BlockingChannel) -> bool:
        """True if the broker confirmed it.  Raises the error of a lost connection."""
        record, again = self._context.record, bool(self._doubtful)
        if not again:
            self._number += 1
        id = self._doubtful or f"{record.client}:{self._number}"
        record.message("invoke", id, again=again)
        self._doubtful = id if self._resend else ""
        try:
            properties = self._properties(id, again)
            channel.basic_publish(self._exchange, self._key, body_of(id), properties, self.mandatory)
        except (NackError, UnroutableError):
            record.message("nack", id, once=not again)
            taken = False
        except TROUBLE:
            record.message("unknown", id)
            raise
        else:
            record.message("ok", id)
            taken = True
        self._context.slot.add(int(taken))
        self._doubtful = ""
        return taken


class TransactedProducer(PlainClient):
    """Batches of messages in transactions over one or more queues; a failed transaction is not repeated."""

    def __init__(self, context: Context, *queues: str) -> None:
        super().__init__(context, queues[0])
        self._queues = queues
        self._number = 0

    def _declare(self, channel: BlockingChannel) -> None:
        for queue in self._queues:
            declare(channel, queue)

    def _serve(self, channel: BlockingChannel) -> None:
        channel.tx_select()
        pace = Pace(self._context.rate / BATCH)
        while self._going:
            pace.wait()
            self._transaction(channel)

    def _transaction(self, channel: BlockingChannel) -> None:
        self._number += 1
        transaction = f"{self._context.record.client}:{self._number}"
        ids = [f"{transaction}:{index}" for index in range(1, BATCH + 1)]
        outcome = "abort"
        try:
            for id, queue in zip(ids, cycle(self._queues)):
                self._context.record.message("invoke", id, tx=transaction)
                channel.basic_publish("", queue, body_of(id), self._properties(id))
            outcome = "unknown"
            channel.tx_commit()
            outcome = "ok"
        except ChannelClosedByBroker as error:
            if error.reply_code == REFUSED:
                outcome = "abort"
            self._context.slot.add(0)
            raise
        finally:
            for id in ids:
                self._context.record.message(outcome, id)
        self._context.slot.add(BATCH)


class Consumer(PlainClient):
    """Acknowledges in batches."""

    transacted = False

    def _serve(self, channel: BlockingChannel) -> None:
        if self.transacted:
            channel.tx_select()
        channel.basic_qos(prefetch_count=PREFETCH)
        unacked: list[str] = []
        tag = 0
        for method, properties, body in channel.consume(self._queue, inactivity_timeout=0.1):
            if method is not None:
                tag = method.delivery_tag
                unacked.append(self._received(method, properties, body))
            if unacked and (method is None or len(unacked) >= ACK_EVERY or self._over):
                self._ack(channel, tag, unacked)
                unacked = []
            if self._over:
                return

    def _ack(self, channel: BlockingChannel, tag: int, ids: list[str]) -> None:
        """An acknowledgement counts from the moment it may have left: from then on the broker may drop the message."""
        for id in ids:
            self._context.record.message("ack", id)
        channel.basic_ack(tag, multiple=True)
        if self.transacted:
            channel.tx_commit()
        self._context.slot.add(len(ids))


class LateConsumer(Consumer):
    """Begins with the drain."""

    def run(self) -> None:
        while not (self._context.draining.wait(0.1) or self._over):
            pass
        super().run()


class TransactedConsumer(Consumer):
    """Acknowledges in transactions."""

    transacted = True
