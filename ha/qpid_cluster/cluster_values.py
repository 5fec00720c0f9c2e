"""Converts the YAML values of a cluster file; each ConfigError names what was found and wanted."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from qpidd_py.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-z]*)\s*")


def duration(value: object, name: str) -> float:
    """Seconds from `1.5`, `"250ms"` or `"2min"`.  Raises ConfigError for anything else."""
    match = _DURATION.fullmatch(str(value)) if not isinstance(value, bool) else None
    if match is None or match[2] not in _UNITS:
        raise ConfigError(f"{name}: {value!r} is no duration; write seconds or a number with ms, s, min or h")
    return float(match[1]) * _UNITS[match[2]]


def one_of(value: object, words: tuple[str, ...], name: str) -> str:
    if value not in words:
        raise ConfigError(f"{name}: found {value!r}, wanted {', '.join(words)}")
    return str(value)


def refuse_unknown(values: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    names = sorted(known)
    for name in values:
        if name not in names:
            raise ConfigError(f"unknown name {name!r} in {where}; known are {', '.join(names)}")


def mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a mapping of names to values; found {value!r}")
    return value


def sequence(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"{where} must be a list; found {value!r}")
    return value


def plain_text(value: object, where: str) -> str:
    """One value as text on one line; lists, mappings and nothing are refused."""
    if isinstance(value, list | dict) or value is None or "\n" in str(value):
        raise ConfigError(f"{where} must have one value, on one line; found {value!r}")
    return str(value)


def at_least(values: Mapping[str, Any], name: str, default: float, least: float, where: str = "deployment") -> float:
    seconds = duration(values[name], f"{where}: {name}") if name in values else default
    if seconds < least - 1e-9:
        raise ConfigError(f"{where}: {name}: found {seconds:g} s, wanted {least:g} s or more")
    return seconds


def matching(value: object, pattern: re.Pattern[str], where: str, wanted: str, needed: bool = False) -> str:
    found = plain_text(value, where)
    if not pattern.fullmatch(found) and (found or needed):
        raise ConfigError(f"{where}: found {found!r}, wanted {wanted}")
    return found
