"""The keys of a policy's definition: what each is for, its values, and why others are refused.                  Pure.

Nothing is accepted that does nothing: a key has to be for what the policy applies to, and a key of RabbitMQ's mirrored
queues has to say what holds here.
"""

from collections.abc import Mapping
from typing import Any, Final

from qpidd_py.broker.arguments import (
    ALTERNATE,
    CONSUMER_TIMEOUT,
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_KEY,
    DEAD_LETTER_STRATEGY,
    DELIVERY_LIMIT,
    EXPIRES,
    MAX_BYTES,
    MAX_LENGTH,
    MESSAGE_TTL,
    OVERFLOW,
    QUEUE_MODE,
    check_argument,
)

POLICY: Final = "policy"
OPERATOR: Final = "operator-policy"
KINDS: Final = (POLICY, OPERATOR)
QUEUES: Final = "queues"
EXCHANGES: Final = "exchanges"
APPLY_TO: Final = (QUEUES, EXCHANGES, "all")
LOWEST: Final = (EXPIRES, MESSAGE_TTL, MAX_LENGTH, MAX_BYTES, DELIVERY_LIMIT, CONSUMER_TIMEOUT)
"""Of these the lowest number counts."""
QUORUM_ONLY: Final = (DELIVERY_LIMIT, DEAD_LETTER_STRATEGY)
CLASSIC_ONLY: Final = (QUEUE_MODE,)
_OTHERS: Final = (OVERFLOW, DEAD_LETTER_EXCHANGE, DEAD_LETTER_KEY, DEAD_LETTER_STRATEGY, QUEUE_MODE)


def _keys(*arguments: str) -> Mapping[str, str]:
    return {argument.removeprefix("x-"): argument for argument in arguments}


ARGUMENTS: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    POLICY: {QUEUES: _keys(*LOWEST, *_OTHERS), EXCHANGES: _keys(ALTERNATE)},
    OPERATOR: {QUEUES: _keys(*LOWEST), EXCHANGES: {}},
}
"""Kind of policy -> what it is for -> key -> argument of a declaration."""

HA_MODE: Final = "ha-mode"
HA: Final = {
    HA_MODE: "all",
    "ha-sync-mode": "automatic",
    "ha-promote-on-shutdown": "when-synced",
    "ha-promote-on-failure": "when-synced",
}
"""Keys of mirrored queues, and the one value of each that says what holds here: see `Policies`."""
_ONE_LOG: Final = (
    "every member in sync holds all of the one log and counts for a confirm, so only 'all' is possible; which members"
    " that are, say ha-brokers-url and ha-safety, and what is replicated, qpid.replicate"
)
_SYNC: Final = (
    "a backup gets what it lacks by itself when it joins, while clients go on, so only 'automatic' is possible"
)
_PROMOTE: Final = (
    "a broker that lacks what was confirmed is not promoted, so only 'when-synced' is possible; see ha-safety and, for"
    " an emergency, `qpid-ha promote --force`"
)
_LEADER: Final = "the primary is the leader of all queues"
_STREAM: Final = "there are no streams"
_DECLARED: Final = "it begins with the queue or exchange: declare that with the argument x-message-deduplication"
_REASONS: Final[Mapping[str, str]] = {
    HA_MODE: _ONE_LOG,
    "ha-params": _ONE_LOG,
    "ha-sync-mode": _SYNC,
    "ha-sync-batch-size": "the difference is sent in slices of octets, all queues together: see ha-slice-size",
    "ha-promote-on-shutdown": _PROMOTE,
    "ha-promote-on-failure": _PROMOTE,
    **dict.fromkeys(("queue-master-locator", "queue-leader-locator", "initial-cluster-size"), _LEADER),
    **dict.fromkeys(("max-age", "stream-max-segment-size-bytes"), _STREAM),
    **dict.fromkeys(("max-in-memory-length", "max-in-memory-bytes"), "see memory-limit and page-folder"),
    **dict.fromkeys(("federation-upstream", "federation-upstream-set"), "see `qpid-route` and shovels"),
    "message-deduplication": _DECLARED,
}


def check_definition(kind: str, apply_to: str, definition: Any) -> None:
    """Raises ValueError."""
    if not isinstance(definition, Mapping) or not definition:
        raise ValueError(f"definition {definition!r:.60}, expected an object with at least one key")
    for key, value in definition.items():
        if problem := _problem(kind, apply_to, key, value):
            raise ValueError(f"key {key!r:.60} of the definition: {problem}")
    if HA_MODE not in definition and (lonely := next((key for key in definition if key in HA), "")):
        raise ValueError(f"key {lonely!r} of the definition: there is no '{HA_MODE}'")


def _problem(kind: str, apply_to: str, key: str, value: Any) -> str:
    """What is wrong with a key or its value; empty if nothing is."""
    if key in HA and kind == POLICY:
        return "" if value == HA[key] else f"{value!r:.60} is refused: {_REASONS[key]}"
    targets = [target for target, known in ARGUMENTS[kind].items() if key in known]
    if not targets:
        return _REASONS.get(key) or f"expected one of {', '.join(_possible(kind, apply_to))}"
    if apply_to not in (*targets, "all"):
        return f"it is for {targets[0]}, and apply-to is {apply_to}"
    return _wrong(ARGUMENTS[kind][targets[0]][key], value)


def _possible(kind: str, apply_to: str) -> list[str]:
    """The keys that such a policy may have."""
    found = [key for target, known in ARGUMENTS[kind].items() if apply_to in (target, "all") for key in known]
    return [*found, *(HA if kind == POLICY else ())] or ["none: no number is for exchanges"]


def _wrong(argument: str, value: Any) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    problem = check_argument(argument, value) or ("" if whole or argument not in LOWEST else "is not a whole number")
    return problem and f"{value!r:.60} {problem}"
