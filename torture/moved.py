"""Load on what a dynamic route moves: published at one broker, bound and received at another.               Shell."""

from __future__ import annotations

from typing import Final

from pika.adapters.blocking_connection import BlockingChannel

from testkit.queues import declare
from torture import plain
from torture.context import Context
from torture.decisions import exchange_of

KEY: Final = "moved"
BOUND: Final = "#"


def declare_exchange(channel: BlockingChannel, queue: str) -> None:
    channel.exchange_declare(exchange_of(queue), "topic", durable=True)


def declare_bound(channel: BlockingChannel, queue: str) -> None:
    """A queue, bound to the exchange of its name."""
    declare(channel, queue)
    declare_exchange(channel, queue)
    channel.queue_bind(queue, exchange_of(queue), BOUND)


class Producer(plain.Producer):
    """To the exchange.  A message for which the route has no queue there comes back, and counts as refused."""

    def __init__(self, context: Context, queue: str) -> None:
        super().__init__(context, queue, resend=True)
        self._exchange, self._key = exchange_of(queue), KEY

    def _declare(self, channel: BlockingChannel) -> None:
        declare_exchange(channel, self._queue)


class Consumer(plain.Consumer):
    """From a queue that is bound to the exchange of its name here."""

    def _declare(self, channel: BlockingChannel) -> None:
        declare_bound(channel, self._queue)
