r"""The syntax of an address string; its meaning is in `address` and `resolve` (pure).

    address = name [ "/" subject ] [ ";" map ]
    name    = ( plain / quoted / escape )+           up to "/" or ";"
    subject = ( plain / quoted / escape / "/" )*     up to ";"
    quoted  = "'" ... "'"  or  '"' ... '"'           with escapes
    escape  = "\xHH" / "\uHHHH" / "\" any other character (itself; inside quotes \n, \r and \t are what they are in C)
    map     = "{" [ key ":" value *( "," key ":" value ) ] "}"
    list    = "[" [ value *( "," value ) ] "]"
    key     = word / quoted
    value   = map / list / quoted / word
    word    = 1*( anything but white space and '"{}[],:/;\ )

A word is a number if it looks like one, true, false or null (None) in any case, else a text.  White space counts only
inside quotes and between the characters of a name.  Source: "Address String Grammar" of Programming in Apache Qpid;
words are those of the C++ client (`orders.#` needs no quotes), exponents are our addition.
"""

from __future__ import annotations

import math
import re
from typing import Any, NoReturn

from client_lib.errors import MalformedAddress

DEPTH_MAX = 32
"""Maximum nesting of maps and lists."""
_SPACE = re.compile(r"[ \n\r\t]*")
_PLAIN = re.compile(r"[^ \n\r\t/;'\"\\]+")
_WORD = re.compile(r"[^\s'\"{}\[\],:/;\\]+")
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_HEX = {"x": re.compile("[0-9A-Fa-f]{2}"), "u": re.compile("[0-9A-Fa-f]{4}")}
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
_LITERALS = {"true": True, "false": False, "none": None, "null": None}
_BARE_NAME = re.compile(r"[A-Za-z0-9_.#*%@$^!+:,{}-]+")
_BARE_SUBJECT = re.compile(r"[A-Za-z0-9_.#*%@$^!+:,{}/-]*")
_BARE_WORD = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")


def scan(text: str) -> tuple[str, str | None, dict[str, Any]]:
    """Name, subject and options.  Raises MalformedAddress with the position and what was expected there."""
    return _Scanner(text).address()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, expected: str, position: int | None = None) -> NoReturn:
        position = self.at if position is None else position
        found = repr(self.text[position]) if position < len(self.text) else "the end"
        raise MalformedAddress(f"expected {expected}, found {found}", self.text, position)

    # -- the three parts

    def address(self) -> tuple[str, str | None, dict[str, Any]]:
        self.space()
        start = self.at
        name = self.free("/;")
        if not name:
            self.fail("a name", start)
        subject = None
        if self.eat("/"):
            subject = self.free(";")
        options: dict[str, Any] = {}
        if self.eat(";"):
            self.space()
            if self.peek() != "{":
                self.fail("{ of the options")
            options = self.map(1)
        self.space()
        if self.at < len(self.text):
            self.fail("the end")
        return name, subject, options

    def free(self, stops: str) -> str:
        """A name or subject: everything up to one of `stops`; white space at both ends is not part of it."""
        self.space()
        pieces: list[str] = []
        while (char := self.peek()) and char not in stops:
            if char in "'\"":
                pieces.append(self.quoted())
            elif char == "\\":
                pieces.append(self.escape({}))
            elif found := _PLAIN.match(self.text, self.at):
                pieces.append(found.group())
                self.at = found.end()
            elif char == "/":
                pieces.append(char)
                self.at += 1
            else:
                start = self.at
                self.space()
                if self.peek() and self.peek() not in stops:
                    pieces.append(self.text[start : self.at])
        return "".join(pieces)

    # -- values

    def map(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        self.space()
        while self.peek() != "}":
            if found:
                self.expect(",", ", or } of the map")
            self.space()
            start = self.at
            key = self.key()
            if key in found:
                raise MalformedAddress(f"option {key!r} is given twice", self.text, start)
            self.space()
            self.expect(":", f": after {key!r}")
            found[key] = self.value(depth)
            self.space()
        self.at += 1
        return found

    def list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        self.space()
        while self.peek() != "]":
            if found:
                self.expect(",", ", or ] of the list")
            found.append(self.value(depth))
            self.space()
        self.at += 1
        return found

    def key(self) -> str:
        if self.peek() and self.peek() in "'\"":
            return self.quoted()
        return self.word("the name of an option")

    def value(self, depth: int) -> Any:
        self.space()
        char = self.peek()
        if char and char in "{[":
            if depth >= DEPTH_MAX:
                raise MalformedAddress(f"more than {DEPTH_MAX} maps and lists inside each other", self.text, self.at)
            return self.map(depth + 1) if char == "{" else self.list(depth + 1)
        if char and char in "'\"":
            return self.quoted()
        start = self.at
        word = self.word("a value")
        if word.lower() in _LITERALS:
            return _LITERALS[word.lower()]
        return self.number(word, start) if _NUMBER.fullmatch(word) else word

    def number(self, word: str, start: int) -> int | float:
        number: int | float = math.inf
        if _INTEGER.fullmatch(word):
            number = int(word)
        elif not word.lstrip("+-").isdigit():
            number = float(word)
        if not -(1 << 63) <= number < 1 << 63 and (isinstance(number, int) or math.isinf(number)):
            self.fail("a number of 64 bits", start)
        return number

    # -- characters

    def peek(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def eat(self, char: str) -> bool:
        if self.peek() != char:
            return False
        self.at += 1
        return True

    def expect(self, char: str, what: str) -> None:
        if not self.eat(char):
            self.fail(what)

    def space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def word(self, what: str) -> str:
        found = _WORD.match(self.text, self.at)
        if found is None:
            self.fail(what)
        self.at = found.end()
        return found.group()

    def quoted(self) -> str:
        quote, start, pieces = self.peek(), self.at, []
        self.at += 1
        while (char := self.peek()) != quote:
            if not char:
                raise MalformedAddress(f"this {quote} is never closed", self.text, start)
            if char == "\\":
                pieces.append(self.escape(_CONTROL))
            else:
                pieces.append(char)
                self.at += 1
        self.at += 1
        return "".join(pieces)

    def escape(self, special: dict[str, str]) -> str:
        start = self.at
        self.at += 1
        char = self.peek()
        if not char:
            self.fail("a character after \\")
        self.at += 1
        if char not in _HEX:
            return special.get(char, char)
        digits = _HEX[char].match(self.text, self.at)
        if digits is None:
            self.fail("two hexadecimal digits" if char == "x" else "four hexadecimal digits")
        self.at = digits.end()
        code = int(digits.group(), 16)
        if 0xD800 <= code < 0xE000:
            raise MalformedAddress("half of a surrogate pair is no character", self.text, start)
        return chr(code)


# -- writing


def write(name: str, subject: str | None, options: dict[str, Any]) -> str:
    """The text that `scan` reads back as these three."""
    text = name if _BARE_NAME.fullmatch(name) else _quote(name)
    if subject is not None:
        text += "/" + (subject if _BARE_SUBJECT.fullmatch(subject) else _quote(subject))
    return f"{text}; {write_value(options)}" if options else text


def write_value(value: Any) -> str:
    """A value of an option.  Raises ValueError for what cannot be written in an address."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        bare = _BARE_WORD.fullmatch(value) and value.lower() not in _LITERALS
        return value if bare else _quote(value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{write_value(str(key))}: {write_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(write_value, value)) + "]"
    raise ValueError(f"{value!r} cannot be written in an address")


def _quote(text: str) -> str:
    escaped = "".join(f"\\{char}" if char in '"\\' else char if char >= " " else f"\\x{ord(char):02x}" for char in text)
    return f'"{escaped}"'
