"""Where brokers may be, and the record of each place from one fail-over to the next (pure).

A *place* is an address together with one IP address of its name.  Known are the addresses from the application and
those announced by a broker; announced ones come first.  The place that was lost last comes after the others.  Places
where an attempt or a connection hung come after that one, until they answer: a paused broker accepts the TCP connection
and stays silent.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from client_lib.urls.url import Endpoint


def literal(host: str) -> str | None:
    """The host if it is an IP address already."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return host


@dataclass(frozen=True)
class Place:
    """`where` is an IP address, or a name that is not looked up yet.  Name and login do not count: places with the same
    IP address and port are equal."""

    where: str
    port: int
    address: Endpoint = field(compare=False)

    @classmethod
    def of(cls, address: Endpoint, ip: str | None = None) -> Place:
        return cls(ip or address.host, address.port, address)

    @property
    def ip(self) -> str | None:
        return literal(self.where)

    def is_at(self, address: Endpoint) -> bool:
        return self.port == address.port and address.host in (self.where, self.address.host)


class Places:
    """All known places; `given` by the application, in its order."""

    def __init__(self, given: Iterable[Endpoint]) -> None:
        self._given = list(given)
        self._learned: list[Endpoint] = []
        self._records: dict[Place, tuple[str, ...]] = {}
        self._last: Place | None = None
        self._slow: set[Place] = set()

    @property
    def addresses(self) -> list[Endpoint]:
        """All known addresses, the announced ones first."""
        given = [a for a in self._given if not any(a.same_place(b) for b in self._learned)]
        return [*self._learned, *given]

    def all(self) -> list[Place]:
        """Names, not resolved."""
        return [Place.of(address) for address in self.addresses]

    def learned(self, addresses: Iterable[Endpoint]) -> list[Place]:
        """A broker announced the addresses of the cluster; they replace earlier ones.  Returns those places."""
        self._learned = list(dict.fromkeys(addresses))
        return [Place.of(address) for address in self._learned]

    def records(self, place: Place) -> list[Place]:
        """The places of the last look-up of this name; the place itself if it has an IP address."""
        if place.ip is not None:
            return [place]
        return [Place.of(place.address, ip) for ip in self._records.get(place, ())]

    def looked_up(self, address: Endpoint, ips: Sequence[str]) -> None:
        self._records[Place.of(address)] = tuple(dict.fromkeys(ips))

    def named(self, address: Endpoint) -> Place:
        """The place that a broker named; it may use the IP address of a place that we know by name."""
        for place in self.all():
            for record in self.records(place):
                if record.where == address.host and record.port == address.port:
                    return record
        return Place.of(address)

    def connected(self, place: Place) -> None:
        self._last = place
        self.answered(place)

    def lost(self, hung: bool) -> None:
        """The place that was `connected` last."""
        if hung and self._last is not None:
            self.hung(self._last)

    def hung(self, place: Place) -> None:
        self._slow.add(place)

    def answered(self, place: Place) -> None:
        """The place refused, accepted or is not reachable: in each case trying it costs no timeout."""
        self._slow.discard(place)

    def rank(self, place: Place) -> int:
        """0; 1 for the place lost last, 2 for one that hung, 3 for both.  A name is as good as its best record."""
        records = self.records(place)
        return min(((record == self._last) + 2 * (record in self._slow) for record in records), default=0)
