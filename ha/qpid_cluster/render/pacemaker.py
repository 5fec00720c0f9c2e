"""The configuration of Pacemaker as one model, each choice with its reason; cib.py, pcs.py and crmsh.py write it.

Tested with the scheduler of Pacemaker 2.1 by crm_simulate (tests/unit/ha/test_render_scheduler.py).
"""

from ha.qpid_cluster.cluster_file import ClusterSpec, NodeSpec
from ha.qpid_cluster.deployment import Deployment, Fencing
from ha.qpid_cluster.render import sbd
from ha.qpid_cluster.render.broker import CONFIG
from ha.qpid_cluster.render.checks import deployment
from ha.qpid_cluster.render.resources import Model, Operation, Primitive, Value
from ha.qpid_cluster.render.text import period

CLONE, BROKER, ADDRESS = "qpidd-clone", "qpidd", "vip"
COLOCATION = "vip-with-promoted"
NETWORK, NETWORK_CLONE, REACHED = "client-network", "client-network-clone", "qpid-client-network"
"""The resource that pings, and the attribute of a node in which it counts the answers."""
CUT_OFF = "cut-off-from-clients"
CUT_OFF_SCORE = -4
"""Less than between any two promotion scores that differ, and than the lowest (5): it decides only between equal
copies.  Not a bonus for the others: with one a broker without a score, which must not be promoted, would be."""


ALERT, ALERT_AGENT = "qpid-events", "/usr/share/qpidd/pacemaker-alert"
ALERT_FILE = "/var/log/pacemaker/qpid-alerts.jsonl"
ALERT_TIMEOUT = "5s"
ALERT_WHY = (
    f"Failed and moved resources, lost nodes and fencing are appended to {ALERT_FILE} on every node, for "
    "failover-report. Alerts run beside the cluster's work; one that hangs is ended after its timeout, and nothing "
    "waits for it."
)
AVOIDED_WHY = "A fence device is not watched from the node that it switches off."
COLOCATION_WHY = (
    "The address is where the promoted broker is. No order: it comes up while the broker is being promoted (a backup "
    "refuses a client at once, and the client tries again; a packet to an address that is nowhere is lost, and is "
    "repeated only after a second), and it goes while the old one is being demoted. That saves 0.1 to 0.3 s of outage."
)
CUT_OFF_WHY = (
    "Of brokers that hold the same, one whose node reaches the clients' network is promoted, and a primary whose node "
    "does not reach it hands its role to such a broker. If no node reaches a target, because it is down or was never "
    "there, nothing changes; nor does anything for a node of which nothing is known (no program ping). It is less than "
    "any difference between promotion scores: a broker that holds more is always preferred."
)
NO_ORDER_WHY = (
    "An optional order of demotion and stop would make sure that clients get a clean close in a planned move. Without "
    "it the demotion, which is quicker, nearly always comes first; a client that it misses notices when it sends next, "
    "or by its heartbeat. If you have clients that only consume, with a long heartbeat: `pcs constraint order demote "
    "qpidd-clone then stop vip kind=Optional symmetrical=false`."
)


def model(spec: ClusterSpec) -> Model:
    own = deployment(spec)
    return Model(
        properties=_properties(spec, own),
        defaults=_DEFAULTS,
        broker=_broker(spec, own),
        clone=_CLONE_META,
        address=_address(own) if own.virtual_ip else None,
        network=_network(own) if own.ping_targets else None,
        devices=_devices(spec, own),
        avoided=tuple((_device_id(node), node.name) for node in spec.nodes if node.fencing and own.fencing),
    )


def _properties(spec: ClusterSpec, own: Deployment) -> tuple[Value, ...]:
    return (
        *_fencing_properties(spec, own),
        Value(
            "no-quorum-policy",
            "demote",
            sbd.NO_QUORUM_WHY if own.sbd else _NO_QUORUM_WHY,
        ),
        Value(
            "dc-deadtime",
            period(own.dc_deadtime),
            "How long the first node waits for the others after a start of the whole cluster; the default is 20 s. "
            "With fencing a node that has not come up by then is switched off and on once more.",
        ),
        Value(
            "load-threshold",
            "0%",
            "No throttling. By default Pacemaker runs fewer actions at a time on a node that is busy, down to a single "
            "one on a small machine with a load of twice its cores: a fail-over then takes seconds longer.",
        ),
        _transition_delay(own),
        Value(
            "cluster-recheck-interval",
            "60s",
            "A safety net only: failure-timeout has its own timer since Pacemaker 2.0, and everything else is "
            "reported.",
        ),
    )


_NO_QUORUM_WHY = (
    "The side without a majority demotes its broker and takes the address away, but lets the brokers run: with `stop` "
    "(the default) a switch that fails would end all brokers at once, and each would have to read its journal again; "
    "without journals all messages would be gone."
)


def _transition_delay(own: Deployment) -> Value:
    why = (
        "When a node is lost, the scheduler is asked while the controller's own updates for that node are pending; "
        "Pacemaker then sleeps a whole second before it asks again (8 of 12 times were measured). With this delay "
        "the updates are there first (0 of 18)."
    )
    if not own.quorum_device:
        return Value("transition-delay", "50ms", why)
    waits = (
        " Updates wait for the vote of the quorum device, 0.2 s: 50ms, as in other clusters, was too short, and it "
        "slept twice. Every fail-over waits so long."
    )
    return Value("transition-delay", "300ms", why + waits)


def _shoot_each_other(spec: ClusterSpec, own: Deployment) -> bool:
    """Without a majority on one side."""
    return own.fencing is not None and len(spec.nodes) == 2 and not own.quorum_device


def _fencing_properties(spec: ClusterSpec, own: Deployment) -> tuple[Value, ...]:
    fencing = own.fencing
    if own.sbd is not None:
        return sbd.properties(own.sbd)
    if fencing is None:
        return (Value("stonith-enabled", "false", _no_fencing(spec)),)
    found = [
        Value("stonith-enabled", "true", "No broker is promoted, and no address moves, until a lost node is off."),
        Value("stonith-action", fencing.action, _ACTION_WHY[fencing.action]),
        Value(
            "concurrent-fencing", "true", "Two lost nodes are switched off at the same time, not one after the other."
        ),
    ]
    if _shoot_each_other(spec, own):
        found.append(Value("priority-fencing-delay", period(fencing.delay), _DELAY_WHY))
    return tuple(found)


_ACTION_WHY = {
    "reboot": "A lost node comes back by itself. The fail-over waits until the device reports the whole cycle; with "
    "`off` it waits for half of it, but an administrator has to switch the node on again.",
    "off": "The fail-over waits only until the node is off; an administrator has to switch it on again.",
}
_DELAY_WHY = (
    "When the two nodes lose each other both shoot. The one that runs the primary is shot at so much later, and "
    "so survives (its resource has a priority). The price: if it is really dead, the fail-over takes that much "
    "longer. It must be longer than the device takes to switch a node off; else both are off, and all messages "
    "gone."
)


def _no_fencing(spec: ClusterSpec) -> str:
    if spec.safety == "quorum":
        why = "ha-safety=quorum: a broker without a majority of its peers confirms nothing"
    elif spec.safety == "manager":
        why = (
            "ha-registry=pacemaker: a broker that cannot record its in-sync set on a majority of nodes confirms nothing"
        )
    else:
        why = "ha-safety=availability: messages may be lost when a lost primary still lives"
    return f"No fencing. For a moment two brokers may be promoted. {why}."


_DEFAULTS = (
    Value(
        "resource-stickiness",
        "1",
        "Nothing moves without need. Not more: which broker is promoted is decided by promotion scores that "
        "differ by 5 or more, and the primary has none above a ready backup's; Pacemaker leaves it where it is when "
        "they are equal.",
    ),
    Value("failure-timeout", "60s", "A fence device or an address that failed is tried again by itself."),
)


def _broker(spec: ClusterSpec, own: Deployment) -> Primitive:
    heartbeat = Value("heartbeat", period(own.heartbeat or 0), "Silence after which a broker counts as hung.")
    priority = Value("priority", "1", "Makes priority-fencing-delay prefer the node of the promoted one.")
    return Primitive(
        id=BROKER,
        agent="ocf:qpid:qpidd",
        why="The broker, on every node.",
        parameters=(
            Value("config", CONFIG, "Port, data directory and login come from there, too."),
            *((heartbeat,) if own.heartbeat is not None else ()),
        ),
        meta=(
            *((priority,) if _shoot_each_other(spec, own) else ()),
            Value("failure-timeout", period(own.failure_timeout), _FAILURE_WHY),
            Value("migration-threshold", "INFINITY", _THRESHOLD_WHY),
        ),
        operations=_BROKER_OPERATIONS,
    )


_FAILURE_WHY = "A broker that could not be started is tried again after that time (a failed start is fatal until then)."
_THRESHOLD_WHY = (
    "The default, on purpose. With 1 a broker that loses its role or refuses a promotion would be stopped, and "
    "its copy of the messages with it. on-fail=demote below does what the threshold is usually set for: it "
    "promotes another one before the failed one is started again."
)
_BROKER_OPERATIONS = (
    Operation(
        "start",
        "60s",
        why="start returns when the broker answers, as backup (0.5 s as a rule). The times allowed are generous: "
        "a broker that exceeds one is killed, with everything in its memory. A failed stop fences the node, "
        "where there is fencing.",
    ),
    Operation("stop", "60s"),
    Operation(
        "promote",
        "30s",
        on_fail="demote",
        why="A broker that refuses (others hold more, or too few answer) goes on as backup, and another one is "
        "tried. The default, `restart`, would empty its memory.",
    ),
    Operation("demote", "30s", why="In place: the broker goes on as backup and keeps what it has."),
    Operation(
        "monitor",
        "20s",
        "200ms",
        "Promoted",
        "demote",
        why="The agent holds a recurring monitor: it watches the process and its signs of life, and returns at "
        "once when something is wrong, else after half of its timeout. So a death is known within "
        "milliseconds; the interval is only the gap between two watches. on-fail=demote: a dead primary is "
        "demoted (which costs nothing), another one is promoted, and then the dead one is started again; with"
        " the default, `restart`, its start comes before the promotion. A live one that has lost its role is "
        "repaired without being stopped. The death of a primary is reported by the other monitor, since the "
        "demotion ends this one.",
    ),
    Operation(
        "monitor",
        "20s",
        "300ms",
        "Unpromoted",
        why="Held, too, for backups; two monitors must differ in interval. Failures of primaries are counted here, "
        "with the reason `the primary has failed`.",
    ),
)
_CLONE_META = (
    Value("promotable", "true", "One of the instances is promoted ..."),
    Value("promoted-max", "1", "... and only one."),
    Value("interleave", "true", "What depends on the clone waits for the instance of its own node, not for all."),
    Value("notify", "false", "Notifications cost a round of calls on all nodes before and after each promotion."),
)


def _address(own: Deployment) -> Primitive:
    interface = Value("nic", own.interface, "The interface that has it.")
    return Primitive(
        id=ADDRESS,
        agent="ocf:qpid:vip",
        why="The address that clients connect to. ocf:heartbeat:IPaddr2 does the same, more slowly.",
        parameters=(
            Value("ip", own.virtual_ip),
            Value("cidr_netmask", str(own.netmask)),
            *((interface,) if own.interface else ()),
        ),
        meta=(
            Value("resource-stickiness", "0", "It has no opinion of its own: else it would weigh on who is promoted."),
        ),
        operations=(
            Operation("start", "20s"),
            Operation("stop", "20s"),
            Operation(
                "monitor", "20s", "5s", why="Somebody may have taken it away by hand; the broker has its own monitor."
            ),
        ),
    )


def _network(own: Deployment) -> Primitive:
    return Primitive(
        id=NETWORK,
        agent="ocf:pacemaker:ping",
        why="Counts on every node which addresses in the clients' network answer (needs the program ping).",
        parameters=(
            Value("name", REACHED, "The attribute of the node with the count."),
            Value("host_list", " ".join(own.ping_targets)),
            Value("attempts", "1", "One packet, every second; what a lost one says is not used, see dampen."),
            Value("timeout", "1"),
            Value(
                "dampen",
                "3s",
                "A count is used when no node's count has changed for so long: longer than a look takes, interval and "
                "timeout. So a lost packet changes nothing; and when all nodes lose a target at once, all counts "
                "change at the same moment, and the role stays.",
            ),
        ),
        operations=(
            Operation("start", "20s"),
            Operation("stop", "20s"),
            Operation("monitor", "20s", "1s", why="A dead network is noticed within 5 s: interval, timeout, dampen."),
        ),
    )


def _devices(spec: ClusterSpec, own: Deployment) -> tuple[Primitive, ...]:
    names, fencing = " ".join(node.name for node in spec.nodes), own.fencing
    if own.sbd is not None:
        return (sbd.device(names),)
    if fencing is None:
        return ()
    if any(node.fencing for node in spec.nodes):
        return tuple(_own_device(node, fencing) for node in spec.nodes)
    shared = () if "pcmk_host_map" in fencing.options else (Value("pcmk_host_list", names),)
    return (_device("fence", "One device that can switch every node.", fencing, shared),)


def _device_id(node: NodeSpec) -> str:
    return f"fence-{node.name}"


def _own_device(node: NodeSpec, fencing: Fencing) -> Primitive:
    own = tuple(Value(name, value) for name, value in node.fencing.items())
    return _device(_device_id(node), f"Switches {node.name} off.", fencing, (*own, Value("pcmk_host_list", node.name)))


def _device(name: str, why: str, fencing: Fencing, more: tuple[Value, ...]) -> Primitive:
    return Primitive(
        id=name,
        agent=f"stonith:{fencing.agent}",
        why=why,
        parameters=(*(Value(key, value) for key, value in fencing.options.items()), *more),
        operations=(
            Operation("start", "60s"),
            Operation("monitor", "60s", "60s", why="Not more often: management boards are slow, and forget sessions."),
        ),
    )
