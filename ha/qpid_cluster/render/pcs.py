"""cluster.pcs.sh: the configuration of cib.xml as commands of pcs 0.11."""

import shlex
from collections.abc import Iterator

from ha.qpid_cluster.cluster_file import ClusterSpec
from ha.qpid_cluster.render.checks import deployment
from ha.qpid_cluster.render.corosync import DEVICE_TIMEOUT
from ha.qpid_cluster.render.pacemaker import (
    ADDRESS,
    ALERT,
    ALERT_AGENT,
    ALERT_FILE,
    ALERT_TIMEOUT,
    ALERT_WHY,
    AVOIDED_WHY,
    BROKER,
    CLONE,
    COLOCATION,
    COLOCATION_WHY,
    CUT_OFF,
    CUT_OFF_SCORE,
    CUT_OFF_WHY,
    NETWORK,
    REACHED,
)
from ha.qpid_cluster.render.resources import Model, Primitive, Value, lines, operation, reasons, said, why
from ha.qpid_cluster.render.text import joined, milliseconds

_HEAD = """\
#!/bin/sh
# The configuration of cluster {cluster} as pcs commands, the same as cib.xml. Written by qpid-cluster render.
#
#     sh cluster.pcs.sh           adds it to the running cluster, in one step; run it on one node, once
#     sh cluster.pcs.sh FILE      puts it into FILE, a CIB, and changes nothing else
#
# Corosync by pcs instead of with corosync.conf (then do not copy that file); pcs makes the key for encryption, too:
#
#     pcs host auth {hosts}
#     pcs cluster setup {cluster} {nodes} \\
#         transport knet totem token={token} token_coefficient=0 consensus={consensus} {quorum}
#     pcs cluster start --all --wait=60
{device}set -eu

file=${{1:-}}
if [ -z "$file" ]; then
    directory=$(mktemp -d)
    trap 'rm -rf "$directory"' EXIT
    file=$directory/cib.xml
    pcs cluster cib "$file"
    cp "$file" "$directory/before.xml"
fi
run() {{ pcs -f "$file" "$@"; }}
"""
_DEVICE = """\
#
# The quorum device; `pcs qdevice setup model net --enable --start` on {host} comes first, then on one node:
#
#     pcs host auth {host}
#     pcs quorum device add timeout={timeout} sync_timeout={sync_timeout} \\
#         model net host={host} algorithm=ffsplit tls=required
"""
_TAIL = """
if [ -z "${1:-}" ]; then
    pcs cluster cib-push "$file" diff-against="$directory/before.xml"
fi
"""


def script(spec: ClusterSpec, model: Model) -> str:
    return _head(spec) + joined(_commands(model)) + _TAIL


def _head(spec: ClusterSpec) -> str:
    own = deployment(spec)
    nodes = (f"{node.name} {' '.join(f'addr={link}' for link in node.links or (node.host,))}" for node in spec.nodes)
    return _HEAD.format(
        cluster=spec.name,
        hosts=" ".join(f"{node.name} addr={node.host}" for node in spec.nodes),
        nodes=" ".join(nodes),
        token=milliseconds(own.token),
        consensus=milliseconds(own.consensus),
        quorum="quorum wait_for_all=1" if len(spec.nodes) == 2 and not own.quorum_device else "",
        device=_DEVICE.format(host=own.quorum_device, timeout=DEVICE_TIMEOUT, sync_timeout=3 * DEVICE_TIMEOUT)
        if own.quorum_device
        else "",
    ).replace(" \n", "\n")


def _commands(model: Model) -> Iterator[str]:
    yield from _said(reasons(model.properties), lines(["run property set", *map(_pair, _without_ms(model))]))
    # pcs 0.11 refuses milliseconds, which Pacemaker takes.
    for value in model.properties:
        if value not in _without_ms(model):
            yield f"run property set --force {_pair(value)}"
    defaults = " ".join(map(_pair, model.defaults))
    yield from _said(reasons(model.defaults), f"run resource defaults update {defaults} 2>/dev/null")
    for device in model.devices:
        yield from _create("stonith", device)
    yield from _create("resource", model.broker)
    pairs = " ".join(_pair(value) for value in model.clone if value.name != "promotable")
    yield from _said(reasons(model.clone), f"run resource promotable {BROKER} {CLONE} meta {pairs}")
    if model.address:
        yield from _create("resource", model.address)
    if model.network:
        yield from _create("resource", model.network)
        yield f"run resource clone {NETWORK}"
    yield from _constraints(model)
    yield from _said(ALERT_WHY, f"run alert create path={ALERT_AGENT} id={ALERT} meta timeout={ALERT_TIMEOUT}")
    yield f"run alert recipient add {ALERT} value={ALERT_FILE} id={ALERT}-recipient-1"


def _without_ms(model: Model) -> list[Value]:
    return [value for value in model.properties if not value.value.endswith("ms")]


def _said(why: str, command: str) -> Iterator[str]:
    yield ""
    yield from said(why, command)


def _pair(value: Value) -> str:
    return shlex.quote(f"{value.name}={value.value}")


def _create(kind: str, primitive: Primitive) -> Iterator[str]:
    """The second monitor has a command of its own: pcs 0.11 cannot tell intervals in milliseconds apart."""
    agent = primitive.agent.removeprefix("stonith:")
    first, *others = [each for each in primitive.operations if each.name == "monitor"]
    words = [primitive.id, agent, *map(_pair, primitive.parameters)]
    parts = [f"run {kind} create --no-default-ops {' '.join(words)}"]
    parts += [f"op {operation(each)}" for each in primitive.operations if each.name != "monitor" or each == first]
    parts += [f"meta {' '.join(map(_pair, primitive.meta))}"] if primitive.meta else []
    yield from _said(why(primitive), lines(parts))
    for each in others:
        yield f"run resource op add {primitive.id} {operation(each)}"


def _constraints(model: Model) -> Iterator[str]:
    for index, (device, node) in enumerate(model.avoided):
        command = f"run constraint location {device} avoids {node}"
        yield from _said(AVOIDED_WHY, command) if not index else [command]
    if model.address:
        together = f"Started {ADDRESS} with Promoted {CLONE} INFINITY"
        yield from _said(COLOCATION_WHY, f"run constraint colocation add {together} id={COLOCATION}")
    if model.network:
        rule = f"id={CUT_OFF}-rule constraint-id={CUT_OFF} role=Promoted score={CUT_OFF_SCORE}"
        where = f"defined {REACHED} and {REACHED} lt 1"
        yield from _said(CUT_OFF_WHY, f"run constraint location {CLONE} rule {rule} {where}")
