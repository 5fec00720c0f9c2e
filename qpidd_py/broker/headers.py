"""Matching of headers exchanges: an index by what bindings ask for.

A binding that wants all of its headers lies at one *place*, (name, value): of its own ones that where the fewest others
lie.  A binding that wants any lies at each.  A message looks at the places of its headers only; `headers_match` decides
about what lies there.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from qpidd_py.broker.arguments import REPLICATE
from qpidd_py.broker.followed import FED_PATH

T = TypeVar("T")
Place = tuple[str, object]
_ANY: Final = ("any", "any-with-x")
_PRESENT: Final = object()
"""Instead of a value: its presence is asked for."""
_OTHER: Final = object()
"""Instead of a value that cannot be hashed."""


def headers_match(arguments: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    """Whether a message with `headers` takes a binding with `arguments`.

    `x-match` is all (the default) or any; other names that begin with "x-" only count with all-with-x and
    any-with-x, and `qpid.replicate` and the path of a route never.  A name without a value asks for presence only.
    """
    results = (
        name in headers and (value is None or _equal(value, headers[name])) for name, value in _wanted(arguments)
    )
    return any(results) if _takes_any(arguments) else all(results)


def _takes_any(arguments: Mapping[str, Any]) -> bool:
    return arguments.get("x-match") in _ANY


def _wanted(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    mode = arguments.get("x-match", "all")
    with_x = isinstance(mode, str) and mode.endswith("-with-x")
    for name, value in arguments.items():
        if name not in ("x-match", REPLICATE, FED_PATH) and (with_x or not name.startswith("x-")):
            yield name, value


def _equal(wanted: Any, found: Any) -> bool:
    """A flag is not a number, although Python thinks so."""
    return isinstance(wanted, bool) == isinstance(found, bool) and bool(wanted == found)


def _place(name: str, value: Any) -> Place:
    """Equal for values that are `_equal`."""
    if value is None:
        return name, _PRESENT
    if isinstance(value, bytearray):
        value = bytes(value)
    try:
        hash(value)
    except TypeError:
        return name, _OTHER
    return name, (isinstance(value, bool), value)


class HeadersIndex(Generic[T]):
    """Which keys have arguments that a message matches."""

    def __init__(self) -> None:
        self._at: dict[Place, dict[T, Mapping[str, Any]]] = {}
        self._always: dict[T, None] = {}  # they ask for nothing
        self._places: dict[T, list[Place]] = {}

    def add(self, key: T, arguments: Mapping[str, Any]) -> None:
        """`arguments` must not change afterwards.  The key must be new."""
        places = list(dict.fromkeys(_place(name, value) for name, value in _wanted(arguments)))
        if not _takes_any(arguments):
            if not places:
                self._always[key] = None
            places = sorted(places, key=lambda place: len(self._at.get(place, ())))[:1]
        for place in places:
            self._at.setdefault(place, {})[key] = arguments
        self._places[key] = places

    def remove(self, key: T) -> None:
        self._always.pop(key, None)
        for place in self._places.pop(key):
            there = self._at[place]
            del there[key]
            if not there:
                del self._at[place]

    def match(self, headers: Mapping[str, Any]) -> list[T]:
        """Each key once, in no particular order."""
        found = dict(self._always)
        for name, value in headers.items():
            for place in ((name, _PRESENT), (name, _OTHER), _place(name, value)):
                for key, arguments in self._at.get(place, {}).items():
                    if key not in found and headers_match(arguments, headers):
                        found[key] = None
        return list(found)
