"""Virtual hosts in requests, and requests about them; changes are answered when they are safe.

vhost.list     {}          [{name, queues, messages, limits}]
vhost.add      {name}      one that is there already stays as it is
vhost.delete   {name}      with all that is in it; its connections are closed.  Answered when all of it is deleted

A request about a queue, an exchange, a permission or a policy is about the virtual host `vhost`, or that of the
connection that asks.  In a list of queues, exchanges, bindings or consumers null stands for all of them; other lists
have all, unless one is named.  All are those that the asker sees (`sight.py`).
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.host_settings import HOST_KIND, HOSTS_MAX, check_name
from qpidd_py.broker.quotas import NAME, VHOST_LIMITS
from qpidd_py.broker.settings import Key
from qpidd_py.broker.vhost import VHost
from qpidd_py.management.request import Json, NotFound, NotPrimary, RequestError, text
from qpidd_py.management.settings import Change, List, SettingRequests
from qpidd_py.management.sight import sight_of
from qpidd_py.security.entries import HOST

_OBJECTS: Final = frozenset(("queue", "exchange", "binding", "subscription", "route"))
_SETTINGS: Final = frozenset(("permission", "topic", "policy", "parameter", "shovel"))
LOOKS: Final = 1000
"""Queues that are looked at in a slice."""
Slices = Generator[None, None, tuple[Json, int]]
Listed = Generator[None, None, list[Json]]


def completed(method: str, arguments: Json, host: str) -> Json:
    """The arguments with the virtual host that is meant; `host`: that of the connection."""
    group, _, verb = method.partition(".")
    needed = group in _OBJECTS or (group in _SETTINGS and verb != "list")
    return {"vhost": host, **arguments} if needed else arguments


def of_host(broker: Broker, arguments: Json, items: Iterator[Json]) -> Iterator[Json]:
    """Those that are seen, of the virtual host that is named, if one is.  Raises NotFound."""
    sight, name = sight_of(arguments), None if arguments.get("vhost") is None else host_of(broker, arguments).name
    seen = (item for item in items if sight.sees(item.get("vhost"), item.get("user")))
    return seen if name is None else (item for item in seen if item.get("vhost") == name)


def host_of(broker: Broker, arguments: Json) -> VHost:
    """Raises NotFound and RequestError."""
    name = text(arguments, "vhost", HOST)
    found = broker.vhosts.get(name)
    if found is None:
        raise NotFound(f"no virtual host {name[:64]!r}")
    return found


def hosts_of(broker: Broker, arguments: Json) -> list[VHost]:
    """For a list.  Raises NotFound and RequestError."""
    return hosts_seen(broker, arguments) if arguments.get("vhost", HOST) is None else [host_of(broker, arguments)]


def hosts_seen(broker: Broker, arguments: Json) -> list[VHost]:
    """All that the request shows."""
    names = filter(sight_of(arguments).sees, broker.vhosts.names)
    return [found for name in names if (found := broker.vhosts.get(name)) is not None]


class HostRequests(SettingRequests):
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.lists: Mapping[str, List] = {}
        self.pages: Mapping[str, Callable[[Json], Listed]] = {"vhost.list": self._list}
        self.changes: Mapping[str, Change] = {"vhost.add": self._add}
        self.slices: Mapping[str, Callable[[Json], Slices]] = {"vhost.delete": self._delete}

    def _list(self, arguments: Json) -> Listed:
        found = []
        for vhost in sorted(hosts_seen(self.broker, arguments), key=lambda each: each.name):
            queues, messages = list(vhost.queues.values()), 0
            for start in range(0, len(queues), LOOKS):
                messages += sum(each.core.ready + each.core.unacked for each in queues[start : start + LOOKS])
                yield
            limits = self.settings.get(Key(VHOST_LIMITS, vhost.name, NAME)) or {}
            found.append({"name": vhost.name, "queues": len(queues), "messages": messages, "limits": limits})
        return found

    def _add(self, arguments: Json) -> tuple[Json, int]:
        try:
            name = check_name(text(arguments, "name"))
        except ValueError as error:
            raise RequestError(str(error)) from None
        self.check_primary()
        if self.broker.vhosts.is_deleted(name):
            raise RequestError(f"virtual host {name!r} is being deleted: try again")
        if name == HOST:
            return {}, self.broker.vhost.operation_log.sealed()
        if len(self.broker.vhosts) > HOSTS_MAX and self.broker.vhosts.get(name) is None:
            raise RequestError(f"{HOSTS_MAX} virtual hosts are there, no more are possible")
        return self.put(Key(HOST_KIND, name, ""), {})

    def _delete(self, arguments: Json) -> Slices:
        name = text(arguments, "name")
        self.check_primary()
        if name == HOST:
            raise RequestError(f"virtual host {HOST!r} cannot be deleted")
        if self.broker.vhosts.get(name) is None and not self.broker.vhosts.is_deleted(name):
            raise NotFound(f"no virtual host {name[:64]!r}")
        self.broker.vhosts.delete(name)
        while not self.broker.vhosts.empty(name):
            yield None
            if self.broker.passive:
                raise NotPrimary(f"this broker was deposed while it deleted virtual host {name!r}")
        return {}, self.broker.vhost.operation_log.sealed()
