"""What the options make: the settings of the node, its registry, the login of brokers.                      Shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.dial import trust
from ha.model.settings import HaSettings, NodeSettings
from ha.registry.file import FileRegistry
from ha.registry.living import Living
from ha.registry.pacemaker import PacemakerRegistry
from ha.registry.worker import Store
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.config import LinkSettings, SecuritySettings
from qpidd_py.errors import ConfigError
from qpidd_py.plugins import PluginHost, Reading

if TYPE_CHECKING:
    import ssl


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
