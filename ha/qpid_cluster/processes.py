"""Broker processes of the local supervisor and their ports: starts and watches them (no polling), leaves none behind.

Shell.  A death is detected through the process's pidfd, in the loop's next turn.  Each broker asks the kernel to be
killed when the supervisor dies (PR_SET_PDEATHSIG), so that even a kill -9 of the supervisor leaves no broker running.
"""

import asyncio
import contextlib
import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from ha.qpid_cluster.cluster_file import ClusterSpec, NodeSpec

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded before any fork: after it, only the call itself is safe

Exited = Callable[[str, str], None]


def broker_command(spec: ClusterSpec, node: NodeSpec) -> list[str]:
    """The command line of one broker; its options are in the file of `config_text`."""
    command = spec.command or (sys.executable, "-m", "qpidd_py")
    return [*command, "--config", str(config_path(spec, node))]


def config_path(spec: ClusterSpec, node: NodeSpec) -> Path:
    return spec.directory / f"{node.name}.conf"


def config_text(spec: ClusterSpec, node: NodeSpec) -> str:
    """A configuration file for `qpidd`, and for `qpid-ha --config`."""
    decided = {
        "broker-name": node.name,
        "ssl-port" if node.encrypted else "port": str(node.port),
        "interface": node.host,
        "data-dir": str(spec.directory / node.name),
        "ha-cluster": "yes",
        "ha-cluster-name": spec.name,
        "ha-brokers-url": spec.brokers_url,
        "ha-safety": spec.safety,
    }
    if spec.safety == "manager" and spec.registry == "file":
        decided |= {"ha-registry": "file", "ha-registry-file": str(spec.registry_path)}
    elif spec.safety == "manager":
        decided |= {"ha-registry": "none"}
    lines = [f"{name}={value}" for name, value in {**node.options, **decided}.items()]
    return "\n".join([f"# Written by qpid-cluster for {node.name}; changes are lost.", *lines, ""])


def write_config(spec: ClusterSpec, node: NodeSpec) -> None:
    """Write the broker's file, readable by its owner only, since it contains a password."""
    path = config_path(spec, node)
    path.touch(mode=0o600)
    path.write_text(config_text(spec, node), encoding="utf-8")


def is_free(node: NodeSpec) -> bool:
    """False only if another process listens at the node's address; any other fault is the broker's to report."""
    with socket.socket(socket.AF_INET6 if ":" in node.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((node.host, node.port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def with_port(node: NodeSpec, held: contextlib.ExitStack) -> NodeSpec:
    """Replace port 0 by a free port now, because every broker must know all addresses.

    The socket stays bound without listening until `held` is closed.  A broker may bind to the port as well, but the
    kernel gives it to no other process and to no client's connection while the broker is down."""
    if node.port:
        return node
    holder = held.enter_context(socket.socket())
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((node.host, 0))
    return replace(node, port=holder.getsockname()[1])


def resident_octets(pid: int) -> int | None:
    """Memory of a process; None if it has just ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


class Processes:
    """The running brokers of one supervisor; `exited(node, how)` is called from the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, exited: Exited) -> None:
        self._loop = loop
        self._exited = exited
        self._running: dict[str, tuple[subprocess.Popen[bytes], int]] = {}  # and the pidfd

    def start(self, name: str, command: list[str], log: Path) -> int:
        """Start a broker, with its output appended to `log`.  Returns its pid.  Raises OSError."""
        supervisor = os.getpid()

        def die_with_supervisor() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != supervisor:  # it died between the fork and the request
                os._exit(1)

        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in os.environ.items() if not name.startswith("QPID_")},
                start_new_session=True,  # a Ctrl-C at the terminal is for the supervisor alone
                preexec_fn=die_with_supervisor,
            )
        pidfd = os.pidfd_open(process.pid)
        self._running[name] = (process, pidfd)
        self._loop.add_reader(pidfd, self._ended, name)
        return process.pid

    def signal(self, name: str, number: int) -> None:
        """Send a signal; no effect if the process is gone."""
        entry = self._running.get(name)
        if entry is not None:
            entry[0].send_signal(number)

    def kill_all(self) -> None:
        """At the end: kill and reap all processes that still run."""
        for process, pidfd in self._running.values():
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
            process.kill()
            process.wait()
        self._running.clear()

    def _ended(self, name: str) -> None:
        process, pidfd = self._running.pop(name)
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        code = process.wait()
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        self._exited(name, how)
