"""sbd without a disk: its settings, and what Pacemaker must know of it."""

import math
from string import Template

from ha.qpid_cluster.deployment import Deployment
from ha.qpid_cluster.render.resources import Operation, Primitive, Value
from ha.qpid_cluster.sbd import Sbd

FILE = "sbd"
KINDS = ("pacemaker", "vagrant")
_SETTINGS = Template("""\
# /etc/default/sbd (Debian) or /etc/sysconfig/sbd of cluster $cluster, the same on all nodes. Written by qpid-cluster
# render. Pacemaker's unit reads this file, too.

# Feed the watchdog only while Pacemaker answers and this node belongs to the majority.
SBD_PACEMAKER=yes

# No disk: SBD_DEVICE is not set, and what this node does is decided by what it sees of the cluster.

# Nobody else may hold it: no package `watchdog`, no RuntimeWatchdogSec= of systemd.
SBD_WATCHDOG_DEV=$device

# Seconds without food until the watchdog resets the node. On all nodes the same.
SBD_WATCHDOG_TIMEOUT=$timeout

# Seconds that a node waits after its boot: until the others take it for dead, stonith-watchdog-timeout and the time in
# which Corosync notices. A node that is back earlier would be lost and a member at the same time.
SBD_DELAY_START=$delay

# After a boot the node takes part again by itself, also when it was reset.
SBD_STARTMODE=always

# Pacemaker starts no resource before sbd watches it.
SBD_SYNC_RESOURCE_STARTUP=yes
""")


def settings(cluster: str, own: Deployment, sbd: Sbd) -> str:
    """The file of sbd's environment."""
    values = {"device": sbd.device, "timeout": sbd.watchdog_timeout, "delay": delay(own, sbd)}
    return _SETTINGS.substitute(cluster=cluster, **values)


def delay(own: Deployment, sbd: Sbd) -> int:
    """Seconds until the others take a node for dead that is lost."""
    return sbd.fencing_timeout + math.ceil(own.token + own.consensus)


def properties(sbd: Sbd) -> tuple[Value, ...]:
    """have-watchdog is not set: each node says itself whether its sbd runs."""
    why = (
        "A lost node is taken for reset after this time: no broker is promoted, and no address moves, before. sbd "
        f"notices within a few seconds that its node has no majority, and the watchdog needs {sbd.watchdog_timeout} s "
        "more. Pacemaker does not start on a node where sbd does not run, or where SBD_WATCHDOG_TIMEOUT is not less."
    )
    return (
        Value("stonith-enabled", "true", "Fencing by sbd: a node without a majority is reset by its own watchdog."),
        Value("stonith-watchdog-timeout", f"{sbd.fencing_timeout}s", why),
    )


def device(names: str) -> Primitive:
    """Pacemaker would do the same without it, but its tools would say that there is no fencing."""
    return Primitive(
        id="watchdog",
        agent="stonith:fence_watchdog",
        why="Waits until a lost node was reset by its own watchdog. The id is fixed: Pacemaker knows it.",
        parameters=(Value("pcmk_host_list", names),),
        operations=(Operation("start", "60s"), Operation("monitor", "60s", "60s")),
    )


NO_QUORUM_WHY = (
    "The side without a majority demotes its broker and takes the address away at once; some seconds later its nodes "
    "are reset by sbd. A switch that fails therefore resets all nodes, and the journals keep the messages."
)
