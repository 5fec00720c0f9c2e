"""Policies: limits and the like for all queues and exchanges whose names match a pattern.                        Pure.

A policy is a setting (`settings.py`), so every broker computes the same from it; what it removes from a queue, the
primary's log says.  Of those that match and apply to the kind of object, the one with the highest priority counts, of
equal ones the first by name, also where it has no key for this kind; likewise of the operator policies.  A number is
the lowest of the queue's argument, the policy and the operator policy; anything else is the argument, if there is one
(as in RabbitMQ).

kind              host    name    value
policy            host    name    pattern, apply-to, priority, definition: key -> value
operator-policy   host    name    the same, with numbers only

What a policy says of replication (`policy_keys.HA`) is in force for what is declared later without `qpid.replicate`:
the primary writes the level into the operation (`replicates`), and no backup decides anything.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from qpidd_py.broker.addressing import REPLY_TO
from qpidd_py.broker.arguments import QUEUE_TYPE
from qpidd_py.broker.exchange import FAILOVER
from qpidd_py.broker.policy_keys import (
    APPLY_TO,
    ARGUMENTS,
    CLASSIC_ONLY,
    HA,
    HA_MODE,
    KINDS,
    LOWEST,
    POLICY,
    QUEUES,
    QUORUM_ONLY,
    check_definition,
)
from qpidd_py.broker.qpid_arguments import canonical
from qpidd_py.broker.queue import Effect
from qpidd_py.broker.settings import Key, Settings
from qpidd_py.security.entries import PATTERN_MAX, checked_text
from qpidd_py.security.rights import Matcher, PatternError, compiled

POLICIES_MAX: Final = 100
"""Of a kind, in a virtual host: each declaration looks at them."""


def check_policy(kind: str, value: Mapping[str, Any]) -> None:
    """Raises ValueError for a value that is no policy."""
    pattern = checked_text(value, "pattern", PATTERN_MAX)
    try:
        matcher(pattern)
    except PatternError as error:
        raise ValueError(str(error)) from None
    if value.get("apply-to") not in APPLY_TO:
        raise ValueError(f"apply-to {value.get('apply-to')!r:.60}, expected one of {', '.join(APPLY_TO)}")
    priority = value.get("priority")
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) >= 1 << 31:
        raise ValueError(f"priority {priority!r:.60}, expected a whole number of 32 bits")
    check_definition(kind, value["apply-to"], value.get("definition"))


def matcher(pattern: str) -> Matcher:
    return compiled(pattern or "(?:)")  # for a name, an empty pattern fits all


class Policy(NamedTuple):
    """One that can be applied."""

    name: str
    priority: int
    matcher: Matcher
    arguments: Mapping[str, Mapping[str, Any]]
    """Of each kind of object that it applies to, as of a declaration."""
    ha: Mapping[str, Any]

    def fits(self, target: str, name: str) -> bool:
        return target in self.arguments and self.matcher.search(name) is not None


def _policy(kind: str, name: str, value: Mapping[str, Any]) -> Policy:
    definition, apply_to = value["definition"], value["apply-to"]
    arguments = {
        target: {known[key]: each for key, each in definition.items() if key in known}
        for target, known in ARGUMENTS[kind].items()
        if apply_to in (target, "all")
    }
    ha = {key: each for key, each in definition.items() if key in HA}
    return Policy(name, value["priority"], matcher(value["pattern"]), arguments, ha)


class Policies:
    """Of one virtual host."""

    def __init__(self, settings: Settings, host: str) -> None:
        self._settings = settings
        self._all: dict[Key, Policy] = {
            key: _policy(kind, key.name, value)
            for kind in KINDS
            for key, value in settings.of(kind)
            if key.host == host
        }
        self._sort()

    def __len__(self) -> int:
        return len(self._all)

    def changed(self, key: Key) -> None:
        """That policy has, has come or is gone."""
        self._all.pop(key, None)
        value = self._settings.get(key)
        if value is not None:
            self._all[key] = _policy(key.kind, key.name, value)
        self._sort()

    def _sort(self) -> None:
        found = sorted(self._all.items(), key=lambda each: (-each[1].priority, each[1].name))
        self._sorted = [[policy for key, policy in found if key.kind == kind] for kind in KINDS]
        self._replicating = any(policy.ha for policy in self._all.values())

    def _found(self, target: str, name: str) -> tuple[Policy | None, Policy | None]:
        """The policy and the operator policy that count."""
        if not self._all or _is_ours(target, name):
            return None, None
        policy, operator = (next((each for each in known if each.fits(target, name)), None) for known in self._sorted)
        return policy, operator

    def concerns(self, key: Key, target: str, name: str, effect: Effect) -> bool:
        """Whether the policy `key`, which has changed, may change this effect."""
        policy = self._all.get(key)
        counts = key.name == (effect.policy if key.kind == POLICY else effect.operator)
        return counts or (policy is not None and policy.fits(target, name))

    def replicates(self, target: str, name: str) -> bool:
        """Whether one that is declared now is replicated with its messages, unless it says otherwise."""
        policy = self._found(target, name)[0] if self._replicating else None
        return policy is not None and HA_MODE in policy.ha

    def effect(self, target: str, name: str, declared: Mapping[str, Any]) -> Effect:
        """On a queue or exchange that was declared like that."""
        found = self._found(target, name)
        if not any(found):
            return Effect(declared)
        arguments = canonical(declared) if target == QUEUES else dict(declared)
        others = CLASSIC_ONLY if arguments.get(QUEUE_TYPE) == "quorum" else QUORUM_ONLY
        for each in filter(None, found):
            for argument, value in each.arguments[target].items():
                if argument not in others:
                    arguments[argument] = _merged(argument, arguments.get(argument), value)
        policy, operator = found
        return Effect(
            arguments, policy.name if policy else "", operator.name if operator else "", policy.ha if policy else {}
        )


def _is_ours(target: str, name: str) -> bool:
    """Those that the broker has for itself.  The default exchange has no bindings, so nothing remains for another."""
    return name.startswith(f"{REPLY_TO}.") if target == QUEUES else name in ("", FAILOVER)


def _merged(name: str, argument: Any, value: Any) -> Any:
    if name not in LOWEST:
        return value if argument is None else argument
    numbers = [each for each in (argument, value) if isinstance(each, int) and each >= 0]
    return min(numbers, default=value)
