"""Three brokers, each behind a fault proxy: ours under their supervisor, or RabbitMQ's nodes with quorum queues."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from benchmarks.rabbitmq import RabbitCluster
from demo.cluster import Cluster
from ha.qpid_cluster.main import settled
from tests.support.fault_proxy import FaultProxy
from tests.support.rabbit import rabbit_cluster
from tests.support.wait import wait_for


class Scene(Protocol):
    """What a scenario acts on.  Nodes have names; clients know the proxies only."""

    name: str
    proxies: dict[str, FaultProxy]
    queue_arguments: Mapping[str, Any]

    def active(self) -> str:
        """The node that serves the clients; "" when none is known."""

    def kill(self, node: str) -> None: ...

    def pause(self, node: str) -> None: ...

    def resume(self, node: str) -> None: ...

    def relocated(self, old: str) -> None:
        """Waits until another node than `old` serves."""

    def whole(self) -> None:
        """Heals all proxies, brings all nodes back, and waits until they are in order."""


def addresses(scene: Scene) -> str:
    """Of all proxies, for clients."""
    return ",".join(proxy.address for proxy in scene.proxies.values())


class QpiddScene:
    """`qpid-cluster`: a dead or hung primary is replaced at once, a dead broker restarted after a second."""

    name = "qpidd"
    queue_arguments: Mapping[str, Any] = {}

    def __init__(self, cluster: Cluster, stack: contextlib.ExitStack) -> None:
        self.cluster = cluster
        self._paused: set[str] = set()
        nodes = {node["name"]: node["address"] for node in cluster.status()["nodes"]}
        ports = {name: int(address.rpartition(":")[2]) for name, address in nodes.items()}
        self.proxies = {name: stack.enter_context(FaultProxy(port)) for name, port in ports.items()}
        real_to_proxy = {address: self.proxies[name].address for name, address in nodes.items()}
        for proxy in self.proxies.values():
            proxy.translate(real_to_proxy)  # a backup that names the primary must not lead clients around its proxy

    def active(self) -> str:
        return self.cluster.primary

    def kill(self, node: str) -> None:
        self.cluster.command("kill", node)

    def pause(self, node: str) -> None:
        self._paused.add(node)
        self.cluster.command("pause", node)

    def resume(self, node: str) -> None:
        self._paused.discard(node)
        self.cluster.command("start", node)

    def relocated(self, old: str) -> None:
        wait_for(lambda: self.active() not in ("", old), 60, f"another primary than {old}")

    def whole(self) -> None:
        for proxy in self.proxies.values():
            proxy.heal()
        for node in list(self._paused):
            self.resume(node)
        wait_for(lambda: settled(self.cluster.status()), 60, lambda: f"one active, two ready: {self.cluster.status()}")


@contextlib.contextmanager
def qpidd_scene(directory: Path) -> Iterator[QpiddScene]:
    cluster = Cluster(directory)
    try:
        cluster.up()
        with contextlib.ExitStack() as stack:
            yield QpiddScene(cluster, stack)
    finally:
        cluster.down()


class RabbitScene:
    """All nodes serve; clients are where they find somebody first."""

    name = "RabbitMQ"
    queue_arguments: Mapping[str, Any] = {"x-queue-type": "quorum"}

    def __init__(self, cluster: RabbitCluster, stack: contextlib.ExitStack) -> None:
        self.cluster = cluster
        self._paused: set[str] = set()
        self._killed: set[str] = set()
        self.proxies = {f"rabbit{i}": stack.enter_context(FaultProxy(port)) for i, port in enumerate(cluster.ports)}

    def active(self) -> str:
        """The one with most clients."""
        return max(self.proxies, key=lambda name: self.proxies[name].connections)

    def pid(self, node: str) -> int:
        return int((self.cluster.base / f"node{node[-1]}" / "pid").read_text())

    def kill(self, node: str) -> None:
        os.kill(self.pid(node), signal.SIGKILL)
        self._killed.add(node)

    def pause(self, node: str) -> None:
        os.kill(self.pid(node), signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node: str) -> None:
        os.kill(self.pid(node), signal.SIGCONT)
        self._paused.discard(node)

    def relocated(self, old: str) -> None:
        wait_for(lambda: self.active() != old, 60, f"clients elsewhere than at {old}")

    def whole(self) -> None:
        for proxy in self.proxies.values():
            proxy.heal()
        for node in list(self._paused):
            self.resume(node)
        for node in list(self._killed):
            self.cluster.killed = int(node[-1])
            self.cluster.repair()
            self._killed.discard(node)


@contextlib.contextmanager
def rabbit_scene() -> Iterator[RabbitScene]:
    with rabbit_cluster(3) as cluster, contextlib.ExitStack() as stack:
        yield RabbitScene(cluster, stack)
