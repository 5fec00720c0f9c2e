"""Network switch and power unit of a lab, and the parent of its nodes.      Shell.

Runs in network and mount namespaces of its own.  The network namespace holds the bridge and is also where the clients
live.  Requests are lines on a unix socket, `VERB [NODE]`; the answer is one line of JSON, `{"ok": ...}` or
`{"error": TEXT}`.  Verbs: see `Supervisor.obey`.  The process ends when its standard input does.

A cable that was cut stays cut when its node is powered off and on: `heal` puts it back.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.pacemaker.lab.mounts import mount, overlay, unmount
from tests.pacemaker.lab.names import BRIDGE, CLIENTS_ADDRESS, PREFIX, Layout, node_address, port_name
from tests.pacemaker.lab.node_init import Boot

READY: Final = "ready"
NEW_NODE: Final = (
    "setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--kill-child=KILL", "--pid", "--mount", "--uts", "--ipc",
    "--net", "--propagation", "private",
)  # fmt: skip
"""Starts what follows as process 1 of new namespaces, which die with us."""
TAME: Final = ("setpriv", "--bounding-set", "-sys_boot", "--inh-caps", "-sys_boot")
"""No program of the node may call reboot(2)."""
FORWARDING: Final = "3"
DISABLED: Final = "0"
"""State of a bridge's port: everything is dropped both ways, and the carrier stays."""


@dataclass(frozen=True)
class Plan:
    """What the supervisor is told by the test."""

    directory: str
    nodes: list[str]
    boot_delay: float
    """Seconds from the off of a reboot to the on."""
    first: list[str] = field(default_factory=list)
    always: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    trees: list[str] = field(default_factory=list)
    """Directories that every node must see: the project, its Python."""
    watchdogs: bool = False
    """Every node has one."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def call(*words: str, check: bool = True) -> None:
    """Runs a command; OSError with what it said if it fails."""
    done = subprocess.run(words, capture_output=True, text=True)
    if check and done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


class Machine:
    """One node: its disk, its cable, and its processes while the power is on."""

    def __init__(self, name: str, plan: Plan) -> None:
        self.name = name
        self._plan = plan
        self._layout = Layout(Path(plan.directory))
        self._process: subprocess.Popen[str] | None = None
        self.init = 0
        """Process id of its process 1 as this machine sees it; 0 while off."""
        self.cut = False
        self.carrier = True
        self.boots_at: float | None = None
        self.hungry_at: float | None = None
        """When its watchdog resets it; None: not armed."""
        overlay(Path("/"), self._disk)

    @property
    def _disk(self) -> Path:
        return self._layout.root(self.name).parent

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def status(self) -> dict[str, Any]:
        return {"on": self.running, "init": self.init if self.running else 0}

    def on(self) -> None:
        """Returns when commands can be run in the node; its services are not up yet."""
        self.boots_at = None
        if self.running:
            return
        self.off()
        with open(self._layout.console(self.name), "ab") as console:
            before = TAME if self._plan.watchdogs else ()
            self._process = subprocess.Popen(
                [*before, *NEW_NODE, sys.executable, "-m", "tests.pacemaker.lab.node_init", self._boot().to_json()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=console, text=True, start_new_session=True,
            )  # fmt: skip
        self.init = int(self._line())
        self._plug_in()
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.close()
        if self._line() != "up":
            raise OSError(f"{self.name} does not come up, see {self._layout.console(self.name)}")
        if self.cut:
            self._apply_cable()  # a port takes a state only now; no service of the node has said anything yet

    def off(self) -> None:
        """As if the plug was pulled.  Returns when no process of the node is left."""
        self.boots_at = self.hungry_at = None
        if self._process is None:
            return
        if self.running:
            try:
                os.kill(self.init, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process, self.init = None, 0
        # The kernel takes its time to clean up a network namespace; the address shall be silent now.
        call("ip", "link", "del", port_name(self.name), check=False)

    def feed(self, seconds: float) -> None:
        if self.running:
            self.hungry_at = time.monotonic() + seconds

    def wipe(self) -> None:
        """An empty disk, as if another machine had been put in place of this one."""
        self.off()
        unmount(self._layout.root(self.name))
        shutil.rmtree(self._disk)
        overlay(Path("/"), self._disk)

    def set_cable(self, cut: bool, carrier: bool) -> None:
        self.cut, self.carrier = cut, carrier
        if self.running:
            self._apply_cable()

    def _plug_in(self) -> None:
        port = port_name(self.name)
        call("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(self.init))
        call("ip", "link", "set", port, "master", BRIDGE, "up")

    def _apply_cable(self) -> None:
        port = port_name(self.name)
        call("ip", "link", "set", port, "up" if self.carrier else "down")
        if self.carrier:
            call("bridge", "link", "set", "dev", port, "state", DISABLED if self.cut else FORWARDING)

    def _boot(self) -> Boot:
        root = self._layout.root(self.name)
        address = f"{node_address(self.name)}/{PREFIX}"
        environment = {**self._plan.environment, "NODE_NAME": self.name, "NODE_ADDRESS": node_address(self.name)}
        hidden = [tree for tree in self._plan.trees if not (root / tree.lstrip("/")).exists()]
        return Boot(self.name, address, str(root), str(self._layout.control), hidden, self._plan.first,
                    self._plan.always, environment, self._plan.watchdogs)  # fmt: skip

    def _line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise OSError(f"{self.name} died at once, see {self._layout.console(self.name)}")
        return line


class Supervisor:
    """All machines, and the socket."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.layout = Layout(Path(plan.directory))
        self.layout.tmpfs.mkdir()
        mount("tmpfs", self.layout.tmpfs, "mode=755")
        self._switch()
        self.machines = {name: Machine(name, plan) for name in plan.nodes}
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self.layout.power_socket))
        self._server.listen(16)

    def _switch(self) -> None:
        call("ip", "link", "set", "lo", "up")
        call("ip", "link", "add", BRIDGE, "type", "bridge")
        call("ip", "addr", "add", f"{CLIENTS_ADDRESS}/{PREFIX}", "dev", BRIDGE)
        call("ip", "link", "set", BRIDGE, "up")

    def serve(self) -> None:
        """Until standard input ends or SIGTERM comes."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(sys.stdin, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(self._boot_due())]
                if sys.stdin in ready:
                    return
                if self._server in ready:
                    self._answer(self._server.accept()[0])
                else:
                    self._bite()  # only when nobody waits: food may be among the requests

    def close(self) -> None:
        for machine in self.machines.values():
            machine.off()
        self._server.close()

    def _boot_due(self) -> float | None:
        """Switches on what is due; seconds until the next, None if there is none."""
        now = time.monotonic()
        for machine in self.machines.values():
            if machine.boots_at is not None and machine.boots_at <= now:
                self._log(f"boot {machine.name}")
                machine.on()
        due = [(machine.boots_at, machine.hungry_at) for machine in self.machines.values()]
        times = [moment for pair in due for moment in pair if moment is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _bite(self) -> None:
        """Resets nodes whose watchdog was not fed in time."""
        now = time.monotonic()
        for machine in self.machines.values():
            if machine.hungry_at is not None and machine.hungry_at <= now:
                self._log(f"watchdog {machine.name}")
                self._change("reboot", machine)

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(5.0)
            try:
                line = connection.makefile().readline()
                self._log(line.strip())
                reply: dict[str, Any] = {"ok": self.obey(line.split())}
            except (OSError, ValueError) as error:
                reply = {"error": str(error)}
            try:
                connection.sendall(json.dumps(reply).encode() + b"\n")
            except OSError:
                pass  # a node that asked for its own death

    def obey(self, words: list[str]) -> dict[str, Any]:
        """`status`; for a node `on`, `off`, `reboot`, `wipe`, `cut`, `heal`, `link_down`; for its watchdog
        `feed NODE SECONDS` and `disarm`.  Raises ValueError."""
        match words:
            case ["status"]:
                return {name: machine.status() for name, machine in self.machines.items()}
            case ["feed", name, seconds] if name in self.machines:
                self.machines[name].feed(float(seconds))
                return {}
            case [verb, name] if name in self.machines:
                self._change(verb, self.machines[name])
                return {}
        raise ValueError(f"cannot do {' '.join(words)!r}")

    def _change(self, verb: str, machine: Machine) -> None:
        match verb:
            case "on":
                machine.on()
            case "off":
                machine.off()
            case "reboot":
                machine.off()  # answered when it is off; the boot is not waited for
                machine.boots_at = time.monotonic() + self.plan.boot_delay
            case "disarm":
                machine.hungry_at = None
            case "wipe":
                machine.wipe()
            case "cut":
                machine.set_cable(cut=True, carrier=True)
            case "link_down":
                machine.set_cable(cut=True, carrier=False)
            case "heal":
                machine.set_cable(cut=False, carrier=True)
            case _:
                raise ValueError(f"unknown verb {verb!r}")

    def _log(self, text: str) -> None:
        if text != "status" and not text.startswith("feed "):
            with open(self.layout.power_log, "a") as log:
                log.write(f"{time.time():.3f} {text}\n")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervisor = Supervisor(Plan(**json.loads(sys.argv[1])))
    try:
        print(READY, flush=True)
        supervisor.serve()
    finally:
        supervisor.close()


if __name__ == "__main__":
    main()
