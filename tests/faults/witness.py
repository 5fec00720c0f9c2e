"""Publishers at every broker of a cluster, and a judge of the first two promises by what they got to hear.

    1  what was confirmed is there in the end
    2  two brokers never confirm at one time

A message is before another if it was confirmed before the other was published.  In a schedule that promotes once,
confirming is handed over at most once.  So three confirmed messages of brokers A, B, A, each before the next, prove
that two confirmed at one time.  No word of a broker is believed, and a confirm that arrives late proves nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Final

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.faults.host_broker import PORT
from tests.faults.namespaces import Host
from tests.support.wait import wait_for

QUEUE: Final = "witness"
PAUSE: Final = 0.05
"""Seconds between two messages, and before a broker that has refused is tried again."""
ENDS: Final = 30.0
"""Seconds within which each publisher gets its last answer, once the cluster is whole or its brokers are dead."""


@dataclass(frozen=True)
class Confirmed:
    """A message; times in monotonic seconds of the machine on which all of this runs."""

    body: str
    broker: str
    published: float
    confirmed: float

    def before(self, other: Confirmed) -> bool:
        return self.confirmed < other.published


def problems(history: Collection[Confirmed], held: Collection[str]) -> list[str]:
    """Breaches of the two promises; `held`: what is there in the end."""
    there = set(held)
    lost = [f"lost: {each}" for each in history if each.body not in there]
    return [*lost, *(f"both confirm: {three}" for three in both_confirm(history))]


def both_confirm(history: Iterable[Confirmed]) -> list[tuple[Confirmed, Confirmed, Confirmed]]:
    """A, B, A for each pair of brokers that confirmed at one time."""
    by_broker: dict[str, list[Confirmed]] = {}
    for each in history:
        by_broker.setdefault(each.broker, []).append(each)
    found = []
    for one, other in permutations(by_broker.values(), 2):
        begin, end = min(one, key=lambda each: each.confirmed), max(one, key=lambda each: each.published)
        between = (each for each in other if begin.before(each) and each.before(end))
        found += [(begin, each, end) for each in between][:1]
    return found


class Witness:
    """A context manager; `clients`: the host on which the publishers are."""

    def __init__(self, clients: Host, brokers: Iterable[Host]) -> None:
        self.history: list[Confirmed] = []
        self._clients = clients
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._publish, args=(each,), daemon=True) for each in brokers]

    def _publish(self, broker: Host) -> None:
        with self._clients.inside():
            while not self._stopping.is_set():
                with contextlib.suppress(AMQPError, OSError):  # it is no primary, or none any more
                    self._publish_to(broker)
                self._stopping.wait(PAUSE)

    def _publish_to(self, broker: Host) -> None:
        with _channel(broker) as channel:
            channel.confirm_delivery()
            channel.queue_declare(QUEUE, durable=True)
            while not self._stopping.is_set():
                published = time.monotonic()
                body = f"{broker.address} {published:.6f}"
                channel.basic_publish("", QUEUE, body.encode(), pika.BasicProperties(delivery_mode=2), mandatory=True)
                self.history.append(Confirmed(body, broker.address, published, time.monotonic()))
                self._stopping.wait(PAUSE)

    def await_confirm(self, broker: Host) -> None:
        """Returns when this broker has confirmed a message that was published after the call."""
        now = time.monotonic()

        def heard() -> bool:
            return any(each.broker == broker.address and each.published > now for each in tuple(self.history))

        wait_for(heard, ENDS, f"{broker.address} confirms")

    def stop(self) -> None:
        """No more is published, and each publisher has ended."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(ENDS)
            assert not thread.is_alive(), "a publisher got neither an answer nor the end of its connection"

    def problems(self, primary: Host) -> list[str]:
        """After `stop`: what was confirmed is looked for at this broker."""
        return problems(self.history, held(self._clients, primary))

    def __enter__(self) -> Witness:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()  # a publisher that waits for a confirm ends with its broker


@contextlib.contextmanager
def _channel(broker: Host) -> Iterator[BlockingChannel]:
    parameters = pika.ConnectionParameters(broker.address, PORT, heartbeat=0, socket_timeout=5)
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def held(clients: Host, broker: Host) -> list[str]:
    """The bodies in the queue; they stay there."""
    found: list[str] = []
    with clients.inside(), _channel(broker) as channel:
        while (body := channel.basic_get(QUEUE)[2]) is not None:
            found.append(body.decode())
    return found
