"""The section `deployment` of a cluster file: what the administrator's machines need in addition to the brokers.

Only `qpid-cluster render` reads it; the supervisor for one machine ignores it.  Pure.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ha.qpid_cluster.cluster_values import at_least, mapping, matching, one_of, plain_text, refuse_unknown, sequence
from ha.qpid_cluster.sbd import Sbd, parse_sbd
from qpidd_py.errors import ConfigError

REGISTRIES = ("pacemaker", "none")
ACTIONS = ("reboot", "off")
SHORTEST_TOKEN = 0.2
"""Seconds.  On a busy machine 300 ms was unreliable."""
CONSENSUS = 1.2
"""Corosync refuses less than this many tokens."""
_NAMES = (
    "virtual-ip", "interface", "token", "consensus", "dc-deadtime", "failure-timeout", "heartbeat", "registry",
    "fencing", "sbd", "ping-targets", "quorum-device", "image",
)  # fmt: skip
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,14}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_TARGET = re.compile(r"[A-Za-z0-9:]([A-Za-z0-9.:-]*[A-Za-z0-9:])?")
"""A name, or an address of either version.  Never an option of `ping`."""
_DECIDED = ("action", "nodename", "pcmk_host_check", "pcmk_host_list", "pcmk_reboot_action")
"""Parameters of a fence device that are derived from the rest of the file."""


@dataclass(frozen=True)
class Fencing:
    """How the machine of a lost node is switched off.  Parameters of a single node are given with that node."""

    agent: str
    options: Mapping[str, str] = field(default_factory=dict)
    action: str = "reboot"
    delay: float = 2.0
    """Seconds by which fencing the primary's node is delayed, so that it wins when two nodes fence each other."""


@dataclass(frozen=True)
class Deployment:
    """Durations in seconds."""

    virtual_ip: str = ""
    """Empty: none."""
    netmask: int = 0
    """Bits."""
    interface: str = ""
    """Empty: the interface in the network of the address."""
    token: float = 1.0
    consensus: float = CONSENSUS
    dc_deadtime: float = 5.0
    failure_timeout: float = 10.0
    heartbeat: float | None = None
    """Silence in seconds after which the agent counts a broker as hung; None: the agent's default."""
    ping_targets: tuple[str, ...] = ()
    """Addresses in the clients' network; a node that reaches one of them is promoted rather than one that does not."""
    quorum_device: str = ""
    """Host of corosync-qnetd, which gives a vote to one half of the nodes; empty: none."""
    registry: str = "pacemaker"
    fencing: Fencing | None = None
    sbd: Sbd | None = None
    """Nodes that reset themselves, where there is no power control."""
    image: str = "qpidd-py:latest"


def parse_deployment(value: object) -> Deployment | None:
    """None if the file has no such section."""
    if value is None:
        return None
    values = mapping(value, "deployment")
    refuse_unknown(values, _NAMES, "deployment")
    address, netmask = _virtual_ip(values.get("virtual-ip"))
    fencing = _fencing(values.get("fencing"))
    quorum_device = _quorum_device(values)
    sbd = parse_sbd(values["sbd"], bool(quorum_device)) if "sbd" in values else None
    token = at_least(values, "token", 1.0, SHORTEST_TOKEN)
    return Deployment(
        virtual_ip=address,
        netmask=netmask,
        interface=matching(values.get("interface", ""), _INTERFACE, "interface", "the name of a network interface"),
        token=token,
        consensus=at_least(values, "consensus", CONSENSUS * token, CONSENSUS * token),
        dc_deadtime=at_least(values, "dc-deadtime", 20.0 if fencing or sbd else 5.0, 1.0),
        failure_timeout=at_least(values, "failure-timeout", 10.0, 1.0),
        heartbeat=at_least(values, "heartbeat", 0.0, 0.1) if "heartbeat" in values else None,
        ping_targets=_ping_targets(values.get("ping-targets")),
        quorum_device=quorum_device,
        registry=one_of(values.get("registry", "pacemaker"), REGISTRIES, "deployment: registry"),
        fencing=fencing,
        sbd=sbd,
        image=plain_text(values.get("image", "qpidd-py:latest"), "deployment: image"),
    )


def parse_links(value: object, node: str) -> tuple[str, ...]:
    """Addresses for Corosync, one for each of its links; empty: the node's `host` is its only one."""
    if value is None:
        return ()
    links = tuple(matching(item, _HOST, f"node {node}: links", "an address") for item in sequence(value, "links"))
    if not 1 <= len(links) <= 8:
        raise ConfigError(f"node {node}: links: found {len(links)} addresses, wanted 1 to 8")
    return links


def _ping_targets(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    where = "deployment: ping-targets"
    targets = tuple(matching(item, _TARGET, where, "an address", True) for item in sequence(value, where))
    if not targets:
        raise ConfigError(f"{where}: found no address, wanted one or more")
    return tuple(dict.fromkeys(targets))


def _quorum_device(values: Mapping[str, Any]) -> str:
    if "quorum-device" not in values:
        return ""
    return matching(values["quorum-device"], _TARGET, "deployment: quorum-device", "an address", True)


def parse_parameters(value: object, where: str) -> dict[str, str]:
    """Parameters of a fence agent; agents take 1 and 0 for yes and no."""
    found = {}
    for name, item in mapping(value or {}, where).items():
        if not _PARAMETER.fullmatch(str(name)):
            raise ConfigError(f"{where}: found {name!r}, wanted the name of a parameter of the fence agent")
        if name in _DECIDED:
            raise ConfigError(f"{where}: {name} follows from the rest of the file")
        found[name] = str(int(item)) if isinstance(item, bool) else plain_text(item, f"{where}: {name}")
    return found


def _fencing(value: object) -> Fencing | None:
    if value is None:
        return None
    where = "deployment: fencing"
    values = mapping(value, where)
    refuse_unknown(values, ("agent", "options", "action", "delay"), where)
    agent = matching(values.get("agent", ""), re.compile(r"fence_[a-z0-9_]+"), f"{where}: agent", "fence_NAME", True)
    return Fencing(
        agent=agent,
        options=parse_parameters(values.get("options"), f"{where}: options"),
        action=one_of(values.get("action", "reboot"), ACTIONS, f"{where}: action"),
        delay=at_least(values, "delay", 2.0, 0.0, where),
    )


def _virtual_ip(value: object) -> tuple[str, int]:
    if value is None:
        return "", 0
    try:
        if "/" not in str(value):
            raise ValueError("no netmask")
        found = ipaddress.ip_interface(str(value))
    except ValueError:
        raise ConfigError(
            f"deployment: virtual-ip: found {value!r}, wanted ADDRESS/BITS, such as 192.0.2.10/24"
        ) from None
    return str(found.ip), found.network.prefixlen
