"""cluster.crmsh: the configuration of cib.xml in the language of crmsh 4."""

from collections.abc import Iterable, Iterator

from ha.qpid_cluster.cluster_file import ClusterSpec
from ha.qpid_cluster.render.pacemaker import (
    ADDRESS,
    ALERT,
    ALERT_AGENT,
    ALERT_FILE,
    ALERT_TIMEOUT,
    ALERT_WHY,
    BROKER,
    CLONE,
    COLOCATION,
    COLOCATION_WHY,
    CUT_OFF,
    CUT_OFF_SCORE,
    CUT_OFF_WHY,
    NETWORK,
    NETWORK_CLONE,
    REACHED,
)
from ha.qpid_cluster.render.resources import Model, Primitive, Value, lines, operation, reasons, said, why
from ha.qpid_cluster.render.text import joined

_HEAD = """\
# The configuration of cluster {cluster} for crmsh, the same as cib.xml. Written by qpid-cluster render.
#
#     crm configure load update cluster.crmsh        on one node, once
#
"""


def script(spec: ClusterSpec, model: Model) -> str:
    return _HEAD.format(cluster=spec.name) + joined(_sections(model))


def _sections(model: Model) -> Iterator[str]:
    yield from said(reasons(model.properties), lines(["property", _pairs(model.properties)]))
    yield from said(reasons(model.defaults), lines(["rsc_defaults", _pairs(model.defaults)]))
    for device in model.devices:
        yield from _primitive(device)
    yield from _primitive(model.broker)
    yield from said(reasons(model.clone), lines([f"clone {CLONE} {BROKER}", "meta " + _pairs(model.clone)]))
    if model.address:
        yield from _primitive(model.address)
    if model.network:
        yield from _primitive(model.network)
        yield f"clone {NETWORK_CLONE} {NETWORK}"
    for name, node in model.avoided:
        yield f"location location-{name}-{node}--INFINITY {name} -inf: {node}"
    if model.address:
        yield from said(COLOCATION_WHY, f"colocation {COLOCATION} inf: {ADDRESS}:Started {CLONE}:Promoted")
    if model.network:
        rule = f"rule $role=Promoted {CUT_OFF_SCORE}: defined {REACHED} and {REACHED} lt 1"
        yield from said(CUT_OFF_WHY, f"location {CUT_OFF} {CLONE} {rule}")
    alert = [f'alert {ALERT} "{ALERT_AGENT}"', f"meta timeout={ALERT_TIMEOUT}", f'to "{ALERT_FILE}"']
    yield from said(ALERT_WHY, lines(alert))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _pairs(values: Iterable[Value]) -> str:
    return " ".join(f"{value.name}={_quoted(value.value)}" for value in values)


def _primitive(primitive: Primitive) -> Iterator[str]:
    parts = [f"params {_pairs(primitive.parameters)}"] if primitive.parameters else []
    parts += [f"meta {_pairs(primitive.meta)}"] if primitive.meta else []
    parts += [f"op {operation(each)}" for each in primitive.operations]
    yield from said(why(primitive), lines([f"primitive {primitive.id} {primitive.agent}", *parts]))
