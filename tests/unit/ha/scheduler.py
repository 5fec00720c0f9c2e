"""The scheduler of the real Pacemaker (crm_simulate) on a rendered configuration: what does it do after an event?

A cluster here is a CIB on the disk.  Every step hands it to crm_simulate, which tells the actions of the transition and
writes the CIB as it is when they have all succeeded.
"""

import os
import re
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from tests.support.system import missing

MISSING = missing("crm_simulate")
_ACTION = re.compile(r"^  \* (?:Resource|Fencing|Pseudo) action: +(.*)$|^  \* (Fencing .*)$", re.M)


class Simulated:
    """A cluster that has settled, with node1's broker promoted."""

    def __init__(self, cib: str, nodes: int, directory: Path, scores: tuple[int, ...] = (100, 90, 80)) -> None:
        self.root = ElementTree.fromstring(cib)
        self._path, self._graph = directory / "cib.xml", directory / "graph.xml"
        self.root.set("have-quorum", "1")
        for number in range(1, nodes + 1):
            self._add_node(number)
        for number, score in zip(range(1, nodes + 1), scores, strict=False):
            self.score(number, score)
        self.first = self.step()

    def _add_node(self, number: int) -> None:
        nodes, status = self.root.find("configuration/nodes"), self.root.find("status")
        assert nodes is not None and status is not None
        ElementTree.SubElement(nodes, "node", id=str(number), uname=f"node{number}")
        state = {"uname": f"node{number}", "in_ccm": "true", "crmd": "online", "join": "member", "expected": "member"}
        node = ElementTree.SubElement(status, "node_state", {"id": str(number), **state})
        attributes = ElementTree.SubElement(node, "transient_attributes", id=str(number))
        ElementTree.SubElement(attributes, "instance_attributes", id=f"status-{number}")

    def score(self, number: int, score: int | None) -> None:
        """The promotion score of that node's broker; None: it has none."""
        self.attribute(number, "master-qpidd", None if score is None else str(score))

    def attribute(self, number: int, name: str, value: str | None) -> None:
        parent = self._node(number).find("transient_attributes/instance_attributes")
        assert parent is not None
        for pair in parent.findall(f"nvpair[@name='{name}']"):
            parent.remove(pair)
        if value is not None:
            ElementTree.SubElement(parent, "nvpair", id=f"status-{number}-{name}", name=name, value=value)

    def fail(self, number: int, operation: str, code: int) -> None:
        """The last result of `operation` there becomes `code`, just now; counted as the controller does."""
        key = f"qpidd_{operation}"
        [entry] = [each for each in self._node(number).iter("lrm_rsc_op") if each.get("operation_key") == key]
        entry.set("rc-code", str(code))
        entry.set("last-rc-change", str(int(time.time())))
        entry.set("transition-magic", re.sub("^0:[0-9]+", f"0:{code}", entry.get("transition-magic", "")))
        self.attribute(number, f"fail-count-qpidd#{operation}", "1")
        self.attribute(number, f"last-failure-qpidd#{operation}", str(int(time.time())))

    def move(self, node: str) -> None:
        """What `crm_resource --move --resource qpidd-clone --promoted --node NODE` writes."""
        constraints = self.root.find("configuration/constraints")
        assert constraints is not None
        where = {"rsc": "qpidd-clone", "role": "Promoted", "node": node, "score": "INFINITY"}
        ElementTree.SubElement(constraints, "rsc_location", {"id": "cli-prefer-qpidd-clone", **where})

    def _node(self, number: int) -> Element:
        [node] = [each for each in self.root.iter("node_state") if each.get("uname") == f"node{number}"]
        return node

    def step(self, *options: str) -> list[str]:
        """The actions of the next transition, in their order; the cluster is then as it is after them."""
        ElementTree.ElementTree(self.root).write(self._path)
        # Without the variable crm_simulate would look for a running cluster in places of the whole machine.
        environment = {**os.environ, "CIB_file": str(self._path), "LC_ALL": "C"}
        after = self._path.with_name("after.xml")
        after.unlink(missing_ok=True)
        saved: list[str | Path] = ["--save-output", after, "--save-graph", self._graph]
        command: list[str | Path] = ["crm_simulate", "--xml-file", self._path, "--simulate", *saved, *options]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        self.root = ElementTree.parse(after).getroot()
        return [" ".join((match[1] or match[2]).split()) for match in _ACTION.finditer(result.stdout)]

    def waits_for(self, operation: str) -> set[str]:
        """What came before `OPERATION NODE` in the last transition (`qpidd_demote_0 node1`), but cancelled monitors."""
        inputs: dict[str, set[str]] = {}
        names: dict[str, str] = {}
        for synapse in ElementTree.parse(self._graph).getroot().iter("synapse"):
            for action in synapse.findall("action_set/*"):
                key = "cancel" if action.get("operation") == "cancel" else action.get("operation_key")
                names[action.get("id", "")] = f"{key} {action.get('on_node', '')}".strip()
                inputs[action.get("id", "")] = {each.get("id", "") for each in synapse.findall("inputs/trigger/*")}
        [wanted] = [id for id, name in names.items() if name == operation]
        found, left = set(), [wanted]
        while left:
            for id in inputs.get(left.pop(), set()) - found:
                found.add(id)
                left.append(id)
        return {names[id] for id in found if " " in names[id] and not names[id].startswith("cancel")}


def plain(actions: list[str]) -> list[str]:
    """Without pseudo actions, cancelled monitors and instance numbers: `demote node1`, `vip stop node1`."""
    found = []
    for action in actions:
        match = re.fullmatch(r"(\w+)(?::\d+)? (\S+) on (\w+)", action)
        if match and not match[2].startswith("cancel"):
            found.append(f"{match[2]} {match[3]}" if match[1] == "qpidd" else f"{match[1]} {match[2]} {match[3]}")
        elif action.startswith("Fencing"):
            found.append(action)
    return found
