"""The groups of options of the broker itself; `qpidd_py.options` has the machinery and says how a plug-in adds groups.

Units: durations are seconds (float), sizes are octets.  A field's name with `-` for `_` is the option's name.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qpidd_py.errors import ConfigError
from qpidd_py.option_values import (
    Amount,
    SyncEvery,
    amount,
    boolean,
    duration,
    integer,
    known_hosts,
    milliseconds,
    path,
    port_number,
    size,
    sync_every,
    tag,
    text,
)
from qpidd_py.options import option, repeatable

SMALLEST_SEGMENT: Final = 1024**2
SEGMENT: Final = 64 * 1024**2
DISK_FREE: Final = Amount(percent=5)
NOW: Final = SyncEvery()
SMALLEST_MEMORY: Final = 64 * 1024**2
"""A broker without messages takes about half of that."""


@dataclass(frozen=True)
class BrokerSettings:
    """Broker."""

    broker_name: str = option(text, "", "name in logs, events and refusals; default HOST:PORT")
    max_message_size: int = option(size, 128 * 1024**2, "largest message body that is taken", live=True)
    max_transaction: int = option(
        integer, 16384, "most publishes and settlements in one transaction; 0 = no limit", live=True
    )
    max_transaction_size: int = option(
        size, 64 * 1024**2, "most octets of several publishes in one transaction; 0 = no limit", live=True
    )
    channel_max: int = option(integer, 2047, "highest channel number offered to clients; 0 = 65535", live=True)
    frame_max: int = option(size, 131072, "largest frame offered to clients", live=True)
    memory_limit: Amount = option(
        amount, Amount(percent=40), "publishers wait while the broker takes more, in octets or % of RAM; 0 = no limit"
    )
    max_queues: int = option(integer, 0, "most queues; 0 = no limit", live=True)
    max_queues_per_user: int = option(integer, 0, "most queues that one user has declared; 0 = no limit", live=True)
    consumer_timeout: float = option(
        duration, 0.0, "most time for which a client may keep a delivery without settling it; 0 = no limit", live=True
    )
    heartbeat: int = option(integer, 60, "heartbeat offered to clients, whole seconds; 0 = none", live=True)

    def __post_init__(self) -> None:
        if self.frame_max < 4096:
            raise ConfigError(f"option frame-max: found {self.frame_max}, expected 4096 or more")
        if 0 < self.memory_limit.octets < SMALLEST_MEMORY:
            text = f"found {self.memory_limit}, expected 0 or {SMALLEST_MEMORY} or more"
            raise ConfigError(f"option memory-limit: {text}")
        for name, value in (("channel-max", self.channel_max), ("heartbeat", self.heartbeat)):
            if value > 65535:
                raise ConfigError(f"option {name}: found {value}, expected 0 to 65535")


@dataclass(frozen=True)
class NetworkSettings:
    """Network."""

    port: int = option(port_number, 5672, "port to listen on; 0 = a free one, which is printed", short="p")
    interface: tuple[str, ...] = repeatable(text, (), "address to listen on; may be repeated; default all")
    connection_backlog: int = option(integer, 4096, "connections the system may hold before they are accepted")
    tcp_nodelay: bool = option(boolean, True, "send small packets at once", live=True)
    known_hosts_url: str = option(
        known_hosts,
        "",
        "URL told to clients in connection.open-ok (known-hosts), as HOST:PORT,HOST:PORT; none = unset",
        live=True,
    )
    max_negotiate_time: float = option(
        milliseconds, 10.0, "time for a client's handshake; plain number = ms", live=True
    )
    max_connections: int = option(integer, 0, "most client connections at a time; 0 = no limit", live=True)
    max_connections_per_user: int = option(integer, 0, "the same for each user", live=True)
    max_connections_per_ip: int = option(integer, 0, "the same for each address of clients", live=True)
    max_newcomers: int = option(
        integer, 5000, "most connections at a time that are not logged in yet; 0 = no limit", live=True
    )


@dataclass(frozen=True)
class DataSettings:
    """Data directory."""

    data_dir: Path | None = option(path, None, "where the broker keeps its files; default $HOME/.qpidd")
    journal: bool = option(boolean, False, "keep messages and configuration on disk; in a cluster on every member")
    journal_segment_size: int = option(size, SEGMENT, "size of the journal's files")
    journal_sync: SyncEvery = option(
        sync_every, NOW, "when it is on disk: batch = before a confirm, interval:MS = so long later, os = later"
    )
    disk_free_limit: Amount = option(
        amount, DISK_FREE, "publishers wait while the journal's disk has less, the page file leaves it; % is at most 1G"
    )
    page_folder: str = option(
        text, "", "where messages go that do not fit into memory; default data-dir or /var/tmp; no = nowhere"
    )
    no_data_dir: bool = option(boolean, False, "keep no files at all; not for a member of a cluster")

    def __post_init__(self) -> None:
        if self.journal and self.no_data_dir:
            raise ConfigError("option journal: found yes with no-data-dir, expected a data directory")
        if self.journal_segment_size < SMALLEST_SEGMENT:
            found = self.journal_segment_size
            raise ConfigError(f"option journal-segment-size: found {found}, expected {SMALLEST_SEGMENT} or more")
        for name, value, default in (
            ("journal-segment-size", self.journal_segment_size, SEGMENT),
            ("journal-sync", self.journal_sync, NOW),
        ):
            if value != default and not self.journal:
                raise ConfigError(f"option {name}: found {value} without journal, expected journal=yes")
        if self.disk_free_limit != DISK_FREE and not self.journal and self.page_folder == "no":
            text = f"found {self.disk_free_limit} without journal and page file, expected journal=yes or a page-folder"
            raise ConfigError(f"option disk-free-limit: {text}")


@dataclass(frozen=True)
class DaemonSettings:
    """Daemon."""

    daemon: bool = option(boolean, False, "run in the background; returns when the broker listens", short="d")
    pid_dir: Path | None = option(path, None, "where pid files go; default the data directory")
    wait: float = option(duration, 600.0, "how long --daemon and --quit wait", short="w")
    check: bool = option(boolean, False, "print the pid of the running broker and end; 1 = not running", short="c")
    check_config: bool = option(boolean, False, "check options and files without starting; 1 = something is wrong")
    quit: bool = option(boolean, False, "stop the running broker cleanly and wait for its end", short="q")


@dataclass(frozen=True)
class SecuritySettings:
    """Security."""

    auth: bool = option(boolean, True, "check names and passwords")
    user_file: Path | None = option(path, None, "YAML file of `name: hash`; default guest/guest, on this machine only")
    anonymous_user: str = option(text, "", "user of clients that log in with ANONYMOUS; default none may")
    acl_file: Path | None = option(path, None, "ACL file, as Qpid's: who may do what; default everything", live=True)
    require_encryption: bool = option(boolean, False, "take clients on the TLS port only")
    ssl_port: int = option(port_number, 5671, "TLS port; used when a certificate is given")
    ssl_cert: Path | None = option(path, None, "PEM file with our certificate and what leads up to its root")
    ssl_key: Path | None = option(path, None, "PEM file with our private key; default the file of the certificate")
    ssl_ca: Path | None = option(path, None, "PEM file of the authorities that sign clients' certificates")
    ssl_require_client_authentication: bool = option(boolean, False, "refuse TLS clients without a certificate")

    def __post_init__(self) -> None:
        if self.require_encryption and self.ssl_cert is None:
            raise ConfigError("option require-encryption: found yes without ssl-cert, expected a certificate")
        if self.ssl_require_client_authentication and self.ssl_ca is None:
            raise ConfigError("option ssl-require-client-authentication: found yes without ssl-ca")


@dataclass(frozen=True)
class LinkSettings:
    """Links between brokers."""

    link_heartbeat_interval: float = option(duration, 0.5, "heartbeat on links; dead after twice that")
    federation_tag: str = option(
        tag,
        "",
        "name of this cluster on routes between brokers; default ha-cluster-name, or broker-name without a cluster",
    )
    link_maintenance_interval: float = option(duration, 2.0, "longest time between attempts to connect")

    def __post_init__(self) -> None:
        for name in ("link_heartbeat_interval", "link_maintenance_interval"):
            value = getattr(self, name)
            if value < 0.01:
                raise ConfigError(f"option {name.replace('_', '-')}: found {value} s, expected 10ms or more")


@dataclass(frozen=True)
class LogSettings:
    """Logging."""

    trace: bool = option(boolean, False, "log everything, as --log-enable trace+", short="t", live=True)
    log_enable: tuple[str, ...] = repeatable(
        text, ("notice+",), "LEVEL[+|-][:PATTERN], what to log; may be repeated", live=True
    )
    log_disable: tuple[str, ...] = repeatable(text, (), "the same, what not to log; wins over log-enable", live=True)
    log_time: bool = option(boolean, True, "show the time")
    log_level: bool = option(boolean, True, "show the level")
    log_category: bool = option(boolean, True, "show the category")
    log_source: bool = option(boolean, False, "show file and line")
    log_thread: bool = option(boolean, False, "show the thread")
    log_function: bool = option(boolean, False, "show the function")
    log_hires_timestamp: bool = option(boolean, False, "show the time with microseconds")
    log_prefix: str = option(text, "", "text before each line")
    log_to_stderr: bool = option(boolean, True, "log to standard error")
    log_to_stdout: bool = option(boolean, False, "log to standard output")
    log_to_file: Path | None = option(path, None, "log to this file, appended")
    log_to_syslog: bool = option(boolean, False, "log to the system log")
    syslog_name: str = option(text, "qpidd", "our name in the system log")


GROUPS: tuple[type, ...] = (
    BrokerSettings,
    NetworkSettings,
    DataSettings,
    DaemonSettings,
    SecuritySettings,
    LinkSettings,
    LogSettings,
)


def is_loopback(host: str) -> bool:
    """As written; names other than localhost are not looked up."""
    return host.startswith("127.") or host in ("::1", "localhost")


def no_pass_phrase() -> str:
    """Given to OpenSSL, which otherwise asks for it on the terminal: a broker that reads its files again would stand
    still."""
    raise OSError("its key is encrypted, expected one without a pass phrase, which only the broker's user can read")


def data_directory(settings: DataSettings, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The data directory in force, or None when the broker keeps no files."""
    if settings.no_data_dir:
        return None
    if settings.data_dir is not None:
        return settings.data_dir
    home = environment.get("HOME")
    return Path(home, ".qpidd") if home else Path("/tmp/.qpidd")
