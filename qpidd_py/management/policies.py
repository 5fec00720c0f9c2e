"""Requests about policies (`broker/policies.py`); changes are answered when they are safe.

policy.list       {}     [{name, vhost, operator: true|false, pattern, apply-to, priority, definition}]
policy.set        {name, vhost, operator=false, pattern, apply-to="all", priority=0, definition}
policy.clear      {name, vhost, operator=false}
"""

from collections.abc import Iterator, Mapping
from typing import Final

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.policies import KINDS, OPERATOR, POLICIES_MAX, POLICY
from qpidd_py.broker.settings import Key
from qpidd_py.management.request import Json, flag
from qpidd_py.management.settings import Change, List, SettingRequests, named

_DEFAULTS: Final = {"pattern": None, "apply-to": "all", "priority": 0, "definition": None}


class PolicyRequests(SettingRequests):
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.lists: Mapping[str, List] = {"policy.list": self._list}
        self.changes: Mapping[str, Change] = {"policy.set": self._set, "policy.clear": self._clear}

    def _list(self) -> Iterator[Json]:
        for kind in KINDS:
            for key, value in sorted(self.settings.of(kind), key=lambda each: each[0]):
                yield {"name": key.name, "vhost": key.host, "operator": kind == OPERATOR, **value}

    def _set(self, arguments: Json) -> tuple[Json, int]:
        key, value = self._key(arguments), {name: arguments.get(name, default) for name, default in _DEFAULTS.items()}
        self.check_room(key, POLICIES_MAX)
        return {}, self.put(key, value)

    def _clear(self, arguments: Json) -> tuple[Json, int]:
        return {}, self.settings.delete(self.present(self._key(arguments)))

    def _key(self, arguments: Json) -> Key:
        kind = OPERATOR if flag(arguments, "operator") else POLICY
        return Key(kind, self.virtual_host(arguments), named(arguments, "name"))
