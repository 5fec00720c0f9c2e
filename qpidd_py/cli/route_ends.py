"""The brokers at the ends of a route, as `qpid-route` is told them.                                              Pure.

A broker is `[user/password@]host[:port],...[/VHOST]`.  In VHOST `%2F` is a slash, `%2C` a comma, `%40` an @.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from qpidd_py.cli.client_socket import DEFAULT_PORT, TLS_PORT, shown
from qpidd_py.cli.client_socket import split_host_port as host_port
from qpidd_py.security.entries import HOST

_SCHEME: Final = re.compile(r"(?:amqps?|tcp|ssl)://")
_HERE: Final = frozenset(("localhost", "127.0.0.1", "::1"))
Place = tuple[str, int]
"""Host and port."""


def parted(broker: str, vhost: str) -> tuple[str, str]:
    """The broker without its virtual host, and this; `vhost`: if it names none.  Raises ValueError."""
    credentials, at, rest = broker.rpartition("@")
    scheme = found[0] if (found := _SCHEME.match(rest)) else ""
    hosts, slash, name = rest.removeprefix(scheme).partition("/")
    if slash and (not name or "," in name or "/" in name.removeprefix("/")):
        raise ValueError(f"virtual host {name!r} of {hosts}/{name}, wanted one name behind the last host, / as %2F")
    return f"{credentials}{at}{scheme}{hosts}", unquote(name) if slash else vhost


def named(place: str, vhost: str) -> str:
    return place if vhost == HOST else f"{place}/{quote(vhost, safe='')}"


class Other(NamedTuple):
    """The broker at the other end."""

    login: str
    """Of a URI, with `@`."""
    places: tuple[Place, ...]
    encrypted: bool
    vhost: str

    @property
    def name(self) -> str:
        """The login is no part of it."""
        return named(",".join(shown(host, port, self.encrypted) for host, port in self.places), self.vhost)

    @property
    def addresses(self) -> Iterator[str]:
        """As a shovel has them."""
        for host, port in self.places:
            place = shown(host, port, False)
            yield named(f"amqp{'s' * self.encrypted}://{self.login}{place}", self.vhost)

    def among(self, places: Collection[Place]) -> bool:
        """One of its members is one of these."""
        return not {_usual(place) for place in places}.isdisjoint(map(_usual, self.places))


def _usual(place: Place) -> Place:
    """This machine has several names."""
    host, port = place
    return ("localhost" if host.lower() in _HERE else host.lower()), port


def other_end(broker: str, encrypted: bool, vhost: str) -> Other:
    """`vhost`: unless it names one.  Raises ValueError."""
    broker, vhost = parted(broker, vhost)
    credentials, _, hosts = broker.rpartition("@")
    user, _, password = credentials.partition("/")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if credentials else ""
    return Other(login, tuple(places_of(hosts, TLS_PORT if encrypted else DEFAULT_PORT)), encrypted, vhost)


def places_of(hosts: str, port: int) -> Iterator[Place]:
    """Of a list with commas.  Raises ValueError."""
    for each in hosts.split(","):
        host, given = host_port(each)
        yield host, given or port
