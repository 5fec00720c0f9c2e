"""Policies: limits and the like for all queues whose names match a pattern.                                    Pure.

A policy is a setting (`settings.py`), so every broker computes the same from it; what it removes from a queue, the
primary's log says.  Of those that match, the one with the highest priority counts, of equal ones the first by name;
likewise of the operator policies.  A number is the lowest of the queue's argument, the policy and the operator policy;
anything else is the argument, if there is one (as in RabbitMQ).

kind              host    name    value
policy            host    name    pattern, apply-to, priority, definition: key -> value
operator-policy   host    name    the same, with numbers only
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from qpidd_py.broker.addressing import REPLY_TO
from qpidd_py.broker.arguments import (
    CONSUMER_TIMEOUT,
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_KEY,
    DELIVERY_LIMIT,
    EXPIRES,
    MAX_BYTES,
    MAX_LENGTH,
    MESSAGE_TTL,
    OVERFLOW,
    QUEUE_TYPE,
    check_argument,
)
from qpidd_py.broker.qpid_arguments import canonical
from qpidd_py.broker.queue import Effect
from qpidd_py.broker.settings import Settings
from qpidd_py.security.entries import PATTERN_MAX, checked_text
from qpidd_py.security.rights import Matcher, PatternError, compiled

POLICY: Final = "policy"
OPERATOR: Final = "operator-policy"
KINDS: Final = (POLICY, OPERATOR)
POLICIES_MAX: Final = 100
"""Of a kind, in a virtual host: each declaration looks at them."""
APPLY_TO: Final = ("queues", "all")
_LOWEST: Final = (EXPIRES, MESSAGE_TTL, MAX_LENGTH, MAX_BYTES, DELIVERY_LIMIT, CONSUMER_TIMEOUT)
_OTHERS: Final = (OVERFLOW, DEAD_LETTER_EXCHANGE, DEAD_LETTER_KEY)
_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    POLICY: {argument.removeprefix("x-"): argument for argument in (*_LOWEST, *_OTHERS)},
    OPERATOR: {argument.removeprefix("x-"): argument for argument in _LOWEST},
}
_EVERYWHERE: Final = "every member of the cluster holds a copy; see `qpid.replicate`"
_REASONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size"), _EVERYWHERE),
    **dict.fromkeys(("ha-promote-on-failure", "ha-promote-on-shutdown"), "the broker's options decide that"),
    "queue-mode": "what is paged out is the broker's decision; see `max-memory`",
    "alternate-exchange": "declare the exchange with that argument",
}


def check_policy(kind: str, value: Mapping[str, Any]) -> None:
    """Raises ValueError for a value that is no policy."""
    pattern = checked_text(value, "pattern", PATTERN_MAX)
    try:
        _matcher(pattern)
    except PatternError as error:
        raise ValueError(str(error)) from None
    if value.get("apply-to") not in APPLY_TO:
        raise ValueError(
            f"apply-to {value.get('apply-to')!r:.60}, expected one of {', '.join(APPLY_TO)}: no key is for exchanges"
        )
    priority = value.get("priority")
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) >= 1 << 31:
        raise ValueError(f"priority {priority!r:.60}, expected a whole number of 32 bits")
    definition = value.get("definition")
    if not isinstance(definition, Mapping) or not definition:
        raise ValueError(f"definition {definition!r:.60}, expected an object with at least one key")
    for key, each in definition.items():
        _check_key(kind, key, each)


def _check_key(kind: str, key: str, value: Any) -> None:
    argument = _KEYS[kind].get(key)
    if argument is None:
        reason = _REASONS.get(key) or f"expected one of {', '.join(_KEYS[kind])}"
        raise ValueError(f"key {key!r:.60} of the definition: {reason}")
    whole = isinstance(value, int) and not isinstance(value, bool)
    problem = check_argument(argument, value) or ("" if whole or argument not in _LOWEST else "is not a whole number")
    if problem:
        raise ValueError(f"key {key!r} of the definition: {value!r:.60} {problem}")


def _matcher(pattern: str) -> Matcher:
    return compiled(pattern or "(?:)")  # for a name, an empty pattern fits all


class Policy(NamedTuple):
    """One that can be applied."""

    name: str
    matcher: Matcher
    arguments: Mapping[str, Any]
    """As of a declaration."""


class Policies:
    """Of one virtual host."""

    def __init__(self, settings: Settings, host: str) -> None:
        self._settings = settings
        self._host = host
        self._sorted: dict[str, list[Policy]] = {kind: [] for kind in KINDS}
        self._any = False

    def __len__(self) -> int:
        return sum(map(len, self._sorted.values()))

    def changed(self) -> None:
        """A setting has."""
        self._sorted = {kind: list(self._of(kind)) for kind in KINDS}
        self._any = any(self._sorted.values())

    def _of(self, kind: str) -> Iterator[Policy]:
        found = ((key, value) for key, value in self._settings.of(kind) if key.host == self._host)
        for key, value in sorted(found, key=lambda each: (-each[1]["priority"], each[0].name)):
            arguments = {_KEYS[kind][name]: each for name, each in value["definition"].items()}
            yield Policy(key.name, _matcher(value["pattern"]), arguments)

    def effect(self, queue: str, declared: Mapping[str, Any]) -> Effect:
        """On a queue that was declared like that."""
        if not self._any or queue.startswith(f"{REPLY_TO}."):
            return Effect(declared)
        found = [next((each for each in self._sorted[kind] if each.matcher.search(queue)), None) for kind in KINDS]
        if not any(found):
            return Effect(declared)
        arguments = dict(canonical(declared))
        quorum = arguments.get(QUEUE_TYPE) == "quorum"
        for policy in filter(None, found):
            for name, value in policy.arguments.items():
                if name != DELIVERY_LIMIT or quorum:
                    arguments[name] = _merged(name, arguments.get(name), value)
        names = [each.name if each is not None else "" for each in found]
        return Effect(arguments, *names)


def _merged(name: str, argument: Any, value: Any) -> Any:
    if name not in _LOWEST:
        return value if argument is None else argument
    numbers = [each for each in (argument, value) if isinstance(each, int) and each >= 0]
    return min(numbers, default=value)
