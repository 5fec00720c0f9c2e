"""The kinds of settings about users, and what their values are.                                               Pure.

kind        host    name    value
user                user    hash: what its password is compared with (empty: it has none), tags: list
permission  host    user    configure, write, read: patterns
topic       host    user    exchange -> {write, read}: patterns for routing keys
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

HOST: Final = "/"
"""The virtual host that there is."""
USER: Final = "user"
PERMISSION: Final = "permission"
TOPIC: Final = "topic"
CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"
ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
MANAGEMENT: Final = "management"
TAGS: Final = (ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT)
PATTERN_MAX: Final = 1024
"""Characters of a pattern."""
EXCHANGES_MAX: Final = 100
"""Exchanges with patterns for routing keys, of one user in one virtual host."""
_HASH_MAX: Final = 1024


def check_entry(kind: str, value: Mapping[str, Any]) -> None:
    """Raises ValueError for a value that is none of this kind.  Whether a pattern can be compiled is not looked at."""
    _CHECKS[kind](value)


def _user(value: Mapping[str, Any]) -> None:
    checked_text(value, "hash", _HASH_MAX)
    tags = value.get("tags")
    if not isinstance(tags, list) or not all(tag in TAGS for tag in tags) or len(set(tags)) != len(tags):
        raise ValueError(f"tags {tags!r:.100}, expected some of {', '.join(TAGS)}")


def _permission(value: Mapping[str, Any]) -> None:
    for name in (CONFIGURE, WRITE, READ):
        checked_text(value, name, PATTERN_MAX)


def _topic(value: Mapping[str, Any]) -> None:
    if len(value) > EXCHANGES_MAX:
        raise ValueError(f"patterns for {len(value)} exchanges, at most {EXCHANGES_MAX} are possible")
    for exchange, patterns in value.items():
        if not isinstance(patterns, dict):
            raise ValueError(f"exchange {exchange!r}: {patterns!r:.60}, expected write and read")
        for name in (WRITE, READ):
            checked_text(patterns, name, PATTERN_MAX)


def checked_text(value: Mapping[str, Any], name: str, most: int) -> str:
    """A field of `value`.  Raises ValueError unless it is text of at most so many characters."""
    found = value.get(name)
    if not isinstance(found, str):
        raise ValueError(f"{name} is {found!r:.60}, expected text")
    if len(found) > most:
        raise ValueError(f"{name} has {len(found)} characters, at most {most} are possible")
    return found


_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], None]]] = {
    USER: _user,
    PERMISSION: _permission,
    TOPIC: _topic,
}
KINDS: Final = tuple(_CHECKS)
