"""Parsers for values on the command line (pure).

All raise argparse.ArgumentTypeError, which argparse prints with the name of the option; exit code 2.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

Add = Callable[..., Any]
"""`add_argument` of a parser or a group."""
UNITS: Final = {
    "us": 1, "ms": 1_000, "s": 1_000_000, "": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000
}  # fmt: skip
"""us; a number alone is seconds, as in the broker's options."""
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([a-z]*)")


def wrong(found: str, expected: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"found {found!r}, expected {expected}")


def duration(text: str) -> int:
    """us"""
    found = _DURATION.fullmatch(text.strip())
    if found is None or found[2] not in UNITS:
        raise wrong(text, "a duration such as 10s, 500ms or 2m")
    return round(float(found[1]) * UNITS[found[2]])


def days(text: str) -> int:
    """us.  A number alone would be seconds."""
    found = duration(text)
    if found < UNITS["d"]:
        raise wrong(text, "at least one day, such as 90d")
    return found


def count(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    raise wrong(text, "a whole number, 0 or more")


def number(text: str) -> int:
    """Of an incident."""
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise wrong(text, "the number of an incident, from 1")


def limit_of(names: Sequence[str], what: str) -> Callable[[str], tuple[str, int]]:
    """Takes NAME=DURATION with one of the names; the duration is us."""

    def take(text: str) -> tuple[str, int]:
        name, equals, value = text.partition("=")
        if not equals:
            raise wrong(text, f"{what.upper()}=DURATION, as {names[0]}=2s")
        if name not in names:
            raise argparse.ArgumentTypeError(f"no {what} {name!r}; known: {', '.join(names)}")
        return name, duration(value)

    return take


def zone(text: str) -> tuple[str, str]:
    """`NODE=ZONE`, `*=ZONE`; a zone alone is for all nodes."""
    from spark_jobs.parse.years import ZoneError, zone_named

    node, equals, name = text.rpartition("=")
    if equals and not node:
        raise wrong(text, "NODE=ZONE, as node2=Europe/Berlin or *=+08:00")
    try:
        zone_named(name)
    except ZoneError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return node or "*", name


def words(known: Sequence[str]) -> Callable[[str], frozenset[str]]:
    """Takes `html,json`."""

    def take(text: str) -> frozenset[str]:
        found = frozenset(text.split(","))
        if not found <= set(known):
            raise wrong(text, f"some of {','.join(known)}")
        return found

    return take


def moment(text: str) -> int:
    """us since 1970, of `2026-01-01` or `2026-01-01T12:00:00+01:00`; UTC unless it says otherwise."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise wrong(text, "a time such as 2026-01-01 or 2026-01-01T12:00:00+01:00") from None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    since = found - datetime(1970, 1, 1, tzinfo=UTC)
    return round(since.total_seconds() * 1_000_000)


def split(text: str) -> int | str:
    """A time, or the word `version`."""
    return text if text == "version" else moment(text)


def setting(text: str) -> tuple[str, str]:
    """`NAME=VALUE` of Spark."""
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise wrong(text, "NAME=VALUE, as spark.executor.memory=4g")
    return name, value
