"""The promotion score of real brokers, as a supervisor is told it, and a promotion of one that is behind."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_lib import Connection
from tests.support.members import TIME, Members
from tests.support.wait import wait_for


class Supervisor:
    """Listens to one broker; what it was told, one value after the other."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self.told: dict[str, list[str]] = {"X_QPID_STATE": [], "X_QPID_SCORE": [], "X_QPID_LAST": [], "STATUS": []}
        self.environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "1000000"}
        threading.Thread(target=self._listen, daemon=True).start()

    def last(self, name: str) -> str | None:
        values = self.told[name]
        return values[-1] if values else None

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _listen(self) -> None:
        while octets := self._socket.recv(1 << 12):
            for line in octets.decode().splitlines():
                name, _, value = line.partition("=")
                if name in self.told and self.last(name) != value:
                    self.told[name].append(value)


class Watched(Members):
    """A cluster whose brokers are listened to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "--ha-safety", "quorum", "--link-heartbeat-interval", "2")
        self.supervisors = {name: Supervisor(directory / name) for name in self.brokers}
        for name, broker in self.brokers.items():
            broker.environment |= self.supervisors[name].environment

    def close(self) -> None:
        super().close()
        for supervisor in self.supervisors.values():
            supervisor.close()

    def until(self, name: str, variable: str, value: str) -> None:
        supervisor = self.supervisors[name]
        wait_for(lambda: supervisor.last(variable) == value, TIME, lambda: f"{name}: {supervisor.told}")


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.close()


def test_from_a_new_cluster_to_the_next_primary(members: Watched) -> None:
    for name in "abc":
        members.until(name, "X_QPID_SCORE", "100")
    members.until("a", "X_QPID_STATE", "active")
    members.until("b", "X_QPID_STATE", "ready")
    members.until("a", "STATUS", "active: primary of epoch 1")
    members.until("b", "STATUS", "ready: backup, promotion score 100")
    a, b, c = members.supervisors.values()
    assert a.told["X_QPID_SCORE"] == ["", "10", "100"], "alone; then in a new cluster; then primary"
    assert a.told["X_QPID_STATE"] == ["joining", "recovering", "active"]
    assert b.told["X_QPID_STATE"] == ["joining", "catchup", "ready"]
    assert json.loads(members.tool("status", "--json", name="b"))["score"] == 100

    before = len(b.told["X_QPID_SCORE"]), len(c.told["X_QPID_SCORE"])
    members.brokers["a"].kill()
    members.tool("promote", "--cluster-manager", "--behind", name="b")
    members.settled("b")
    assert (len(b.told["X_QPID_SCORE"]), len(c.told["X_QPID_SCORE"])) == before
    members.until("b", "STATUS", "active: primary of epoch 2")


def test_a_primary_says_that_it_is_the_last(members: Watched) -> None:
    with Connection(members.brokers["a"].address, heartbeat=5).open(TIME) as connection:
        connection.session().declare_queue("load", durable=True)
        for name in "bc":
            members.brokers[name].kill()
        members.until("a", "X_QPID_LAST", "1")
        members.brokers["b"].start()
        members.until("a", "X_QPID_LAST", "")


def test_a_living_primary_hands_over_to_whom_the_manager_wants(members: Watched) -> None:
    refusal = members.tool("promote", "--cluster-manager", "--behind", name="c", code=1)
    assert "a is primary (active)" in refusal
    members.tool("promote", "--cluster-manager", "--behind", "--takeover", name="c")
    members.settled("c")
    members.until("a", "X_QPID_STATE", "ready")
    members.until("c", "X_QPID_SCORE", "100")


def test_one_that_is_behind(members: Watched) -> None:
    """b stands still while more comes than its host keeps for it, and the primary dies."""
    connection = Connection(members.brokers["a"].address, heartbeat=5).open(TIME)
    session = connection.session()
    session.declare_queue("load", durable=True)
    sender = session.sender("load", capacity=100)
    members.brokers["b"].pause()
    position = members.ask("c", "ha.query")["position"]
    for _ in range(60):
        sender.send(b"x" * (1 << 18), sync=False)
    wait_for(lambda: members.ask("c", "ha.query")["position"] > position + 50, TIME)
    members.brokers["a"].kill()
    members.brokers["b"].resume()
    members.until("b", "X_QPID_SCORE", "90")
    members.until("c", "X_QPID_SCORE", "100")
    connection.close()
    refusal = members.tool("promote", "--cluster-manager", name="b", code=1)
    assert "c (ready, position" in refusal
    members.tool("promote", "--cluster-manager", "--behind", name="b")
    members.settled("b")
