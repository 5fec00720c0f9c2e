"""A RabbitMQ cluster on the loopback interface, all its state below one temporary directory.

Uses the scripts of an installed server (Debian package rabbitmq-server) without its service, its user or its
directories.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from benchmarks.processes import (
    BenchmarkError,
    free_ports,
    is_alive,
    listens,
    speaks_amqp,
    stop_process,
    wait_until,
)

START_TIMEOUT = 240.0
"""Seconds.  A node alone takes 15; that of a cluster, with five busy loops on two cores, 55."""


def find_server() -> Path | None:
    """The sbin directory with the plain scripts; the ones in PATH of Debian insist on the service's user."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if found:
        return found[-1].parent
    plain = shutil.which("rabbitmq-server")
    return Path(plain).resolve().parent if plain else None


class RabbitCluster:
    """`size` nodes. One node: a classic queue; more: a quorum queue with a member on every node."""

    name = "RabbitMQ"

    def __init__(self, size: int, plugins: str = "") -> None:
        """`plugins`: their names, with commas."""
        sbin = find_server()
        if sbin is None:
            raise BenchmarkError("rabbitmq-server is not installed")
        self.sbin = sbin
        self.size = size
        self.plugins = plugins
        self.queue_arguments = "x-queue-type=quorum" if size > 1 else ""
        self.base = Path(tempfile.mkdtemp(prefix="bench-rabbitmq-"))
        ports = free_ports(2 * size + 2)
        self.epmd_port, self.management_port, *ports = ports
        self.ports, self.distribution_ports = ports[:size], ports[size:]
        self.epmd: subprocess.Popen[bytes] | None = None
        self.scripts: dict[int, subprocess.Popen[bytes]] = {}
        self.serving = 0
        self.killed: int | None = None

    def start(self) -> None:
        cookie = self.base / ".erlang.cookie"
        cookie.write_text("BENCHMARK")
        cookie.chmod(0o400)
        command = ["epmd", "-address", "127.0.0.1", "-port", str(self.epmd_port)]
        self.epmd = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(lambda: listens(self.epmd_port), START_TIMEOUT, "epmd answers")
        for number in range(self.size):
            self._start_node(number)

    def stop(self) -> None:
        for number in self.scripts:
            pid = self._pid(number)
            if pid is not None and is_alive(pid):
                os.kill(pid, signal.SIGTERM)
        for script in self.scripts.values():
            stop_process(script, timeout=30)
        for number in self.scripts:
            self._kill(number)
        if self.epmd is not None:
            stop_process(self.epmd)
        shutil.rmtree(self.base, ignore_errors=True)

    def evaluate(self, expression: str) -> str:
        """Of Erlang, on the first node; what is printed.  Raises BenchmarkError."""
        command = [str(self.sbin / "rabbitmqctl"), "--node", "rabbit0@localhost", "eval", expression]
        done = subprocess.run(
            command, cwd=self.base, env=self._environment(0), capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise BenchmarkError(f"rabbitmqctl eval ends with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def pids(self) -> list[int]:
        found = [self._pid(number) for number in self.scripts]
        return [pid for pid in found if pid is not None and is_alive(pid)]

    def addresses(self) -> list[str]:
        order = [*range(self.serving, self.size), *range(self.serving)]
        return [f"127.0.0.1:{self.ports[number]}" for number in order]

    def fail_over(self) -> None:
        pid = self._pid(self.serving)
        if pid is None:
            raise BenchmarkError(f"node {self.serving} has no pid")
        os.kill(pid, signal.SIGKILL)  # the members elect a new leader by themselves
        self.killed = self.serving
        self.serving = (self.serving + 1) % self.size

    def repair(self) -> None:
        """Starts the killed node again; also after an attempt that took too long, whose process may live."""
        if self.killed is not None:
            self._kill(self.killed)
            self.scripts[self.killed].wait()
            self._start_node(self.killed)
            self.killed = None

    def _kill(self, number: int) -> None:
        pid = self._pid(number)
        if pid is not None and is_alive(pid):
            os.kill(pid, signal.SIGKILL)

    def _pid(self, number: int) -> int | None:
        try:
            return int((self.base / f"node{number}" / "pid").read_text())
        except (OSError, ValueError):
            return None

    def _start_node(self, number: int) -> None:
        folder = self.base / f"node{number}"
        folder.mkdir(exist_ok=True)
        (folder / "pid").unlink(missing_ok=True)
        (folder / "rabbitmq.conf").write_text("\n".join(self._configuration(number)) + "\n")
        (folder / "enabled_plugins").write_text(f"[{self.plugins}].\n")
        with (folder / "stdout").open("ab") as log:
            self.scripts[number] = subprocess.Popen(
                [self.sbin / "rabbitmq-server"],
                cwd=folder,  # a crash dump may be written there
                env=self._environment(number),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: self._answers(number), START_TIMEOUT, f"RabbitMQ node {number} answers", interval=0.2)

    def _answers(self, number: int) -> bool:
        """Raises BenchmarkError, with the end of its log, if it has ended."""
        if self.scripts[number].poll() is not None:
            log = (self.base / f"node{number}" / "stdout").read_text(errors="replace")
            raise BenchmarkError(f"RabbitMQ node {number} has ended: {log[-2000:]}")
        return speaks_amqp(self.ports[number])

    def _configuration(self, number: int) -> list[str]:
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{self.ports[number]}",
            "disk_free_limit.absolute = 1GB",
            "log.file.level = warning",
            "cluster_partition_handling = pause_minority",
        ]
        if "rabbitmq_management" in self.plugins and not number:
            lines += ["management.tcp.ip = 127.0.0.1", f"management.tcp.port = {self.management_port}"]
        if self.size > 1:
            lines.append("cluster_formation.peer_discovery_backend = classic_config")
            lines += [f"cluster_formation.classic_config.nodes.{i + 1} = rabbit{i}@localhost" for i in range(self.size)]
        return lines

    def _environment(self, number: int) -> dict[str, str]:
        folder = self.base / f"node{number}"
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.base),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_NODENAME": f"rabbit{number}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.ports[number]),
            "RABBITMQ_DIST_PORT": str(self.distribution_ports[number]),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "ERL_CRASH_DUMP": str(folder / "erl_crash.dump"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
