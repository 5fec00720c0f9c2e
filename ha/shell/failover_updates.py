"""The exchange `amq.failover`, as Apache Qpid has it: a queue that is bound to it gets the addresses of the cluster, at
once and after each change.  Clients of 0-8 to 0-9-1 (`failover='failover_exchange'`) read them there.

A message has no body; its header `amq.failover` is a list of URLs, `amqp:tcp:HOST:PORT` or `amqp:ssl:HOST:PORT`: those
of `ha-public-url`, else of the members.  The exchange is internal, so that no client can send others elsewhere, and its
bindings are not replicated: the next primary's clients bind again.                                          Shell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from ha.node import Node
from qpidd_py.amqp.codec import encode_properties
from qpidd_py.broker.exchange import FAILOVER
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.vhosts import VHosts
from qpidd_py.core import Queue, Route


class FailoverUpdates:
    """One per member of a cluster; `addresses` as in `ha-public-url` or `ha-brokers-url`."""

    def __init__(self, vhosts: VHosts, addresses: Callable[[], Sequence[str]]) -> None:
        self._vhosts = vhosts
        self._addresses = addresses
        self._told = tuple(addresses())
        vhosts.rules.failover_bound = self._bound

    def look(self) -> None:
        """Called several times a second.  What there is no memory for is told by a later look."""
        now = tuple(self._addresses())
        if now != self._told:
            with contextlib.suppress(MemoryError):
                for vhost in self._vhosts:
                    exchange = vhost.exchanges[FAILOVER]
                    if exchange.size:
                        self._send(vhost.routing.destinations(exchange, b"", {}))
                self._told = now

    def _bound(self, queue: DeclaredQueue) -> None:
        self._send([queue.core])

    def _send(self, queues: list[Queue]) -> None:
        engine = self._vhosts.default.engine
        if queues and not engine.passive:
            urls = [url(address) for address in self._addresses()]
            header = encode_properties({"headers": {FAILOVER: urls}}, 0)
            engine.publish(Route(queues), FAILOVER.encode(), b"", header, b"")


def advertised(node: Node) -> Sequence[str]:
    """The addresses that clients are told."""
    local = node.local
    return local.settings.public_url.split(",") if local.settings.public_url else local.cluster.brokers


def url(address: str) -> str:
    """Of `[ssl:|tcp:]HOST:PORT`."""
    place = address.strip().removeprefix("amqp:").rpartition("@")[2]
    return f"amqp:{place}" if place.startswith(("tcp:", "ssl:")) else f"amqp:tcp:{place}"
