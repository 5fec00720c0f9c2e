"""What a cluster that takes only TLS (`require-encryption`) adds to its rendered files.  Pure.

Key and certificates are the administrator's; the paths are the same on all nodes.
"""

from ha.qpid_cluster.cluster_file import ClusterSpec, NodeSpec

FOLDER = "/etc/qpid/tls"
KINDS = ("pacemaker", "rgmanager", "systemd")
"""Those whose nodes an administrator sets up; containers and Vagrant's machines come without certificates."""


def options(node: NodeSpec) -> dict[str, str]:
    """The port and the files of a broker, unless the cluster file names others; `ha-ssl-*` are these by default."""
    if not node.encrypted:
        return {"port": str(node.port)}
    found = {"ssl-port": str(node.port), "ssl-ca": f"{FOLDER}/ca.pem"}
    if "ssl-cert" not in node.options:
        found |= {"ssl-cert": f"{FOLDER}/broker.crt", "ssl-key": f"{FOLDER}/broker.key"}
    return found


def row(spec: ClusterSpec) -> str:
    """Of the table in README.md."""
    first = spec.nodes[0]
    if not first.encrypted:
        return ""
    given = {**options(first), **first.options}
    names = ("ssl-ca", "ssl-cert", "ssl-key", "ha-ssl-ca", "ha-ssl-cert", "ha-ssl-key")
    files = ", ".join(f"`{given[name]}`" for name in names if name in given)
    return (
        f"| your certificates | {files} on every node; keys: owner qpidd, mode 0600. The certificate of a node is"
        " valid for its address in `ha-brokers-url` (`subjectAltName`) and, if clients use one, for the virtual"
        " address |\n"
    )


def by_certificate(node: NodeSpec) -> bool:
    """The brokers log in to each other by their certificates, without a password."""
    return node.encrypted and node.options.get("ha-mechanism") == "EXTERNAL"
