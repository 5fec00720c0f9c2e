"""The broker: one engine, its virtual hosts, its connections.  No I/O; the shell passes in connections and the time."""

import logging
import platform
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from qpidd_py.amqp.constants import HEARTBEAT
from qpidd_py.amqp.fields import Encoded, encode_value
from qpidd_py.amqp.sasl import Authenticate, accept_all
from qpidd_py.broker.client_connection import ClientConnection, State
from qpidd_py.broker.consumer_timeout import ConsumerTimeouts
from qpidd_py.broker.depths import QUEUE_ALARM
from qpidd_py.broker.events import TEXT
from qpidd_py.broker.hooks import HaHooks
from qpidd_py.broker.limits import ConnectionCount, Limits
from qpidd_py.broker.quotas import Quotas
from qpidd_py.broker.routing import MANAGEMENT
from qpidd_py.broker.settings import Key
from qpidd_py.broker.vhost import VHost
from qpidd_py.broker.vhosts import VHosts
from qpidd_py.core.deadlines import Deadlines
from qpidd_py.core.engine import Engine
from qpidd_py.core.routes import Mark
from qpidd_py.errors import ReplyCode
from qpidd_py.logrules import Floods
from qpidd_py.security import entries
from qpidd_py.security.acl.in_force import Acl
from qpidd_py.security.acl.rule_set import CONNECTIONS, QUEUES, RuleSet
from qpidd_py.security.entries import USER
from qpidd_py.security.rights import Rights

log = logging.getLogger(__name__)

ManagementDoor = Callable[[ClientConnection, int, bytes, bytes, bytes], None]
"""(connection, channel, routing key, content header, body); answers by `connection.answer`.  May raise `AmqpError`."""

Clocks = Callable[[], tuple[int, int]]
"""(µs since 1970, µs of the monotonic clock): sent to clients and logged; no decision depends on it."""
NO_CLOCKS: Clocks = lambda: (0, 0)  # noqa: E731

VISITS: Final = 500
"""Connections that one tick looks at, and an eighth of all."""

CAPABILITIES = (
    "publisher_confirms",
    "basic.nack",
    "consumer_cancel_notify",
    "exchange_exchange_bindings",
    "connection.blocked",
    "per_consumer_qos",
    "authentication_failure_close",
)


class Broker:
    """`hooks` (HA) and `management` are plugged in by the composition root; the broker works without."""

    def __init__(
        self,
        name: str = "qpidd",
        authenticate: Authenticate = accept_all,
        heartbeat: int = HEARTBEAT,
        version: str = "0",
        rng: random.Random | None = None,
        engine: Engine | None = None,
        clocks: Clocks = NO_CLOCKS,
        limits: Limits = Limits(),  # noqa: B008 (immutable)
    ) -> None:
        self.name = name
        self.clocks = clocks
        self.authenticate = authenticate
        self.anonymous = ""
        """The user of clients that log in with ANONYMOUS; empty: none may."""
        self.scram: Callable[[], bool] = lambda: False
        """Whether anybody can log in with SCRAM."""
        self.heartbeat = heartbeat  # seconds; what `tune` proposes
        self.engine = engine or Engine()
        self.connections: set[ClientConnection] = set()
        self.vhosts = VHosts(self.engine, limits, self._close_clients_of)
        self.vhosts.rules.alarm = self.alarm
        self.configurations = self.vhosts.configurations
        self.settings = self.configurations.settings
        self.events = self.configurations.common.events
        self.connection_count = ConnectionCount(limits, Quotas(self.settings), self.alarm)
        self.timeouts = ConsumerTimeouts(self.engine)
        self.engine.on_config = self.configurations.apply
        self.rights = Rights(self.settings)
        self.rights.hosts = lambda: [vhost.name for vhost in self.vhosts]
        self._limits = limits
        self.acl = Acl()
        self.reload_acl: Callable[[], Iterator[None]] | None = None
        """Reads the ACL file again, in slices; raises ConfigError.  None: there is no file."""
        self.settings.watchers.append(self._setting_changed)
        self.visits: Deadlines[ClientConnection] = Deadlines()  # when to look at its heartbeat or time limit
        self._watched: dict[ClientConnection, None] = {}
        self.coming_and_going = Floods(log)
        self.hooks: HaHooks | None = None
        self.management: ManagementDoor | None = None
        self.couriers: set[str] = set()
        """Users of brokers: they may publish messages of others (what was put aside), and read every queue."""
        self.rights.trusted = self.couriers.__contains__
        self.limits: dict[str, str] = {}  # cause -> reason, while this broker is at a limit of its own
        self.alarms: dict[str, str] = {}  # name -> what an administrator has to know, while it lasts
        self.figures: dict[str, Callable[[], dict[str, Any] | None]] = {
            "memory": dict,
            "turns": dict,
            "journal": lambda: None,
            "paged": lambda: None,
        }
        """What the shell knows, for `broker.info`: octets of memory, how long turns of the loop took, what is in the
        journal and in the page file (None without one)."""
        self.options: Callable[[], dict[str, str]] = dict
        """Those in force, without secrets, for `broker.options`."""
        self._blocks: dict[str, str] = {}  # cause -> reason, while publishers are asked to pause
        self.known_hosts = ""
        """Addresses that clients are told when their connection is open."""
        self.server_properties = _server_properties(name, version)
        self.federation_tag = ""
        """What tells routes of brokers this cluster from others; the same on each of its members."""
        self.vhosts.internal_exchanges[MANAGEMENT] = self._management_request
        self._rng = rng or random.Random()
        self._connection_number = 0

    def retune(self, limits: Limits, heartbeat: int) -> None:
        """For clients and queues to come."""
        self.heartbeat = heartbeat
        self._limits = limits
        self._limit()

    def _limit(self) -> None:
        """Quotas of the ACL are there instead of the limits of users."""
        limits, acl = self._limits, self.acl
        acl.otherwise = {CONNECTIONS: limits.connections_per_user, QUEUES: limits.queues_per_user}
        self.vhosts.rules.limits = self.connection_count.limits = replace(
            limits,
            connections_per_user=0 if acl.counts(CONNECTIONS) else limits.connections_per_user,
            queues_per_user=0 if acl.counts(QUEUES) else limits.queues_per_user,
        )

    def use_acl(self, rules: RuleSet | None) -> None:
        """These rules are in force from each client's next frame on."""
        self.acl.use(rules, self.clocks()[0])
        self._limit()
        self.users_changed()

    def time_consumers(self, seconds: float) -> None:
        """How long a client may keep a delivery, of queues that do not say it; 0 = no limit."""
        self.timeouts.set_default(seconds)
        for connection in self.connections:
            for channel in connection.channels.values():
                self.timeouts.watch(channel)

    def _setting_changed(self, key: Key) -> None:
        """Clients of a deleted user are closed."""
        if key.kind not in entries.KINDS:
            return
        self.users_changed(key.name)
        if key.kind == USER and self.settings.get(key) is None:
            for connection in self._connections_of(key.name):
                if not connection.client.access.everything:
                    connection.close(ReplyCode.CONNECTION_FORCED, f"user '{key.name}' is deleted")

    def users_changed(self, user: str | None = None) -> None:
        """Clients of this user, or (None) of all, may do other things from their next frame on.  A link that would no
        longer be admitted ends."""
        self.rights.changed(user)
        self.engine.forget_routes(Mark())  # none, but each publish is looked at again
        for connection in self._connections_of(user):
            connection.rights_changed()
        links = [each for each in self.connections if each.state is State.LINK and user in (None, each.user)]
        for link in links:
            if not link.client.everything:
                text = f"user {link.user!r} has limited rights now, and a link shows all messages"
                link.close(ReplyCode.ACCESS_REFUSED, text)

    def _close_clients_of(self, vhost: VHost) -> None:
        for connection in list(self.connections):
            if connection.vhost is vhost:
                connection.close(ReplyCode.CONNECTION_FORCED, f"vhost '{vhost.name}' is deleted")

    @property
    def vhost(self) -> VHost:
        """The virtual host `/`."""
        return self.vhosts.default

    def _connections_of(self, user: str | None) -> list[ClientConnection]:
        return [each for each in self.connections if each.opened and user in (None, each.user)]

    @property
    def passive(self) -> bool:
        """True while this broker is a backup; see `VHost`."""
        return self.engine.passive

    @passive.setter
    def passive(self, value: bool) -> None:
        self.engine.passive = value
        self.engine.forget_routes()

    def joins(self, connection: ClientConnection) -> int:
        """A new connection gets its number."""
        self.connections.add(connection)
        self.watch(connection)
        self._connection_number += 1
        return self._connection_number

    def leaves(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)
        self.visits.drop(connection)

    def token(self) -> str:
        """Makes generated names unique over all brokers of a cluster."""
        return f"{self._rng.getrandbits(128):032x}"

    def close_clients(self, code: int, text: str) -> None:
        """Ends all client connections (not links)."""
        for connection in list(self.connections):
            if connection.link is None:
                connection.close(code, text)

    @property
    def blocked(self) -> str:
        """The first reason for which publishers are blocked; empty while they are not."""
        return next(iter(self._blocks.values()), "")

    def block(self, reason: str, cause: str = "") -> None:
        """Blocks publishers (`connection.blocked`) until `unblock` was called for every `cause`."""
        self._blocks[cause] = reason
        for connection in list(self.connections):
            connection.block(self.blocked)

    def alarm(self, name: str, reason: str) -> None:
        """An alarm begins, or (an empty reason) is over."""
        if reason == self.alarms.get(name, ""):
            return
        if reason:
            self.alarms[name] = reason
        else:
            del self.alarms[name]
        self._note_alarm(name, reason)
        if self.hooks is not None:
            self.hooks.alarm(name, reason)

    def _note_alarm(self, name: str, reason: str) -> None:
        queue = name.removeprefix(QUEUE_ALARM)
        if reason and queue != name:
            self.events.note("queueThresholdExceeded", queue=queue, reason=reason[:TEXT])
        elif reason:
            self.events.note("alarm", alarm=name, reason=reason[:TEXT])
        else:
            self.events.note("alarmEnd", alarm=name)

    def damaged(self, reason: str) -> None:
        """Other messages than before cannot be read any more; an empty reason: none are left that cannot."""
        if self.hooks is not None:
            self.hooks.damaged(reason)

    def limit(self, cause: str, reason: str, tell: bool = True) -> None:
        """This broker has reached a limit: publishers are not read until `reason` is empty again.  They are told why,
        and it is an alarm, unless it is a matter of moments."""
        if tell:
            self.alarm(cause, reason)
        if reason:
            self.limits[cause] = reason
            if tell:
                self.block(reason, cause)
        else:
            self.limits.pop(cause, None)
            self.unblock(cause)
        self.engine.throttle(bool(reason), cause)
        if self.hooks is not None:
            self.hooks.limited(next(iter(self.limits.values()), ""))

    def unblock(self, cause: str = "") -> None:
        self._blocks.pop(cause, None)
        if not self._blocks:
            for connection in list(self.connections):
                connection.unblock()

    def tick(self, now: float) -> None:
        """Runs periodic work; call several times a second.  `now` in seconds of a monotonic clock."""
        self._visit(now)
        self.timeouts.tick(now)
        self.coming_and_going.tick(now)
        self.vhosts.tick(now)
        if self.hooks is not None:
            self.hooks.tick(now)

    def watch(self, connection: ClientConnection) -> None:
        """It has a time limit from now on: the next tick looks at it."""
        self._watched[connection] = None

    def _visit(self, now: float) -> None:
        """Connections that were due long ago come first; those beyond a fair share wait for the next tick."""
        for connection in self._watched:
            self.visits.set(connection, now)
        self._watched.clear()
        for _ in range(VISITS + len(self.connections) // 8):
            due = self.visits.pop(now)
            if due is None:
                break
            due.tick(now)
            if due.patience:
                self.visits.set(due, now + due.patience)

    def _management_request(
        self,
        connection: ClientConnection,
        channel: int,
        exchange: bytes,
        routing_key: bytes,
        header: bytes,
        body: bytes,
    ) -> None:
        if self.management is None:
            log.warning("%r: management request %r, but there is no management", connection, routing_key)
            return
        self.management(connection, channel, routing_key, header, body)


def _server_properties(name: str, version: str) -> dict[str, Any]:
    return {
        "product": "qpidd-py",
        "version": version,
        "platform": f"Python {platform.python_version()}",
        "cluster_name": name,
        "capabilities": Encoded(encode_value(dict.fromkeys(CAPABILITIES, True))),
    }
