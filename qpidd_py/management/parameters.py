"""Requests about parameters (`broker/parameters.py`); changes are answered when they are safe.

parameter.list    {}     [{component, vhost, name, value, uid}]
parameter.set     {component, name, vhost="/", value, early=false}     early: the exchanges of this cluster that it
                  names, and their virtual hosts, may come later
parameter.clear   {component, name, vhost="/", uid=the present one}     only while it is that one

`qpid-shovel` says each second how its shovels do and gets those that should run, from a primary; a backup refuses it.
The last report is kept in memory only, and counts for SILENCE:

shovel.report     {shovels: [{name, vhost, uid, restarts, state, reason, source, destination, moved, pending, paths}]}
                  as parameter.list, with `restarts`; of those in the report without their values.  `paths`: of a route
                  that follows bindings (`routes.py`), once it knows them
shovel.restart    {name, vhost="/"}     only while qpid-shovel reports: `restarts` is another number for it then
shovel.list       {}     [{name, vhost, state, reason, source, destination, moved, pending}]
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.parameters import KINDS, PARAMETERS_MAX, SHOVEL, check_component, local_host
from qpidd_py.broker.settings import Key
from qpidd_py.management.request import Json, RequestError, flag, text
from qpidd_py.management.settings import Change, List, SettingRequests, named

SILENCE: Final = 15.0
"""Seconds."""
STATES: Final = ("starting", "running", "terminated")
_UNHEARD: Final = f"no qpid-shovel has reported to this broker for {SILENCE:g} s"
_TEXT_MAX: Final = 500
_TEXTS: Final = ("state", "reason", "source", "destination")
_NUMBERS: Final = ("moved", "pending")
_PATHS_MAX: Final = 64
_PATH_MAX: Final = 2000
_ONE: Final = ("name", "uid", "restarts")
"""What tells one shovel from another."""


class ParameterRequests(SettingRequests):
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.lists: Mapping[str, List] = {"parameter.list": self._list, "shovel.list": self._shovels}
        self.changes: Mapping[str, Change] = {"parameter.set": self._set, "parameter.clear": self._clear}
        self.methods: Mapping[str, Callable[[Json], Any]] = {
            "shovel.report": self._report,
            "shovel.restart": self._restart,
        }
        self._reported: dict[tuple[str, int], Json] = {}
        self._restarts: dict[tuple[str, int], int] = {}
        """Of the parameters that there are; after a fail-over all are 0, and all shovels begin anew anyway."""
        self._until = 0.0
        """When the report is too old, in seconds."""

    def _list(self) -> Iterator[Json]:
        for kind in KINDS:
            for key, value in sorted(self.settings.of(kind), key=lambda each: each[0]):
                known = {"component": kind, "vhost": key.host, "name": key.name}
                yield {**known, "value": value, "uid": self.settings.position(key)}

    def _set(self, arguments: Json) -> tuple[Json, int]:
        key, value = self._key(arguments), arguments.get("value")
        if not isinstance(value, dict):
            raise RequestError(f"value is {value!r:.60}, wanted an object")
        self.check_primary()
        if not flag(arguments, "early"):
            self._check_ends(value)
        if self.settings.get(key) is None and sum(1 for _ in self.settings.of(key.kind)) >= PARAMETERS_MAX:
            raise RequestError(f"{PARAMETERS_MAX} of this component are there, no more are possible")
        return self.put(key, value)

    def _check_ends(self, value: Mapping[str, Any]) -> None:
        """Of a shovel: what it names of this cluster has to be there.  Raises RequestError."""
        for end in ("src", "dest"):
            host, exchange = local_host(value.get(f"{end}-uri")), value.get(f"{end}-exchange")
            vhost = None if host is None else self.broker.vhosts.get(host)
            if host is not None and vhost is None:
                raise RequestError(f"{end}-uri: no virtual host {host[:64]!r} in this cluster")
            if vhost is not None and isinstance(exchange, str) and exchange and exchange not in vhost.exchanges:
                raise RequestError(f"{end}-exchange: no exchange {exchange[:64]!r} in virtual host {host!r:.64}")

    def _clear(self, arguments: Json) -> tuple[Json, int]:
        key = self.present(self._key(arguments))
        if arguments.get("uid", self.settings.position(key)) != self.settings.position(key):
            raise RequestError(f"{key.kind} {key.name!r} is another one now")
        return {}, self.settings.delete(key)

    def _key(self, arguments: Json) -> Key:
        try:
            kind = check_component(text(arguments, "component"))
        except ValueError as error:
            raise RequestError(str(error)) from None
        return Key(kind, self.virtual_host(arguments), named(arguments, "name"))

    # ---- shovels

    def shovels(self) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
        """Name, uid and value of each; the uid is that of one in all virtual hosts."""
        for key, value in self.settings.of(SHOVEL):
            yield key.name, self.settings.position(key), value

    def paths(self, name: str, uid: int) -> list[str] | None:
        """Of a route, as its qpid-shovel has reported them last."""
        found: list[str] | None = self._reported.get((name, uid), {}).get("paths")
        return found if self._now() < self._until else None

    def _report(self, arguments: Json) -> list[Json]:
        self.check_primary()
        shovels = arguments.get("shovels")
        if not isinstance(shovels, list) or len(shovels) > PARAMETERS_MAX:
            raise RequestError(f"shovels: wanted a list of at most {PARAMETERS_MAX}")
        reported = [_shovel(each) for each in shovels]
        self._reported = {(each["name"], each["uid"]): each for each in reported}
        self._until = self._now() + SILENCE
        known = {tuple(each[field] for field in _ONE) for each in reported}
        found = []
        for item in self._list():
            item["restarts"] = self._restarts.get((item["name"], item["uid"]), 0)
            if tuple(item[field] for field in _ONE) in known:
                del item["value"]
            found.append(item)
        return found

    def _restart(self, arguments: Json) -> Json:
        key = self.present(self._key({**arguments, "component": SHOVEL}))
        if self._now() >= self._until:
            raise RequestError(f"shovel {key.name!r} does not run: {_UNHEARD}")
        present = {(each.name, self.settings.position(each)) for each, _ in self.settings.of(SHOVEL)}
        self._restarts = {each: number for each, number in self._restarts.items() if each in present}
        place = key.name, self.settings.position(key)
        self._restarts[place] = self._restarts.get(place, 0) + 1
        return {}

    def _shovels(self) -> Iterator[Json]:
        for item in list(self._list()):
            if item["component"] == SHOVEL:
                yield {"name": item["name"], "vhost": item["vhost"], **self._state(item["name"], item["uid"])}

    def _state(self, name: str, uid: int) -> Json:
        if self.broker.passive:
            return _stopped("this broker is a backup, and shovels run beside the primary")
        if self._now() >= self._until:
            return _stopped(_UNHEARD)
        found = self._reported.get((name, uid))
        known = found or {"state": "starting", "reason": ""}
        return {field: known.get(field, 0 if field in _NUMBERS else "") for field in (*_TEXTS, *_NUMBERS)}

    def _now(self) -> float:
        return self.broker.clocks()[1] / 1e6


def _stopped(reason: str) -> Json:
    return {"state": "terminated", "reason": reason, "source": "", "destination": "", "moved": 0, "pending": 0}


def _shovel(item: Any) -> Json:
    """One of a report.  Raises RequestError."""
    if not isinstance(item, dict) or item.get("state") not in STATES:
        raise RequestError(f"shovel {item!r:.80}, wanted an object with a state of {', '.join(STATES)}")
    found: Json = {"name": named(item, "name"), "paths": _paths(item.get("paths"))}
    for field in _TEXTS:
        found[field] = text(item, field, "")[:_TEXT_MAX]
    for field in (*_ONE[1:], *_NUMBERS):
        value = item.get(field, 0)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
            raise RequestError(f"shovel {found['name']!r}: {field} {value!r:.60}, wanted a whole number")
        found[field] = value
    return found


def _paths(value: Any) -> list[str] | None:
    good = isinstance(value, list) and len(value) <= _PATHS_MAX
    if value is None or (good and all(isinstance(each, str) and len(each) <= _PATH_MAX for each in value)):
        return value  # type: ignore[no-any-return]
    raise RequestError(f"paths {value!r:.80}, wanted a list of at most {_PATHS_MAX} texts")
