"""The HA plug-in: builds the node and its environment, and provides the broker's hooks (`HaHooks`).          Shell."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ha.archive.copying import CopyDoor
from ha.archive.restoring import RestoreDoor
from ha.dial import Dial, renewal, tls_of
from ha.model.content import Content
from ha.model.environment import StateNotStored
from ha.model.local_member import LocalMember
from ha.model.protocol import REPLICA
from ha.model.public_url import SERVER_PROPERTY
from ha.model.salvaged import Record
from ha.model.settings import HaSettings, split_address
from ha.model.status import State
from ha.node import Node
from ha.registry.living import BOOT
from ha.registry.worker import RegistryWorker
from ha.requests import FileRequests, LaterHandler
from ha.salvage.door import SalvageDoor
from ha.salvage.files import SalvageFiles
from ha.salvage.restorer import Peers, Restorer
from ha.shell.cluster_hooks import ClusterHooks
from ha.shell.configuration import VHostConfiguration
from ha.shell.connection_guard import limited_link
from ha.shell.environment import ClusterEnvironment
from ha.shell.events import EventLog
from ha.shell.failover_updates import FailoverUpdates, advertised
from ha.shell.from_options import check_encryption, let_in, login_of, node_settings, registry_store
from ha.shell.identity import load_state, needed_directory, own_address
from ha.shell.queue_dump import dump, dump_on_request
from ha.shell.recovering import Recovering
from ha.shell.shutdown import may_stop
from ha.shell.standalone import Standalone
from ha.shell.told import configured, journal_read, notice, started
from ha.single_queue.link import QueueReplication
from ha.single_queue.source import Standing
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.ports import Refusal
from qpidd_py.broker.shadow import WAITING
from qpidd_py.config import LinkSettings, NetworkSettings, SecuritySettings, is_loopback
from qpidd_py.core import Queue
from qpidd_py.errors import ConfigError, LinkError, ReplyCode
from qpidd_py.options import Settings
from qpidd_py.plugins import PluginHost, Reading, Request
from qpidd_py.store.service import Store as Journal

log = logging.getLogger("ha")


def load() -> HaPlugin:
    """The entry point."""
    return HaPlugin()


class StandaloneHooks(Standalone):
    """A broker outside a cluster: admits all clients, and followers of a queue if `ha-queue-replication` is on."""

    cluster = False

    def __init__(self, name: str, id: str, steerer: str, replication: QueueReplication | None) -> None:
        super().__init__(name, id, steerer, replication.request if replication is not None else None)
        self._replication = replication

    def admit(self, connection: ClientConnection, properties: Mapping[str, Any]) -> Refusal | None:
        if REPLICA in properties and self._replication is None:
            return Refusal(ReplyCode.ACCESS_REFUSED, "ACCESS_REFUSED - ha-queue-replication is off here")
        if REPLICA in properties and not connection.client.everything:
            return limited_link(properties, connection.user)
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
        if options.ha_username and options.ha_username == security.anonymous_user:
            raise ConfigError(f"option anonymous-user: found {options.ha_username}, as ha-username, expected another")
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

    def links_as(self, settings: Settings) -> str:
        options: HaSettings = settings[HaSettings]
        return login_of(options).user if options.ha_cluster else ""

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
        rules = host.broker.vhosts.rules
        rules.default_replicate, rules.clustered = options.ha_replicate, True
        tag = host.settings[LinkSettings].federation_tag
        host.broker.federation_tag = tag or options.cluster_tag
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
        self._hooks.failover = FailoverUpdates(host.broker.vhosts, lambda: advertised(node))
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
        peers = Peers(lambda: node.role.primary_address, node.local.cluster.others, env.request)
        address_of = partial(_address_of, host.broker)
        restorer = Restorer(host.loop, env.salvage_files, host.name, peers, dial, address_of)
        return SalvageDoor(host.loop, env.salvage_files, restorer)

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


def durable_queues(broker: Broker) -> list[Queue]:
    return [queue.core for queue in broker.configurations.all_queues() if queue.durable]


def standing(node: Node) -> Standing:
    """The standing for followers of a cluster's queues: only the primary serves them."""
    refusal = "" if node.local.state.is_primary else node.role.refusal_text()
    lineage = {epoch: origin.leader for epoch, origin in node.local.lineage.items()}
    return Standing(str(node.local.member), lineage, refusal)


def _address_of(broker: Broker, record: Record) -> tuple[str, str] | None:
    """See `SalvageDoor`; a backup has the exchanges of its primary."""
    if not record.queue.startswith(WAITING):
        return "", record.queue
    name, vhost = record.queue.removeprefix(WAITING), broker.vhosts.get(record.host)
    found = vhost is not None and name in vhost.exchanges
    return (name, record.routing_key.decode("utf-8", "surrogateescape")) if found else None
