"""corosync.conf: the nodes of the cluster, and how fast a dead node is detected."""

from string import Template

from ha.qpid_cluster.cluster_file import ClusterSpec, NodeSpec
from ha.qpid_cluster.deployment import Deployment
from ha.qpid_cluster.render.checks import deployment
from ha.qpid_cluster.render.text import milliseconds

_FILE = Template("""\
# /etc/corosync/corosync.conf of cluster $cluster, the same on all nodes. Written by qpid-cluster render.

totem {
    version: 2
    cluster_name: $cluster

    # Kronosnet: up to eight links for each node, encryption, path MTU found by itself. Its ping times follow from the
    # token; shorter ones make links flap.
    transport: knet

    # Encryption and authentication. Without it any host that reaches UDP port 5405 can join and command the cluster.
    # The key is /etc/corosync/authkey, owner root, mode 0400, the same on all nodes; corosync-keygen makes it.
    crypto_cipher: aes256
    crypto_hash: sha256

    # Milliseconds without the token until a node counts as lost, the greatest part of the outage when a node dies:
    # token and consensus, then fencing, then the promotion. Shorter is faster, and takes a busy node for dead: 300 was
    # unreliable, 1000 is a good value for a quiet network of one site, 3000 is Corosync's own default. 500 saves one
    # second of outage when a node dies; with three busy nodes on two cores it took a living node for dead once in four
    # minutes.
    token: $token

    # With three nodes or more Corosync adds this to the token for each node beyond two; its default is 650. With 0 the
    # token is what it says above.
    token_coefficient: 0

    # Milliseconds to agree on who is left, before a new round of membership begins. At least 1.2 tokens.
    consensus: $consensus
}

nodelist {
$nodes}

quorum {
    provider: corosync_votequorum
$quorum}

logging {
    to_syslog: yes
    to_logfile: yes
    logfile: /var/log/corosync/corosync.log
    # With milliseconds: a fail-over can be followed in the logs of all nodes.
    timestamp: hires
}
""")
_NODE = Template("""\
    node {
        name: $name
        nodeid: $number
$links    }
""")
_TWO_NODES = """
    # Of two nodes one goes on alone: there is no majority, fencing decides who it is.
    two_node: 1
    # After a start it waits until it has seen the other one: else both would start alone while the network is down, and
    # shoot at each other.
    wait_for_all: 1
"""
_MORE_NODES = """
    # A majority goes on, also after a power failure from which a node has not come back (wait_for_all: 0, the default).
"""

DEVICE_TIMEOUT = 2000
"""Milliseconds of silence towards qnetd; Corosync's default is 10000."""
_DEVICE = Template("""
    # The halves of an even number of nodes are alike: qnetd on $host gives its vote to one that it hears.
    device {
        model: net
        votes: 1
        # Milliseconds without an answer of qnetd until it counts as gone, and qnetd hears that a node has gone in about
        # one and a half of it; 10000 is Corosync's own default, and would be the outage.
        timeout: $timeout
        # How long a new membership waits for the vote.
        sync_timeout: $sync_timeout
        net {
            host: $host
            algorithm: ffsplit
            # Certificates: corosync-qdevice-net-certutil, see README.md.
            tls: required
        }
    }
""")


def config(spec: ClusterSpec) -> str:
    own = deployment(spec)
    return _FILE.substitute(
        cluster=spec.name,
        token=milliseconds(own.token),
        consensus=milliseconds(own.consensus),
        nodes="".join(_node(node, number) for number, node in enumerate(spec.nodes, 1)),
        quorum=_quorum(spec, own),
    )


def _quorum(spec: ClusterSpec, own: Deployment) -> str:
    if own.quorum_device:
        times = {"timeout": DEVICE_TIMEOUT, "sync_timeout": 3 * DEVICE_TIMEOUT}
        return _DEVICE.substitute(host=own.quorum_device, **times)
    return _TWO_NODES if len(spec.nodes) == 2 else _MORE_NODES


def hosts(spec: ClusterSpec) -> str:
    """Lines for /etc/hosts: the names must not depend on a name server, which may be down, too."""
    return "".join(f"{node.host} {node.name}\n" for node in spec.nodes)


def _node(node: NodeSpec, number: int) -> str:
    links = [f"        ring{index}_addr: {address}\n" for index, address in enumerate(node.links or (node.host,))]
    return _NODE.substitute(name=node.name, number=number, links="".join(links))
