"""How many connections and queues there may be; what is beyond is refused with a reason.                        Pure.

A connection counts from connection.open on.  Administrative connections and links between brokers do not count:
`RESERVED` of them are taken beyond every limit, so that a broker with too many clients can be managed, and its backups
stay.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from qpidd_py.amqp.handshake import Handshake
from qpidd_py.broker.quotas import Quotas
from qpidd_py.errors import ChannelException, ConnectionException, ReplyCode
from qpidd_py.security.acl.in_force import AclAccess
from qpidd_py.security.entries import ADMINISTRATOR, HOST
from qpidd_py.security.rights import Access

log = logging.getLogger(__name__)

CONNECTIONS: Final = "connections"
RESERVED: Final = 64
VISITORS: Final = RESERVED // 2
"""Of them for users that do not administer: every client may say that it is a tool."""
RELIEF: Final = 0.95
"""Share of max-connections at which the alarm ends."""


@dataclass(frozen=True)
class Limits:
    """0: no limit."""

    connections: int = 0
    connections_per_user: int = 0
    connections_per_ip: int = 0
    queues: int = 0
    queues_per_user: int = 0


class Client:
    """Who is at the other end of a connection: an administrator, a broker, or one for whom there are limits."""

    def __init__(self, handshake: Handshake, couriers: Collection[str]) -> None:
        self.access = Access("", HOST)
        self.acl = AclAccess()
        self._handshake = handshake
        self._couriers = couriers

    @property
    def properties(self) -> Mapping[str, Any]:
        return self._handshake.client_properties

    @property
    def admin(self) -> bool:
        """True for an administrative connection, which backups admit."""
        return bool(self.properties.get("qpid.ha-admin"))

    @property
    def privileged(self) -> bool:
        """True for administrators and links between brokers, which are admitted beyond the limits for clients."""
        return self.admin or "qpid.ha-backup" in self.properties

    @property
    def courier(self) -> bool:
        """True for the brokers' user."""
        return self._handshake.user in self._couriers

    @property
    def administers(self) -> bool:
        """True for the brokers' user, and for one with the tag; for one who may do everything, where brokers have no
        user."""
        if self.courier:
            return True
        if self.access.everything:
            return not self._couriers and self.acl.everything
        return self.access.has(ADMINISTRATOR)

    @property
    def everything(self) -> bool:
        """Nothing is refused to it, by no system of rights."""
        return self.access.everything and self.acl.everything

    @property
    def limited(self) -> bool:
        """Whether limits of its user hold for it.  Not for brokers, nor for the tools of administrators: these could
        not take back a limit that is too low."""
        return not self.courier and not (self.admin and self.administers)


class Counted(Protocol):
    """What counts of a connection."""

    client: Client
    peer: str
    scarce: bool

    @property
    def user(self) -> str: ...


class ConnectionCount:
    """The open connections of one broker."""

    def __init__(self, limits: Limits, quotas: Quotas, alarm: Callable[[str, str], None]) -> None:
        """`alarm` is called with CONNECTIONS and a reason; empty: not any more."""
        self.limits = limits
        self._quotas = quotas
        self._of_user: Counter[str] = Counter()  # administrative ones, too: every client may say that it is one
        self._channels: Counter[str] = Counter()  # of each user
        self._alarm = alarm
        self._all = self._privileged = 0
        self._visitors: set[Counted] = set()
        self._by_user: Counter[str] = Counter()
        self._by_host: Counter[str] = Counter()
        self._by_vhost: Counter[str] = Counter()
        self._reached = False

    def check(self, connection: Counted) -> None:
        """Raises ConnectionException if it is one too many."""
        limits, host = self.limits, host_of(connection.peer)
        if connection.client.limited:
            self._quotas.check_user(connection.user, self._of_user[connection.user])
        if connection.client.privileged:
            self._check_privileged(connection)
            return
        if connection.scarce:
            text = "the broker has no file descriptors left for clients"
            raise ConnectionException(ReplyCode.RESOURCE_ERROR, text)
        vhost = connection.client.access.host
        self._quotas.check_host(vhost, connection.user, self._by_vhost[vhost])
        if 0 < limits.connections <= self._all:
            self._say(f"connections: max-connections ({limits.connections}) is reached")
            raise _refused("", "max-connections", limits.connections)
        if 0 < limits.connections_per_user <= self._by_user[connection.user]:
            raise _refused(f" for user '{connection.user}'", "max-connections-per-user", limits.connections_per_user)
        if 0 < limits.connections_per_ip <= self._by_host[host]:
            raise _refused(f" from {host}", "max-connections-per-ip", limits.connections_per_ip)

    def _check_privileged(self, connection: Counted) -> None:
        if self._privileged >= RESERVED:
            raise _refused("", "administrative connections and links", RESERVED)
        if not connection.client.administers and len(self._visitors) >= VISITORS:
            raise _refused("", "administrative connections of users that do not administer", VISITORS)

    def opened(self, connection: Counted, step: int = 1) -> None:
        _count(self._of_user, connection.user, step)
        if connection.client.privileged:
            self._privileged += step
            if step < 0:
                self._visitors.discard(connection)
            elif not connection.client.administers:
                self._visitors.add(connection)
            return
        self._all += step
        _count(self._by_user, connection.user, step)
        _count(self._by_host, host_of(connection.peer), step)
        _count(self._by_vhost, connection.client.access.host, step)

    def of_user(self, user: str) -> int:
        """Open connections, with administrative ones."""
        return self._of_user[user]

    @property
    def channels(self) -> int:
        """Open ones of all users."""
        return self._channels.total()

    def channels_of(self, user: str) -> int:
        return self._channels[user]

    def channel_opens(self, connection: Counted) -> None:
        """Raises ConnectionException if it is one too many."""
        if connection.client.limited:
            self._quotas.check_channel(connection.user, self._channels[connection.user])
        _count(self._channels, connection.user, 1)

    def channels_closed(self, connection: Counted, number: int = 1) -> None:
        _count(self._channels, connection.user, -number)

    def closed(self, connection: Counted) -> None:
        self.opened(connection, -1)
        if self._reached and self._all < RELIEF * self.limits.connections:
            self._say("")

    def _say(self, reason: str) -> None:
        if bool(reason) != self._reached:
            self._reached = bool(reason)
            log.warning("%s", reason or "connections: fewer than max-connections are open again")
            self._alarm(CONNECTIONS, reason)


def check_queues(limits: Limits, name: str, user: str, number: int, by_user: Mapping[str, int]) -> None:
    """Raises ChannelException if a new queue `name` of `user` is one too many."""
    if 0 < limits.queues <= number:
        raise _no_queue(name, "", "max-queues", limits.queues)
    if 0 < limits.queues_per_user <= by_user.get(user, 0):
        raise _no_queue(name, f" of user '{user}'", "max-queues-per-user", limits.queues_per_user)


def host_of(peer: str) -> str:
    return peer.rpartition(":")[0]


def _count(counter: Counter[str], key: str, step: int) -> None:
    counter[key] += step
    if not counter[key]:
        del counter[key]


def _refused(of: str, name: str, most: int) -> ConnectionException:
    return ConnectionException(ReplyCode.NOT_ALLOWED, f"connection refused{of}: {name} ({most}) is reached")


def _no_queue(name: str, of: str, limit: str, most: int) -> ChannelException:
    text = f"cannot declare queue '{name}'{of}: {limit} ({most}) is reached"
    return ChannelException(ReplyCode.PRECONDITION_FAILED, text)
