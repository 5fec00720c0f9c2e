"""What a query to `/api/ha/events` wants.                                                                      Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from qpidd_py.broker.events import NAMES
from qpidd_py.http.paging import QueryError
from qpidd_py.management.events import LIMIT, WAIT_MAX

PARAMETERS: Final = ("since", "history", "type", "limit", "wait")
LIMIT_MAX: Final = 1000
SINCE_MAX: Final = (1 << 53) - 1
"""The highest number that JavaScript can tell from the next one."""
HISTORY_MAX: Final = 64
"""Characters."""
TYPES_MAX: Final = 20


class Query(Protocol):
    """What a query string holds; a name may be there more than once."""

    def getall(self, name: str, default: list[str]) -> list[str]: ...

    def __iter__(self) -> Iterator[str]: ...


class Wanted(NamedTuple):
    """`since` None: the newest ones."""

    since: int | None
    history: str
    types: tuple[str, ...]
    limit: int
    wait: int

    def takes(self, event: str) -> bool:
        found = (event.startswith(each[:-1]) if each.endswith("*") else event == each for each in self.types)
        return not self.types or any(found)


def wanted(query: Query) -> Wanted:
    """Raises QueryError."""
    for name in query:
        if name not in PARAMETERS:
            raise QueryError(f"parameter {name[:64]!r}, wanted some of {', '.join(PARAMETERS)}")
        if name != "type" and len(query.getall(name, [])) > 1:
            raise QueryError(f"parameter {name!r} is there twice")
    since = _number(query, "since", 0, SINCE_MAX) if "since" in query else None
    history = _one(query, "history", "")
    wait = _number(query, "wait", 0, int(WAIT_MAX), 0)
    if len(history) > HISTORY_MAX:
        raise QueryError(f"history {history[:HISTORY_MAX]!r}..., wanted that of an earlier answer")
    if since is None and (history or wait):
        raise QueryError(f"{'history' if history else 'wait'} is of no use without since")
    return Wanted(since, history, _types(query), _number(query, "limit", 1, LIMIT_MAX, LIMIT), wait)


def _one(query: Query, name: str, default: str) -> str:
    return query.getall(name, [default])[0]


def _number(query: Query, name: str, least: int, most: int, default: int | None = None) -> int:
    text = _one(query, name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
        raise QueryError(f"{name} {text[:64]!r}, wanted a whole number from {least} to {most}")
    return int(text)


def _types(query: Query) -> tuple[str, ...]:
    found = tuple(name for each in query.getall("type", []) for name in each.split(","))
    if len(found) > TYPES_MAX:
        raise QueryError(f"type: {len(found)} names, at most {TYPES_MAX} are possible")
    for each in found:
        begins = each.endswith("*") and any(name.startswith(each[:-1]) for name in (*NAMES, "ha."))
        if not (begins or each in NAMES or each.startswith("ha.")):
            raise QueryError(f"type {each[:64]!r}, wanted one of {', '.join(NAMES)}, ha.NAME, or a beginning with *")
    return found
