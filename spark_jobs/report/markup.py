"""Elements of HTML and SVG as text (pure).  Everything is escaped unless it is markup already."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_SPECIAL: Final = re.compile("[&<>\"']")
# no XML holds these, and those that turn the direction of writing hide what a line says
_FORBIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
VOID: Final = frozenset({"br", "meta", "hr", "col"})


class Markup(str):
    """Text that is escaped."""

    __slots__ = ()


def escaped(text: object) -> Markup:
    """For text and for attributes; a character that no document may have becomes its code, like `\\x1b`."""
    if isinstance(text, Markup):
        return text
    clean = _FORBIDDEN.sub(_code, str(text))
    return Markup(_SPECIAL.sub(lambda match: _ESCAPES[match[0]], clean))


def _code(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def tag(name: str, /, *content: object, **attributes: object) -> Markup:
    """`tag("a", "text", href="#x", class_="link")`; an attribute that is None is left out, `_` stands for `-`."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"' if value is not True else f" {key.rstrip('_')}"
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(content)}</{name}>")


def joined(parts: Iterable[object], between: str = "") -> Markup:
    return Markup(between.join(escaped(part) for part in parts if part is not None))


def shape(name: str, content: object = None, /, **attributes: object) -> Markup:
    """An element of SVG; numbers with one digit, `viewBox` as it is."""
    plain = {key: number(value) if isinstance(value, float) else value for key, value in attributes.items()}
    if content is None or content == "":
        return Markup(tag(name, **plain).removesuffix(f"></{name}>") + "/>")
    return tag(name, content, **plain)


def number(value: float) -> str:
    """At most one digit behind the point."""
    return f"{value:.1f}".removesuffix(".0")
