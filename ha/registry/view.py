"""One Pacemaker node's copy of the registry, and the rule for when an exchange counts.  Pure.

A `NodeView` is one node's copy of the cluster's configuration: the values of our attribute, and the nodes.

**An exchange counts** if both rules hold.  `reached` are the nodes whose copy is known to hold what we wrote, including
our own.

    1  the cluster reports that this partition has quorum, and that our node is an active member
    2  reached are more than half of all nodes,
       or every other node has been fenced, or has left in an orderly way

Two exchanges that count, of brokers on different nodes, have both reached a common node: two majorities meet, and a
node that was fenced, or has left, makes no exchange.  At the common node one of the two values was there first, and the
broker that wrote the second one has read it there.

Quorum alone is not sufficient: with corosync's `two_node` both halves of a cluster have it until one is fenced, and
corosync notices a cut only after its token timeout.  With three nodes or more the second rule works without fencing.
For a pair that is cut apart only fencing decides.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree

from ha.model.membership import HaState
from ha.registry.worker import RegistryError
from qpidd_py.amqp.json_object import read_object
from qpidd_py.errors import QpiddError


@dataclass(frozen=True)
class ClusterNode:
    """A configured node, as one node sees it."""

    name: str
    online: bool = False
    """Its Pacemaker is active in the cluster."""
    gone: bool = False
    """It was fenced since it was last seen, or its Pacemaker was stopped in an orderly way, which stops the broker
    first (except in maintenance mode: ha/README.md)."""


@dataclass(frozen=True)
class NodeView:
    """One node's copy."""

    nodes: tuple[ClusterNode, ...] = ()
    quorum: bool = False
    entries: tuple[tuple[str, str], ...] = ()
    """(node, if known for certain; its value of our attribute)."""
    seal: int = 0
    """admin_epoch: when two copies merge, the one with the higher number replaces the other."""

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(value for _, value in self.entries)

    @property
    def left_behind(self) -> tuple[str, ...]:
        """Values of nodes that are gone."""
        return tuple(value for name, value in self.entries if name in self._gone)

    @property
    def remaining(self) -> tuple[str, ...]:
        """Values of all other nodes."""
        return tuple(value for name, value in self.entries if name not in self._gone)

    @property
    def _gone(self) -> frozenset[str]:
        return frozenset(node.name for node in self.nodes if node.gone)

    @property
    def online(self) -> frozenset[str]:
        return frozenset(node.name for node in self.nodes if node.online)

    def objection(self, own: str, reached: Collection[str]) -> str:
        """Why an exchange whose value is on the nodes `reached` does not count; empty if it counts."""
        if not self.quorum:
            return "this partition of the cluster has no quorum"
        if own not in self.online:
            return f"node {own} is not an active member of the cluster"
        missing = [node for node in self.nodes if node.name not in reached]
        if 2 * len(missing) < len(self.nodes):
            return ""
        alive = [node.name for node in missing if not node.gone]
        return f"{', '.join(alive)} may go on without us: no answer, and neither fenced nor stopped" if alive else ""


def query(attribute: str) -> str:
    """The XPath expression of the elements that `parse` needs, each without its children."""
    pairs = f"//nodes/node/instance_attributes/nvpair[@name='{attribute}']"
    return f"/cib|//nodes/node|//status/node_state|{pairs}"


MEMBER: Final = ("", "member", "normal")
"""Types of nodes that run Corosync; remote nodes and guests have no copy of the configuration."""


def parse(document: str) -> NodeView:
    """Parse an answer of cibadmin.  Raises RegistryError."""
    try:
        root = ElementTree.fromstring(document)
    except ElementTree.ParseError as error:
        raise RegistryError(f"not an answer of cibadmin: {error}") from error
    elements = list(root.iter())
    states = {element.get("uname", ""): element for element in elements if element.tag == "node_state"}
    members = [element for element in elements if element.tag == "node" and element.get("type", "") in MEMBER]
    nodes = [_node(element.get("uname", ""), states) for element in members]
    quorum = any(element.get("have-quorum") == "1" for element in elements if element.tag == "cib")
    seal = max((_number(element.get("admin_epoch")) for element in elements if element.tag == "cib"), default=0)
    names = {f"nodes-{element.get('id')}-": element.get("uname", "") for element in members}
    entries = [_entry(element, names) for element in elements if element.tag == "nvpair"]
    return NodeView(tuple(nodes), quorum, tuple(entries), seal)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _entry(pair: ElementTree.Element, names: dict[str, str]) -> tuple[str, str]:
    """`names`: node names by the id prefix that Pacemaker's tools give to a node's attributes."""
    prefix = pair.get("id", "").removesuffix(pair.get("name", ""))
    return names.get(prefix, ""), pair.get("value", "")


def _node(name: str, states: dict[str, ElementTree.Element]) -> ClusterNode:
    state = states.get(name)
    if state is None:
        return ClusterNode(name)
    active = _is_set(state.get("crmd", ""))
    return ClusterNode(
        name,
        online=active and _is_set(state.get("in_ccm", "")) and state.get("join") == "member",
        gone=not active and state.get("expected") == "down",
    )


def _is_set(value: str) -> bool:
    """True for "true" and "online"; from Pacemaker 2.1.7 on the value is a time in seconds since when, or 0."""
    return value in ("true", "online") or (value.isdecimal() and int(value) > 0)


def encode(state: HaState) -> str:
    """The state as JSON in base64, since it is stored in an XML document."""
    return base64.b64encode(json.dumps(state.to_json(), separators=(",", ":")).encode()).decode()


def decode(values: Collection[str], attribute: str) -> tuple[HaState, ...]:
    """Raises RegistryError."""
    try:
        return tuple(HaState.from_json(read_object(base64.b64decode(value, validate=True))) for value in values)
    except (ValueError, QpiddError) as error:
        raise RegistryError(f"attribute {attribute} cannot be used: {error}") from error
