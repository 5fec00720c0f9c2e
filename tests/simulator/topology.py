"""The queues and exchanges of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulator import amqp


@dataclass(frozen=True)
class QueueKind:
    """How a queue is declared."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    fixed: bool = True
    """Declared by everybody who needs it; else one client makes and deletes it."""


_DEAD: Final = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
_ONCE: Final = {"x-message-deduplication": True, "x-deduplication-key": "key"}
_SAFELY: Final = {
    "x-queue-type": "quorum",
    "x-overflow": "reject-publish",
    "x-dead-letter-strategy": "at-least-once",
}
LATER: Final = "amq.delayed.later"
"""Where the messages of the exchange `later` wait for their time, by its name in logs."""
QUEUES: Final[Mapping[str, QueueKind]] = {
    "main": QueueKind(),
    "work": QueueKind(),
    "fan1": QueueKind(),
    "fan2": QueueKind(),
    "out1": QueueKind(),
    "out2": QueueKind(),
    "prio": QueueKind({"x-max-priority": 3}),
    "brief": QueueKind({"x-message-ttl": 400}),
    "short": QueueKind({"x-max-length": 3}),
    "full": QueueKind({"x-max-length": 2, "x-overflow": "reject-publish"}),
    "scrap": QueueKind(fixed=False),
    "mortal": QueueKind({"x-message-ttl": 300, **_DEAD}),
    "crowded": QueueKind({"x-max-length": 3, **_DEAD}),
    "picky": QueueKind(_DEAD),
    "poison": QueueKind({"x-queue-type": "quorum", "x-delivery-limit": 3, **_DEAD}),
    "lock": QueueKind({"x-single-active-consumer": True, "x-fencing-token": True}),
    "dead": QueueKind(),
    "fleeting": QueueKind({"x-expires": 300}),
    "turned": QueueKind(),
    "once": QueueKind(_ONCE),
    "once-few": QueueKind({**_ONCE, "x-deduplication-window": 4}),
    "once-brief": QueueKind({**_ONCE, "x-deduplication-time": 800}),
    "due": QueueKind(),
    "grouped": QueueKind({"qpid.group_header_key": "key", "qpid.shared_msg_group": 1}),
    "values": QueueKind({"qpid.last_value_queue_key": "key"}),
    "safely": QueueKind({**_SAFELY, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "tight"}),
    "patient": QueueKind(
        {**_SAFELY, "x-message-ttl": 300, "x-dead-letter-exchange": "turn", "x-dead-letter-routing-key": "key"}
    ),
    "tight": QueueKind({"x-max-length": 2, "x-overflow": "reject-publish"}),
}
_LEADS: Final = {("turn", "key"): "turned"}
LETTERS: Final[Mapping[str, str]] = {
    LATER: "due",
    **{
        name: _LEADS.get((kind.arguments["x-dead-letter-exchange"], to), to)
        for name, kind in QUEUES.items()
        if (to := kind.arguments.get("x-dead-letter-routing-key"))
    },
}
"""Where the dead letters of a queue go, and what is due."""
LIMITS: Final[Mapping[str, int]] = {
    name: int(kind.arguments["x-delivery-limit"])
    for name, kind in QUEUES.items()
    if "x-delivery-limit" in kind.arguments
}
"""How often a message may come back."""
ONCE: Final = frozenset(name for name, kind in QUEUES.items() if "x-message-deduplication" in kind.arguments)
"""Queues that a key does not enter twice."""
BY_TIME: Final = frozenset({"brief", "once-brief", "due", "patient"})
"""Queues of which a promise says when, by the wall clock."""
_KEEP: Final = {
    *("x-max-priority", "x-overflow", "x-max-length", "x-single-active-consumer", "x-fencing-token"),
    *("qpid.group_header_key", "qpid.shared_msg_group"),
    *(name for once in ONCE for name in QUEUES[once].arguments),
}
KEPT: Final = frozenset(
    name
    for name, kind in QUEUES.items()
    if kind.fixed
    and name != "work"
    and kind.arguments.keys() <= _KEEP
    and ("x-max-length" not in kind.arguments or kind.arguments.get("x-overflow") == "reject-publish")
)
"""Queues from which only an acknowledgement removes a message.  (In `work` it is that of a transaction, see I6.)"""
BASIC: Final = ("main", "work", "fan1", "fan2", "out1", "out2")
ROUTES: Final[Mapping[str, tuple[str, str]]] = {
    "fan": ("fan", ""),
    "turn": ("turn", "key"),
    "nowhere": ("alternate", "unknown"),
    **{name: ("", name) for name in QUEUES},
    "due": ("later", "due"),
}
"""Exchange and routing key by what an action says."""
DESTINATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "fan": ("fan1", "fan2"),
    "turn": ("turned",),
    "nowhere": ("fan1", "fan2"),
    **{name: (name,) for name in QUEUES},
    "due": (LATER,),
}
ALTERNATES: Final[Mapping[str, str]] = {"alternate": "fan"}
"""Exchanges that nothing is bound to, and their alternate exchanges."""
Greeting = list[tuple[bytes, int]]
"""Frames, each with the answer to wait for."""


def declare(queue: str) -> tuple[bytes, int]:
    return amqp.declare(queue, arguments=dict(QUEUES[queue].arguments)), amqp.DECLARE_OK


def greeting(extra: tuple[str, ...]) -> Greeting:
    """Declares the basic queues, and these."""
    queues = [*BASIC, *(name for name in extra if QUEUES[name].fixed)]
    return [
        *(declare(queue) for queue in queues),
        (amqp.declare_exchange("fan", "fanout"), amqp.EXCHANGE_OK),
        (amqp.bind("fan1", "fan", ""), amqp.BIND_OK),
        (amqp.bind("fan2", "fan", ""), amqp.BIND_OK),
        *([(amqp.declare_exchange("turn", "direct"), amqp.EXCHANGE_OK)] if "turned" in extra else []),
        *(_later() if "due" in extra else []),
        *((amqp.declare_exchange(name, "direct", to), amqp.EXCHANGE_OK) for name, to in ALTERNATES.items()),
    ]


def _later() -> Greeting:
    return [
        (amqp.declare_exchange("later", "x-delayed-message", delayed="direct"), amqp.EXCHANGE_OK),
        (amqp.bind("due", "later", "due"), amqp.BIND_OK),
    ]
