"""The processes of the demo: the cluster under its supervisor, and the clients.  None of them outlives the demo."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.progress import Board, create
from ha.qpid_cluster import cluster_file, control
from ha.qpid_cluster.main import settled

FILE = """\
# Written by the demo; `qpid-cluster --config {path} status` works while it runs.
cluster: demo
directory: {directory}
nodes: [{{name: node1, port: 0}}, {{name: node2, port: 0}}, {{name: node3, port: 0}}]
options:
  ha-replicate: all
  ha-username: qpid-ha
  ha-password: qpid-ha
  link-heartbeat-interval: 0.5
  ha-backup-timeout: 5
  ha-slow-backup-latency: 0  # three brokers and their clients on one machine: any may be late for a moment
{options}supervisor: {{hang-timeout: 1s, restart-delay: 1s}}
"""


class DemoError(Exception):
    """The scenario could not continue; the text has the awaited and the found state."""


def wait_for(what: str, condition: Callable[[], Any], timeout: float, interval: float = 0.005) -> Any:
    """The first true value of `condition`; DemoError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise DemoError(f"not within {timeout:g} s: {what}")
        time.sleep(interval)


class Cluster:
    """Three brokers and their supervisor, which runs as a process of its own."""

    def __init__(self, directory: Path, options: Iterable[str] = ()) -> None:
        self.directory = directory.resolve()
        self.file = self.directory / "cluster.yaml"
        self.file.write_text(
            FILE.format(path=self.file, directory=self.directory, options="".join(f"  {line}\n" for line in options))
        )
        self.spec = cluster_file.load(self.file)
        self._supervisor: subprocess.Popen[bytes] | None = None

    def up(self, timeout: float = 30.0) -> None:
        """Returns when one broker is active and the others are ready."""
        with (self.directory / "supervisor.out").open("wb") as output:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "ha.qpid_cluster.main", "--config", str(self.file), "up"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        wait_for("a primary and two ready backups", lambda: settled(self.status()), timeout, 0.05)

    def status(self) -> dict[str, Any]:
        """As `qpid-cluster status --json`; empty while no broker answers."""
        try:
            return dict(control.request(self.spec.control_path, "status"))
        except control.NotRunning:
            if self._supervisor is not None and self._supervisor.poll() is not None:
                raise DemoError(f"the supervisor ended; see {self.directory / 'supervisor.out'}") from None
            return {}

    def node(self, name: str) -> dict[str, Any]:
        return next((node for node in self.status().get("nodes", ()) if node["name"] == name), {})

    @property
    def primary(self) -> str:
        return str(self.status().get("primary") or "")

    def backups(self) -> list[str]:
        return [node["name"] for node in self.status()["nodes"] if node["state"] == "ready"]

    def addresses(self) -> str:
        return ",".join(node["address"] for node in self.status()["nodes"])

    def command(self, name: str, node: str, **arguments: Any) -> int:
        """Carries out a command of `qpid-cluster`; the moment before it, in µs."""
        now = time.monotonic_ns() // 1000
        control.request(self.spec.control_path, name, node=node, **arguments)
        return now

    def history(self) -> list[dict[str, Any]]:
        return list(control.request(self.spec.control_path, "history"))

    def down(self) -> None:
        """Ends everything, cleanly if possible."""
        if self._supervisor is None:
            return
        try:
            control.request(self.spec.control_path, "down", timeout=20.0)
        except control.ControlError:
            self._supervisor.terminate()
        try:
            self._supervisor.wait(10.0)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()  # the brokers die with it
            self._supervisor.wait()


@dataclass
class Client:
    """One load process."""

    name: str
    role: str
    style: str
    queue: str
    slot: int
    process: subprocess.Popen[bytes]


class Clients:
    """All load processes of a run."""

    def __init__(self, directory: Path, addresses: str) -> None:
        self.directory = directory
        self._addresses = addresses
        self._board_file = directory / "progress"
        create(self._board_file, 64)
        self.board = Board(self._board_file)
        self.all: list[Client] = []

    def start(self, role: str, style: str, name: str, queue: str, rate: float = 0.0) -> Client:
        slot = len(self.all)
        words = [role, "--name", name, "--queue", queue, "--addresses", self._addresses, "--style", style,
                 "--directory", str(self.directory / "events"), "--progress", str(self._board_file),
                 "--slot", str(slot), "--rate", str(rate)]  # fmt: skip
        with (self.directory / f"{name}.out").open("wb") as output:
            process = subprocess.Popen([sys.executable, "-m", "demo.load", *words], stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        client = Client(name, role, style, queue, slot, process)
        self.all.append(client)
        return client

    def of(self, role: str) -> list[Client]:
        return [client for client in self.all if client.role == role]

    def total(self, role: str) -> int:
        return sum(self.board.read(client.slot).done for client in self.of(role))

    def served_since(self, moment: int) -> list[Client]:
        return [client for client in self.all if self.board.read(client.slot).last > moment]

    def check(self) -> None:
        for client in self.all:
            if client.process.poll() is not None:
                raise DemoError(f"client {client.name} ended; see {self.directory / client.name}.out")

    def stop(self, role: str, timeout: float) -> None:
        """Ends the clients of a role cleanly: producers have everything confirmed, consumers drain."""
        for client in self.of(role):
            client.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + timeout
        for client in self.of(role):
            try:
                code = client.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise DemoError(f"client {client.name} did not end within {timeout:g} s") from None
            if code:
                raise DemoError(f"client {client.name} failed; see {self.directory / client.name}.out")

    def kill(self) -> None:
        for client in self.all:
            if client.process.poll() is None:
                client.process.kill()
                client.process.wait()
