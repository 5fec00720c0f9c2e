"""The files for vagrant/: those for Pacemaker, and what its scripts need to know as shell variables."""

from collections.abc import Mapping

from ha.qpid_cluster.cluster_file import ClusterSpec
from ha.qpid_cluster.render import broker, pacemaker_files
from ha.qpid_cluster.render.checks import deployment

_HEAD = (
    "# Cluster {} for vagrant/Vagrantfile and vagrant/provision/*.sh: KEY='VALUE'. Written by qpid-cluster render.\n"
)


def render(spec: ClusterSpec) -> dict[str, str]:
    by_hand = {"README.md", "cluster.pcs.sh", "cluster.crmsh"}  # here scripts take the steps
    files = {name: text for name, text in pacemaker_files.render(spec).items() if name not in by_hand}
    return {"cluster.env": _HEAD.format(spec.name) + _assignments(_variables(spec)), **files}


def _variables(spec: ClusterSpec) -> dict[str, str]:
    own = deployment(spec)
    return {
        "QPID_CLUSTER": spec.name,
        "QPID_NODES": " ".join(node.name for node in spec.nodes),
        "QPID_ADDRESSES": " ".join(node.host for node in spec.nodes),
        "QPID_PORT": str(spec.nodes[0].port),
        "QPID_VIP": own.virtual_ip,
        "QPID_VIP_NETMASK": str(own.netmask) if own.virtual_ip else "",
        "QPID_INTERFACE": own.interface,
        "QPID_FENCE_AGENT": own.fencing.agent if own.fencing else "",
        "QPID_SAFETY": spec.safety,
        "QPID_REGISTRY": broker.registry(spec).get("ha-registry", "none"),
    }


def _assignments(variables: Mapping[str, str]) -> str:
    """No value holds a quotation mark: all were checked when the cluster file was read."""
    return "".join(f"{name}='{value}'\n" for name, value in variables.items())
