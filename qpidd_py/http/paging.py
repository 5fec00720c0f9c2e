"""Parts of a list, as RabbitMQ's API takes them: `name`, `use_regex`, `sort`, `sort_reverse`, `page`, `page_size`,
`columns`.                                                                                                      Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from qpidd_py.security.rights import PatternError, compiled

PAGE_MAX: Final = 500
"""Objects of a page."""
Json = dict[str, Any]
T = TypeVar("T")


class QueryError(ValueError):
    """A parameter of a query is wrong."""


def part(items: Sequence[Json], query: Mapping[str, str]) -> Any:
    """The list, or one page with its numbers.  Raises QueryError."""
    fits = matcher(query)
    found = _sorted([item for item in items if fits(str(item.get("name", "")))], query)
    if "page" not in query:
        return [_columns(item, query) for item in found]
    return page_of(found, len(items), query, lambda item: item)


def numbers(query: Mapping[str, str]) -> tuple[int, int]:
    """The page that is wanted, from 1 on, and its size.  Raises QueryError."""
    page, size = _number(query, "page", "1"), _number(query, "page_size", "100")
    if size > PAGE_MAX:
        raise QueryError(f"page_size {size}, at most {PAGE_MAX} are possible")
    return page, size


def page_of(found: Sequence[T], total: int, query: Mapping[str, str], show: Callable[[T], Json]) -> Json:
    """One page, with its numbers, of those that were `found` among `total`.  Raises QueryError if there is no such
    page."""
    page, size = numbers(query)
    items = [show(each) for each in found[(page - 1) * size : page * size]]
    return shown_page(items, len(found), total, query)


def shown_page(items: Sequence[Json], matched: int, total: int, query: Mapping[str, str]) -> Json:
    """The same of one that somebody else has made: `items` of `matched` of `total`."""
    page, size = numbers(query)
    pages = max(1, -(-matched // size))
    if page > pages:
        raise QueryError(f"page {page}, there are {pages}")
    return {
        "items": [_columns(item, query) for item in items],
        "item_count": len(items),
        "filtered_count": matched,
        "total_count": total,
        "page": page,
        "page_size": size,
        "page_count": pages,
    }


def matcher(query: Mapping[str, str]) -> Callable[[str], object]:
    """Whether a name is wanted.  Raises QueryError."""
    wanted = query.get("name", "")
    if not wanted:
        return lambda name: True
    if query.get("use_regex") != "true":
        return lambda name: wanted.lower() in name.lower()
    try:
        return compiled(wanted).search
    except PatternError as error:
        raise QueryError(str(error)) from None


def _sorted(items: list[Json], query: Mapping[str, str]) -> list[Json]:
    wanted = query.get("sort", "")
    if not wanted:
        return items
    reverse = query.get("sort_reverse") == "true"
    # Numbers before texts: a column may have both.
    keyed = [(order(field(item, wanted)), place, item) for place, item in enumerate(items)]
    return [item for _, _, item in sorted(keyed, key=lambda found: found[0], reverse=reverse)]


def order(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 0, value, ""
    return 1, 0.0, str(value)


def _columns(item: Json, query: Mapping[str, str]) -> Json:
    names = [name for name in query.get("columns", "").split(",") if name]
    if not names:
        return item
    found: Json = {}
    for name in names:
        value = field(item, name)
        if value is not None:
            *above, last = name.split(".")
            place = found
            for each in above:
                place = place.setdefault(each, {})
            place[last] = value
    return found


def field(item: Any, name: str) -> Any:
    for each in name.split("."):
        item = item.get(each) if isinstance(item, Mapping) else None
    return item


def _number(query: Mapping[str, str], name: str, default: str) -> int:
    text = query.get(name, default)
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
        raise QueryError(f"{name} {text[:64]!r}, wanted a number from 1 on")
    return int(text)
