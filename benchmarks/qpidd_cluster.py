"""Our brokers on the loopback interface, all state below one temporary directory."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.management import Management, RefusedError
from benchmarks.processes import (
    BenchmarkError,
    free_ports,
    is_alive,
    speaks_amqp,
    stop_process,
    wait_until,
)

START_TIMEOUT = 20.0
READY_TIMEOUT = 60.0
PROGRAMS = Path(sys.executable).parent


class QpiddCluster:
    """`size` brokers: one stands alone, more replicate everything. `qpid-ha` promotes node 0 at the start."""

    name = "qpidd-py"
    queue_arguments = ""

    def __init__(
        self, size: int, started: int | None = None, journals: bool = False, options: Iterable[str] = ("--auth", "no")
    ) -> None:
        """`started`: only so many of the brokers are started at first; `journals`: each keeps one; `options`: further
        ones of each broker."""
        self.journals = journals
        self.options = list(options)
        self.size = size
        self.started = size if started is None else started
        self.base = Path(tempfile.mkdtemp(prefix="bench-qpidd-"))
        self.ports = free_ports(size)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.management: dict[int, Management] = {}
        self.serving = 0
        self.killed: int | None = None

    def start(self) -> None:
        for number in range(self.started):
            self.launch(number)
        for number in range(self.started):
            self.wait_for_listener(number)
        if self.size > 1:
            command = [str(PROGRAMS / "qpid-ha"), "promote", "--cluster-manager", "-b", f"127.0.0.1:{self.ports[0]}"]
            if subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=30).returncode:
                raise BenchmarkError(f"node 0 was not promoted; logs are in {self.base}")
            self.wait_for_state(0, "active")
        for number in range(1, self.started):
            self.wait_for_state(number, "ready")

    def stop(self) -> None:
        for connection in self.management.values():
            connection.close()
        for process in self.processes.values():
            stop_process(process)
        shutil.rmtree(self.base, ignore_errors=True)

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes.values() if is_alive(process.pid)]

    def addresses(self) -> list[str]:
        order = [*range(self.serving, self.size), *range(self.serving)]
        return [f"127.0.0.1:{self.ports[number]}" for number in order]

    def fail_over(self, hang: bool = False) -> None:
        """Asks the backups in turn, as a manager does: one that lacks something refuses.  `hang`: SIGSTOP instead of
        SIGKILL."""
        backups = [number for number in range(self.size) if number != self.serving]
        for number in backups:
            self.manager(number).state()  # opens the connection before it is needed
        self.killed = self.serving
        self.processes[self.killed].send_signal(signal.SIGSTOP if hang else signal.SIGKILL)
        for number in backups:
            try:
                self.manager(number).call("ha.promote")
            except RefusedError as error:
                print(f"  node {number}: {error}", flush=True)
                continue
            self.serving = number
            return
        raise BenchmarkError("no backup could be promoted")

    def repair(self) -> None:
        if self.killed is None:
            return
        self.processes[self.killed].kill()
        self.processes[self.killed].wait()
        self.management.pop(self.killed, None)
        self.launch(self.killed)
        self.wait_for_listener(self.killed)
        self.wait_for_state(self.killed, "ready")
        self.wait_for_state(self.serving, "active")
        self.killed = None

    def launch(self, number: int) -> None:
        """Starts the process; does not wait."""
        folder = self.base / f"node{number}"
        folder.mkdir(exist_ok=True)
        command = [
            str(PROGRAMS / "qpidd"),
            "--port",
            str(self.ports[number]),
            "--interface",
            "127.0.0.1",
        ]
        command += ["--data-dir", str(folder), "--broker-name", f"node{number}"]
        command += ["--journal", "yes"] if self.journals else []
        if self.size > 1:
            urls = ",".join(f"127.0.0.1:{port}" for port in self.ports)
            command += ["--ha-cluster", "yes", "--ha-brokers-url", urls, "--ha-replicate", "all"]
            pair = ["--ha-safety", "manager", "--ha-registry", "none"]
            command += pair if self.size == 2 else ["--ha-safety", "quorum"]
        command += self.options
        with (folder / "log").open("ab") as log:
            self.processes[number] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_for_listener(self, number: int) -> None:
        def listens() -> bool:
            if self.processes[number].poll() is not None:
                log = (self.base / f"node{number}" / "log").read_text(errors="replace")
                raise BenchmarkError(
                    f"node {number} ended with status {self.processes[number].returncode}: {log[-2000:]}"
                )
            return speaks_amqp(self.ports[number])

        wait_until(listens, START_TIMEOUT, f"node {number} listens", interval=0.01)

    def wait_for_state(self, number: int, state: str, timeout: float = READY_TIMEOUT) -> float:
        """Returns the clock (time.monotonic) when the state was seen; it is asked for every 5 ms."""
        wait_until(lambda: self.manager(number).state() == state, timeout, f"node {number} is {state}", interval=0.005)
        return time.monotonic()

    def manager(self, number: int) -> Management:
        """The connection is made when first used and kept."""
        if number not in self.management:
            self.management[number] = Management(self.ports[number])
        return self.management[number]
