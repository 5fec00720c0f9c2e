"""Load on queues in which the broker decides about messages: limits, purges, bindings, dead letters, no acks.   Shell.

After a broken connection, a client that asked for such a decision must learn whether it was made: it is `fenced`, and
its observations count when the same broker has confirmed something afterwards, which only the primary does.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pika.adapters.blocking_connection import BlockingChannel

from testkit.pace import Pace
from testkit.record import body_of
from torture.context import Context
from torture.plain import PlainClient, Producer

NOWHERE: Final = "torture.nowhere"
"""No queue has this name."""
PAUSE: Final = (0.2, 2.0)
"""Seconds between two times that a queue is read out."""
SHORT_PAUSE: Final = (0.05, 0.6)
"""If it may be purged instead: the more purges, the more of them are in doubt."""
WINDOW: Final = 60
"""Unconfirmed messages; more than the limit of a queue."""
KEY: Final = "key"
READS, STALLS = (0.5, 1.5), (4.0, 9.0)
"""Seconds of a reader without acknowledgements.  A stall must be long enough for more than all buffers hold."""
SILENT: Final = 1.0
"""Seconds without a message after which nothing more comes."""


def exchange_of(queue: str) -> str:
    return f"{queue}.exchange"


class Reader(PlainClient):
    """Reads the queue until it is empty, at intervals.  May purge instead, and reject instead of acknowledging."""

    fenced = True
    removes = True

    def __init__(self, context: Context, queue: str, purges: bool = False, rejects: bool = False) -> None:
        super().__init__(context, queue)
        self._purges, self._rejects = purges, rejects
        self._random = random.Random(queue)
        self._finished = False

    @property
    def _going(self) -> bool:
        return not self._finished

    def _serve(self, channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        self._read_out(channel)  # a purge in doubt is followed by this, never by the next purge
        while not self._over:
            self._come_again(channel)
        self._read_out(channel)
        self._finished = True

    def _come_again(self, channel: BlockingChannel) -> None:
        self._context.stopping.wait(self._random.uniform(*(SHORT_PAUSE if self._purges else PAUSE)))
        if self._purges and not self._context.draining.is_set() and self._random.random() < 0.5:
            self._context.record.event("purge")
            channel.queue_purge(self._queue)
            self._context.record.event("purged")
        else:
            self._read_out(channel)

    def _read_out(self, channel: BlockingChannel) -> None:
        asked = time.monotonic_ns() // 1000
        while self._get(channel):
            asked = time.monotonic_ns() // 1000
        channel.basic_publish("", NOWHERE, b"")  # confirmed by the primary only
        self._context.record.event("empty", asked=asked)
        self._context.slot.add(0)

    def _get(self, channel: BlockingChannel) -> bool:
        method, properties, body = channel.basic_get(self._queue)
        if method is None:
            return False
        id = self._received(method, properties, body)
        if self._rejects and self._random.random() < 0.5:
            self._context.record.message("reject", id)
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            self._context.record.message("ack", id)
            channel.basic_ack(method.delivery_tag)
        self._context.slot.add()
        return True


class WindowProducer(PlainClient):
    """Keeps many messages under way, so that an unsafe one may displace another.  Failed publishes are not repeated."""

    fenced = True

    def __init__(self, context: Context, queue: str, routed: bool = False) -> None:
        """`routed`: through the exchange of the queue; what no queue takes is confirmed."""
        super().__init__(context, queue)
        self._exchange, self._key = (exchange_of(queue), KEY) if routed else ("", queue)
        self._number = 0
        self._window: dict[int, str] = {}

    def _declare(self, channel: BlockingChannel) -> None:
        super()._declare(channel)
        if self._exchange:
            channel.exchange_declare(self._exchange, "direct", durable=True)

    @contextmanager
    def _channel(self) -> Iterator[BlockingChannel | None]:
        """What has no answer when the connection ends is in doubt."""
        with super()._channel() as channel:
            yield channel
        for id in self._window.values():
            self._context.record.message("unknown", id)
        self._window.clear()

    def _serve(self, channel: BlockingChannel) -> None:
        inner: Any = channel._impl  # the blocking interface waits for each confirm
        inner.confirm_delivery(self._answered)
        pace, tag = Pace(self._context.rate), 0
        while self._window or not self._over:
            pace.wait()
            if len(self._window) < WINDOW and not self._over:
                tag += 1
                self._publish(channel, tag)
            channel.connection.process_data_events(0)

    def _publish(self, channel: BlockingChannel, tag: int) -> None:
        self._number += 1
        id = self._window[tag] = f"{self._context.record.client}:{self._number}"
        self._context.record.message("invoke", id)
        channel.basic_publish(self._exchange, self._key, body_of(id), self._properties(id))

    def _answered(self, frame: Any) -> None:
        method = frame.method
        kind = "ok" if method.NAME == "Basic.Ack" else "nack"
        tags = [tag for tag in self._window if tag <= method.delivery_tag] if method.multiple else [method.delivery_tag]
        for tag in tags:
            self._context.record.message(kind, self._window.pop(tag))
            self._context.slot.add()


class Binder(Producer):
    """Binds and unbinds.  After a broken connection it publishes a mandatory message to learn whether the binding
    exists."""

    fenced = True

    def __init__(self, context: Context, queue: str) -> None:
        super().__init__(context, queue, resend=False)
        self._exchange, self._key = exchange_of(queue), KEY
        self._random = random.Random(queue)

    def _declare(self, channel: BlockingChannel) -> None:
        super()._declare(channel)
        channel.exchange_declare(self._exchange, "direct", durable=True)

    def _serve(self, channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        bound = self._publish(channel)
        self._context.record.event("bound" if bound else "unbound")
        while not self._over:
            self._context.stopping.wait(self._random.uniform(0.05, 0.8))
            bound = not bound
            self._change(channel, bound)

    def _change(self, channel: BlockingChannel, bind: bool) -> None:
        record, ask = self._context.record, channel.queue_bind if bind else channel.queue_unbind
        record.event("bind" if bind else "unbind")
        ask(self._queue, self._exchange, self._key)
        record.event("bound" if bind else "unbound")
        self._context.slot.add(0)


class Staller(PlainClient):
    """A reader without acknowledgements that sometimes stops reading."""

    fenced = True
    """The broker delivers to the old connection until it notices its loss: a message that arrives over the new one
    meanwhile would wrongly suggest that no earlier one is under way."""
    removes = True
    heartbeat = 60
    """Long, so that its own silence does not end the connection; the kernel detects a dead broker (`PATIENCE`)."""

    def _serve(self, channel: BlockingChannel) -> None:
        until = random.choice((0.0, self._next_stall()))  # at once: with all that has gathered in the queue
        for method, properties, body in channel.consume(self._queue, auto_ack=True, inactivity_timeout=SILENT):
            if method is not None:
                self._context.record.message("ack", self._received(method, properties, body))
                self._context.slot.add()
            elif self._over:
                return
            if time.monotonic() > until and not self._context.draining.is_set():
                self._context.draining.wait(random.uniform(*STALLS))
                until = self._next_stall()

    @staticmethod
    def _next_stall() -> float:
        return time.monotonic() + random.uniform(*READS)
