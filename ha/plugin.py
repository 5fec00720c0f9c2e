"""The HA plug-in: builds the node and its environment, and provides the broker's hooks (`HaHooks`).          Shell."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ha.archive.copying import CopyDoor
from ha.archive.restoring import RestoreDoor
from ha.dial import Dial, renewal, tls_of, trust
from ha.model.content import Content
from ha.model.environment import StateNotStored
from ha.model.local_member import LocalMember
from ha.model.membership import HaState
from ha.model.protocol import REPLICA
from ha.model.public_url import SERVER_PROPERTY
from ha.model.settings import HaSettings, NodeSettings, split_address, uses_tls
from ha.model.state_file import FileDirectory, StateFile, StateFileError
from ha.model.status import State
from ha.model.twins import with_new_identity
from ha.node import Node
from ha.registry.file import FileRegistry
from ha.registry.living import BOOT, Living
from ha.registry.pacemaker import PacemakerRegistry
from ha.registry.worker import RegistryWorker, Store
from ha.requests import FileRequests, LaterHandler
from ha.salvage.door import Peers, SalvageDoor
from ha.salvage.files import SalvageFiles
from ha.shell.cluster_hooks import ClusterHooks
from ha.shell.environment import ClusterEnvironment
from ha.shell.events import EventLog
from ha.shell.failover_updates import FailoverUpdates, advertised
from ha.shell.queue_dump import dump, dump_on_request
from ha.shell.recovering import Recovering
from ha.shell.shutdown import is_last, may_stop
from ha.shell.standalone import Standalone
from ha.single_queue.link import QueueReplication
from ha.single_queue.source import Standing
from qpidd_py.amqp.client import Login
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.pause import Pause
from qpidd_py.broker.ports import Refusal
from qpidd_py.config import Address, LinkSettings, NetworkSettings, SecuritySettings, Settings, is_loopback
from qpidd_py.core import Queue
from qpidd_py.errors import ConfigError, LinkError, ReplyCode
from qpidd_py.plugins import PluginHost, Reading, Request
from qpidd_py.store.service import Store as Journal

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("ha")


def load() -> HaPlugin:
    """The entry point."""
    return HaPlugin()


class VHostConfiguration:
    """The broker's virtual host as HA sees it (`environment.Configuration`)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pause: Pause | None = None

    def snapshot(self) -> bytes:
        return self._broker.vhost.configuration.encoded()

    def adopting(self, records: list[tuple[int, bytes]]) -> Iterator[None]:
        return self._broker.vhost.configuration.adopting(records)

    def replicated(self) -> Iterable[tuple[Queue, int]]:
        queues = self._broker.vhost.queues.values()
        return [(queue.core, queue.position) for queue in queues if queue.core.replicated]

    def on_promoted(self) -> None:
        self._broker.passive = False
        self._broker.vhost.on_promoted()

    def on_deposed(self) -> None:
        self._broker.passive = True

    def pause_clients(self, reason: str) -> None:
        self._pause = self._pause or Pause(self._broker, reason)

    def resume_clients(self) -> None:
        if self._pause is not None:
            self._pause.end()
            self._pause = None

    def still_busy(self) -> tuple[int, int]:
        return (self._pause.unanswered, self._pause.unacknowledged) if self._pause is not None else (0, 0)

    def on_throttle(self, reason: str) -> None:
        if reason:
            self._broker.block(reason, "throttle")
        else:
            self._broker.unblock("throttle")


class StandaloneHooks(Standalone):
    """A broker outside a cluster: admits all clients, and followers of a queue if `ha-queue-replication` is on."""

    cluster = False

    def __init__(self, name: str, id: str, steerer: str, replication: QueueReplication | None) -> None:
        super().__init__(name, id, steerer, replication.request if replication is not None else None)
        self._replication = replication

    def admit(self, connection: ClientConnection, properties: Mapping[str, Any]) -> Refusal | None:
        if REPLICA in properties and self._replication is None:
            return Refusal(ReplyCode.ACCESS_REFUSED, "ACCESS_REFUSED - ha-queue-replication is off here")
        return None

    def opened(self, connection: ClientConnection) -> bool:
        return self._replication is not None and self._replication.opened(connection)

    def connection_closed(self, connection: ClientConnection) -> None:
        pass

    def limited(self, reason: str) -> None:
        pass

    def alarm(self, name: str, reason: str) -> None:
        pass

    def damaged(self, reason: str) -> None:
        pass

    def paging(self, result: str, reason: str) -> None:
        pass

    def tick(self, now: float) -> None:
        pass


class HaPlugin:
    """What the composition root loads (`qpidd_py.plugins.Plugin`)."""

    name = "ha"
    option_groups: tuple[type, ...] = (HaSettings,)

    def __init__(self) -> None:
        self._host: PluginHost | None = None
        self._node: Node | None = None
        self._env: ClusterEnvironment | None = None
        self._replication: QueueReplication | None = None
        self._salvage_door: SalvageDoor | None = None
        self._hooks: ClusterHooks | None = None
        self._shutdown_rule = ""

    def check(self, settings: Settings, data_dir: Path | None) -> list[str]:
        """What the options alone say.  Raises ConfigError."""
        options: HaSettings = settings[HaSettings]
        security = settings[SecuritySettings]
        tls = tls_of(options, security)
        if not options.ha_cluster:
            return []
        needed_directory(data_dir)
        check_encryption(options, security, tls)
        elsewhere = [each for each in options.ha_brokers_url if not is_loopback(each.host)]
        if security.auth and security.user_file is None and not options.ha_username and elsewhere:
            expected = "expected a name, since guest may log in from its own machine only"
            raise ConfigError(f"option ha-username: not given, with {elsewhere[0]} in ha-brokers-url, {expected}")
        ports = {settings[NetworkSettings].port, settings[SecuritySettings].ssl_port}
        listed = {split_address(str(address))[1] for address in options.ha_brokers_url}
        if options.ha_address or 0 in ports or ports & listed:
            return []
        return [
            f"option ha-brokers-url: found {','.join(map(str, options.ha_brokers_url))}, expected an address with port "
            f"{settings[NetworkSettings].port}, where this broker listens, or ha-address"
        ]

    def reading(self, host: Reading) -> Request:
        """What answers while the journal is read."""
        options: HaSettings = host.settings[HaSettings]
        let_in(host, options)
        brokers = ",".join(map(str, options.ha_brokers_url)) if options.ha_cluster else ""
        public_url = "" if options.ha_public_url == "none" else options.ha_public_url
        return Recovering(host.name, lambda: host.progress.step, options.ha_username, brokers, public_url).request

    def attach(self, host: PluginHost) -> StandaloneHooks | ClusterHooks:
        """Called before the first port is open; clients are refused from here on.  Raises ConfigError."""
        options: HaSettings = host.settings[HaSettings]
        security = host.settings[SecuritySettings]
        dial = Dial(login_of(options), tls_of(options, security))
        host.on_reload.append(lambda fresh: renewal(dial, options, security, host.tls))
        if not options.ha_cluster:
            return self._attach_standalone(host, options, dial)
        if options.risk:
            log.warning("%s", options.risk)
        self._host, self._shutdown_rule = host, options.ha_promote_on_shutdown
        state_file, state = load_state(needed_directory(host.data_dir), options.new_identity)
        env = ClusterEnvironment(host.loop, host.broker, host.reactor, dial, state_file)
        let_in(host, options)
        host.broker.vhost.default_replicate, host.broker.vhost.clustered = options.ha_replicate, True
        host.broker.passive = True
        settings = node_settings(host.name, options, host.settings[LinkSettings])
        if settings.public_url:
            host.broker.server_properties[SERVER_PROPERTY] = settings.public_url
        configuration = VHostConfiguration(host.broker)
        journal = host.store.journal if host.store is not None else None
        node = Node(LocalMember(settings, host.engine, configuration, env, state, uuid.uuid4().hex, journal))
        env.node = node
        node.local.logins = host.users
        if host.store is not None:
            begin_journal(host.store, node)
        env.fail = host.fail
        if (store := registry_store(options, state.id)) is not None:
            env.registry = RegistryWorker(host.loop, store)
        directory = host.data_dir / "events" if host.data_dir is not None else None
        limit = options.ha_events_limit
        env.events = EventLog(directory, host.name, lambda: node.local.epoch, options.ha_cluster_name, limit)
        host.engine.on_batch = node.batch
        host.engine.on_membership = node.membership
        host.on_reload.append(partial(self._retuned, node))
        self._node, self._env = node, env
        self._replication = QueueReplication(host, dial, options.ha_slice_size, lambda: standing(node))
        self._salvage_door = self._open_salvage(host, options, node, env, dial)
        files = FileRequests(
            dump=lambda arguments, user, reply: dump_on_request(
                node, durable_queues(host.broker), reply, env.lost_events
            ),
            salvage=self._salvage_door.request,
        )
        self._hooks = ClusterHooks(node, self._replication, files, open_archive(host, node))
        self._hooks.failover = FailoverUpdates(host.broker.vhost, lambda: advertised(node))
        return self._hooks

    def _retuned(self, node: Node, fresh: Settings) -> Callable[[], None]:
        """The live options of `fresh` differ, the others are those of the start."""
        known = node.local.settings
        found = node_settings(known.name, fresh[HaSettings], fresh[LinkSettings])

        def retune() -> None:
            self._shutdown_rule = fresh[HaSettings].ha_promote_on_shutdown
            node.local.retune(replace(found, address=known.address, ports=known.ports))

        return retune

    @staticmethod
    def _open_salvage(
        host: PluginHost, options: HaSettings, node: Node, env: ClusterEnvironment, dial: Dial
    ) -> SalvageDoor:
        directory = host.data_dir / "salvage" if host.data_dir is not None else None
        env.salvage_files = SalvageFiles(directory, options.ha_salvage_limit)
        peers = Peers(lambda: node.role.primary_address, node.local.others, env.request)
        return SalvageDoor(host.loop, env.salvage_files, host.name, peers, dial)

    def _attach_standalone(self, host: PluginHost, options: HaSettings, dial: Dial) -> StandaloneHooks:
        id = uuid.uuid4().hex
        let_in(host, options)
        if options.ha_queue_replication:
            # A journal continues in a new epoch with each start; without one all is in epoch 0.
            self._replication = QueueReplication(
                host, dial, options.ha_slice_size, lambda: Standing(host.name, {0: id, host.engine.epoch: id})
            )
        return StandaloneHooks(host.name, id, options.ha_username, self._replication)

    def start(self) -> None:
        """The ports are open: search for a primary."""
        node, env, host = self._node, self._env, self._host
        if node is None or env is None or host is None:
            return
        ports = tuple(dict.fromkeys(address.port for address in host.addresses))
        said = host.settings[HaSettings].ha_address
        node.local.set_address(said or own_address(node.local.settings.brokers, host.addresses), ports)
        version = str(host.broker.server_properties["version"])
        env.event("start", attrs={"version": version, **started(node), **configured(host.settings)})
        if host.store is not None:
            env.event("journal_read", **journal_read(host.store, node))
        node.candidacy.news = lambda: host.tell(notice(node))
        node.start()
        host.tell(notice(node))

    def may_stop(self) -> str:
        """Before a controlled stop: why it is refused, because messages would be lost; empty if it is allowed."""
        if self._node is None or self._host is None:
            return ""
        return may_stop(self._node, self._shutdown_rule)

    def stop(self, reason: str) -> None:
        """A clean end."""
        if self._replication is not None:
            self._replication.stop()
        if self._node is None or self._env is None:
            return
        if self._salvage_door is not None:
            self._salvage_door.stop()
        if self._node.local.state.is_primary and self._host is not None:
            dump(self._env, durable_queues(self._host.broker), "stop")
        self._node.stop()
        if self._hooks is not None:
            self._hooks.clients.count()
        self._env.event("stop", reason=reason, last_pos=self._node.role.position)
        self._env.stop()
        if self._env.events is not None:
            self._env.events.close()


def open_archive(host: PluginHost, node: Node) -> dict[str, LaterHandler]:
    """`ha.backup` and `ha.restore`."""

    def leaders() -> dict[int, str]:
        return {epoch: origin.leader for epoch, origin in node.local.lineage.items()}

    def may_copy() -> str:
        state = node.local.state
        whole = state.is_primary or state is State.READY
        return "" if whole else f"{node.local.member} is {state.value} and may not hold everything"

    def may_restore() -> str:
        return "" if node.local.state.is_primary else node.role.refusal_text()

    copies = CopyDoor(host.broker, leaders, may_copy, node.local.env.now, node.local.env.after)
    restores = RestoreDoor(host.broker, may_restore, node.local.env.log)
    node.local.closed = lambda: restores.closed
    return {"ha.backup": copies.request, "ha.restore": restores.request}


def login_of(options: HaSettings) -> Login:
    return Login(options.ha_username or "guest", options.ha_password or "guest", options.ha_mechanism)


def let_in(host: PluginHost | Reading, options: HaSettings) -> None:
    """The other brokers log in with `ha-username`: by password, or with EXTERNAL by certificate only."""
    if host.tls is not None and options.ha_ssl_ca is not None:
        trust(host.tls, options.ha_ssl_ca)
    if options.ha_username and (options.ha_password or options.ha_mechanism != "EXTERNAL"):
        host.add_user(options.ha_username, options.ha_password)


def check_encryption(options: HaSettings, security: SecuritySettings, tls: ssl.SSLContext | None) -> None:
    """Raises ConfigError for addresses of members at which no member could be reached."""
    brokers = options.ha_brokers_url
    plain = next((address for address in brokers if not address.tls), None)
    if options.ha_mechanism == "EXTERNAL" and plain is not None:
        expected = "expected ssl: before each address, since EXTERNAL logs in by certificate"
        raise ConfigError(f"option ha-mechanism: found EXTERNAL with {plain} in ha-brokers-url, {expected}")
    if security.require_encryption and plain is not None:
        expected = f"expected ssl: before each address, such as ssl:{plain.host}:{security.ssl_port}"
        raise ConfigError(f"option ha-brokers-url: found {plain} with require-encryption, {expected}")
    encrypted = next((address for address in brokers if address.tls), None)
    if encrypted is None:
        return
    if tls is None:
        expected = "expected the authorities that sign the brokers' certificates"
        raise ConfigError(
            f"option ha-ssl-ca: found none (and no ssl-ca) with {encrypted} in ha-brokers-url, {expected}"
        )
    if security.ssl_cert is None:
        expected = "expected a certificate, with which others can reach this broker"
        raise ConfigError(f"option ssl-cert: found none with {encrypted} in ha-brokers-url, {expected}")


def begin_journal(store: Journal, node: Node) -> None:
    """Go on from what the journal has brought back.  Raises ConfigError."""
    boot = BOOT.read_text().strip()
    node.local.boot = "" if store.syncs_first else boot
    if store.damage and node.local.persisted.in_sync.ids == {node.local.id}:
        how = "no other member has all that was confirmed: save what can be read with `qpidd-journal repair`"
        raise ConfigError(f"the journal {store} is damaged: {store.damage}; {how}, or move it away")
    if store.damage:
        what = f"the journal is damaged: {store.damage}; it is kept in"
        node.local.env.log("error", f"{what} {store.set_aside()}, and this broker begins without messages")
    if store.found:
        try:
            # A journal that is synced later may have lost its end with the machine's power.
            node.restore(Content.decode(store.note).after(boot), store.mark if store.syncs_first else 0)
        except StateNotStored as error:
            raise ConfigError(f"the vote cannot be stored: {error}") from error
        except LinkError as error:
            what = f"the journal {store} was written by a broker outside a cluster"
            raise ConfigError(f"{what}: {error}; expected that of a member, or an empty folder") from error
    store.begin_as_member(node.local.content.encode(), node.durable)


def journal_read(store: Journal, node: Node) -> dict[str, Any]:
    """What the disk has brought back, for the event `journal_read`."""
    local = node.local
    found: dict[str, Any] = {"last_pos": local.engine.position or None, "attrs": store.facts}
    if store.damaged:
        return {"result": "damaged", "reason": store.damaged, "attrs": {}}
    if not local.engine.position:
        return {"result": "empty"}
    partial = "" if local.whole else local.copied or "the in-sync set does not list what it holds"
    return {**found, "result": "partial" if partial else "whole", "reason": partial}


def durable_queues(broker: Broker) -> list[Queue]:
    return [queue.core for queue in broker.vhost.queues.values() if queue.durable]


def started(node: Node) -> dict[str, object]:
    """Identity of this broker, for the event `start`."""
    return {
        "broker_id": node.local.id,
        "address": node.local.settings.address,
        "brokers": len(node.local.settings.brokers),
    }


def configured(settings: Settings) -> dict[str, object]:
    """Options that bound the duration of a fail-over, in seconds; for the event `start`."""
    options, links = settings[HaSettings], settings[LinkSettings]
    return {
        "ha-safety": options.safety,
        "ha-registry": options.registry,
        "ha-backup-timeout": options.ha_backup_timeout,
        "ha-promote-timeout": options.ha_promote_timeout,
        "ha-isolation-wait": options.ha_isolation_wait,
        "ha-isolation-timeout": options.ha_isolation_timeout,
        "link-heartbeat-interval": links.link_heartbeat_interval,
        "link-maintenance-interval": links.link_maintenance_interval,
    }


def notice(node: Node) -> dict[str, str]:
    """The state for a supervisor; see `PluginHost.tell`."""
    score = node.candidacy.score
    if node.local.state.is_primary:
        text = f"{node.local.state.value}: primary of epoch {node.local.epoch}"
    else:
        may = "must not be promoted now" if score is None else f"promotion score {score}"
        text = f"{node.local.state.value}: backup, {may}"
    return {
        "STATUS": text,
        "X_QPID_STATE": node.local.state.value,
        "X_QPID_SCORE": "" if score is None else str(score),
        "X_QPID_LAST": "1" if is_last(node) else "",
    }


def standing(node: Node) -> Standing:
    """The standing for followers of a cluster's queues: only the primary serves them."""
    refusal = "" if node.local.state.is_primary else node.role.refusal_text()
    lineage = {epoch: origin.leader for epoch, origin in node.local.lineage.items()}
    return Standing(str(node.local.member), lineage, refusal)


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
        relocate_timeout=options.ha_relocate_timeout,
        # No wait with a registry: it shows whether we were overtaken, and Pacemaker's waits itself for fencing.
        isolation_wait=0.0 if options.registry != "none" else options.ha_isolation_wait,
        isolation_timeout=options.ha_isolation_timeout,
        registry=options.registry != "none",
        registry_timeout=options.ha_registry_timeout,
        safety=options.safety,
        slice_size=options.ha_slice_size,
        slow_backup_timeout=options.ha_slow_backup_timeout,
        slow_backup_latency=options.ha_slow_backup_latency,
    )


def registry_store(options: HaSettings, id: str) -> Store | None:
    """None when the manager has no registry.  Raises ConfigError."""
    if options.ha_registry == "pacemaker":
        return PacemakerRegistry(options.ha_cluster_name)
    if options.ha_registry_file is None:
        return None
    try:
        return FileRegistry(options.ha_registry_file, Living(options.ha_registry_file, id))
    except OSError as error:
        raise ConfigError(f"option ha-registry-file: {options.ha_registry_file} cannot be used: {error}") from error


def needed_directory(data_dir: Path | None) -> Path:
    """Raises ConfigError."""
    if data_dir is None:
        text = "expected a data directory: a member that forgets its vote in a restart can make two primaries"
        raise ConfigError(f"option no-data-dir: found yes with ha-cluster, {text}")
    return data_dir


def load_state(directory: Path, new_identity: bool = False) -> tuple[StateFile, HaState]:
    """The stored vote and set, with a new identity if there is no file or `new_identity` is set.  Raises ConfigError
    for a file that cannot be written, or is damaged: going on without our vote could make two primaries."""
    file = StateFile(FileDirectory(directory))
    try:
        state = file.open()
        if state is None:
            state = HaState(id=uuid.uuid4().hex)
            file.store(state)
        elif new_identity:
            state = _renamed(state)
            file.store(state)
    except (OSError, StateFileError) as error:
        raise ConfigError(f"{file} cannot be used: {error}") from error
    return file, state


def _renamed(state: HaState) -> HaState:
    id = uuid.uuid4().hex
    log.warning("new identity %s, it was %s; start without --new-identity from now on", id[:8], state.id[:8])
    return with_new_identity(state, id)


def own_address(brokers: Iterable[str], listening: Iterable[Address]) -> str:
    """Our entry in ha-brokers-url: our port, on an address of this machine; "" if there is none."""
    ports = {(address.port, address.tls) for address in listening}
    candidates = [entry for entry in brokers if (split_address(entry)[1], uses_tls(entry)) in ports]
    return next((entry for entry in candidates if is_local(split_address(entry)[0])), "")


def is_local(host: str) -> bool:
    """True if a socket can be bound to `host`, that is for addresses of this machine only."""
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
