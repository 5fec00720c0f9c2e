"""The files for rgmanager: cluster.conf after the book of Apache Qpid, the scripts' settings, qpidd.conf."""

from string import Template
from xml.sax.saxutils import quoteattr

from ha.qpid_cluster.cluster_file import ClusterSpec, NodeSpec
from ha.qpid_cluster.deployment import Fencing
from ha.qpid_cluster.render import broker, readmes, tls, users
from ha.qpid_cluster.render.checks import deployment
from ha.qpid_cluster.render.text import milliseconds

_CONF = Template("""\
<?xml version="1.0"?>
<!-- /etc/cluster/cluster.conf of cluster $cluster, the same on all nodes. Written by qpid-cluster render.
     After a change: raise config_version, check with ccs_config_validate, spread with `cman_tool version -r`. -->
<cluster name=$name config_version="1">
$cman  <!-- Milliseconds until a silent node counts as lost; cman's own default is 10000. Shorter is faster, and takes a
       busy node for dead. consensus: at least 1.2 tokens. -->
  <totem token="$token" consensus="$consensus"/>
  <clusternodes>
$nodes  </clusternodes>
$devices  <!-- Seconds between two looks at the services; the default, 30, would be half a minute of outage. -->
  <rm status_poll_interval="1">
    <failoverdomains>
      <!-- One for each node, of this node alone: a broker that has died is started where it was. -->
$domains    </failoverdomains>
    <resources>
      <!-- interval: the script agent says 30 s for itself, which may win over status_poll_interval. -->
      <script name="qpidd" file="/etc/init.d/qpidd">
        <action name="status" depth="*" interval="1"/>
      </script>
      <script name="qpidd-primary" file="/etc/init.d/qpidd-primary">
        <action name="status" depth="*" interval="1"/>
      </script>
$addresses    </resources>

    <!-- The broker of each node. restart: it comes back as backup, on the same node. -->
$services
    <!-- The primary. It moves by itself: relocate starts it on another node, which promotes the broker there. -->
    <service name="qpidd-primary-service" autostart="1" exclusive="0" recovery="relocate">
      <script ref="qpidd-primary"/>
$references    </service>
  </rm>
</cluster>
""")
_TWO_NODES = """\
  <!-- Of two nodes one goes on alone; fencing decides which. -->
  <cman two_node="1" expected_votes="1"/>
"""
_NO_DEVICES = """\
  <!-- rgmanager moves nothing before a lost node is fenced. Add your devices here and a method to each node, or let the
       section `fencing` of the cluster file do it. -->
  <fencedevices/>
"""
_ADDRESS = """\
      <!-- monitor_link: a dead interface counts as failure. sleeptime: seconds that a stop waits; default 10. -->
      <ip address="$address" monitor_link="1" sleeptime="0"/>
"""
_SYSCONFIG = Template("""\
# /etc/sysconfig/qpidd (or /etc/default/qpidd) on every node of cluster $cluster: settings of /etc/init.d/qpidd and
# /etc/init.d/qpidd-primary. Written by qpid-cluster render.
QPID_CONFIG=/etc/qpid/qpidd.conf
QPID_DATA_DIR=/var/lib/qpidd
QPID_USER=qpidd
# A broker that does not answer for so many seconds counts as hung; rgmanager asks every second.
QPID_HA_OPTIONS="--config /etc/qpid/qpidd.conf --timeout 1"
""")


def render(spec: ClusterSpec) -> dict[str, str]:
    nodes = ", ".join(f"{node.name} ({node.host})" for node in spec.nodes)
    return {
        "README.md": readmes.RGMANAGER.substitute(
            cluster=spec.name, nodes=nodes, users=users.row(spec) + tls.row(spec)
        ),
        "cluster.conf": _conf(spec),
        "sysconfig-qpidd": _SYSCONFIG.substitute(cluster=spec.name),
        # rgmanager has no registry; it fences, or the brokers need a majority of their own.
        **broker.configs(spec, "rgmanager", broker.log_file(spec)),
    }


def _conf(spec: ClusterSpec) -> str:
    own = deployment(spec)
    names = [node.name for node in spec.nodes]
    return _CONF.substitute(
        cluster=spec.name,
        name=quoteattr(spec.name),
        token=milliseconds(own.token),
        consensus=milliseconds(own.consensus),
        cman=_TWO_NODES if len(names) == 2 else "",
        nodes="".join(_node(node, number, own.fencing) for number, node in enumerate(spec.nodes, 1)),
        devices=_devices(spec, own.fencing),
        domains="".join(map(_domain, names)),
        addresses=Template(_ADDRESS).substitute(address=own.virtual_ip) if own.virtual_ip else "",
        services="".join(map(_service, names)),
        references=f'      <ip ref="{own.virtual_ip}"/>\n' if own.virtual_ip else "",
    )


def _node(node: NodeSpec, number: int, fencing: Fencing | None) -> str:
    head = f'    <clusternode name="{node.name}" nodeid="{number}" votes="1"'
    if fencing is None:
        return f"{head}/>\n"
    # A device of all nodes learns from `nodename`, which fenced adds, which node to switch off.
    device = f'<device name="{_device_name(node)}" action="{fencing.action}"/>'
    method = f'<fence>\n        <method name="power">{device}</method>\n      </fence>'
    return f"{head}>\n      {method}\n    </clusternode>\n"


def _device_name(node: NodeSpec) -> str:
    return f"fence-{node.name}" if node.fencing else "fence"


def _devices(spec: ClusterSpec, fencing: Fencing | None) -> str:
    if fencing is None:
        return _NO_DEVICES
    devices = {_device_name(node): {**fencing.options, **node.fencing} for node in spec.nodes}
    lines = [
        "".join([f'    <fencedevice name="{name}" agent="{fencing.agent}"', *map(_attribute, options.items()), "/>\n"])
        for name, options in devices.items()
    ]
    return "".join(["  <fencedevices>\n", *lines, "  </fencedevices>\n"])


def _attribute(item: tuple[str, str]) -> str:
    return f" {item[0]}={quoteattr(item[1])}"


def _domain(name: str) -> str:
    head = f'      <failoverdomain name="{name}-domain" restricted="1">'
    return f'{head}\n        <failoverdomainnode name="{name}" priority="1"/>\n      </failoverdomain>\n'


def _service(name: str) -> str:
    head = f'    <service name="{name}-qpidd-service" domain="{name}-domain" autostart="1" recovery="restart">'
    return f'{head}\n      <script ref="qpidd"/>\n    </service>\n'
