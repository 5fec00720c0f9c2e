"""`qpid-route route map`: the routes of a broker, of the brokers that they lead to, and so on.                   Shell.

At each broker it logs in as the route does that leads there.  The login of the command line is for the first one only:
whoever may set a route names the others, and could name a host of his own.  A broker is known by its addresses; at most
BROKERS are asked.  Each is asked for the routes of the virtual host that the route leads to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.broker.parameters import addresses
from qpidd_py.cli.client_socket import DEFAULT_PORT, TLS_PORT, BrokerError, Target
from qpidd_py.cli.output import describe
from qpidd_py.security.entries import HOST

BROKERS: Final = 50
Route = Mapping[str, Any]
RoutesOf = Callable[[Target], list[Route]]
"""Raises BrokerError, OSError."""


@dataclass
class RouteMap:
    """What was found; `brokers`: their names, and what was the trouble, or nothing."""

    brokers: dict[str, str] = field(default_factory=dict)
    routes: list[tuple[str, Route]] = field(default_factory=list)
    """Each with the name of the broker that has it."""
    left: int = 0
    """Brokers that were not asked, because they are too many."""


def mapped(name: str, first: Target, other_of: Callable[[Route], str], routes_of: RoutesOf) -> RouteMap:
    """`other_of`: the name of the broker at the other end of a route."""
    found, seen = RouteMap(), set[tuple[str, int, str]]()
    waiting: deque[tuple[str, Callable[[], list[Target]]]] = deque([(name, lambda: [first])])
    while waiting:
        name, targets_of = waiting.popleft()
        targets, trouble = _attempted(targets_of)
        places = {(each.host, each.port, each.vhost) for each in targets}
        if places & seen or name in found.brokers:
            continue
        if len(found.brokers) >= BROKERS:
            found.left += 1
            continue
        seen |= places
        routes, found.brokers[name] = ([], trouble) if trouble else _asked(targets, routes_of)
        for route in routes:
            found.routes.append((name, route))
            waiting.append((other_of(route), lambda route=route: list(_others(route, first))))  # type: ignore[misc]
    return found


def _attempted(targets_of: Callable[[], list[Target]]) -> tuple[list[Target], str]:
    """The trouble with an address that is none."""
    try:
        return targets_of(), ""
    except (ValueError, OSError) as error:
        return [], describe(error)


def _asked(targets: list[Target], routes_of: RoutesOf) -> tuple[list[Route], str]:
    """Of the first that answers; the last trouble, if none does."""
    trouble = ""
    for target in targets:
        try:
            return routes_of(target), ""
        except (BrokerError, OSError) as error:
            trouble = describe(error)
    return [], trouble


def _others(route: Route, first: Target) -> Iterator[Target]:
    """The members at the other end of a route.  Raises ValueError, OSError."""
    value = route["value"]
    for address in addresses(value["src-uri"]) or addresses(value["dest-uri"]):
        parts = urlsplit(address)
        tls = first.trust.context() if parts.scheme == "amqps" else None
        login = Login(unquote(parts.username), unquote(parts.password or "")) if parts.username else Login()
        port, vhost = parts.port or (TLS_PORT if tls else DEFAULT_PORT), unquote(parts.path[1:]) or HOST
        yield Target(parts.hostname or "", port, login, tls, first.trust, vhost)
