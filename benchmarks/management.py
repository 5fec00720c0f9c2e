"""Management requests over an AMQP connection that stays open, so that a promotion costs one round trip."""

from __future__ import annotations

import json
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from benchmarks.processes import BenchmarkError

DOOR = "qpid.management"
"""The exchange that takes requests and the pseudo queue that gives the answers."""


class RefusedError(BenchmarkError):
    """The broker refused the request."""


class Management:
    """One connection to one broker; backups admit it because it declares itself administrative."""

    def __init__(self, port: int) -> None:
        parameters = pika.ConnectionParameters(
            "127.0.0.1",
            port,
            heartbeat=0,
            client_properties={"qpid.ha-admin": 1},
            blocked_connection_timeout=10,
            socket_timeout=5,
        )
        self.answers: dict[str, dict[str, Any]] = {}
        self.requests = 0
        try:
            self.connection = pika.BlockingConnection(parameters)
            self.channel = self.connection.channel()
            self.channel.basic_consume(DOOR, self._answer, auto_ack=True)
        except AMQPError as error:
            raise BenchmarkError(f"management connection to port {port}: {error!r}") from error

    def call(self, method: str, timeout: float = 10, **arguments: Any) -> dict[str, Any]:
        """Raises RefusedError with the broker's text; BenchmarkError when it is lost or after `timeout` seconds."""
        self.requests += 1
        key = str(self.requests)
        try:
            self.channel.basic_publish(
                DOOR, method, json.dumps(arguments).encode(), pika.BasicProperties(correlation_id=key)
            )
            while key not in self.answers and timeout > 0:
                self.connection.process_data_events(time_limit=min(timeout, 1))
                timeout -= 1
        except AMQPError as error:
            raise BenchmarkError(f"{method}: {error!r}") from error
        if key not in self.answers:
            raise BenchmarkError(f"{method}: no answer")
        answer = self.answers.pop(key)
        if not answer["ok"]:
            raise RefusedError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def state(self) -> str:
        """joining, catchup, ready, recovering, active or standalone."""
        return str(self.call("ha.status")["state"])

    def close(self) -> None:
        try:
            self.connection.close()
        except AMQPError:
            pass

    def _answer(
        self, _channel: BlockingChannel, _method: object, properties: pika.BasicProperties, body: bytes
    ) -> None:
        self.answers[str(properties.correlation_id)] = json.loads(body)
