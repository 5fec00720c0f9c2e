"""Three nodes under the driver, by the shipped cluster.conf; and what scenarios ask and do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.rgmanager import cluster_conf
from tests.rgmanager.driver import Driver
from tests.rgmanager.manager import DISABLED, STARTED
from tests.rgmanager.node import PASSWORD, ROOT, USER, Node
from tests.support.wait import wait_for

PRIMARY: Final = "qpidd-primary-service"
TIMEOUT: Final = 60.0
"""Seconds; far beyond what anything here takes."""
EXAMPLES: Final = ROOT / "config" / "rgmanager"
SHIPPED: Final = EXAMPLES / "cluster.conf"
OWN: Final = Path(__file__).with_name("cluster.conf")


def qpidd_service(node: str) -> str:
    return f"{node}-qpidd-service"


def assignments(path: Path) -> dict[str, str]:
    """The lines NAME=VALUE of a file."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.partition("=")[::2] for line in lines)


def shipped_options(node: Node) -> dict[str, str]:
    """Of the example's qpidd.conf, without what is bound to real machines."""
    local = ("port", "interface", "data-dir", "log-to-file", "user-file")
    found = assignments(EXAMPLES / f"qpidd-{node.name}.conf")
    return {name.replace("-", "_"): value for name, value in found.items() if name not in local}


class Cluster:
    """By the shipped files, but for addresses, paths and passwords.  A context manager; nothing runs before `up`."""

    def __init__(self, directory: Path, **options: str) -> None:
        self.conf = cluster_conf.load(SHIPPED)
        self.nodes = {name: Node(directory, name) for name in self.conf.nodes}
        self.url = ",".join(node.address for node in self.nodes.values())
        ours = {"ha_brokers_url": self.url, "ha_public_url": "none", "ha_username": USER, "ha_password": PASSWORD}
        for node in self.nodes.values():
            node.configure(**{**shipped_options(node), **ours, **options})
            self.configure(node)
        self.driver = Driver(self.conf, self.nodes)

    def configure(self, node: Node, **settings: str) -> None:
        """Its sysconfig file."""
        tool = assignments(EXAMPLES / "sysconfig-qpidd")["QPID_HA_OPTIONS"].strip('"')
        node.set(QPID_HA_OPTIONS=tool.replace("/etc/qpid/qpidd.conf", str(node.config)), QPID_WAIT="10", **settings)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.driver.close()
        for node in self.nodes.values():
            node.close()

    # ---- what is

    @property
    def primary(self) -> Node:
        """Where the manager has the primary service."""
        return self.nodes[self.driver.state(PRIMARY)[1]]

    @property
    def backups(self) -> list[Node]:
        return [node for node in self.nodes.values() if node is not self.primary]

    def states(self) -> dict[str, str]:
        return {name: node.state for name, node in self.nodes.items()}

    def wait(self, condition: Callable[[], object], what: str) -> None:
        wait_for(condition, TIMEOUT, lambda: f"{what}; found {self.states()}\n{self.driver.report}", poll=0.02)

    def service(self, name: str, state: str, node: str = "") -> None:
        """Until the manager has it in that state, there."""
        self.wait(lambda: self.driver.state(name) == (state, node), f"{name} {state} {node}")

    def whole(self) -> bool:
        """All services started, one broker active where the primary service is, the others ready."""
        if any(self.driver.state(name)[0] != STARTED for name in self.driver.services):
            return False
        states, primary = self.states(), self.primary
        return all(state == ("active" if name == primary.name else "ready") for name, state in states.items())

    # ---- what is done

    def up(self) -> None:
        for name in self.nodes:
            self.driver.node_up(name)
        self.settle()

    def settle(self) -> float:
        """Until everything is as it should be; the moment."""
        self.wait(self.whole, "everything started, one active, the others ready")
        return time.monotonic()

    def repair(self) -> None:
        """Whatever a scenario has left."""
        for name in self.driver.services:
            if self.driver.state(name)[0] == DISABLED:
                self.driver.enable(name)
        self.settle()

    def promoted(self, not_on: Node) -> Node:
        """Until the primary service is on another node, and its broker serves."""

        def found() -> Node | None:
            state, owner = self.driver.state(PRIMARY)
            there = state == STARTED and owner != not_on.name
            return self.nodes[owner] if there and self.nodes[owner].state in ("recovering", "active") else None

        return wait_for(found, TIMEOUT, lambda: f"a new primary\n{self.driver.report}") or not_on
