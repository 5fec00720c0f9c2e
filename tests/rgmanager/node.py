"""A "node" for our driver: a directory with its own init scripts, settings and data, and a port.  Shell.

The scripts are the shipped ones, copied as an installation does it, because they hold their lock on themselves.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, Target
from qpidd_py.process import running_pid
from tests.support.process import HeldPort
from tests.support.wait import wait_for

ROOT: Final = Path(__file__).resolve().parents[2]
SCRIPTS: Final = ROOT / "resource_agents" / "rgmanager"
PROGRAMS: Final = Path(sys.executable).parent
USER: Final = "ha"
PASSWORD: Final = "secret"
ANSWER_TIME: Final = 5.0


class Node:
    """`settings` go into its sysconfig file, `options` into its qpidd.conf."""

    def __init__(self, directory: Path, name: str, shell: str = "") -> None:
        """`shell`: an interpreter for the scripts instead of /bin/sh."""
        self.name = name
        self.directory = directory / name
        self.data_dir = self.directory / "var" / "lib" / "qpidd"
        self.log_file = self.directory / "var" / "log" / "qpidd.log"
        self.config = self.directory / "etc" / "qpid" / "qpidd.conf"
        self.sysconfig = self.directory / "etc" / "sysconfig" / "qpidd"
        self.subsys = self.directory / "subsys"
        self._init = self.directory / "etc" / "init.d"
        self._held = HeldPort()
        self.port = self._held.port
        for path in (self.data_dir.parent, self.log_file.parent, self.config.parent, self.sysconfig.parent, self._init):
            path.mkdir(parents=True)
        for script in SCRIPTS.iterdir():
            copy = Path(shutil.copy(script, self._init))
            if shell:
                copy.write_text(f"#!{shell}\n{script.read_text().partition(chr(10))[2]}")
        self.configure()
        self.set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def broker(self) -> str:
        return str(PROGRAMS / "qpidd")

    def configure(self, **options: str) -> None:
        """Writes qpidd.conf; `_` stands for `-`."""
        basic = {"port": str(self.port), "interface": "127.0.0.1", "broker_name": self.name}
        files = {"data_dir": str(self.data_dir), "log_to_file": str(self.log_file)}
        lines = {**basic, **files, **options}
        self.config.write_text("".join(f"{key.replace('_', '-')}={value}\n" for key, value in lines.items()))

    def set(self, **settings: str) -> None:
        """Writes the sysconfig file."""
        basic = {
            "QPIDD": self.broker,
            "QPID_HA": PROGRAMS / "qpid-ha",
            "QPID_INIT": self.script("qpidd"),
            "QPID_CONFIG": self.config,
            "QPID_SUBSYS": self.subsys,
            "QPID_USER": "",
        }
        lines = {**{name: str(value) for name, value in basic.items()}, **settings}
        self.sysconfig.write_text("".join(f"{name}='{value}'\n" for name, value in lines.items()))

    def script(self, file: str) -> Path:
        """Where the script is that a cluster.conf calls `/etc/init.d/NAME`."""
        return self._init / Path(file).name

    def environment(self, **more: str) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("QPID")}
        return {**clean, "QPID_SYSCONFIG": str(self.sysconfig), **more}

    def call(self, script: str, *words: str, timeout: float = 60.0, **more: str) -> tuple[int, str]:
        """Exit code and output; `more` are environment variables."""
        command = [str(self.script(script)), *words]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=timeout, env=self.environment(**more), check=False,
        )  # fmt: skip
        return done.returncode, done.stdout.strip()

    # ---- the broker

    @property
    def pid(self) -> int | None:
        return running_pid(self.data_dir / "lock")

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def ask(self, method: str, **arguments: Any) -> Any:
        target = Target("127.0.0.1", self.port, Login(USER, PASSWORD))
        with ManagementSocket(target, Deadline(ANSWER_TIME)) as connection:
            return connection.request(method, arguments)

    @property
    def state(self) -> str:
        """Empty when it does not answer."""
        try:
            return str(self.ask("ha.status")["state"])
        except (OSError, BrokerError):
            return ""

    def signal(self, number: int) -> int:
        """To the broker, which has to run; its pid."""
        pid = self.pid
        assert pid is not None, f"no broker on {self.name}\n{self.log}"
        os.kill(pid, number)
        return pid

    def kill(self) -> int:
        return self.signal(signal.SIGKILL)

    def pause(self) -> int:
        pid = self.signal(signal.SIGSTOP)
        wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, what=f"{self.name} stopped")
        return pid

    # ---- the end

    def power_off(self) -> None:
        """Kills whatever runs here, daemons that have not taken their lock yet among them."""
        wait_for(lambda: not self._kill_all(), what=f"nothing runs on {self.name}")

    def _kill_all(self) -> int:
        found = [process for process in psutil.process_iter(["cmdline", "status"]) if self._ours(process.info)]
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return len(found)

    def _ours(self, info: Mapping[str, Any]) -> bool:
        mark = f"{self.directory}/"
        alive = info["status"] != psutil.STATUS_ZOMBIE
        return alive and any(mark in word for word in info["cmdline"] or ())

    def close(self) -> None:
        self.power_off()
        self._held.release()
