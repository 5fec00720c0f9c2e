"""Numbered senders and receivers that fail over, in threads: one kind on plain pika, as its users write it, one on
`client_lib`.

The verdict is that of the original's tests: nothing that was confirmed is missing, duplicates are filtered by number,
and the rest arrives in order.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import Protocol

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

from client_lib import Connection, ConnectionClosed, Message
from tests.support.wait import wait_for

TROUBLE = (AMQPError, AMQPConnectorException, OSError)
"""What pika raises when a broker dies, refuses, or does not answer."""
PATIENCE = 60.0
"""Seconds in which a client that is not cut off for good gets something done."""


class Pair(Protocol):
    """A sender and a receiver on one queue."""

    queue: str
    confirmed: int
    received: list[int]

    def finish(self) -> None:
        """`stop` and `close`."""

    def stop(self) -> None:
        """Sends no more, and returns when everything sent is confirmed and received; what comes again still is."""

    def close(self) -> None:
        """Receives no more."""


class PlainPair:
    """Two pika connections with a loop around each; the sender repeats the message whose confirm it has not seen."""

    def __init__(self, ports: list[int], queue: str, rate: float = 100.0) -> None:
        self.queue = queue
        self.confirmed = 0
        self.received: list[int] = []
        self._ports = itertools.cycle(ports)
        self._interval = 1.0 / rate
        self._stop, self._done = threading.Event(), threading.Event()
        works = ((self._stop, self._send_on), (self._done, self._receive_on))
        self._threads = [threading.Thread(target=self._serve, args=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def _serve(self, over: threading.Event, work: Callable[[BlockingChannel], None]) -> None:
        """Whatever ends the work, it goes on at the next broker of the list."""
        while not over.is_set():
            try:
                with pika.BlockingConnection(parameters(next(self._ports))) as connection:
                    channel = connection.channel()
                    channel.queue_declare(self.queue, durable=True)
                    work(channel)
            except TROUBLE:
                over.wait(0.02)

    def _send_on(self, channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=2)
        while not self._stop.wait(self._interval):
            channel.basic_publish("", self.queue, b"%d" % (self.confirmed + 1), properties, mandatory=True)
            self.confirmed += 1

    def _receive_on(self, channel: BlockingChannel) -> None:
        channel.basic_qos(prefetch_count=50)
        for method, _, body in channel.consume(self.queue, inactivity_timeout=0.05):
            if method is not None:
                self.received.append(int(body))
                channel.basic_ack(method.delivery_tag)
            if self._done.is_set():
                return

    def finish(self) -> None:
        self.stop()
        self.close()

    def stop(self) -> None:
        """As `Pair.stop`."""
        self._stop.set()
        self._threads[0].join(PATIENCE)
        wait_for(lambda: all_received(self), PATIENCE, f"all of {self.queue}")

    def close(self) -> None:
        self._done.set()
        self._threads[1].join(PATIENCE)
        assert not any(thread.is_alive() for thread in self._threads)


class LibraryPair:
    """The same on `client_lib`, which does all that by itself; a window of unconfirmed messages instead of one."""

    def __init__(self, url: str, queue: str, rate: float = 100.0) -> None:
        self.queue = queue
        self.confirmed = 0
        self.received: list[int] = []
        self.errors: list[Exception] = []
        self._interval = 1.0 / rate
        self._stop = threading.Event()
        self._connection = Connection(url, heartbeat=1, connect_timeout=1.0).open(PATIENCE)
        self._session = self._connection.session()
        self._session.declare_queue(queue, durable=True)
        self._sender = self._session.sender(queue, capacity=50, on_settled=self._settled)
        self._receiver = self._session.receiver(queue, capacity=50)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _settled(self, _message: Message, _id: str, error: Exception | None) -> None:
        if error is None:
            self.confirmed += 1
        else:
            self.errors.append(error)

    def _send(self) -> None:
        for number in itertools.count(1):
            if self._stop.wait(self._interval):
                return
            self._sender.send(str(number), timeout=PATIENCE, sync=False)

    def _receive(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            for message in self._receiver:
                self.received.append(int(message.body))
                self._session.acknowledge(message, sync=False)

    def finish(self) -> None:
        self.stop()
        self.close()

    def stop(self) -> None:
        """As `Pair.stop`."""
        self._stop.set()
        self._threads[0].join(PATIENCE)
        self._sender.sync(PATIENCE)
        wait_for(lambda: all_received(self), PATIENCE, f"all of {self.queue}")

    def close(self) -> None:
        assert self._connection.close(5) == []
        self._threads[1].join(PATIENCE)
        assert not self.errors
        assert not any(thread.is_alive() for thread in self._threads)


def parameters(port: int) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", port, heartbeat=1, socket_timeout=1.0, stack_timeout=2.0)


def all_received(pair: Pair) -> bool:
    """The last confirmed number has come, lately: a message may come again later than one behind it."""
    return not pair.confirmed or pair.confirmed in pair.received[-2000:]


def progress(pairs: list[Pair], messages: int = 50) -> None:
    """Until each pair has so many more messages confirmed and received: no client has stalled."""
    goals = [(pair, pair.confirmed + messages, len(pair.received) + messages) for pair in pairs]
    wait_for(
        lambda: all(pair.confirmed >= sent and len(pair.received) >= got for pair, sent, got in goals),
        PATIENCE,
        lambda: f"progress of {[(p.queue, sent - p.confirmed, got - len(p.received)) for p, sent, got in goals]}",
    )


def assert_nothing_lost(pair: Pair) -> None:
    """Every number up to the last confirmed one has come; without those that came twice they are in order."""
    firsts = list(dict.fromkeys(pair.received))
    assert pair.confirmed > 0
    assert firsts == list(range(1, len(firsts) + 1)), f"{pair.queue}: lost or out of order"
    assert len(firsts) >= pair.confirmed
