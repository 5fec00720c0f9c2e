"""What `crm_mon -1 --output-as=xml` says, as data.  Pure."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass


@dataclass(frozen=True)
class NodeState:
    """One node as the cluster sees it."""

    name: str
    online: bool
    standby: bool
    pending: bool
    unclean: bool
    dc: bool


@dataclass(frozen=True)
class ResourceState:
    """One resource, or one instance of a clone, on the nodes where it is active."""

    resource: str
    clone: str
    """Id of the clone that it belongs to; empty for a primitive of its own."""
    role: str
    """`Started`, `Stopped`, `Promoted`, `Unpromoted`, `Starting`, ..."""
    active: bool
    failed: bool
    pending: str
    """The action that is under way, such as `Monitoring`; empty if none."""
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """A failed action in the history."""

    node: str
    operation: str
    """Such as `broker_monitor_1000`."""
    status: str
    """`complete`, `Timed Out`, `Error`, ..."""
    code: int
    """The agent's exit code."""
    reason: str
    """The agent's own words; often empty."""


@dataclass(frozen=True)
class ClusterState:
    """Everything at one moment, as one node sees it."""

    quorum: bool
    dc: str
    """Name of the designated controller; empty while there is none."""
    nodes: dict[str, NodeState]
    resources: tuple[ResourceState, ...]
    failures: tuple[Failure, ...]
    attributes: dict[str, dict[str, str]]
    """Node to its attributes, such as `master-broker`."""

    @property
    def online(self) -> set[str]:
        """Full members."""
        return {node.name for node in self.nodes.values() if node.online and not node.pending and not node.unclean}

    def where(self, resource: str, role: str = "") -> list[str]:
        """Nodes on which a resource (or clone, by its own id) is active, if given in this role."""
        found = (r for r in self.resources if resource in (r.resource.split(":")[0], r.clone) and r.active)
        return sorted(node for r in found if role in ("", r.role) for node in r.nodes)

    def promoted(self, resource: str) -> list[str]:
        return self.where(resource, "Promoted")


def parse(text: str) -> ClusterState:
    """Raises ValueError when it is not what crm_mon writes."""
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise ValueError(f"crm_mon: {error}") from None
    dc = root.find("summary/current_dc")
    nodes = [_node(element) for element in root.iterfind("nodes/node")]
    return ClusterState(
        quorum=dc is not None and dc.get("with_quorum") == "true",
        dc=(dc.get("name") or "") if dc is not None else "",
        nodes={node.name: node for node in nodes},
        resources=tuple(_resources(root)),
        failures=tuple(_failure(element) for element in root.iterfind("failures/failure")),
        attributes={
            node.get("name", ""): {a.get("name", ""): a.get("value", "") for a in node.iterfind("attribute")}
            for node in root.iterfind("node_attributes/node")
        },
    )


def _yes(element: ET.Element, name: str) -> bool:
    return element.get(name) == "true"


def _node(element: ET.Element) -> NodeState:
    flags = (_yes(element, name) for name in ("online", "standby", "pending", "unclean", "is_dc"))
    return NodeState(element.get("name", ""), *flags)


def _resources(root: ET.Element) -> list[ResourceState]:
    clones = {id(child): clone.get("id", "") for clone in root.iter("clone") for child in clone.iter("resource")}
    return [_resource(element, clones.get(id(element), "")) for element in root.iterfind("resources//resource")]


def _resource(element: ET.Element, clone: str) -> ResourceState:
    return ResourceState(
        resource=element.get("id", ""),
        clone=clone,
        role=element.get("role", ""),
        active=_yes(element, "active"),
        failed=_yes(element, "failed"),
        pending=element.get("pending", ""),
        nodes=tuple(node.get("name", "") for node in element.iterfind("node")),
    )


def _failure(element: ET.Element) -> Failure:
    return Failure(
        node=element.get("node", ""),
        operation=element.get("op_key", ""),
        status=element.get("status", ""),
        code=int(element.get("exitcode", "0")),
        reason=element.get("exitreason", ""),
    )
