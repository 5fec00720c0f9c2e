"""qpidd.conf of each node."""

from collections.abc import Mapping

from ha.qpid_cluster.cluster_file import ClusterSpec, NodeSpec
from ha.qpid_cluster.render import tls, users
from ha.qpid_cluster.render.checks import deployment
from ha.qpid_cluster.render.text import comment, joined

DATA = "/var/lib/qpidd"
CONFIG = "/etc/qpid/qpidd.conf"
LOG = "/var/log/qpidd/qpidd.log"

_WHY = {
    "broker-name": "Its name in logs and in what a backup tells clients that it refuses.",
    "port": "All addresses: the virtual one comes and goes.",
    "ssl-port": "The only port: plain connections are not taken, from clients or from brokers.",
    "ssl-ca": "The authorities that sign the certificates of brokers and clients.",
    "ssl-cert": "Shown to clients and to the other brokers; valid for this node's address in ha-brokers-url.",
    "ssl-key": "Owner qpidd, mode 0600. A SIGHUP has the broker read certificates and key again.",
    "data-dir": "Lock, vote and in-sync set (ha-state.json), journal/, events/, salvage/. Never shared, never copied\n"
    "elsewhere.",
    "journal": "A confirm means on the disk of every member in sync: a power cut of all nodes loses nothing that was\n"
    "confirmed. `no`: in their memory. All members or none.",
    "log-to-file": "qpid-ha and the cluster manager's logs tell the rest of the story.",
    "ha-cluster": "A member starts as backup and waits to be promoted.",
    "ha-cluster-name": "In event logs, and in the name of the attribute that is the registry in Pacemaker.",
    "ha-brokers-url": "All members by their own addresses, never by the virtual one: a promotion asks them all.",
    "ha-public-url": "What clients may be told: the address that moves with the primary.",
    "ha-safety": "What guards promotion; see below.",
    "ha-registry": "Votes and in-sync sets are kept as attributes of the cluster's nodes, before confirms depend on\n"
    "them: a broker that is promoted by mistake knows what it must hold.",
    "ha-replicate": "What is replicated when a queue does not say so itself.",
    "ha-username": "Login of the links between brokers, and of the agent. No other user may promote or change members.",
    "user-file": "Who may log in, in addition to ha-username; written by qpid-passwd. The same on all nodes;\n"
    "owner qpidd, mode 0600. A broker does not start without it.",
    "link-heartbeat-interval": "Seconds. A link between brokers is dead after two of these without an octet.",
}
_SAFETY = {
    "quorum": "quorum: nothing is confirmed, and no broker is promoted, without a majority of the members. Safe\n"
    "under any partition and any mistake of the cluster manager, with or without fencing.",
    "manager": "manager: the cluster manager sees to it that a lost primary is dead before it promotes another one.",
    "availability": "availability: nothing. A lost backup is forgotten at once; what only it knew may be lost.",
}
_NO_REGISTRY = "Only fencing prevents that two brokers confirm while they cannot hear each other."


def config_name(node: NodeSpec) -> str:
    return f"qpidd-{node.name}.conf"


def configs(spec: ClusterSpec, manager: str, decided: Mapping[str, str]) -> dict[str, str]:
    """One file for each node; `decided` are the options that the cluster manager determines."""
    return {config_name(node): config(spec, node, manager, decided) for node in spec.nodes}


def config(spec: ClusterSpec, node: NodeSpec, manager: str, decided: Mapping[str, str]) -> str:
    """For `qpidd`, and for `qpid-ha --config`."""
    registry = {name: value for name, value in decided.items() if name.startswith("ha-registry")}
    values = {**_own(spec, node), **registry, **node.options, **decided}
    values.setdefault("journal", "yes")
    values.setdefault("ha-replicate", "all")
    if spec.safety == "manager":
        values.setdefault("ha-registry", "none")
    values.setdefault("link-heartbeat-interval", "0.5")
    values.setdefault("user-file", users.INSTALLED)
    lines = comment(f"{CONFIG} of {node.name}, in cluster {spec.name} under {manager}. Written by qpid-cluster render.")
    lines += comment(
        "It holds a password: owner root, group qpidd, mode 0640. NAME=VALUE without blanks around the `=`."
    )
    for name, value in values.items():
        why = _NO_REGISTRY if (name, value) == ("ha-registry", "none") else _WHY.get(name)
        lines += ["", *comment(why)] if why else []
        lines += [f"{name}={value}"]
        lines += comment(_SAFETY[value]) if name == "ha-safety" else []
    return joined(lines)


def _own(spec: ClusterSpec, node: NodeSpec) -> dict[str, str]:
    address = deployment(spec).virtual_ip
    host = f"[{address}]" if ":" in address else address
    return {
        "broker-name": node.name,
        **tls.options(node),
        "data-dir": DATA,
        "ha-cluster": "yes",
        "ha-cluster-name": spec.name,
        "ha-brokers-url": brokers_url(spec),
        **({"ha-public-url": f"{'ssl:' if node.encrypted else ''}{host}:{node.port}"} if address else {}),
        "ha-safety": spec.safety,
    }


def brokers_url(spec: ClusterSpec) -> str:
    """All members."""
    return ",".join(node.address for node in spec.nodes)


def registry(spec: ClusterSpec) -> dict[str, str]:
    """The registry under Pacemaker."""
    if spec.safety != "manager" or deployment(spec).registry == "none":
        return {}
    return {"ha-registry": "pacemaker"}


def log_file(spec: ClusterSpec) -> dict[str, str]:
    """Log to a file: under a cluster manager standard error is not read."""
    told = any(name.startswith("log-to-") for node in spec.nodes for name in node.options)
    return {} if told else {"log-to-file": LOG, "log-to-stderr": "no"}
