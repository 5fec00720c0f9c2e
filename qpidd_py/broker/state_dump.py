"""The state of a broker as lines for its log, on SIGUSR1: bounded, whatever exists."""

from collections.abc import Iterator
from heapq import nlargest
from typing import Final

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.queue import DeclaredQueue

MOST: Final = 20
"""Connections and queues that are shown: those with most unread output, and with most messages."""
NAME: Final = 64
"""Characters of a name."""


def state_dump(broker: Broker) -> Iterator[str]:
    engine, vhosts = broker.engine, list(broker.vhosts)
    queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
    exchanges = sum(len(vhost.exchanges) for vhost in vhosts)
    links = [each for each in broker.connections if each.link is not None]
    yield (
        f"state: {'backup' if broker.passive else 'serving'}, epoch {engine.epoch}, position {engine.position}, safe "
        f"{engine.safe}, confirms waiting {engine.waiting_confirms}, blocked {broker.blocked or 'no'!r}"
    )
    yield (
        f"state: {len(broker.connections)} connections, {len(links)} links, {len(queues)} queues, "
        f"{exchanges} exchanges, {engine.published} published, {engine.delivered} delivered"
    )
    for connection in nlargest(MOST, broker.connections, key=lambda each: (each.link is not None, each.core.backlog)):
        yield _connection(connection)
    for queue in nlargest(MOST, queues, key=lambda each: each.core.ready + each.core.unacked):
        yield _queue(queue)


def _connection(connection: ClientConnection) -> str:
    core = connection.core
    kind = "link" if connection.link is not None else "connection"
    return (
        f"state: {kind} {connection.number} {connection.peer} {connection.state.value} user {connection.user[:NAME]!a} "
        f"channels {len(connection.channels)} received {core.received} sent {core.sent} unread {core.backlog} octets"
        f"{' input paused' if core.input_paused else ''}"
    )


def _queue(queue: DeclaredQueue) -> str:
    core = queue.core
    return (
        f"state: queue {core.label[:NAME]!a} ready {core.ready} unacked {core.unacked} octets {core.bytes} "
        f"consumers {core.consumer_count} replicate {queue.level}"
    )
