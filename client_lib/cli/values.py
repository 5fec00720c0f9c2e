"""Parsers for values on the tools' command lines (pure).

All raise argparse.ArgumentTypeError, which argparse prints with the name of the option; exit code 2.
"""

from __future__ import annotations

import argparse
import logging
import math
import re
from collections.abc import Callable
from typing import Any

from client_lib.errors import UrlError
from client_lib.urls.option_map import parse_option_map

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "false": False}
LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
"""Qpid's names."""


def _wrong(found: str, expected: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"found {found!r}, expected {expected}")


def whole(what: str, least: int = 0, most: int = 2**63 - 1) -> Callable[[str], int]:
    """Takes whole numbers; `what` ends the sentence "expected ...", as in "messages"."""
    limit = f"{least} or more" if most >= 2**31 else f"from {least} to {most}"

    def take(text: str) -> int:
        if text.isascii() and text.isdigit() and least <= int(text) <= most:
            return int(text)
        raise _wrong(text, f"{what}, a whole number {limit}")

    return take


def decimal(what: str) -> Callable[[str], float]:
    """Takes numbers that are not negative."""

    def take(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if math.isfinite(number) and number >= 0:
            return number
        raise _wrong(text, f"{what}, a number, 0 or more")

    return take


def yes_no(text: str) -> bool:
    """Qpid's tools take all of these."""
    if text.lower() in ("yes", "y", "true", "t", "on", "1"):
        return True
    if text.lower() in ("no", "n", "false", "f", "off", "0"):
        return False
    raise _wrong(text, "yes or no")


def name_value(text: str) -> tuple[str, Any]:
    """`NAME=VALUE`; a value that looks like a whole number, a number or true/false is one, as in Qpid's tools."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise _wrong(text, "NAME=VALUE")
    return name, typed(value)


def typed(text: str) -> Any:
    """Whole numbers that AMQP cannot carry stay texts."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text) if -(2**63) <= int(text) < 2**63 else text
    return float(text) if _FLOAT.fullmatch(text) and math.isfinite(float(text)) else text


def option_map(text: str) -> dict[str, Any]:
    """`{reconnect:true,heartbeat:5}`."""
    try:
        return parse_option_map(text)
    except UrlError as error:
        raise argparse.ArgumentTypeError(f"{error}; expected a map like {{reconnect:true,heartbeat:5}}") from None


def log_rule(text: str) -> int:
    """The level of a rule such as `info+`; Qpid's patterns for parts of the program (`info+:ha`) do not matter here."""
    level = text.partition(":")[0].removesuffix("+").lower()
    if level not in LEVELS:
        raise _wrong(text, f"LEVEL or LEVEL+ with one of {', '.join(LEVELS)}")
    return LEVELS[level]
