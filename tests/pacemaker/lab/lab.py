"""The lab as tests use it.      Shell."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.pacemaker.lab import files, requirements
from tests.pacemaker.lab.host import Clients, Node
from tests.pacemaker.lab.names import CLIENTS_ADDRESS, NODE_CONTROL, PROJECT, PROVISION, Layout
from tests.pacemaker.lab.names import node_address as address_of
from tests.pacemaker.lab.names import node_names as names_of
from tests.pacemaker.lab.node_init import BOOT_LOG, FAILED
from tests.pacemaker.lab.state import ClusterState, parse
from tests.pacemaker.lab.supervisor import READY, Plan
from tests.support.wait import wait_for

LOGS: Final = PROJECT / "build" / "lab-logs"
ANSWER_TIME: Final = 30.0
FIRST_SCRIPTS: Final = ("10-packages.sh", "20-qpidd.sh", "30-corosync.sh")
BOOT_SCRIPTS: Final = ("40-pacemaker.sh",)
FILES: Final = Path(__file__).parent / "files"
KEY_SIZE: Final = 256
"""Octets of a key of Corosync."""
LOAD_SCRIPT: Final = "50-cluster.sh"


LIVE: Final[list[Lab]] = []
"""Labs that run just now, so that a failed test's logs can be saved no matter which test has made the lab."""


class LabError(Exception):
    """The lab cannot be made or does not answer; says why."""


class Lab:
    """Use as a context manager.  All nodes are on when it is entered; `settled` waits for the cluster."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        fencing: bool = True,
        token: int = 1000,
        boot_delay: float = 8.0,
        config: Path | None = None,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        package: Path | None = None,
    ) -> None:
        """`token` in ms; `boot_delay`: seconds from the off of a fencing or `reboot` to the on.

        `config`: directory that `qpid-cluster render` wrote, given to the provisioning scripts; None: a small one of
        the lab's own.  `environment`: more of it for the scripts.  `directory`: a new or empty one; None: a temporary
        one.  `package`: what `make package` made, installed in the nodes; None: no broker.
        """
        if reason := requirements.problem():
            raise LabError(reason)
        if package is not None and config is None:
            raise LabError("a broker needs a configuration")
        self.fencing = fencing
        self.token = token
        self._boot_delay = boot_delay
        self._config = config
        self._environment = dict(environment or {})
        self._package = package
        self._watchdogs = config is not None and (config / "sbd").exists()
        self._own_directory = directory is None
        # The socket's path must stay below 108 octets, which a test's own temporary directory may not.
        self.layout = Layout(directory or Path(tempfile.mkdtemp(prefix="lab-")))
        self._names = names_of(nodes)
        self._lock = -1
        self._supervisor: subprocess.Popen[str] | None = None
        self.nodes: list[Node] = []
        self.clients: Clients

    def __enter__(self) -> Lab:
        try:
            self._take_directory()
            LIVE.append(self)
            self._write_config()
            self._start_supervisor()
            self._meet_nodes()
            for node in self.nodes:
                node.on()
        except BaseException:
            if self in LIVE:
                print(f"logs of the lab: {self.save_logs()}")
            self.close()
            raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            print(f"logs of the lab: {self.save_logs()}")
        self.close()

    def close(self) -> None:
        """Ends everything."""
        if self._supervisor is not None:
            _end(self._supervisor)
            self._supervisor = None
        if self in LIVE:
            LIVE.remove(self)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            if self._own_directory:
                shutil.rmtree(self.layout.directory, ignore_errors=True)

    # Nodes, power, cables

    def node(self, which: int | str) -> Node:
        """By number from 1, or by name."""
        name = which if isinstance(which, str) else f"node{which}"
        return self.nodes[self._names.index(name)]

    def others(self, which: int | str) -> list[Node]:
        """All nodes but this one."""
        return [node for node in self.nodes if node is not self.node(which)]

    def cut(self, which: int | str) -> None:
        """Nothing comes through the node's cable any more, and no process is told; in force when this returns."""
        self.ask(f"cut {self.node(which).name}")

    def link_down(self, which: int | str) -> None:
        """The node's cable is pulled out, and its interface notices."""
        self.ask(f"link_down {self.node(which).name}")

    def heal(self, which: int | str) -> None:
        """The cable is as good as new."""
        self.ask(f"heal {self.node(which).name}")

    def ask(self, line: str) -> dict[str, Any]:
        """One request to the supervisor; from any thread.  LabError when it refuses."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_TIME)
            connection.connect(str(self.layout.power_socket))
            connection.sendall(line.encode() + b"\n")
            answer = json.loads(connection.makefile().readline() or '{"error": "the supervisor hung up"}')
        if "error" in answer:
            raise LabError(f"{line}: {answer['error']}")
        return dict(answer["ok"])

    # The cluster

    def crm_mon(self, seen_by: int | str | None = None) -> ClusterState:
        """The cluster's state as one node sees it, the first that is on; ValueError when Pacemaker does not answer."""
        node = self.node(seen_by) if seen_by is not None else self._any_node()
        done = node.run("crm_mon", "-1", "-A", "--output-as=xml")
        if done.returncode:
            raise ValueError(f"crm_mon on {node.name}: {done.stdout}{done.stderr}")
        return parse(done.stdout)

    def wait(self, condition: Callable[[ClusterState], object], timeout: float, what: str,
             seen_by: int | str | None = None) -> ClusterState:  # fmt: skip
        """Until the cluster's state fulfils the condition; that state.  AssertionError, with the last state, if not."""
        last: list[object] = ["no answer"]

        def look() -> ClusterState | None:
            try:
                last[0] = state = self.crm_mon(seen_by)
            except (ValueError, OSError) as error:
                last[0] = error
                self._check_boot()
                return None
            return state if condition(state) else None

        found = wait_for(look, timeout, lambda: f"{what}; last seen: {last[0]}", poll=0.15)
        assert found is not None
        return found

    def settled(self, timeout: float = 60.0, *, failures: bool = False) -> ClusterState:
        """Waits until all nodes that are on are members, the controller is idle and nothing is failed or under way.

        With `failures` a failed action in the history does not matter.
        """
        return self.wait(lambda state: self._is_settled(state, failures), timeout, "a settled cluster")

    def cib_load(self, xml: str, via: int | str = 1) -> None:
        """Brings a configuration (`<cib>` or `<configuration>`) into the cluster as one change; by vagrant's script.

        What has the same id is changed, what is new is added, nothing is deleted.  Waits for the nodes that are on.
        """
        (self.layout.control / "load.xml").write_text(xml)
        waited_for = " ".join(node.name for node in self.nodes if node.running)
        words = [*self.environment(), f"CIB={NODE_CONTROL}/load.xml", f"WAIT_FOR={waited_for}"]
        self.node(via).run("env", *words, "bash", str(PROVISION / LOAD_SCRIPT), check=True, timeout=120)

    def environment(self) -> list[str]:
        """NAME=VALUE that the provisioning scripts are run with."""
        return [f"{name}={value}" for name, value in self._script_environment().items()]

    def refresh(self) -> None:
        """Forgets all failures."""
        self._any_node().run("crm_resource", "--refresh", check=True)

    def save_logs(self, target: Path | None = None) -> Path:
        """Everything that tells what happened, copied to a new directory; None: below build/lab-logs."""
        target = target or LOGS / time.strftime("%H%M%S") / self.layout.directory.name
        target.mkdir(parents=True)
        for file in self.layout.directory.iterdir():
            if file.is_file() and file != self.layout.lock:
                shutil.copy(file, target)
        for node in self.nodes:
            node.save_logs(target / node.name)
            if node.running:
                (target / f"{node.name}.crm_mon").write_text(node.run("crm_mon", "-1rfA").stdout)
        return target

    # How it is done

    def _is_settled(self, state: ClusterState, failures: bool) -> bool:
        powered = {name for name, status in self.ask("status").items() if status["on"]}
        return (
            state.online == powered
            and state.quorum
            and (failures or not state.failures)
            and not any(resource.failed or resource.pending for resource in state.resources)
            and "S_IDLE" in self.node(state.dc).run("crmadmin", "-q", "-S", state.dc).stdout
        )

    def _check_boot(self) -> None:
        """AssertionError when a provisioning script has failed: such a node never comes up."""
        for node in self.nodes:
            log = node.read(BOOT_LOG)
            assert not log.rstrip().split("\n")[-1].startswith(FAILED), f"{node.name} did not boot:\n{log}"

    def _any_node(self) -> Node:
        running = [node for node in self.nodes if node.running]
        if not running:
            raise OSError("all nodes are off")
        return running[0]

    def _take_directory(self) -> None:
        self.layout.directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise LabError(f"another lab runs in {self.layout.directory}") from None
        if any(path != self.layout.lock for path in self.layout.directory.iterdir()):
            os.close(lock)
            raise LabError(f"{self.layout.directory} is not empty")
        self._lock = lock

    def _write_config(self) -> None:
        self.layout.config.mkdir(parents=True)
        own = {
            "corosync.conf": files.corosync_conf(self._names, self.token),
            "cluster.env": files.cluster_env(self._names),
        }
        for name, text in own.items():
            (self.layout.config / name).write_text(text)
        if self._config is not None:
            shutil.copytree(self._config, self.layout.config, dirs_exist_ok=True)
        (self.layout.config / "authkey").write_bytes(os.urandom(KEY_SIZE))
        if self._package is not None:
            shutil.copy(self._package, self.layout.control)
        for name in ("fence_lab", "toy", "harmless", "sbd"):
            shutil.copy(FILES / name, self.layout.control / name)
        if self._watchdogs:
            compile_watchdog(self.layout.control)

    def _script_environment(self) -> dict[str, str]:
        return {
            "PROVISION_APT": "no",
            "PROVISION_SYSTEMD": "no",
            "PROJECT": str(PROJECT),
            "LAB_TREES": " ".join(_trees()),
            "QPID_RENDERED": f"{NODE_CONTROL}/config",
            "QPIDD_PACKAGE": f"{NODE_CONTROL}/{self._package.name}" if self._package else "none",
            **self._environment,
        }

    def _start_supervisor(self) -> None:
        plan = Plan(
            directory=str(self.layout.directory),
            nodes=self._names,
            boot_delay=self._boot_delay,
            first=[str(FILES / "install.sh"), *(str(PROVISION / n) for n in FIRST_SCRIPTS)],
            always=[str(PROVISION / name) for name in BOOT_SCRIPTS],
            environment=self._script_environment(),
            trees=_trees(),
            watchdogs=self._watchdogs,
        )
        with open(self.layout.supervisor_log, "ab") as log:
            self._supervisor = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "unshare", "--net", "--mount", "--propagation", "private",
                 sys.executable, "-m", "tests.pacemaker.lab.supervisor", plan.to_json()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=PROJECT,
                start_new_session=True,
            )  # fmt: skip
        assert self._supervisor.stdout is not None
        if self._supervisor.stdout.readline().strip() != READY:
            raise LabError(f"the supervisor did not start: {self.layout.supervisor_log.read_text()}")

    def _meet_nodes(self) -> None:
        assert self._supervisor is not None
        self.clients = Clients(CLIENTS_ADDRESS, self._supervisor.pid)
        seen = Path(f"/proc/{self._supervisor.pid}/root")
        for name in self._names:
            disk = seen / str(self.layout.root(name)).lstrip("/")
            self.nodes.append(Node(name, address_of(name), disk, self.ask))


def compile_watchdog(directory: Path) -> None:
    words = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(directory / "watchdog.so"), str(FILES / "watchdog.c")]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"the watchdog of the lab cannot be compiled: {done.stderr}")


def _end(supervisor: subprocess.Popen[str]) -> None:
    """The end of its standard input is the supervisor's order to switch everything off."""
    assert supervisor.stdin is not None and supervisor.stdout is not None
    supervisor.stdin.close()
    try:
        supervisor.wait(20)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()
    supervisor.stdout.close()


def _trees() -> list[str]:
    """What the nodes must see even if it is not on the root file system."""
    return sorted({str(path) for path in (PROJECT, Path(sys.prefix), Path(sys.base_prefix))})
