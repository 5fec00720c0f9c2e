"""Puts HA into the broker: builds the node and its environment, and is what the broker calls (`HaHooks`).    Shell."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ha.connection_guard import BACKUP, admit
from ha.events import EventLog
from ha.link import ClusterEnvironment, IncomingLink, split_address
from ha.membership import HaState
from ha.node import Node
from ha.settings import HaSettings, NodeSettings
from ha.standalone import Standalone
from qpidd_py.amqp.client import Login
from qpidd_py.broker.broker import Broker
from qpidd_py.config import Address, LinkSettings
from qpidd_py.core import Queue
from qpidd_py.errors import ConfigError, QpiddError
from qpidd_py.hooks import Refusal
from qpidd_py.plugins import PluginHost

if TYPE_CHECKING:
    from qpidd_py.broker.session import Session


def load() -> HaPlugin:
    """The entry point."""
    return HaPlugin()


class VHostConfiguration:
    """The broker's virtual host as HA sees it (`environment.Configuration`)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def snapshot(self) -> list[tuple[int, bytes]]:
        return self._broker.vhost.snapshot()

    def adopt(self, records: list[tuple[int, bytes]]) -> None:
        self._broker.vhost.adopt(records)

    def replicated(self) -> Iterable[tuple[Queue, int]]:
        queues = self._broker.vhost.queues.values()
        return [(queue.core, queue.position) for queue in queues if queue.core.replicated]

    def on_promoted(self) -> None:
        self._broker.passive = False
        self._broker.vhost.on_promoted()

    def on_deposed(self) -> None:
        self._broker.passive = True


class StandaloneHooks(Standalone):
    """A broker outside a cluster: everybody may come in."""

    def admit(self, session: Session, properties: Mapping[str, Any]) -> Refusal | None:
        return None

    def opened(self, session: Session) -> bool:
        return False

    def session_closed(self, session: Session) -> None:
        pass

    def tick(self, now: float) -> None:
        pass


class ClusterHooks:
    """A member of a cluster."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def admit(self, session: Session, properties: Mapping[str, Any]) -> Refusal | None:
        rejection = admit(self._node, properties, session.user)
        return None if rejection is None else Refusal(rejection.code, rejection.text)

    def opened(self, session: Session) -> bool:
        if BACKUP not in session.client_properties:
            return False
        link = IncomingLink(self._node, session)
        session.link = link
        session.connection.switch_to_link(False)
        self._node.link_accepted(link, dict(session.client_properties))
        return True

    def session_closed(self, session: Session) -> None:
        pass

    def request(self, method: str, arguments: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> bool:
        return self._node.request(method, arguments, reply)

    def tick(self, now: float) -> None:
        """The node has timers of its own."""


class HaPlugin:
    """What the composition root loads (`qpidd_py.plugins.Plugin`)."""

    name = "ha"
    option_groups: tuple[type, ...] = (HaSettings,)

    def __init__(self) -> None:
        self._host: PluginHost | None = None
        self._node: Node | None = None
        self._env: ClusterEnvironment | None = None

    def attach(self, host: PluginHost) -> StandaloneHooks | ClusterHooks:
        """Clients are kept out from here on, before the first port is open.  Raises ConfigError."""
        options: HaSettings = host.settings[HaSettings]
        state_file = host.data_dir / "ha-state.json" if host.data_dir is not None else None
        if not options.ha_cluster:
            return StandaloneHooks(host.name, uuid.uuid4().hex)
        self._host = host
        login = Login(options.ha_username or "guest", options.ha_password or "guest", options.ha_mechanism)
        env = ClusterEnvironment(host.loop, host.broker, host.reactor, login, state_file)
        if options.ha_username:
            host.add_user(options.ha_username, options.ha_password)
        host.broker.vhost.default_replicate = options.ha_replicate
        host.broker.passive = True
        settings = node_settings(host.name, options, host.settings[LinkSettings])
        node = Node(settings, host.engine, VHostConfiguration(host.broker), env, load_state(state_file))
        env.node = node
        directory = host.data_dir / "events" if host.data_dir is not None else None
        env.events = EventLog(directory, host.name, lambda: node.epoch)
        if state_file is not None and not state_file.exists():
            env.persist(node.persisted)
        host.engine.on_batch = node.batch
        host.engine.on_membership = node.membership
        self._node, self._env = node, env
        return ClusterHooks(node)

    def start(self) -> None:
        """The ports are open: look for a primary."""
        node, env, host = self._node, self._env, self._host
        if node is None or env is None or host is None:
            return
        node.set_address(own_address(node.settings.brokers, host.addresses))
        env.event("start", attrs={"broker_id": node.id, "address": node.settings.address})
        node.start()

    def stop(self, reason: str) -> None:
        """A clean end."""
        if self._node is None or self._env is None:
            return
        self._node.stop()
        self._env.event("stop", reason=reason, last_pos=self._node.role.position)
        self._env.stop()
        if self._env.events is not None:
            self._env.events.close()


def node_settings(name: str, options: HaSettings, links: LinkSettings) -> NodeSettings:
    return NodeSettings(
        name=name,
        brokers=tuple(str(address) for address in options.ha_brokers_url),
        public_url="" if options.ha_public_url == "none" else options.ha_public_url,
        replicate=options.ha_replicate,
        username=options.ha_username,
        heartbeat=links.link_heartbeat_interval,
        maintenance=links.link_maintenance_interval,
        backup_timeout=options.ha_backup_timeout,
        promote_timeout=options.ha_promote_timeout,
        isolation_wait=options.ha_isolation_wait,
        safety=options.ha_safety,
        slice_size=options.ha_slice_size,
    )


def load_state(path: Path | None) -> HaState:
    """What we must not forget; a new identity when there is no file.  Raises ConfigError for one that is damaged:
    to go on without our vote could make two primaries."""
    if path is None or not path.exists():
        return HaState(id=uuid.uuid4().hex)
    try:
        return HaState.from_json(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError, QpiddError) as error:
        raise ConfigError(f"{path} cannot be used: {error}") from error


def own_address(brokers: Iterable[str], listening: Iterable[Address]) -> str:
    """The entry of ha-brokers-url that is this broker: our port, on an address of this machine; "" if none is."""
    ports = {address.port for address in listening}
    candidates = [entry for entry in brokers if split_address(entry)[1] in ports]
    return next((entry for entry in candidates if is_local(split_address(entry)[0])), "")


def is_local(host: str) -> bool:
    """Can a socket be bound to it?  That is true for the addresses of this machine only."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, target in found:
        with socket.socket(family, kind, protocol) as sock:
            try:
                sock.bind(target)
            except OSError:
                continue
            return True
    return False
