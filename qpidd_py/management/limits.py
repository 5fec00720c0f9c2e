"""Requests about the limits of users and of virtual hosts (`broker/quotas.py`); changes are answered when they are
safe.

limit.list     {}                           [{user | vhost, limits}]
limit.set      {user | vhost, limits}       the others of the same user or virtual host stay
limit.clear    {user | vhost, limit=all}
"""

from collections.abc import Iterator, Mapping

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.quotas import KINDS, NAME, NAMES, USER_LIMITS, VHOST_LIMITS
from qpidd_py.broker.settings import Key
from qpidd_py.management.request import Json, RequestError, text
from qpidd_py.management.settings import Change, List, SettingRequests

ALL = "all"


class LimitRequests(SettingRequests):
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.lists: Mapping[str, List] = {"limit.list": self._list}
        self.changes: Mapping[str, Change] = {"limit.set": self._set, "limit.clear": self._clear}

    def _list(self) -> Iterator[Json]:
        for kind in KINDS:
            for key, value in sorted(self.settings.of(kind), key=lambda each: each[0]):
                whose = {"user": key.name} if kind == USER_LIMITS else {"vhost": key.host}
                yield {**whose, "limits": value}

    def _set(self, arguments: Json) -> tuple[Json, int]:
        key, limits = self._key(arguments), arguments.get("limits")
        if not isinstance(limits, dict) or not limits:
            raise RequestError(f"limits {limits!r:.60}, wanted an object with some of {', '.join(NAMES[key.kind])}")
        return self.put(key, {**(self.settings.get(key) or {}), **limits})

    def _clear(self, arguments: Json) -> tuple[Json, int]:
        key, name = self._key(arguments), text(arguments, "limit", ALL)
        if name not in (ALL, *NAMES[key.kind]):
            raise RequestError(f"limit {name!r:.60}, wanted {', '.join(NAMES[key.kind])} or {ALL}")
        self.check_primary()
        left = {other: most for other, most in (self.settings.get(key) or {}).items() if name not in (ALL, other)}
        return self.keep(key, left)

    def _key(self, arguments: Json) -> Key:
        if ("user" in arguments) == ("vhost" in arguments):
            raise RequestError("wanted a user or a vhost, and not both")
        if "vhost" in arguments:
            return Key(VHOST_LIMITS, self.virtual_host(arguments), NAME)
        name = self.user_of(arguments)
        if name in self.broker.couriers:
            raise RequestError(f"user {name!r} is of the brokers, for whom no limits hold")
        return Key(USER_LIMITS, "", name)
