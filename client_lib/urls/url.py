"""Addresses of brokers: the URL grammars, and the addresses that brokers announce (pure).

Three grammars; in each of them errors give the position of the character:

    book      the Qpid book's: [ "amqp:" ] [ user [ "/" password ] "@" ] place *( "," place )
              place = [ ( "tcp" / "ssl" ) ":" ] host [ ":" port ]
    RabbitMQ  amqp://... and amqps://..., see `client_lib.urls.rabbit`
    JMS       amqp://...?brokerlist='...'&failover='...', or from brokerlist= on; see `client_lib.urls.jms`

`client_lib.urls.lists` has two more forms of lists: amqp://n1,n2,n3/vhost and failover:(...).

The first two may be mixed in one list with commas between.  The book's user and password hold for all following places,
up to the next login or the next `amqp:`; `%XX` stands for any character in them.  Missing parts of an address come from
the connection's options; the port from the transport: 5672 for tcp, 5671 for ssl.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from client_lib.errors import UrlError
from client_lib.urls.jms import is_jms, parse_jms
from client_lib.urls.lists import is_failover, parse_failover, shared
from client_lib.urls.parts import DEFAULT_PORT, DEFAULT_PORTS, TRANSPORTS, Endpoint, Scanner, is_port
from client_lib.urls.rabbit import SCHEMES, parse_uri

__all__ = [
    "DEFAULT_PORT",
    "Endpoint",
    "Urls",
    "learned_addresses",
    "parse_url",
    "parse_urls",
    "primary_in_refusal",
    "read_urls",
]

PUBLIC_URL = "qpid.ha-public-url"
"""Name in the server-properties of connection.start; the value is a text in the book's grammar."""
LOGGER = logging.getLogger("client_lib")
_PRIMARY = re.compile(r"the primary is (?!not known)(\S+)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
Given = str | Endpoint | Iterable[str | Endpoint]


@dataclass(frozen=True)
class Urls:
    """`options`: what the URLs say about the whole connection, by the names of `client_lib.options.Options`."""

    addresses: list[Endpoint]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Login:
    username: str | None = None
    password: str | None = field(default=None, repr=False)


def parse_urls(urls: Given, transport: str = "tcp") -> list[Endpoint]:
    """All addresses in order, without repetitions; `transport` is that of places that name none.  Raises UrlError."""
    return read_urls(urls, transport).addresses


def read_urls(urls: Given, transport: str = "tcp") -> Urls:
    """As `parse_urls`, with the options in the URLs.  Raises UrlError; ValueError for an `Endpoint` without
    TLS where the connection asks for it, since the password would be readable."""
    items = [urls] if isinstance(urls, (str, Endpoint)) else list(urls)
    found: list[Endpoint] = []
    options: dict[str, Any] = {}
    for item in items:
        if isinstance(item, Endpoint):
            if transport == "ssl" and not item.tls:
                raise ValueError(f"{item}: the address has no TLS, the option transport is ssl")
            found.append(item)
        elif is_jms(item):
            url = parse_jms(item, transport)
            found += url.addresses
            options |= url.options
        else:
            text, said = parse_failover(item) if is_failover(item) else (item, {})
            options |= said
            found += [address for part in shared(text) for address in _parse_list(part, transport)]
    if not found:
        raise UrlError("expected an address", "", 0)
    return Urls(list(dict.fromkeys(found)), options)


def parse_url(text: str, transport: str = "tcp") -> Endpoint:
    """One address.  Raises UrlError."""
    addresses = _parse_list(text, transport)
    if len(addresses) > 1:
        raise Scanner(text).error("expected one address, not a list", text.find(","))
    return addresses[0]


def _parse_list(text: str, transport: str) -> list[Endpoint]:
    found, start, login = [], 0, _Login()
    for part in text.split(","):
        scan = Scanner(text, start, start + len(part))
        scan.skip_spaces()
        scheme = _SCHEME.match(text, scan.position, scan.end)
        if scheme is not None:
            login = _Login()
            if scheme.group().lower().removesuffix("://") not in SCHEMES:
                raise scan.error("expected amqp:// or amqps://")
            found.append(parse_uri(scan, transport))
        else:
            login = _book_login(scan, login)
            found.append(_book_place(scan, transport, login))
        start += len(part) + 1
    return found


def _book_login(scan: Scanner, login: _Login) -> _Login:
    """Reads the login for the places that follow."""
    if _prefix(scan, "amqp:"):
        login = _Login()
    at = scan.text.rfind("@", scan.position, scan.end)
    if at < 0:
        return login
    slash = min(scan.find("/"), at)
    if slash == scan.position:
        raise scan.error("expected a user name")
    username = scan.take_escaped(slash, "user name")
    password = scan.take_escaped(at, "password") if scan.accept("/") else None
    scan.expect("@")
    return _Login(username, password)


def _book_place(scan: Scanner, transport: str, login: _Login) -> Endpoint:
    named = next((name for name in TRANSPORTS if _prefix(scan, f"{name}:")), transport)
    host, port = scan.host_port(DEFAULT_PORTS[named])
    return Endpoint(host, port, login.username, login.password, transport=named)


def _prefix(scan: Scanner, prefix: str) -> bool:
    """Skips a prefix; "tcp:5672" is a host named "tcp"."""
    start = scan.position
    if scan.accept(prefix) and not is_port(scan.rest):
        return True
    scan.position = start
    return False


# -- addresses announced by brokers


def learned_addresses(server_properties: Mapping[str, Any] | None, via: Endpoint | None = None) -> list[Endpoint]:
    """Where the cluster's clients should connect, as connection.start says (`PUBLIC_URL`); [] if it does not.

    `via` is the address of the announcing broker: its login, virtual host and options are kept, and an announcement
    over TLS never leads to a port without TLS, where the password would be readable."""
    text = (server_properties or {}).get(PUBLIC_URL)
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    if not text:
        return []
    try:
        found = parse_urls(str(text), via.transport if via is not None else "tcp")
    except UrlError as error:
        LOGGER.warning("%s: %s is not usable: %s", via or "broker", PUBLIC_URL, error)
        return []
    safe = [address for address in found if via is None or address.tls or not via.tls]
    if len(safe) < len(found):
        LOGGER.warning("%s: %s names addresses without TLS; they are not used", via, PUBLIC_URL)
    return [_as(via, address) for address in safe]


def primary_in_refusal(reply_text: str, via: Endpoint | None = None, known: Sequence[Endpoint] = ()) -> Endpoint | None:
    """The address a backup names when it refuses us: "...; the primary is HOST:PORT".  None if it names none.

    The named port is the one without TLS.  If `via`, which refused, was reached over TLS, the result is the known TLS
    address on that host, or else that host with the port of `via`; None if that is `via` again."""
    match = _PRIMARY.search(reply_text)
    if match is None:
        return None
    try:
        named = parse_url(match.group(1).rstrip(".;,"))
    except UrlError:
        return None
    if via is None:
        return named
    if via.tls and not named.tls:
        there = next((a for a in known if a.tls and a.host == named.host and not a.same_place(via)), None)
        named = there or replace(named, port=via.port, transport="ssl")
        if named.same_place(via):
            return None
    return next((address for address in known if address.same_place(named)), _as(via, named))


def _as(via: Endpoint | None, address: Endpoint) -> Endpoint:
    """`address` with the login, virtual host and options of `via`; with its own login if it has one."""
    if via is None:
        return address
    mine = replace(via, host=address.host, port=address.port, transport=address.transport)
    if address.username is not None:
        mine = replace(mine, username=address.username, password=address.password)
    return mine
