"""The files for Pacemaker: corosync.conf, the same configuration three times, qpidd.conf, README."""

from collections.abc import Iterable

from ha.qpid_cluster.cluster_file import ClusterSpec
from ha.qpid_cluster.deployment import Deployment
from ha.qpid_cluster.render import broker, cib, corosync, crmsh, pcs, readmes, sbd, tls, users
from ha.qpid_cluster.render.checks import deployment
from ha.qpid_cluster.render.pacemaker import (
    COLOCATION_WHY,
    CUT_OFF_SCORE,
    CUT_OFF_WHY,
    NO_ORDER_WHY,
    model,
)
from ha.qpid_cluster.render.resources import Model, Value
from ha.qpid_cluster.render.text import milliseconds


def render(spec: ClusterSpec) -> dict[str, str]:
    own = model(spec)
    return {
        "README.md": _readme(spec, own),
        "corosync.conf": corosync.config(spec),
        "hosts": corosync.hosts(spec),
        **_sbd(spec),
        "cib.xml": cib.xml(own),
        "cluster.pcs.sh": pcs.script(spec, own),
        "cluster.crmsh": crmsh.script(spec, own),
        **broker.configs(spec, "Pacemaker", {**broker.registry(spec), **broker.log_file(spec)}),
    }


def _sbd(spec: ClusterSpec) -> dict[str, str]:
    own = deployment(spec)
    return {sbd.FILE: sbd.settings(spec.name, own, own.sbd)} if own.sbd else {}


def _readme(spec: ClusterSpec, own: Model) -> str:
    section = deployment(spec)
    return readmes.PACEMAKER.substitute(
        cluster=spec.name,
        nodes=", ".join(f"{node.name} ({node.host})" for node in spec.nodes),
        summary=_summary(spec, section),
        users=users.row(spec) + tls.row(spec) + (readmes.SBD_ROW if section.sbd else ""),
        packages=_packages(section),
        quorum_device=_quorum_device(spec, section),
        sbd=_sbd_steps(section),
        fence_test=_fence_test(section),
        token=milliseconds(section.token),
        consensus=milliseconds(section.consensus),
        reasons="\n".join(_reasons(own)),
    )


def _packages(own: Deployment) -> str:
    """More of them."""
    wanted = {
        "fence-agents": own.fencing,
        "iputils-ping": own.ping_targets,
        "corosync-qdevice": own.quorum_device,
        "sbd": own.sbd,
    }
    return "".join(f" {name}" for name, reason in wanted.items() if reason)


def _quorum_device(spec: ClusterSpec, own: Deployment) -> str:
    names = " ".join(node.name for node in spec.nodes)
    steps = readmes.QUORUM_DEVICE.substitute(host=own.quorum_device, cluster=spec.name, nodes=names)
    return steps if own.quorum_device else ""


def _sbd_steps(own: Deployment) -> str:
    if own.sbd is None:
        return ""
    return readmes.SBD.substitute(device=own.sbd.device, delay=sbd.delay(own, own.sbd))


def _fence_test(own: Deployment) -> str:
    if own.sbd is not None:
        return readmes.SBD_TEST.substitute(seconds=sbd.delay(own, own.sbd))
    return readmes.FENCE_TEST if own.fencing else ""


def _summary(spec: ClusterSpec, own: Deployment) -> str:
    address = (
        f"Clients use {own.virtual_ip}:{spec.nodes[0].port}{', with TLS' if spec.nodes[0].encrypted else ''}."
        if own.virtual_ip
        else "No address moves with the primary."
    )
    registry = ", registry in Pacemaker" if broker.registry(spec) else ""
    return f"{address} Safety: {spec.safety}{registry}; {_fencing(own)}."


def _fencing(own: Deployment) -> str:
    if own.sbd is not None:
        return "fencing by each node's own watchdog (`sbd` without a disk)"
    return f"fencing by `{own.fencing.agent}`" if own.fencing else "no fencing"


def _reasons(own: Model) -> Iterable[str]:
    yield from _table("Options of the cluster, defaults of resources", [*own.properties, *own.defaults])
    yield from _table(
        "The broker: parameters, meta attributes, clone", [*own.broker.parameters, *own.broker.meta, *own.clone]
    )
    operations = [
        Value(f"{each.name} {each.role}".strip(), _operation(each.interval, each.timeout, each.on_fail), each.why)
        for each in own.broker.operations
    ]
    yield from _table("The broker: operations", operations)
    if own.address:
        yield from _table("The address", [*own.address.parameters, *own.address.meta])
        together = [
            Value("vip with promoted", "INFINITY", COLOCATION_WHY),
            Value("demote, then stop vip", "not set", NO_ORDER_WHY),
        ]
        yield from _table("Constraints", together)
    if own.network:
        yield from _table("The clients' network", [*own.network.parameters, _cut_off()])


def _cut_off() -> Value:
    return Value("a node that reaches none, promoted role", str(CUT_OFF_SCORE), CUT_OFF_WHY)


def _operation(interval: str, timeout: str, on_fail: str) -> str:
    every = f"every {interval}, " if interval != "0s" else ""
    return f"{every}timeout {timeout}" + (f", on-fail {on_fail}" if on_fail else "")


def _table(title: str, values: Iterable[Value]) -> Iterable[str]:
    yield from ["", f"### {title}", "", "| setting | value | why |", "|---|---|---|"]
    for value in values:
        yield f"| {value.name} | {value.value} | {value.why} |"
