"""Queues with special arguments, and the rule by which a confirmed message may be missing from each.

A confirmed message may be missing only if a client has acknowledged it.  From a queue with a rule it may also have been
removed by the queue's own limit without dead letters (`limit`), by a purge (`purge`) or because a binding was not there
(`route`), or the reader has chosen no acknowledgements (`auto`): `rules.py` says what must be shown then.  A queue with
a dead-letter exchange has no rule: its messages must never be missing.
"""

from __future__ import annotations

from typing import Any, Final

from pika.adapters.blocking_connection import BlockingChannel

NEWEST, PURGED, ROUTED, AUTO = "newest", "purged", "routed", "auto"
MIXED, REFUSING, DEAD = "mixed", "refusing", "dead"
SHIP, SHIPPED, LANDED = "ship", "shipped", "landed"
"""Kinds of queues, the last word of a queue's name.  `MIXED` has a limit, a time to live and readers that reject, and
sends what goes to `DEAD`.  What comes into `SHIP` is moved to `SHIPPED` of another broker; `LANDED` gets what was
published there."""

LIMIT: Final = 25
"""Messages; a producer needs about a second for so many, a reader comes about as often."""
RULES: Final[dict[str, dict[str, Any]]] = {
    NEWEST: {"apart": True, "rule": "limit", "limit": LIMIT},
    PURGED: {"apart": True, "rule": "purge"},
    ROUTED: {"apart": True, "rule": "route"},
    AUTO: {"apart": True, "rule": "auto"},
    MIXED: {"apart": True},
    DEAD: {"apart": True},
    SHIP: {"apart": True, "moved": "shovel"},
    SHIPPED: {"apart": True, "moved": "shovel"},
    LANDED: {"apart": True, "moved": "dynamic route"},
}
"""`apart`: `failover-report` would count these messages otherwise.  It takes the brokers' rows for what became of them,
or has none (no binding, no acknowledgement), and one that came in two queues is no duplicate to it.  `moved`: from one
broker to another, by which means."""
_ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    NEWEST: {"x-max-length": LIMIT, "x-overflow": "drop-head"},
    MIXED: {"x-max-length": LIMIT, "x-message-ttl": 1500, "x-dead-letter-exchange": ""},
    REFUSING: {"x-max-length": LIMIT, "x-overflow": "reject-publish"},
}


def declare(channel: BlockingChannel, queue: str) -> None:
    """Declares the queue for dead letters first."""
    group, _, kind = queue.rpartition(".")
    arguments = dict(_ARGUMENTS.get(kind, {}))
    if kind == MIXED:
        arguments["x-dead-letter-routing-key"] = f"{group}.{DEAD}"
        declare(channel, f"{group}.{DEAD}")
    channel.queue_declare(queue, durable=True, arguments=arguments or None)


def rule_of(queue: str, removes: bool) -> dict[str, Any]:
    """The form in a client's `begin` event."""
    found = RULES.get(queue.rpartition(".")[2], {})
    return {**found, "removes": True} if removes and "rule" in found else found
