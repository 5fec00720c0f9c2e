"""A real `qpidd` process for tests: free port, own data directory, stopped and cleaned up whatever happens."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qpidd_py.cli.client_socket import Deadline, ManagementSocket, Target
from tests.support import programs
from tests.support.wait import wait_for

READY = "Broker running on"
START_TIME = 60.0  # seconds; a loaded machine takes its time
STOP_TIME = 60.0


class HeldPort:
    """A port that stays ours while the broker on it is dead, so that it can come back to the same address.

    The socket is bound but does not listen: clients are refused, and with SO_REUSEADDR a broker may still bind.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


def explicit(options: Sequence[str]) -> list[str]:
    """`options`, with a mode named for a cluster that names none: most tests have a pair, or need no majority."""
    words = [*options]
    if "--ha-cluster" in words:
        if "--ha-safety" not in words:
            words += ["--ha-safety", "manager"]
        if "--ha-registry" not in words and words[words.index("--ha-safety") + 1] == "manager":
            words += ["--ha-registry", "none"]
    return words


class BrokerProcess:
    """Use as a context manager, or call `start` and `close`.  `directory` gets the log and the data directory."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        name: str = "broker",
        port: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.directory = directory
        self.data_dir = directory / f"{name}-data"
        self.log_file = directory / f"{name}.log"
        self.options: Sequence[str] = options
        self.environment = dict(environment or {})
        self._held = HeldPort() if port == 0 else None
        self.port = self._held.port if self._held else port
        self.process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def command(self) -> list[str]:
        return [
            sys.executable,
            *("-m", "qpidd_py"),
            *("--port", str(self.port), "--interface", "127.0.0.1"),
            *("--data-dir", str(self.data_dir), "--broker-name", self.name),
            *explicit(self.options),
        ]

    def spawn(self) -> "BrokerProcess":
        """Starts the process and does not wait for anything."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith("QPID_")}
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.log_file, "ab") as log:
            self._log_start = log.tell()
            self.process = programs.start(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean | self.environment
            )
        return self

    def start(self) -> "BrokerProcess":
        self.spawn()
        wait_for(lambda: READY in self.log or not self.running, START_TIME, lambda: f"{self.name} starts\n{self.log}")
        assert self.running, f"{self.name} ended with {self.process and self.process.returncode}\n{self.log}"
        return self

    @property
    def log(self) -> str:
        """What this run of the process has logged."""
        try:
            with open(self.log_file, "rb") as log:
                log.seek(self._log_start)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What the broker has written about itself, oldest first; the line being written may be half there."""
        found: list[dict[str, Any]] = []
        for path in sorted((self.data_dir / "events").glob("*.jsonl*")):
            for line in path.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    found.append(json.loads(line))
        return [event for event in sorted(found, key=lambda event: event["ts_wall"]) if event["kind"] == kind]

    def request(self, method: str, /, **arguments: Any) -> Any:
        """A management request."""
        with ManagementSocket(Target("127.0.0.1", self.port), Deadline(30)) as connection:
            return connection.request(method, arguments)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, timeout: float = STOP_TIME) -> int:
        """The exit code."""
        assert self.process is not None
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end within {timeout:g} s\n{self.log}") from None

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        self.wait()

    def pause(self) -> None:
        """SIGSTOP; returns when the process has really stopped."""
        self.signal(signal.SIGSTOP)
        wait_for(lambda: self._state() == "T", what=f"{self.name} stopped")

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends the process if it runs, paused or not, and gives the port back."""
        if self.running:
            self.signal(signal.SIGKILL)
            self.wait()
        if self._held is not None:
            self._held.release()

    def _state(self) -> str:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def __enter__(self) -> "BrokerProcess":
        return self.start()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()
        if error is not None:
            print(f"---- log of {self.name} ----\n{self.log}")
