"""kill -9 at any moment while a client publishes and another consumes, again and again; and what must be there then."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.support.process import BrokerProcess
from tests.support.wait import wait_for

ROUNDS = 200
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Clients:
    """A publisher that waits for each confirm, and a consumer that acknowledges one by one."""

    def __init__(self) -> None:
        self.published = 0
        self.confirmed: set[int] = set()
        self.acknowledged: set[int] = set()

    def run(self, broker: BrokerProcess) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._guard, args=(work, broker)) for work in (self._publish, self._consume)]
        for thread in threads:
            thread.start()
        return threads

    def _guard(self, work: Callable[[BlockingChannel], None], broker: BrokerProcess) -> None:
        try:
            connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))
            work(connection.channel())
        except (AMQPError, OSError):
            """The broker was killed."""

    def wait_for(self, confirmed: int) -> None:
        wait_for(lambda: len(self.confirmed) >= confirmed, 60)

    def _publish(self, channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        while True:
            number = self.published
            self.published += 1
            channel.basic_publish("", "orders", b"%d %s" % (number, b"x" * random.randrange(3000)), PERSISTENT)
            self.confirmed.add(number)

    def _consume(self, channel: BlockingChannel) -> None:
        channel.queue_declare("orders", durable=True)
        channel.basic_qos(prefetch_count=5)
        for method, _, body in channel.consume("orders"):
            self.acknowledged.add(int(body.split()[0]))
            channel.basic_ack(method.delivery_tag)


def held(broker: BrokerProcess) -> list[int]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))
    channel = connection.channel()
    channel.queue_declare("orders", durable=True)
    found = []
    while (body := channel.basic_get("orders")[2]) is not None:
        found.append(int(body.split()[0]))
    connection.close()
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_confirmed_message_is_lost_by_kills_under_load(tmp_path: Path) -> None:
    rng = random.Random(7)
    broker, clients = BrokerProcess(tmp_path, "--journal", "yes", "--journal-segment-size", "1M"), Clients()
    try:
        for _ in range(ROUNDS):
            broker.start()
            there = held(broker)
            assert clients.confirmed - clients.acknowledged <= set(there), "confirmed messages are lost"
            assert there == sorted(set(there)), "out of order, or twice"
            assert set(there) <= set(range(clients.published)), "never published"
            threads = clients.run(broker)
            clients.wait_for(len(clients.confirmed) + rng.randrange(200))
            broker.kill()
            for thread in threads:
                thread.join()
    finally:
        broker.close()
