"""One request of the API, as a handler gets it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from qpidd_py.http.door import Door, Problem, bad_request, not_found
from qpidd_py.http.paging import part
from qpidd_py.http.queues import Queues
from qpidd_py.http.rates import Rates

Json = dict[str, Any]


class Created(NamedTuple):
    """An answer (201): what was asked for was not there before."""

    location: str = ""
    """What it is called, if it is not what the path says."""


def made(is_new: object) -> Created | None:
    """The answer to a PUT: as RabbitMQ's, 204 for what is there already."""
    return Created() if is_new else None


@dataclass(frozen=True)
class Call:
    """One request."""

    door: Door
    path: Mapping[str, str]
    query: Mapping[str, str]
    octets: bytes = b""
    """Of the body."""
    rates: Rates = field(default_factory=Rates)
    queues: Queues = field(default_factory=Queues)
    now: float = 0.0
    """Seconds of a monotonic clock."""

    def __getitem__(self, name: str) -> str:
        return self.path[name]

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """Raises Problem."""
        if not self.octets:
            return {}
        try:
            found = _read(self.octets.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise Problem(400, "not_json", str(error)) from None
        if not isinstance(found, dict):
            raise bad_request(f"the body is a JSON {type(found).__name__}, wanted an object")
        return found

    @property
    def host(self) -> dict[str, Any]:
        """Which virtual host a list is of, for a request: that of the path, or all."""
        return {"vhost": self.path.get("vhost")}

    def rated(self, kind: str, objects: list[Json], sight: str = "") -> list[Json]:
        """The same, with their rates; `kind` of `rates.GROUPS`."""
        self.rates.add(kind, objects, self.now, sight)
        return objects

    @property
    def user(self) -> str:
        return str(self.door.target.login.user)


def _read(text: str) -> Any:
    """Raises ValueError, also for half a character in a string: nothing could take it."""
    found = json.loads(text)
    if "\\ud" in text.lower():
        json.dumps(found, ensure_ascii=False).encode()
    return found


Handler = Callable[[Call], Any]


def listed(method: str, view: Callable[[Json], Json] = lambda item: item) -> Handler:
    """What the broker lists, of the virtual host of the path or of all that the user sees."""
    return lambda call: part([view(item) for item in call.door.ask(method, **call.host)], call.query)


def asks(method: str, *names: str, **fixed: Any) -> Handler:
    """One request, whose arguments are these parts of the path, and what is fixed."""
    return lambda call: call.door.ask(method, **{name: call[name] for name in names}, **fixed)


def one(items: list[Json], **wanted: Any) -> Json:
    for item in items:
        if all(item[name] == value for name, value in wanted.items()):
            return item
    raise not_found()
