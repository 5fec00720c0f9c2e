"""Shared by the URL grammars: the address, a scanner that tracks its position, host and port (pure).

    hostport = host [ ":" port ]
    host     = name / IPv4 / "[" IPv6 [ "%" zone ] "]"

A scanner reads `text[position:end]`; positions in errors count from the beginning of `text`, even when only a part of
it is read.  In error texts each character of a password is replaced by an asterisk.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from client_lib.errors import UrlError

DEFAULT_PORT = 5672
DEFAULT_PORTS: Mapping[str, int] = {"tcp": DEFAULT_PORT, "ssl": 5671}
TRANSPORTS = tuple(DEFAULT_PORTS)
MECHANISMS = ("PLAIN", "AMQPLAIN", "EXTERNAL", "ANONYMOUS", "SCRAM-SHA-256")
"""SASL mechanisms."""

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?")
_ZONE = re.compile(r"[A-Za-z0-9._-]+")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_URI = re.compile(r",(?=\s*amqps?:)", re.IGNORECASE)
_PREFIXES = re.compile(r"\s*(amqps?:(//)?)?(tcp:|ssl:)?", re.IGNORECASE)
_SECRET_OPTION = re.compile(r"password\s*=\s*('[^']*|[^&,;']*)", re.IGNORECASE)


@dataclass(frozen=True)
class Endpoint:
    """The address of one broker and, if the URL has one, the login for it.

    `options`: options of the connection for this address only, by the names of `client_lib.options.Options`."""

    host: str
    port: int = DEFAULT_PORT
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    virtual_host: str | None = None
    transport: str = "tcp"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        if self.transport not in TRANSPORTS:
            raise ValueError(f"transport must be tcp or ssl, not {self.transport!r}")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def tls(self) -> bool:
        return self.transport == "ssl"

    def same_place(self, other: Endpoint) -> bool:
        return (self.host, self.port) == (other.host, other.port)


class Scanner:
    """Reads a part of `text` from left to right."""

    def __init__(self, text: str, start: int = 0, end: int | None = None) -> None:
        self.text, self.position, self.end = text, start, len(text) if end is None else end

    @property
    def done(self) -> bool:
        return self.position >= self.end

    @property
    def rest(self) -> str:
        return self.text[self.position : self.end]

    def error(self, reason: str, position: int | None = None) -> UrlError:
        """An error here, or at `position`."""
        return UrlError(reason, covered(self.text), self.position if position is None else position)

    def skip_spaces(self) -> None:
        """At both ends."""
        while not self.done and self.text[self.position].isspace():
            self.position += 1
        while not self.done and self.text[self.end - 1].isspace():
            self.end -= 1

    def accept(self, word: str) -> bool:
        """Skips `word`, in any case, if it is next."""
        if self.text[self.position : min(self.end, self.position + len(word))].lower() != word:
            return False
        self.position += len(word)
        return True

    def expect(self, word: str, what: str = "") -> None:
        if not self.accept(word):
            raise self.error(f"expected {what or word}")

    def find(self, characters: str) -> int:
        """The position of the first of these characters; `end` if there is none."""
        found = (self.text.find(character, self.position, self.end) for character in characters)
        return min((at for at in found if at >= 0), default=self.end)

    def take(self, until: int) -> str:
        taken, self.position = self.text[self.position : until], until
        return taken

    def take_escaped(self, until: int, what: str) -> str:
        """A text in which % introduces two hexadecimal digits."""
        wrong = _ESCAPE.search(self.text[self.position : until])
        if wrong is not None:
            raise self.error("expected two hexadecimal digits after % (%25 is %)", self.position + wrong.start())
        start, raw = self.position, self.take(until)
        try:
            return unquote(raw, errors="strict")
        except UnicodeDecodeError:
            raise self.error(f"{what} is not UTF-8", start) from None

    def number(self, until: int, least: int, most: int, what: str) -> int:
        start, digits = self.position, self.take(until)
        if not (digits.isascii() and digits.isdigit()) or not least <= int(digits[:10]) <= most:
            raise self.error(f"{what} must be a number from {least} to {most}", start)
        return int(digits)

    def word(self, until: int, words: Mapping[str, Any], what: str) -> Any:
        """The value of one of these words, in any case."""
        start, word = self.position, self.take(until).lower()
        if word not in words:
            raise self.error(f"{what} must be {' or '.join(words)}", start)
        return words[word]

    def host_port(self, default_port: int) -> tuple[str, int]:
        """Takes the rest of the text."""
        host = self._bracketed() if self.accept("[") else self._name()
        if self.done:
            return host, default_port
        if not self.accept(":"):
            raise self.error("expected : and a port, or the end of the address")
        return host, self.number(self.end, 1, 65535, "port")

    def _name(self) -> str:
        if self.rest.count(":") > 1 and _is_ipv6(self.rest):
            raise self.error("expected [ before an IPv6 address and ] behind it")
        match = _NAME.match(self.text, self.position, self.end)
        if match is None:
            raise self.error("expected a host name")
        return self.take(match.end())

    def _bracketed(self) -> str:
        start, close = self.position, self.find("]")
        host = self.take(close)
        if not _is_ipv6(host):
            raise self.error("expected an IPv6 address", start)
        if self.done:
            raise self.error("expected ]")
        self.position += 1
        return host


def is_port(text: str) -> bool:
    """Tells amqp:5672, a host of the name "amqp", from amqp:node1."""
    return text.isascii() and text.isdigit()


def _is_ipv6(text: str) -> bool:
    host, percent, zone = text.partition("%")
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return not percent or _ZONE.fullmatch(zone) is not None


def covered(text: str) -> str:
    """`text` with asterisks in place of possible passwords; the length stays the same."""
    pieces, start = [], 0
    for comma in [*(match.end() for match in _URI.finditer(text)), len(text)]:
        pieces.append(_covered_login(text[start:comma]))
        start = comma
    return _SECRET_OPTION.sub(_stars, "".join(pieces))


def _covered_login(text: str) -> str:
    """Covers from the first : or / of each login up to its @; covering too much does not change positions."""
    at = text.rfind("@")
    if at < 0:
        return text
    prefix = _PREFIXES.match(text)
    start = prefix.end() if prefix is not None else 0
    first = min((found for found in (text.find(":", start, at), text.find("/", start, at)) if found >= 0), default=at)
    return text[: first + 1] + "*" * (at - first - 1) + text[at:] if first < at else text


def _stars(match: re.Match[str]) -> str:
    whole = match.group()
    kept = len(whole) - len(match.group(1)) + match.group(1).startswith("'")
    return whole[:kept] + "*" * (len(whole) - kept)
