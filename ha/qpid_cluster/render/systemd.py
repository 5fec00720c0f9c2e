"""The files for nodes under systemd alone: it keeps the brokers running, a person promotes."""

from string import Template

from ha.qpid_cluster.cluster_file import ClusterSpec
from ha.qpid_cluster.render import broker, readmes, tls, users
from ha.qpid_cluster.render.checks import deployment
from ha.qpid_cluster.render.text import period

_DROP_IN = Template("""\
# /etc/systemd/system/qpidd.service.d/cluster.conf on every node of cluster $cluster. Written by qpid-cluster render.
# Adds to the packaged qpidd.service what a member of a cluster wants.

[Unit]
# A backup that cannot start is needed all the more: try for ever.
StartLimitIntervalSec=0

[Service]
# Whatever ended it: it comes back as backup, empty, and never promotes itself. Only a stop by systemctl keeps it down,
# and exit code 3: it cannot be part of its cluster, and the log says why.
Restart=always
RestartSec=1
$watchdog""")
_WATCHDOG = """\
# Without a sign of life for so long it counts as hung, is killed and started again.
WatchdogSec={}
"""


def render(spec: ClusterSpec) -> dict[str, str]:
    heartbeat = deployment(spec).heartbeat
    return {
        "README.md": readmes.SYSTEMD.substitute(
            cluster=spec.name,
            nodes=", ".join(f"{node.name} ({node.host})" for node in spec.nodes),
            users=users.row(spec) + tls.row(spec),
            safety=readmes.SYSTEMD_SAFETY[spec.safety],
            url=broker.brokers_url(spec),
        ),
        "qpidd.service.d/cluster.conf": _DROP_IN.substitute(
            cluster=spec.name,
            watchdog=_WATCHDOG.format(period(heartbeat)) if heartbeat else "",
        ),
        # Without log-to-file: what the broker says goes to the journal.
        **broker.configs(spec, "systemd", {}),
    }
