"""Maps as Qpid's tools take them on the command line: `{reconnect:true, heartbeat:5, reconnect-urls:['n1','n2:1']}`.

    map    = "{" [ pair *( "," pair ) [ "," ] ] "}"
    pair   = ( word / string ) ( ":" / "=" ) value
    value  = map / list / string / word
    list   = "[" [ value *( "," value ) [ "," ] ] "]"
    string = a Python-like text in ' or ", with \\ before a quote or a \\
    word   = letters, digits and any of _ . / + - (and : @ in a value, if a letter or digit follows)

A word in JSON's notation of a number is a number; `true`, `false` and `none` (`null`) have their meaning in any case;
any other word is a text.  Pure; errors point at the character.
"""

from __future__ import annotations

import re
from typing import Any

from client_lib.errors import UrlError

_SPACE = re.compile(r"\s*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_WORD = re.compile(r"([A-Za-z0-9_./+-]|[:@](?=[A-Za-z0-9_/.]))+")
_STRING = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NAMED = {"true": True, "false": False, "none": None, "null": None}
DEEPEST = 20


def parse_option_map(text: str) -> dict[str, Any]:
    """The whole text; empty or without braces is no map.  Raises UrlError."""
    reader = _Reader(text)
    reader.space()
    found = reader.map(0)
    reader.space()
    if reader.position < len(text):
        raise reader.error("expected the end of the map")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def error(self, reason: str, position: int | None = None) -> UrlError:
        return UrlError(reason, self.text, self.position if position is None else position)

    def space(self) -> None:
        self._step(_SPACE)

    def map(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._expect("{")
        while not self._ends("}"):
            start = self.position
            key = self._key()
            if key in found:
                raise self.error(f"{key!r} stands here twice", start)
            self.space()
            if not (self._accept(":") or self._accept("=")):
                raise self.error("expected :")
            found[key] = self._value(depth + 1)
            self._separator("}")
        return found

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self._expect("[")
        while not self._ends("]"):
            found.append(self._value(depth + 1))
            self._separator("]")
        return found

    def _value(self, depth: int) -> Any:
        self.space()
        if depth > DEEPEST:
            raise self.error("maps and lists are nested too deeply")
        following = self.text[self.position : self.position + 1]
        if following == "{":
            return self.map(depth)
        if following == "[":
            return self._list(depth)
        if following in ("'", '"') and following:
            return self._string()
        word = self._step(_WORD)
        if word is None:
            raise self.error("expected a value")
        return _meaning(word.group())

    def _key(self) -> str:
        if self.text[self.position : self.position + 1] in ("'", '"'):
            return self._string()
        key = self._step(_KEY)
        if key is None:
            raise self.error("expected a name or }")
        return key.group()

    def _string(self) -> str:
        start, string = self.position, self._step(_STRING)
        if string is None:
            raise self.error("this quote is never closed", start)
        raw = string.group(1) if string.group(1) is not None else string.group(2)
        return _ESCAPED.sub(r"\1", raw)

    def _ends(self, bracket: str) -> bool:
        self.space()
        return self._accept(bracket)

    def _separator(self, bracket: str) -> None:
        """Skips a comma; a closing bracket is left for the caller."""
        self.space()
        if not self._accept(",") and self.text[self.position : self.position + 1] != bracket:
            raise self.error(f"expected , or {bracket}")

    def _accept(self, character: str) -> bool:
        found = self.text.startswith(character, self.position)
        self.position += found
        return found

    def _expect(self, character: str) -> None:
        if not self._accept(character):
            raise self.error(f"expected {character}")

    def _step(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return match


def _meaning(word: str) -> Any:
    if _INTEGER.fullmatch(word):
        return int(word)
    if _FLOAT.fullmatch(word):
        return float(word)
    return _NAMED.get(word.lower(), word)
