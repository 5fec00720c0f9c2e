"""A plain pika client whose loop a test turns by hand: it publishes without waiting, and says what was answered so far.

What has *not* been answered is certain after `round_trip`: the broker has then written everything that it had to say
about what was sent before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
from pika.channel import Channel
from pika.spec import Basic

from tests.support.wait import wait_for

TURN = 0.005
"""Seconds that one turn of the loop waits for octets."""
PATIENCE = 60.0


class StepChannel:
    """One channel of a `StepClient`."""

    def __init__(self, client: StepClient) -> None:
        self.client = client
        self.acked: set[int] = set()
        """Publish tags."""
        self.nacked: set[int] = set()
        self.returned: list[bytes] = []
        self.got: list[tuple[str, bytes, int]] = []
        """Deliveries: consumer tag, body, delivery tag."""
        self.closed = 0
        """Reply code; 0 while open."""
        self._published = 0
        self._raw: Channel = client.connection.channel(on_open_callback=self._opened)
        self._open = False
        client.until(lambda: self._open, "channel.open-ok")

    def _opened(self, channel: Channel) -> None:
        self._open = True
        channel.add_on_close_callback(self._on_closed)
        channel.add_on_return_callback(lambda _channel, _method, _properties, body: self.returned.append(body))

    def _on_closed(self, _channel: Channel, reason: Exception) -> None:
        self.closed = int(getattr(reason, "reply_code", -1))

    def confirm(self) -> StepChannel:
        """Confirm mode."""
        ready: list[object] = []
        self._raw.confirm_delivery(self._settled, callback=ready.append)
        self.client.until(lambda: ready, "confirm.select-ok")
        return self

    def _settled(self, frame: Any) -> None:
        method = frame.method
        settled = self.acked if method.NAME == "Basic.Ack" else self.nacked
        first = 1 if method.multiple else method.delivery_tag
        settled.update(set(range(first, method.delivery_tag + 1)) - self.acked - self.nacked)

    def publish(
        self, routing_key: str, body: str, exchange: str = "", mandatory: bool = False, **properties: Any
    ) -> int:
        """The publish tag."""
        options = pika.BasicProperties(delivery_mode=2, **properties)
        self._raw.basic_publish(exchange, routing_key, body.encode(), options, mandatory)
        self._published += 1
        return self._published

    def consume(self, queue: str) -> None:
        """Deliveries, to be acknowledged, under the queue's name as consumer tag; returns with consume-ok."""
        ready: list[object] = []

        def deliver(_channel: Channel, method: Any, _properties: Any, body: bytes) -> None:
            self.got.append((queue, body, method.delivery_tag))

        self._raw.basic_consume(queue, deliver, consumer_tag=queue, callback=ready.append)
        self.client.until(lambda: ready, "consume-ok")

    def get(self, queue: str) -> bytes | None:
        """The body of the next message by basic.get, which is not acknowledged; None when there is none."""
        found: list[bytes | None] = []
        self._raw.add_callback(lambda _frame: found.append(None), [Basic.GetEmpty])
        self._raw.basic_get(queue, lambda _channel, _method, _properties, body: found.append(body))
        self.client.until(lambda: found, "get-ok or get-empty")
        return found[0]

    def await_deliveries(self, count: int) -> list[int]:
        """The delivery tags of the first `count`."""
        self.client.until(lambda: len(self.got) >= count, f"{count} deliveries")
        return [tag for _, _, tag in self.got[:count]]

    def ack(self, tag: int) -> None:
        self._raw.basic_ack(tag)

    def reject(self, tag: int) -> None:
        """Without requeue."""
        self._raw.basic_reject(tag, requeue=False)

    def ask(self, method: str, **arguments: Any) -> list[object]:
        """Sends a method that has an answer; the list holds the answer when it has come."""
        answer: list[object] = []
        getattr(self._raw, method)(callback=answer.append, **arguments)
        self.client.step()
        return answer

    def call(self, method: str, **arguments: Any) -> Any:
        """`ask`, and waits for the answer."""
        answer = self.ask(method, **arguments)
        self.client.until(lambda: answer, f"the answer to {method}")
        return answer[0]


class StepClient:
    """One connection; a context manager."""

    def __init__(self, port: int) -> None:
        self.lost = ""
        """Why the connection has ended."""
        self._open = False
        parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        self.connection = pika.SelectConnection(
            parameters,
            on_open_callback=lambda _connection: setattr(self, "_open", True),
            on_open_error_callback=self._on_lost,
            on_close_callback=self._on_lost,
        )
        self.until(lambda: self._open or self.lost, "connection.open-ok")
        assert self._open, self.lost

    def _on_lost(self, _connection: object, reason: object) -> None:
        self.lost = repr(reason)

    def channel(self) -> StepChannel:
        return StepChannel(self)

    def step(self) -> None:
        """One turn."""
        loop = self.connection.ioloop
        loop.call_later(TURN, loop.stop)
        loop.start()

    def until(self, condition: Callable[[], object], what: str) -> None:
        def found() -> bool:
            self.step()
            return bool(condition())

        wait_for(found, PATIENCE, what, poll=0.0)

    def round_trip(self) -> None:
        """Twice there and back on a channel of its own: confirms are written at the end of a turn of the broker."""
        for _ in range(2):
            self.channel()

    def __enter__(self) -> StepClient:
        return self

    def __exit__(self, *_: object) -> None:
        # Not in order: pika's connection.close waits for answers that never come here.
        if not self.connection.is_closed:
            self.connection._terminate_stream(pika.exceptions.StreamLostError("the test is over"))
        self.until(lambda: self.connection.is_closed, "the end of a connection")
        self.connection.ioloop.close()
