"""Addresses of brokers: the grammar, and nothing else (pure).

    urls    = url *( "," url )            (or a Python list of such texts)
    url     = [ "amqp://" [ user [ ":" password ] "@" ] ] host [ ":" port ] [ "/" vhost ]
    host    = name / IPv4 / "[" IPv6 "]"

User, password and virtual host may be percent-encoded, as in RabbitMQ's URIs.  Credentials and virtual host are allowed
only after `amqp://`; what one address leaves out is taken from the connection's options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from client_lib.errors import UrlError

DEFAULT_PORT = 5672
_SCHEME = "amqp://"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?")
_PRIMARY = re.compile(r"the primary is (?!not known)(\S+)")


@dataclass(frozen=True)
class Address:
    """Where one broker listens and, if the URL said so, who we are there."""

    host: str
    port: int = DEFAULT_PORT
    username: str | None = None
    password: str | None = None
    virtual_host: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def same_place(self, other: Address) -> bool:
        return (self.host, self.port) == (other.host, other.port)


def parse_urls(urls: str | Address | Iterable[str | Address]) -> list[Address]:
    """All addresses in order, without repetitions.  Raises UrlError."""
    items = [urls] if isinstance(urls, (str, Address)) else list(urls)
    found: list[Address] = []
    for item in items:
        for address in [item] if isinstance(item, Address) else _parse_list(item):
            if address not in found:
                found.append(address)
    if not found:
        raise UrlError("no address", "", 0)
    return found


def _parse_list(text: str) -> list[Address]:
    found, start = [], 0
    for part in text.split(","):
        found.append(_parse_one(text, start, start + len(part)))
        start += len(part) + 1
    return found


def parse_url(text: str) -> Address:
    """One address.  Raises UrlError."""
    return _parse_one(text, 0, len(text))


def _parse_one(text: str, start: int, end: int) -> Address:
    """The address in text[start:end]; positions in errors count from the beginning of `text`."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    username = password = virtual_host = None
    scheme = text.find("://", start, end)
    if scheme >= 0:
        if text[start : scheme + 3].lower() != _SCHEME:
            raise UrlError("unknown scheme", text, start)
        start = scheme + 3
        at = text.rfind("@", start, end)
        if at >= 0:
            username, password = _credentials(text, start, at)
            start = at + 1
        slash = text.find("/", start, end)
        if slash >= 0:
            # "amqp://host/" names the virtual host "" for RabbitMQ; nobody has one, so it means the default here
            virtual_host = unquote(text[slash + 1 : end]) or None
            end = slash
    host, port = _host_port(text, start, end)
    return Address(host, port, username, password, virtual_host)


def _credentials(text: str, start: int, end: int) -> tuple[str, str | None]:
    user, colon, password = text[start:end].partition(":")
    if not user:
        raise UrlError("user name missing", text, start)
    return unquote(user), unquote(password) if colon else None


def _host_port(text: str, start: int, end: int) -> tuple[str, int]:
    if start < end and text[start] == "[":
        close = text.find("]", start, end)
        if close < 0:
            raise UrlError("] missing", text, end)
        host, rest = text[start + 1 : close], close + 1
        if not re.fullmatch(r"[0-9A-Fa-f:.]+(%\w+)?", host):
            raise UrlError("not an IPv6 address", text, start + 1)
    else:
        match = _HOST.match(text, start, end)
        if match is None:
            raise UrlError("host name missing", text, start)
        host, rest = match.group(), match.end()
    if rest == end:
        return host, DEFAULT_PORT
    if text[rest] != ":":
        raise UrlError("unexpected character", text, rest)
    return host, _port(text, rest + 1, end)


def _port(text: str, start: int, end: int) -> int:
    digits = text[start:end]
    if not (digits.isascii() and digits.isdigit()) or not 0 < int(digits[:6]) < 65536:
        raise UrlError("port must be a number from 1 to 65535", text, start)
    return int(digits)


def primary_in_refusal(reply_text: str) -> Address | None:
    """The address a backup names when it refuses us: "...; the primary is HOST:PORT".  None if it names none."""
    match = _PRIMARY.search(reply_text)
    if match is None:
        return None
    try:
        return parse_url(match.group(1).rstrip(".;,"))
    except UrlError:
        return None
