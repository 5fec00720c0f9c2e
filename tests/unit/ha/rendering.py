"""Cluster files for the tests of `render`, and what is shipped in config/."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from ha.qpid_cluster.cluster_file import ClusterSpec, parse

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "config"
_COMMAND = re.compile(r"^# +qpid-cluster (render .*)$", re.M)

NODE = "  - {{name: node{0}, host: 192.0.2.1{0}, port: 5672{1}}}\n"
LOGIN = "options: {ha-username: ha, ha-password: secret}\n"


class Example(NamedTuple):
    """One shipped example and the directory that it was rendered to."""

    file: Path
    output: Path
    kind: str


def examples() -> list[Example]:
    """As the comment at the head of each example says."""
    return [_example(file) for file in sorted((CONFIG / "examples").glob("*.yaml"))]


def _example(file: Path) -> Example:
    match = _COMMAND.search(file.read_text())
    assert match is not None, f"{file} does not say how it is rendered"
    _, name, _, output, _, kind = shlex.split(match[1])
    assert ROOT / name == file
    return Example(file, ROOT / output, kind)


def cluster(nodes: int = 3, more: str = "", each: str = "", safety: str = "quorum") -> str:
    """The text of a cluster file; `each` goes to every node, `more` to the end."""
    items = "".join(NODE.format(number, each and f", {each.format(number)}") for number in range(1, nodes + 1))
    return f"cluster: test\nsafety: {safety}\nnodes:\n{items}{LOGIN}{more}"


def fenced(nodes: int, safety: str = "quorum") -> ClusterSpec:
    more = "deployment: {virtual-ip: 192.0.2.10/24, fencing: {agent: fence_ipmilan, options: {lanplus: true}}}\n"
    return parse(cluster(nodes, more, "fencing: {{ip: 203.0.113.{0}}}", safety))


def unfenced(nodes: int = 3) -> ClusterSpec:
    return parse(cluster(nodes, "deployment: {virtual-ip: 192.0.2.10/24, interface: eth0}\n"))
