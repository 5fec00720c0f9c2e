"""Three brokers in containers: killed, cut off, healed.  Promotion is by hand, with `qpid-ha` inside a container."""

from collections.abc import Iterator
from typing import Any

import docker
import pytest

from tests.acceptance.load import LibraryPair, assert_nothing_lost, progress
from tests.docker.containers import Containers

pytestmark = pytest.mark.timeout(600)  # the image is built by the first test


@pytest.fixture
def cluster(engine: docker.DockerClient, image: str) -> Iterator[Containers]:
    with Containers(engine, image) as containers:
        containers.promote("node1")
        for name in ("node2", "node3"):
            containers.wait_state(name, "ready")
        yield containers


def test_nothing_is_lost_when_the_primary_is_killed_and_when_it_is_cut_off(cluster: Containers) -> None:
    load = LibraryPair(cluster.url, "orders")
    progress([load])

    cluster.signal("node1", "SIGKILL")
    cluster.promote("node2")
    progress([load])
    cluster.start("node1")
    cluster.wait_state("node1", "ready")

    cluster.cut("node2")
    cluster.promote("node3")
    progress([load])
    # The old primary was not told. It may believe what it likes, but it confirms nothing.
    code, said = cluster.run("node2", "qpid-config", "add", "queue", "nowhere-else", "--timeout", "3")
    assert code == 1, said

    cluster.heal("node2")
    cluster.wait_state("node2", "ready")
    assert cluster.state("node3") == "active"
    progress([load])
    load.finish()
    assert_nothing_lost(load)


def test_backup_that_is_cut_off_does_not_stop_the_service(cluster: Containers) -> None:
    load = LibraryPair(cluster.url, "orders")
    progress([load])
    cluster.cut("node3")
    progress([load])
    cluster.heal("node3")
    cluster.wait_state("node3", "ready")
    progress([load])
    load.finish()
    assert_nothing_lost(load)


def test_stops_by_signal_and_keeps_its_place(cluster: Containers) -> None:
    """PID 1 in its container: the signal reaches the broker itself, which ends at once and with 0."""
    assert cluster.stop("node3") == 0
    cluster.start("node3")
    cluster.wait_state("node3", "ready")
    cluster.wait_health("node3", "healthy")


def test_health_follows_the_broker(cluster: Containers) -> None:
    """An engine that restarts what is unhealthy (Swarm, Kubernetes' probes are its like) goes by this."""
    cluster.signal("node2", "SIGSTOP")
    cluster.wait_health("node2", "unhealthy")
    cluster.signal("node2", "SIGCONT")
    cluster.wait_health("node2", "healthy")
    cluster.wait_state("node2", "ready")


def test_image_is_small_and_without_tools(cluster: Containers) -> None:
    code, said = cluster.run("node1", "sh", "-c", "id -un; ls /usr/lib/qpidd/bin; command -v pip3 make || echo none")
    assert code == 0
    words: list[Any] = said.split()
    assert words[0] == "qpidd"
    assert {"qpidd", "qpid-ha", "qpid-cluster", "qpid-config"} <= set(words)
    assert "pip" not in words
