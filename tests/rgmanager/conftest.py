"""A cluster for all scenarios, repaired between them; figures of the scenarios at the end (`pytest -s`)."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rgmanager.cluster import Cluster
from tests.rgmanager.load import Load
from tests.rgmanager.node import Node
from tests.support.system import which


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.up()
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Three brokers, one active and two ready: whatever the scenario before did."""
    shared_cluster.repair()
    start = len(shared_cluster.driver.outputs)
    yield shared_cluster
    print("\n".join(shared_cluster.driver.outputs[start:]))
    for node in shared_cluster.nodes.values():  # shown when the test failed
        print(f"---- {node.name} {node.address}\n{node.log[-4000:]}")


@pytest.fixture
def load(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Load]:
    """Clients at work."""
    clients = Load(tmp_path / "load", cluster.url.split(","), request.node.name)
    try:
        clients.progress()
        yield clients
    finally:
        clients.close()


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, float]]:
    """Scenario → outage in seconds."""
    found: dict[str, float] = {}
    yield found
    for name, seconds in found.items():
        print(f"\noutage {seconds:5.2f} s  {name}", end="")


SHELLS = [path for shell in ("dash", "bash") if (path := which(shell))]


@pytest.fixture
def make_node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Node]]:
    """Machines with the scripts; no broker runs yet, and whatever runs at the end is killed.

    `pytest.mark.parametrize("make_node", SHELLS, indirect=True)`: with these shells instead of /bin/sh."""
    shell = str(getattr(request, "param", ""))
    made: list[Node] = []

    def make(name: str) -> Node:
        made.append(Node(tmp_path, name, shell))
        return made[-1]

    yield make
    for node in made:
        node.close()
        print(f"---- {node.name} {node.address}\n{node.log}")


@pytest.fixture
def node(make_node: Callable[[str], Node]) -> Node:
    return make_node("node")


@pytest.fixture
def open_node() -> Iterator[Node]:
    """As `node`, in a place where every user may look."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        made = Node(Path(directory), "node")
        yield made
        made.close()
        print(made.log)
