"""One request of the API, as a handler gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from qpidd_py.http.door import Door, not_found
from qpidd_py.http.queues import Queues
from qpidd_py.http.rates import Rates

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One request."""

    door: Door
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    rates: Rates = field(default_factory=Rates)
    queues: Queues = field(default_factory=Queues)
    now: float = 0.0
    """Seconds of a monotonic clock."""

    def __getitem__(self, name: str) -> str:
        return self.path[name]

    @property
    def host(self) -> dict[str, Any]:
        """Which virtual host a list is of, for a request: that of the path, or all."""
        return {"vhost": self.path.get("vhost")}

    def rated(self, kind: str, objects: list[Json]) -> list[Json]:
        """The same, with their rates; `kind` of `rates.GROUPS`."""
        self.rates.add(kind, objects, self.now)
        return objects

    @property
    def user(self) -> str:
        return str(self.door.target.login.user)


Handler = Callable[[Call], Any]


def one(items: list[Json], **wanted: Any) -> Json:
    for item in items:
        if all(item[name] == value for name, value in wanted.items()):
            return item
    raise not_found()
