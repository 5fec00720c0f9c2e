"""Checks that a cluster file is complete for more than one machine; ConfigError names what is missing."""

import ipaddress

from ha.model.safety import USEFUL_VOTERS
from ha.qpid_cluster.cluster_file import ClusterSpec, NodeSpec
from ha.qpid_cluster.deployment import Deployment
from ha.qpid_cluster.render import sbd, tls
from qpidd_py.errors import ConfigError

ON_MACHINES = ("pacemaker", "rgmanager", "systemd", "vagrant")
"""Kinds whose nodes are machines with their own addresses; the containers of the other kinds use names."""


def check(spec: ClusterSpec, kind: str) -> None:
    _check_login(spec)
    _refuse_different(spec, "journal", [node.options.get("journal", "yes") for node in spec.nodes])
    _refuse_different(spec, "require-encryption", ["yes" if node.encrypted else "no" for node in spec.nodes])
    if spec.nodes[0].encrypted and kind not in tls.KINDS:
        raise ConfigError(f"options: require-encryption: found with {kind}, wanted one of {', '.join(tls.KINDS)}")
    if spec.safety == "quorum" and len(spec.nodes) < USEFUL_VOTERS:
        raise ConfigError(f"safety: found quorum with {len(spec.nodes)} nodes, wanted {USEFUL_VOTERS} or more")
    if deployment(spec).sbd and kind not in sbd.KINDS:
        raise ConfigError(f"deployment: sbd: found with {kind}, wanted one of {', '.join(sbd.KINDS)}")
    if kind in ON_MACHINES:
        _check_hosts(spec)
    if kind in ("pacemaker", "vagrant"):
        _check_pacemaker(spec)


def deployment(spec: ClusterSpec) -> Deployment:
    """The section of that name, or its defaults."""
    return spec.deployment or Deployment()


def _check_login(spec: ClusterSpec) -> None:
    wanted = ("ha-username",) if tls.by_certificate(spec.nodes[0]) else ("ha-username", "ha-password")
    for name in wanted:
        if not spec.nodes[0].options.get(name):
            raise ConfigError(f"options: {name}: not given, wanted the login of the links between the brokers")


def _check_hosts(spec: ClusterSpec) -> None:
    for node in spec.nodes:
        if _is_local(node.host):
            raise ConfigError(
                f"node {node.name}: host: found {node.host!r}, wanted an address at which the other nodes reach it"
            )
        if node.port == 0:
            raise ConfigError(f"node {node.name}: port: found 0 (any free one), wanted the port that clients know")
    _refuse_different(spec, "port", [str(node.port) for node in spec.nodes])
    _refuse_same(spec, "host", [node.host for node in spec.nodes])
    address = deployment(spec).virtual_ip
    taken = next((node for node in spec.nodes if address and address in (node.host, *node.links)), None)
    if taken is not None:
        raise ConfigError(f"deployment: virtual-ip: found {address}, which is an address of {taken.name} itself")
    _check_ping_targets(spec, deployment(spec))


def _check_ping_targets(spec: ClusterSpec, own: Deployment) -> None:
    """A node always reaches itself, and the primary has the virtual address."""
    nodes = _taken(spec)
    for target in own.ping_targets:
        if target in nodes:
            raise ConfigError(
                f"deployment: ping-targets: found {target}, which is {nodes[target]}; wanted a router or another host"
                " in the clients' network"
            )


def _taken(spec: ClusterSpec) -> dict[str, str]:
    """Addresses of the cluster, and whose they are."""
    addresses = {address: node.name for node in spec.nodes for address in (node.name, node.host, *node.links)}
    return {deployment(spec).virtual_ip: "the virtual address", **addresses}


def _check_quorum_device(spec: ClusterSpec) -> None:
    host = deployment(spec).quorum_device
    if host and host in _taken(spec):
        raise ConfigError(
            f"deployment: quorum-device: found {host}, which is {_taken(spec)[host]}; wanted another machine"
        )
    if host and len(spec.nodes) % 2:
        raise ConfigError(
            f"deployment: quorum-device: found with {len(spec.nodes)} nodes, wanted an even number: an odd one has a"
            " majority without it"
        )


def _check_pacemaker(spec: ClusterSpec) -> None:
    own = deployment(spec)
    if len(spec.nodes) < 2:
        raise ConfigError("nodes: found 1, wanted two or more")
    if own.sbd is not None:
        _check_sbd(spec, own)
    no_fencing = own.fencing is None and own.sbd is None
    if no_fencing and len(spec.nodes) == 2:
        raise ConfigError("deployment: fencing: not given, wanted it for two nodes: neither can have a majority")
    if no_fencing and spec.safety == "manager" and own.registry == "none":
        raise ConfigError("deployment: found neither fencing nor a registry, wanted one of them, or safety: quorum")
    _refuse_different(spec, "number of links", [str(len(node.links)) for node in spec.nodes])
    _check_quorum_device(spec)
    _check_fencing(spec, own)


def _check_sbd(spec: ClusterSpec, own: Deployment) -> None:
    if own.fencing is not None:
        raise ConfigError("deployment: sbd: found with fencing, wanted one of them: sbd is for nodes without a device")
    if len(spec.nodes) == 2 and not own.quorum_device:
        raise ConfigError("deployment: sbd: found with 2 nodes, wanted a quorum-device, too: neither has a majority")
    if spec.safety == "manager" and own.registry == "none":
        raise ConfigError(
            "deployment: sbd: found with safety: manager and registry: none, wanted a registry: a primary that is cut"
            " off goes on alone long before its watchdog resets it"
        )
    if spec.nodes[0].options.get("journal", "yes") != "yes":
        raise ConfigError(
            "deployment: sbd: found without journals, wanted journal: yes: a switch that fails resets all nodes"
        )


def _check_fencing(spec: ClusterSpec, own: Deployment) -> None:
    with_device = [node.name for node in spec.nodes if node.fencing]
    without = [node.name for node in spec.nodes if not node.fencing]
    if with_device and own.fencing is None:
        raise ConfigError(f"node {with_device[0]}: fencing: given, wanted deployment: fencing: agent, too")
    if with_device and without:
        raise ConfigError(f"node {without[0]}: fencing: not given, wanted it for all nodes or for none")


def _is_local(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def _refuse_different(spec: ClusterSpec, what: str, values: list[str]) -> None:
    for node, value in zip(spec.nodes, values, strict=True):
        if value != values[0]:
            raise ConfigError(
                f"node {node.name}: {what}: found {value}, wanted {values[0]} as {spec.nodes[0].name} has"
            )


def _refuse_same(spec: ClusterSpec, what: str, values: list[str]) -> None:
    seen: dict[str, NodeSpec] = {}
    for node, value in zip(spec.nodes, values, strict=True):
        if value in seen:
            raise ConfigError(
                f"node {node.name}: {what}: found {value}, wanted another one than {seen[value].name} has"
            )
        seen[value] = node
