"""cib.xml: the whole configuration of Pacemaker, with ids as pcs makes them."""

from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from ha.qpid_cluster.render.pacemaker import (
    ADDRESS,
    ALERT,
    ALERT_AGENT,
    ALERT_FILE,
    ALERT_TIMEOUT,
    ALERT_WHY,
    AVOIDED_WHY,
    CLONE,
    COLOCATION,
    COLOCATION_WHY,
    CUT_OFF,
    CUT_OFF_SCORE,
    CUT_OFF_WHY,
    NETWORK_CLONE,
    REACHED,
)
from ha.qpid_cluster.render.resources import Model, Operation, Primitive, Value
from ha.qpid_cluster.render.text import paragraph

FEATURES = "3.16.1"
"""Feature set of Pacemaker 2.1.5 (Debian 12)."""
SCHEMA = "pacemaker-3.9"
_HEAD = "Written by qpid-cluster render. Pacemaker does not keep comments: README.md says the same."


def xml(model: Model) -> str:
    # Older than the configuration of any running cluster: `cibadmin --replace` refuses it, which would empty `nodes`.
    cib = Element("cib", crm_feature_set=FEATURES, admin_epoch="0", epoch="0", num_updates="0")
    cib.set("validate-with", SCHEMA)
    cib.append(_comment(_HEAD))
    configuration = SubElement(cib, "configuration")
    _options(SubElement(configuration, "crm_config"), model.properties)
    # Empty: every node enters itself with the id that Corosync gave it, and its attributes (the registry!) stay there.
    SubElement(configuration, "nodes")
    _resources(SubElement(configuration, "resources"), model)
    _constraints(SubElement(configuration, "constraints"), model)
    defaults = SubElement(configuration, "rsc_defaults")
    _values(SubElement(defaults, "meta_attributes", id="rsc_defaults-meta_attributes"), model.defaults)
    _alert(SubElement(configuration, "alerts"))
    SubElement(cib, "status")
    ElementTree.indent(cib)
    return ElementTree.tostring(cib, encoding="unicode") + "\n"


def _comment(text: str) -> "Element[Any]":
    # Two hyphens may not stand in a comment.
    lines = paragraph(text.replace("--", "- -"))
    return ElementTree.Comment(f" {lines} " if "\n" not in lines else f"\n{lines}\n")


def _options(parent: Element, values: Iterable[Value]) -> None:
    _values(SubElement(parent, "cluster_property_set", id="cib-bootstrap-options"), values)


def _values(parent: Element, values: Iterable[Value]) -> None:
    for value in values:
        if value.why:
            parent.append(_comment(value.why))
        SubElement(parent, "nvpair", id=f"{parent.get('id')}-{value.name}", name=value.name, value=value.value)


def _set(parent: Element, tag: str, values: tuple[Value, ...]) -> None:
    if values:
        _values(SubElement(parent, tag, id=f"{parent.get('id')}-{tag}"), values)


def _resources(parent: Element, model: Model) -> None:
    for device in model.devices:
        _primitive(parent, device)
    parent.append(_comment(model.broker.why))
    clone = SubElement(parent, "clone", id=CLONE)
    _set(clone, "meta_attributes", model.clone)
    _primitive(clone, model.broker, told=True)
    if model.address:
        _primitive(parent, model.address)
    if model.network:
        parent.append(_comment(model.network.why))
        _primitive(SubElement(parent, "clone", id=NETWORK_CLONE), model.network, told=True)


def _primitive(parent: Element, primitive: Primitive, told: bool = False) -> None:
    if not told:
        parent.append(_comment(primitive.why))
    family, *provider, kind = primitive.agent.split(":")
    attributes = {"class": family, **({"provider": provider[0]} if provider else {}), "type": kind}
    element = SubElement(parent, "primitive", {"id": primitive.id, **attributes})
    _set(element, "instance_attributes", primitive.parameters)
    _set(element, "meta_attributes", primitive.meta)
    operations = SubElement(element, "operations")
    for operation in primitive.operations:
        if operation.why:
            operations.append(_comment(operation.why))
        _operation(operations, primitive.id, operation)


def _operation(parent: Element, resource: str, operation: Operation) -> None:
    attributes = {"name": operation.name, "interval": operation.interval, "timeout": operation.timeout}
    optional = {"role": operation.role, "on-fail": operation.on_fail}
    name = f"{resource}-{operation.name}-interval-{operation.interval}"
    SubElement(parent, "op", {"id": name, **attributes, **{key: value for key, value in optional.items() if value}})


def _alert(parent: Element) -> None:
    parent.append(_comment(ALERT_WHY))
    alert = SubElement(parent, "alert", id=ALERT, path=ALERT_AGENT)
    _set(alert, "meta_attributes", (Value("timeout", ALERT_TIMEOUT),))
    SubElement(alert, "recipient", id=f"{ALERT}-recipient-1", value=ALERT_FILE)


def _constraints(parent: Element, model: Model) -> None:
    for index, (device, node) in enumerate(model.avoided):
        if not index:
            parent.append(_comment(AVOIDED_WHY))
        name = f"location-{device}-{node}--INFINITY"
        SubElement(parent, "rsc_location", {"id": name, "rsc": device, "node": node, "score": "-INFINITY"})
    if model.address:
        _address(parent)
    if model.network:
        _cut_off(parent)


def _address(parent: Element) -> None:
    parent.append(_comment(COLOCATION_WHY))
    roles = {"rsc-role": "Started", "with-rsc-role": "Promoted"}
    where = {"id": COLOCATION, "rsc": ADDRESS, "with-rsc": CLONE, **roles, "score": "INFINITY"}
    SubElement(parent, "rsc_colocation", where)


def _cut_off(parent: Element) -> None:
    parent.append(_comment(CUT_OFF_WHY))
    location = SubElement(parent, "rsc_location", id=CUT_OFF, rsc=CLONE)
    name = f"{CUT_OFF}-rule"
    rule = SubElement(location, "rule", {"id": name, "role": "Promoted", "score": str(CUT_OFF_SCORE)})
    SubElement(rule, "expression", {"id": f"{name}-expr", "attribute": REACHED, "operation": "defined"})
    fewer = {"attribute": REACHED, "operation": "lt", "value": "1"}
    SubElement(rule, "expression", {"id": f"{name}-expr-1", **fewer})
