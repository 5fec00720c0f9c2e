"""The options of the HA module.  Durations are seconds.  Names as in the original where it has them."""

from __future__ import annotations

from dataclasses import dataclass

from qpidd_py.config import Address, addresses, boolean, duration, one_of, option, size, text
from qpidd_py.errors import ConfigError

SAFETY_MODES = ("manager", "availability", "quorum")
LEVELS = ("none", "configuration", "all")


@dataclass(frozen=True)
class HaSettings:
    """High availability."""

    ha_cluster: bool = option(boolean, False, "be a member of an active-passive cluster; starts as joining")
    ha_brokers_url: tuple[Address, ...] = option(addresses, (), "HOST:PORT of all members, comma between")
    ha_public_url: str = option(text, "", "addresses that are told to clients; none = unset")
    ha_replicate: str = option(
        one_of(*LEVELS), "none", "level of objects that do not say qpid.replicate; equal on all members"
    )
    ha_username: str = option(text, "", "name for links between brokers")
    ha_password: str = option(text, "", "password for links between brokers")
    ha_mechanism: str = option(text, "", "SASL mechanism for links between brokers; default PLAIN")
    ha_backup_timeout: float = option(duration, 10.0, "how long a new primary waits for expected backups to connect")
    ha_promote_timeout: float = option(duration, 0.5, "how long a promotion waits for silent members, in each step")
    ha_isolation_wait: float = option(
        duration, 2.0, "how long a primary that hears no majority waits before it shrinks the set"
    )
    ha_safety: str = option(one_of(*SAFETY_MODES), "manager", "who guards promotion: manager, availability or quorum")
    ha_slice_size: int = option(size, 128 * 1024, "largest piece of the difference sent between two live batches")

    def __post_init__(self) -> None:
        if self.ha_safety == "quorum" and len(self.ha_brokers_url) < 3:
            raise ConfigError("option ha-safety: found quorum, expected three or more addresses in ha-brokers-url")
        if self.ha_slice_size < 1024:
            raise ConfigError(f"option ha-slice-size: found {self.ha_slice_size}, expected 1KiB or more")


@dataclass(frozen=True)
class NodeSettings:
    """What the core of HA needs to know; a plain record, so that tests and the simulator need no options."""

    name: str
    address: str = ""
    """Where other brokers reach us, HOST:PORT; found out by asking ourselves when it is empty."""
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
    safety: str = "manager"
    slice_size: int = 128 * 1024

    @property
    def dead_after(self) -> float:
        """Silence of a link after which it is closed."""
        return 2 * self.heartbeat

    @property
    def majority(self) -> int:
        return len(self.brokers) // 2 + 1
