"""Brokers under Pacemaker in the lab, configured by what `qpid-cluster render` writes.                        Shell."""

from __future__ import annotations

import os
import signal
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from ha.qpid_cluster.main import main as qpid_cluster
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, Target
from qpidd_py.security.users import hash_password
from tests.pacemaker.lab.host import Node
from tests.pacemaker.lab.lab import Lab
from tests.pacemaker.lab.names import VIRTUAL_ADDRESS, node_address, node_names
from tests.pacemaker.lab.package import package
from tests.pacemaker.lab.requirements import problem
from tests.pacemaker.lab.state import ClusterState
from tests.support.wait import wait_for

__all__ = ["PORT", "VIRTUAL_ADDRESS", "Cluster", "Setup"]

PORT: Final = 5672
CLIENT: Final = "client/secret"
"""Login of the load."""
CLONE, VIP = "qpidd-clone", "vip"
LOG: Final = "var/log/qpidd/qpidd.log"
DATA_DIR: Final = "/var/lib/qpidd"
LOGIN: Final = Login("qpid-ha", "secret", "PLAIN")
TROUBLE: Final = (OSError, BrokerError)
UP: Final = 90.0
"""Seconds until a cluster is complete, from the power button on."""
SETTLED: Final = 60.0


@dataclass(frozen=True)
class Setup:
    """A kind of cluster."""

    nodes: int = 3
    fencing: bool = False
    safety: str = "quorum"
    registry: str = "none"
    token: int = 1000
    """Milliseconds."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the brokers."""
    deployment: Mapping[str, str] = field(default_factory=dict)
    """More of that section of the cluster file."""

    @property
    def name(self) -> str:
        kept = ", journals" if self.journals else ""
        return f"{self.nodes} nodes, {self.safety}, fencing {'on' if self.fencing else 'off'}{kept}"

    @property
    def resets(self) -> bool:
        """A lost node comes back by itself."""
        return self.fencing or "sbd" in self.deployment

    @property
    def journals(self) -> bool:
        return self.options.get("journal") == "yes"

    def yaml(self) -> str:
        """cluster.yaml, as an administrator would write it."""
        nodes = "".join(
            f"  - {{name: {name}, host: {node_address(name)}, port: {PORT}}}\n" for name in node_names(self.nodes)
        )
        options = "".join(f"  {name}: {value}\n" for name, value in {"journal": "no", **self.options}.items())
        more = "".join(f"  {name}: {value}\n" for name, value in self.deployment.items())
        fencing = "  fencing: {agent: fence_lab, action: reboot}\n" if self.fencing else ""
        return f"""\
cluster: lab
directory: /var/lib/qpidd
nodes:
{nodes}safety: {self.safety}
options:
  ha-replicate: all
  ha-username: {LOGIN.user}
  ha-password: {LOGIN.password}
{options}deployment:
  virtual-ip: {VIRTUAL_ADDRESS}/24
  interface: eth0
  token: {self.token}ms
  dc-deadtime: 2s
  registry: {self.registry}
{more}{fencing}"""


class Cluster:
    """A lab with brokers in it."""

    def __init__(self, lab: Lab, setup: Setup) -> None:
        self.lab = lab
        self.setup = setup
        self.login = LOGIN
        self.hurt = False
        """A test has failed in the middle of it, so its state is unknown."""
        self.log_marks: dict[str, int] = {}
        """Node → lines of its broker's log that were judged already."""

    # ---- coming and being up --------------------------------------------------------------------------------------

    def start(self, cib: str) -> None:
        """Brings the resources in; returns when one broker is active and all others are ready."""
        self.lab.wait(lambda state: len(state.online) == self.setup.nodes, UP, "all nodes are members")
        self.lab.cib_load(cib)
        self.whole(UP)
        self.lab.settled(SETTLED)

    def whole(self, timeout: float = UP) -> None:
        """Waits until one broker is active, all others are ready, and Pacemaker knows who it is."""
        wait_for(self._whole, timeout, lambda: f"one active, all others ready: {self.states()}", poll=0.1)
        self.lab.wait(self._agrees, timeout, "Pacemaker has promoted the primary and the address is there")

    def ready(self) -> None:
        """Whatever an earlier test has left behind: powered, connected, no node in standby, whole."""
        for node in self.lab.nodes:
            self.lab.heal(node.name)
        if self.hurt:
            self._power_cycle()
        self.calm(UP)
        self.hurt = False

    def _power_cycle(self) -> None:
        for node in self.lab.nodes:
            node.off()
        for node in self.lab.nodes:
            node.on()
        self.lab.wait(lambda state: len(state.online) == self.setup.nodes, UP, "all nodes are members again")
        self.on_any("crm_resource", "--clear", "-r", CLONE, check=False)
        for node in self.lab.nodes:
            self.on_any("crm_attribute", "-N", node.name, "-n", "standby", "-D", check=False)

    def calm(self, timeout: float = SETTLED) -> None:
        """After trouble: what failed is forgiven, everything is whole, and nothing is under way."""
        self.forgive()
        self.whole(timeout)
        self.lab.settled(timeout, failures=True)

    def forgive(self) -> None:
        """An administrator would look at it, repair it and say so.

        Only the counters are deleted: `crm_resource --refresh` deletes what is known of the resources, too, and a start
        that falls into the same moment fails for ever (Pacemaker 2.1.5)."""
        self.lab.wait(lambda state: state.quorum, SETTLED, "quorum")
        for node, name in counted(self.on_any("cibadmin", "--query", "--scope", "status")):
            self.on_any("attrd_updater", "--delete", "--name", name, "--node", node)

    def _whole(self) -> bool:
        wanted = ["active", *["ready"] * (self.setup.nodes - 1)]
        return sorted(self.states().values()) == wanted

    def _agrees(self, state: ClusterState) -> bool:
        primary = self.primary()
        return state.promoted(CLONE) == [primary] and state.where(VIP) == [primary]

    # ---- who is who -----------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        return self.lab.node(name)

    def states(self) -> dict[str, str]:
        """Node → what its broker says; "" when it does not."""
        return {node.name: str((self.ask(node.name, "ha.query") or {}).get("status", "")) for node in self.lab.nodes}

    def primary(self) -> str:
        """The node whose broker is active."""
        return next((name for name, state in self.states().items() if state == "active"), "")

    def backups(self) -> list[str]:
        return sorted(name for name, state in self.states().items() if state == "ready")

    def ask(self, name: str, method: str, timeout: float = 1.0, **arguments: Any) -> Any:
        """A management request, asked on the node itself; None when there is no answer."""
        node = self.node(name)
        try:
            with node.inside():
                connection = ManagementSocket(Target(node.address, PORT, self.login), Deadline(timeout))
            with connection:
                return connection.request(method, arguments)
        except TROUBLE:
            return None

    def depths(self, name: str) -> dict[str, int] | None:
        """Queue → messages, delivered ones included; None when the broker does not answer."""
        found = self.ask(name, "queue.list", 3.0)
        if found is None:
            return None
        queues: Sequence[Mapping[str, Any]] = found["queues"] if isinstance(found, dict) else found
        return {str(queue["name"]): int(queue["ready"]) + int(queue["unacked"]) for queue in queues}

    # ---- doing things ---------------------------------------------------------------------------------------------

    def broker_pid(self, name: str) -> int:
        """Of the broker, as this machine sees it.  AssertionError when there is none."""
        found = self.node(name).read(f"{DATA_DIR}/lock").split()
        pid = host_pid(self.node(name).init, int(found[0])) if found else 0
        assert pid, f"no broker on {name}"
        return pid

    def killer(self, name: str, number: signal.Signals) -> Callable[[], None]:
        """Sends the signal to the broker when it is called; who it is was looked up before, since that takes time."""
        pid = self.broker_pid(name)
        return lambda: os.kill(pid, number)

    def freeze(self, name: str) -> Callable[[], None]:
        """The whole node stands still; returns what lets it go on."""
        pids = processes(self.node(name).init)
        for pid in pids:
            _signal(pid, signal.SIGSTOP)

        def thaw() -> None:
            for pid in pids:
                _signal(pid, signal.SIGCONT)

        return thaw

    def on_any(self, *words: str, check: bool = True) -> str:
        """Runs a command on a node that is on; its output."""
        node = next(node for node in self.lab.nodes if node.running)
        return node.run(*words, check=check).stdout

    def wait_for(self, condition: Callable[[], object], timeout: float, what: str, poll: float = 0.05) -> None:
        wait_for(condition, timeout, lambda: f"{what}; brokers: {self.states()}", poll=poll)

    def fill(self, queue: str, messages: int, size: int = 1024) -> None:
        """Puts messages into a queue that no client consumes, so that a broker that joins has something to catch up."""
        primary = self.primary()
        login = pika.PlainCredentials(LOGIN.user, LOGIN.password)
        parameters = pika.ConnectionParameters(self.node(primary).address, PORT, credentials=login)
        with self.lab.clients.inside():
            connection = pika.BlockingConnection(parameters)
        with connection, connection.channel() as channel:
            channel.queue_declare(queue, durable=True)
            for _ in range(messages):
                channel.basic_publish("", queue, bytes(size))
        self.wait_for(lambda: (self.depths(primary) or {}).get(queue) == messages, 30, f"{messages} in {queue}")

    # ---- what brokers have logged ---------------------------------------------------------------------------------

    def broker_log(self, name: str) -> list[str]:
        file = self.node(name).disk / LOG
        return file.read_text(errors="replace").splitlines() if file.exists() else []

    def mark_logs(self) -> None:
        """What is in the logs now was judged."""
        self.log_marks = {node.name: len(self.broker_log(node.name)) for node in self.lab.nodes}


def boot(setup: Setup, directory: Path) -> tuple[Lab, str]:
    """A lab with this configuration, not entered yet, and its CIB."""
    config = render(setup, directory)
    lab = Lab(setup.nodes, fencing=setup.fencing, token=setup.token, config=config, package=package())
    return lab, (config / "cib.xml").read_text()


def render(setup: Setup, directory: Path) -> Path:
    """What an administrator does before the first boot."""
    file, target = directory / "cluster.yaml", directory / "rendered"
    file.write_text(setup.yaml())
    with redirect_stdout(sys.stderr):  # it tells what it writes
        code = qpid_cluster(["--config", str(file), "render", str(file), "-o", str(target), "--for", "vagrant"])
    assert not code, f"qpid-cluster render ended with {code}"
    name, _, password = CLIENT.partition("/")
    (target / "users.yaml").write_text(f"{name}: {hash_password(password)}\n")
    return target


def counted(status: str) -> list[tuple[str, str]]:
    """Node and name of all attributes in a CIB's status that count failures."""
    return [
        (state.get("uname", ""), name)
        for state in ET.fromstring(status).iter("node_state")
        for pair in state.iterfind("transient_attributes//nvpair")
        if (name := pair.get("name", "")).startswith(("fail-count-", "last-failure-"))
    ]


def processes(init: int) -> list[int]:
    """All processes of the node whose process 1 this is, as this machine sees them."""
    namespace = os.readlink(f"/proc/{init}/ns/pid")
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _in(path, namespace)]


def _in(process: Path, namespace: str) -> bool:
    try:
        return os.readlink(process / "ns/pid") == namespace
    except OSError:
        return False  # it has just ended


def host_pid(init: int, inner: int) -> int:
    """The number on this machine of a process that its node knows as `inner`; 0 when there is none."""
    return next((pid for pid in processes(init) if _inner(pid) == inner), 0)


def _inner(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[-1]) for line in lines if line.startswith("NSpid:")), 0)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended meanwhile


def running(setup: Setup, directory: Path, prepare: Callable[[Node], None] = lambda node: None) -> Iterator[Cluster]:
    """For a fixture: a cluster that is up, or a skip by name.  `prepare` is called for each node before its broker
    starts."""
    reason = problem()
    if reason:
        pytest.skip(f"no Pacemaker lab here: {reason}")
    lab, cib = boot(setup, directory)
    with lab:
        cluster = Cluster(lab, setup)
        try:
            for node in lab.nodes:
                prepare(node)
            cluster.start(cib)
        except BaseException:
            print(f"logs of the nodes: {lab.save_logs()}")
            raise
        yield cluster
