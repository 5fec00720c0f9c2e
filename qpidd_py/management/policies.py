"""Requests about policies (`broker/policies.py`); changes are answered when they are safe.

policy.list       {}     [{name, vhost, operator: true|false, pattern, apply-to, priority, definition}]
policy.set        {name, vhost, operator=false, pattern, apply-to="all", priority=0, definition}
                         -> {not_in_force: why} if `ha-mode` is not, for some that are there already; else {}
policy.clear      {name, vhost, operator=false}
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.policies import POLICIES_MAX, matcher
from qpidd_py.broker.policy_keys import EXCHANGES, HA_MODE, KINDS, OPERATOR, POLICY, QUEUES
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.settings import Key
from qpidd_py.management.hosts import LOOKS, Slices, host_of
from qpidd_py.management.request import Json, flag
from qpidd_py.management.settings import Change, List, SettingRequests, named
from qpidd_py.management.shown import lies_outside

_DEFAULTS: Final = {"pattern": None, "apply-to": "all", "priority": 0, "definition": None}
NAMED: Final = 5
"""Queues and exchanges that an answer names."""


class PolicyRequests(SettingRequests):
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.lists: Mapping[str, List] = {"policy.list": self._list}
        self.changes: Mapping[str, Change] = {"policy.clear": self._clear}
        self.slices: Mapping[str, Callable[[Json], Slices]] = {"policy.set": self._set}

    def _list(self) -> Iterator[Json]:
        for kind in KINDS:
            for key, value in sorted(self.settings.of(kind), key=lambda each: each[0]):
                yield {"name": key.name, "vhost": key.host, "operator": kind == OPERATOR, **value}

    def _set(self, arguments: Json) -> Slices:
        key = self._key(arguments)
        value: Json = {name: arguments.get(name, default) for name, default in _DEFAULTS.items()}
        self.check(key, value)
        outside = (yield from self._outside(arguments, value)) if HA_MODE in value["definition"] else []
        self.check_room(key, POLICIES_MAX)
        answer, position = self.put(key, value)
        return {**answer, **({"not_in_force": _told(outside)} if outside else {})}, position

    def _outside(self, arguments: Json, value: Json) -> Generator[None, None, list[str]]:
        """The names of what fits, is there, and is not replicated."""
        vhost, found, pattern = host_of(self.broker, arguments), [], matcher(value["pattern"])
        things: list[DeclaredQueue | Exchange] = []
        things += vhost.queues.values() if value["apply-to"] != EXCHANGES else ()
        things += vhost.exchanges.values() if value["apply-to"] != QUEUES else ()
        for start in range(0, len(things), LOOKS):
            some = (each for each in things[start : start + LOOKS] if lies_outside(each))
            found += [each.name for each in some if pattern.search(each.name)]
            yield
        return found

    def _clear(self, arguments: Json) -> tuple[Json, int]:
        return {}, self.settings.delete(self.present(self._key(arguments)))

    def _key(self, arguments: Json) -> Key:
        kind = OPERATOR if flag(arguments, "operator") else POLICY
        return Key(kind, self.virtual_host(arguments), named(arguments, "name"))


def _told(names: list[str]) -> str:
    some = ", ".join(f"{name:.80}" for name in names[:NAMED])
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (
        f"{HA_MODE}: declared before, and not replicated: {some}{more}; to change that, delete and declare them again"
    )
