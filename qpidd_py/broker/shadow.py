"""Exchanges that keep something of their messages for themselves, in a queue that no client finds.               Pure.

* `qpid.ive`, Qpid's "initial value": the last message.  A binding that is new brings a copy of it to its queue.
* `x-message-deduplication`: the keys of the messages, with the arguments of queues (`deduplication.py`).

Theory: `core/shadows.pyx`.  The copy stands in the log before the binding.  A fail-over between the two leaves a
message too many to a client that binds again, which has not been answered; the other way round it would find the
binding and never get the message.
"""

from collections.abc import Mapping
from typing import Any, Final

from qpidd_py.broker.arguments import DEDUPLICATION_ARGUMENTS, MAX_LENGTH, REPLICATE
from qpidd_py.broker.exchange import DELAYED, Binding, Exchange
from qpidd_py.broker.queue import DeclaredQueue, limit
from qpidd_py.core.queue import Queue

SHADOW: Final = "amq.shadow."
"""Begins the name, in logs and lists, of an exchange's queue of copies."""
FEW: Final = 8
"""Bindings that are looked at one by one."""
WAITING: Final = "amq.delayed."
"""The same, of the queue in which messages of an exchange wait (`delayed.py`)."""


def queue_name(exchange: Exchange) -> str:
    """Of the queue of an exchange that has one (`has_queue`)."""
    return f"{WAITING if exchange.type == DELAYED else SHADOW}{exchange.name}"


def give_queue(exchange: Exchange, core: Queue, secret: str) -> DeclaredQueue:
    """The exchange gets it.  `secret`: of a declaration with keys."""
    queue = DeclaredQueue(core, exchange.durable, False, False, {REPLICATE: exchange.level})
    queue.position = exchange.position
    core.owner = queue
    if exchange.type == DELAYED:
        exchange.waiting = queue
        return queue
    kept: dict[str, Any] = {MAX_LENGTH: int(exchange.initial)}
    kept.update((name, value) for name, value in exchange.arguments.items() if name in DEDUPLICATION_ARGUMENTS)
    limit(core, kept, secret)
    core.shadow = True
    exchange.shadow = queue
    return queue


def own_queue(exchanges: Mapping[str, Exchange], name: str) -> DeclaredQueue | None:
    """The one of an exchange that has this name in logs and archives."""
    for prefix in (WAITING, SHADOW):
        if name.startswith(prefix) and (exchange := exchanges.get(name.removeprefix(prefix))) is not None:
            return exchange.own_queue
    return None


def matches(binding: Binding, routing_key: bytes, properties: Mapping[str, Any]) -> bool:
    """Whether a message would take this binding if it were the only one."""
    source = binding.source
    alone = type(source)(source.name, False, False, False, source.arguments)
    alone.add(Binding(alone, binding.destination, binding.routing_key, binding.arguments))
    return bool(alone.matching(routing_key, properties))


def leads(
    source: Exchange, destination: DeclaredQueue | Exchange, routing_key: bytes, properties: Mapping[str, Any]
) -> bool:
    """Whether a message takes a binding to this destination.  What others have bound costs nothing, unless this
    destination has many bindings itself."""
    table = source.tables.get(destination, {})
    if len(table) > FEW:
        return destination in source.matching(routing_key, properties)
    return any(matches(binding, routing_key, properties) for binding in table.values())
