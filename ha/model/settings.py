"""The options of the HA module.  Durations are seconds.  Names are those of Apache Qpid where it has the option."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ha.model.safety import USEFUL_VOTERS, too_few
from qpidd_py.errors import ConfigError
from qpidd_py.option_values import Address, addresses, as_tag, boolean, duration, one_of, path, size, text
from qpidd_py.options import option

SAFETY_MODES = ("manager", "availability", "quorum")
AUTO = "auto"
"""`quorum` from USEFUL_VOTERS brokers on; smaller clusters have to name a mode."""
LEVELS = ("none", "configuration", "all")
SHUTDOWN_RULES = ("when-synced", "always")
MECHANISMS = ("PLAIN", "AMQPLAIN", "EXTERNAL")
REGISTRIES = ("none", "file", "pacemaker")


@dataclass(frozen=True)
class HaSettings:
    """High availability."""

    ha_cluster: bool = option(boolean, False, "be a member of an active-passive cluster; starts as joining")
    ha_cluster_name: str = option(text, "", "name of the cluster in events, and of its attribute in Pacemaker")
    ha_queue_replication: bool = option(
        boolean, False, "replicate single queues from and to other brokers, outside a cluster"
    )
    ha_brokers_url: tuple[Address, ...] = option(
        addresses, (), "HOST:PORT of all members, comma between; ssl: before one that is reached over TLS"
    )
    ha_public_url: str = option(
        text, "", "URL told to clients, [tcp:|ssl:]HOST[:PORT] with commas; best one for each member; none = unset"
    )
    ha_replicate: str = option(
        one_of(*LEVELS), "none", "level of objects that do not say qpid.replicate; equal on all members"
    )
    ha_username: str = option(text, "", "name for links between brokers")
    ha_password: str = option(text, "", "password for links between brokers; better in a file", secret=True)
    ha_password_file: Path | None = option(
        path, None, "file with that password; a relative path is one of a systemd credential, if there are any"
    )
    ha_mechanism: str = option(
        one_of(*MECHANISMS), "", "SASL mechanism for links between brokers; default PLAIN, if they offer it"
    )
    ha_ssl_ca: Path | None = option(
        path, None, "PEM file of the authorities that sign the brokers' certificates; default ssl-ca"
    )
    ha_ssl_cert: Path | None = option(path, None, "PEM file with our certificate for other brokers; default ssl-cert")
    ha_ssl_key: Path | None = option(path, None, "PEM file with its private key; default the file of the certificate")
    ha_address: str = option(text, "", "which of ha-brokers-url this broker is; needed if its address is not its own")
    ha_backup_timeout: float = option(
        duration, 10.0, "how long a new primary waits for expected backups to connect", live=True
    )
    ha_promote_timeout: float = option(
        duration, 0.5, "how long a promotion waits for silent members, in each step", live=True
    )
    ha_relocate_timeout: float = option(
        duration, 5.0, "a planned switch-over that cannot drain the log in that time is given up", live=True
    )
    ha_promote_on_shutdown: str = option(
        one_of(*SHUTDOWN_RULES),
        "when-synced",
        "a primary without a backup in sync refuses the first signal to stop (when-synced) or only warns (always)",
        live=True,
    )
    ha_isolation_wait: float = option(
        duration, 2.0, "how long a primary that hears no majority waits before it shrinks the set"
    )
    ha_safety: str = option(
        one_of(AUTO, *SAFETY_MODES),
        AUTO,
        "what guards promotion and confirms: quorum, manager or availability; auto = quorum, from three brokers on",
    )
    ha_isolation_timeout: float = option(
        duration,
        10.0,
        "a primary without quorum, registry or disk for that long closes its clients; 0 = never",
        live=True,
    )
    ha_registry: str = option(
        one_of(*REGISTRIES),
        "",
        "where the manager records votes and in-sync sets: file, pacemaker or none; has to be named with manager",
    )
    ha_registry_timeout: float = option(duration, 2.0, "how long the registry may take to answer", live=True)
    ha_registry_file: Path | None = option(path, None, "the file of ha-registry=file, one for all brokers of a cluster")
    ha_slow_backup_timeout: float = option(
        duration,
        10.0,
        "how long publishers wait for a backup that cannot keep up before it is dropped; 0 = for ever",
        live=True,
    )
    ha_slow_backup_latency: float = option(
        duration,
        0.05,
        "a backup that delays confirms for that much longer than the others leaves the set; 0 = never",
        live=True,
    )
    ha_salvage_limit: int = option(
        size, 1 << 30, "most that salvage files may take; 0 = keep nothing of what an unsafe promotion has lost"
    )
    ha_events_limit: int = option(size, 1 << 30, "most that event logs may take, the oldest go then; 0 = all are kept")
    ha_slice_size: int = option(
        size, 128 * 1024, "largest piece of the difference sent between two live batches", live=True
    )

    new_identity: bool = option(
        boolean, False, "once, for a broker whose data directory is the copy of another one's: take a new identity"
    )

    def __post_init__(self) -> None:
        if self.ha_cluster:
            if not self.ha_brokers_url:
                expected = "expected the addresses of all members"
                raise ConfigError(f"option ha-brokers-url: not given with ha-cluster, {expected}")
            self._check_safety()
        check_brokers(self.ha_safety, self.ha_brokers_url)
        if self.ha_slice_size < 1024:
            raise ConfigError(f"option ha-slice-size: found {self.ha_slice_size}, expected 1KiB or more")
        if self.new_identity and not self.ha_cluster:
            raise ConfigError("option new-identity: found yes without ha-cluster, which has no identity to change")
        self._check_registry()
        self._check_login()
        if self.ha_address and self.ha_address not in map(str, self.ha_brokers_url):
            raise ConfigError(f"option ha-address: found {self.ha_address}, expected one of ha-brokers-url")

    def _check_login(self) -> None:
        if self.ha_password_file is not None:
            if self.ha_password:
                raise ConfigError("option ha-password-file: found with ha-password, expected one of them")
            # Frozen: all who log in or check a login find the password where it is without a file.
            object.__setattr__(self, "ha_password", read_password(self.ha_password_file))
        if self.ha_username and not self.ha_password and self.ha_mechanism != "EXTERNAL":
            expected = "expected ha-password or ha-password-file (an account without a password could promote)"
            raise ConfigError(f"option ha-username: found {self.ha_username} without a password, {expected}")
        if self.ha_password and not self.ha_username:
            raise ConfigError("option ha-password: found without ha-username, expected a name")

    @property
    def safety(self) -> str:
        """The mode in force."""
        return "quorum" if self.ha_safety == AUTO else self.ha_safety

    @property
    def registry(self) -> str:
        """The registry in force."""
        return self.ha_registry or "none"

    @property
    def cluster_tag(self) -> str:
        """The name of the cluster on routes between brokers, if it can be one."""
        return as_tag(self.ha_cluster_name)

    @property
    def risk(self) -> str:
        """A warning for the log, at each start; empty if there is none."""
        if self.safety != "manager" or self.registry != "none":
            return ""
        return (
            "ha-safety=manager with ha-registry=none: if brokers cannot hear each other, and the manager promotes one "
            "before it has fenced the primary, two brokers confirm, and what one of them confirmed is lost; a registry "
            "prevents that, or ha-safety=quorum with three brokers"
        )

    def _check_safety(self) -> None:
        """Raises ConfigError where an administrator has to choose."""
        count = len(set(self.ha_brokers_url))
        if self.ha_safety == AUTO and count < USEFUL_VOTERS:
            plural = "s"[count == 1 :]
            expected = f"{USEFUL_VOTERS} or more (then it is quorum), or ha-safety=manager with ha-registry named"
            raise ConfigError(f"option ha-safety: found auto with {count} broker{plural}, expected {expected}")
        if self.ha_safety == "manager" and not self.ha_registry:
            expected = "expected pacemaker or file, or none if you accept that only fencing prevents two primaries"
            raise ConfigError(f"option ha-registry: not given with ha-safety=manager, {expected}")

    def _check_registry(self) -> None:
        if self.registry != "none" and self.ha_safety != "manager":
            found = f"{self.ha_registry} with ha-safety={self.ha_safety}"
            raise ConfigError(f"option ha-registry: found {found}, expected none (a registry is the manager's)")
        if self.ha_registry == "file" and self.ha_registry_file is None:
            raise ConfigError("option ha-registry: found file without ha-registry-file, expected the path of the file")
        if self.ha_registry != "file" and self.ha_registry_file is not None:
            found = f"{self.ha_registry_file} with ha-registry={self.registry}"
            raise ConfigError(f"option ha-registry-file: found {found}, expected ha-registry=file")


def read_password(file: Path) -> str:
    """The first line.  Raises ConfigError, also for a file that everybody may read."""
    credentials = os.environ.get("CREDENTIALS_DIRECTORY", "")
    file = Path(credentials, file) if credentials else file
    try:
        if file.stat().st_mode & 0o007:
            raise ConfigError(f"option ha-password-file: {file} can be read by everybody, expected mode 0600 or 0640")
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"option ha-password-file: cannot read {file}: {error}") from None
    if not lines or not lines[0]:
        raise ConfigError(f"option ha-password-file: {file} is empty, expected a password")
    return lines[0]


def check_brokers(safety: str, brokers: Collection[Address | str]) -> None:
    """Raises ConfigError for a list with which no broker starts; `member remove` refuses to produce one."""
    if reason := too_few(safety, brokers):
        raise ConfigError(f"option ha-brokers-url: {reason}")


@dataclass(frozen=True)
class NodeSettings:
    """The settings of the HA core; a plain record, so that tests and the simulator need no options."""

    name: str
    address: str = ""
    """Our address for other brokers, HOST:PORT; if empty, found by a survey that reaches ourselves."""
    brokers: tuple[str, ...] = ()
    """ha-brokers-url as HOST:PORT."""
    public_url: str = ""
    replicate: str = "all"
    username: str = ""
    heartbeat: float = 0.5
    maintenance: float = 2.0
    backup_timeout: float = 10.0
    promote_timeout: float = 0.5
    isolation_wait: float = 2.0
    relocate_timeout: float = 5.0
    isolation_timeout: float = 10.0
    """0 = never."""
    ports: tuple[int, ...] = ()
    """On which this process listens."""
    registry: bool = False
    """True if the resource manager has a registry (`Environment.exchange`)."""
    registry_timeout: float = 2.0
    safety: str = "manager"
    slice_size: int = 128 * 1024
    slow_backup_timeout: float = 10.0
    """0 = never dropped."""
    slow_backup_latency: float = 0.05
    """0 = none leaves for being late."""
    backlog_high: int = 64 << 20
    backlog_low: int = 16 << 20
    """Backlog of one backup in octets: above the first, publishers are not read; below the second, they are again."""

    def __post_init__(self) -> None:
        check_brokers(self.safety, self.brokers)

    @property
    def dead_after(self) -> float:
        """Seconds of silence after which a link is closed."""
        return 2 * self.heartbeat

    @property
    def refusal_settle(self) -> float:
        """Seconds for which a host must refuse connections before its broker counts as gone (`model/refusals.py`)."""
        return self.dead_after if self.safety == "manager" and not self.registry else 0.0

    @property
    def promotion_limit(self) -> float:
        """Seconds that another broker may take for its promotion: it asks every broker and the registry twice, and
        waits for the silent ones each time."""
        step = max(self.promote_timeout, self.registry_timeout if self.registry else 0.0)
        return 2 * step + self.dead_after


def uses_tls(address: str) -> bool:
    return address.startswith("ssl:")


def split_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT, an IPv6 host in brackets; `ssl:` before it is ignored."""
    host, _, port = address.removeprefix("ssl:").rpartition(":")
    return host.strip("[]"), int(port)
