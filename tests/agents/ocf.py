"""Calls the agent as Pacemaker does; what it would write into the cluster is recorded by a false `attrd_updater`."""

import os
import pwd
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import guard
from tests.support.process import HeldPort
from tests.support.wait import wait_for

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "resource_agents" / "ocf" / "qpidd"
ME = pwd.getpwuid(os.geteuid()).pw_name
TIME = 60.0  # seconds; far beyond what anything here takes


class Result(NamedTuple):
    code: int
    output: str
    errors: str

    @property
    def reason(self) -> str:
        prefix = "ocf-exit-reason:"
        return " ".join(line.removeprefix(prefix) for line in self.errors.splitlines() if line.startswith(prefix))


class Agent:
    """One resource.  `parameters` win over the defaults here, None takes one away."""

    def __init__(self, directory: Path, **parameters: str | None) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.calls_file = directory / "attrd_updater.calls"
        self.rsctmp = directory / "rsctmp"
        self._held = HeldPort()
        self.port = self._held.port
        self._processes: list[subprocess.Popen[str]] = []
        self.rsctmp.mkdir(parents=True)
        bin_dir = directory / "bin"
        bin_dir.mkdir()
        write_program(bin_dir / "qpidd", f'exec {sys.executable} -m qpidd_py "$@"')
        write_program(bin_dir / "qpid-ha", f'exec {sys.executable} -m ha.qpid_ha.main "$@"')
        write_program(bin_dir / "attrd_updater", f'echo "$*" >>{self.calls_file}')
        self.parameters: dict[str, str | None] = {
            "binary": str(bin_dir / "qpidd"),
            "data_dir": str(self.data_dir),
            "port": str(self.port),
            "user": ME,
            "options": self.options(),
            **parameters,
        }

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def options(self, *others: str, safety: str = "manager") -> str:
        """Of the broker; `others` are addresses of more members."""
        url = ",".join((self.address, *others))
        log = self.directory / "broker.log"
        mode = f"--ha-safety {safety} --ha-registry none"
        member = f"--ha-cluster yes --ha-brokers-url {url} --ha-replicate all {mode}"
        return f"--interface 127.0.0.1 {member} --log-to-file {log}"

    def environment(self, **meta: Any) -> dict[str, str]:
        """`meta`: what Pacemaker says of the operation, in milliseconds."""
        values = {f"OCF_RESKEY_{name}": value for name, value in self.parameters.items() if value is not None}
        metas = {f"OCF_RESKEY_CRM_meta_{name}": str(value) for name, value in meta.items()}
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        run = {guard.VARIABLE: os.environ[guard.VARIABLE]} if guard.VARIABLE in os.environ else {}
        base = {"PATH": path, "HA_RSCTMP": str(self.rsctmp), "OCF_RESOURCE_INSTANCE": "broker", **run}
        return {**base, "HA_LOGFILE": str(self.directory / "agent.log"), **values, **metas}

    def spawn(self, action: str, **meta: Any) -> "subprocess.Popen[str]":
        """In a process group of its own, as Pacemaker does."""
        process = subprocess.Popen(
            [sys.executable, "-IS", str(SCRIPT), action],
            env=self.environment(**{"timeout": 60_000, **meta}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def result(self, process: "subprocess.Popen[str]") -> Result:
        output, errors = process.communicate(timeout=TIME)
        return Result(process.returncode, output, errors)

    def __call__(self, action: str, **meta: Any) -> Result:
        return self.result(self.spawn(action, **meta))

    def held(self, **meta: Any) -> "subprocess.Popen[str]":
        """A recurring monitor that listens for beats when this returns; the first one of its series was before it."""
        meta = {"interval": 200, **meta}
        for marker in self.rsctmp.glob("*.monitor-*"):
            marker.unlink()
        self("monitor", **meta)
        socket = self.rsctmp / "qpidd-broker.notify"
        socket.unlink(missing_ok=True)
        process = self.spawn("monitor", **meta)
        wait_for(lambda: socket.exists() or process.poll() is not None, TIME, "a held monitor listens")
        return process

    def tool(self, *words: str) -> str:
        """`qpid-ha`, as an administrator who is quicker than Pacemaker."""
        command = [str(self.directory / "bin" / "qpid-ha"), *words, "-b", self.address]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIME, check=True).stdout.strip()

    @property
    def calls(self) -> list[str]:
        """What was written as promotion score, `-` for a deletion, oldest first."""
        if not self.calls_file.exists():
            return []
        return [_score(line.split()) for line in self.calls_file.read_text().splitlines()]

    @property
    def log(self) -> str:
        file = self.directory / "agent.log"
        return file.read_text() if file.exists() else ""

    @property
    def pid(self) -> int:
        """Of the broker, as its lock file says; 0 without one."""
        return holder(self.data_dir)

    @property
    def alive(self) -> bool:
        return self.pid != 0 and not ended(self.pid)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)
        if number == signal.SIGSTOP:
            wait_for(lambda: process_state(self.pid) == "T", TIME, "the broker is stopped")

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
        for folder in {self.data_dir, Path(self.parameters.get("data_dir") or self.data_dir)}:  # a test may change it
            pid = holder(folder)
            if pid and not ended(pid):
                os.kill(pid, signal.SIGKILL)
                wait_for(partial(ended, pid), TIME, "the broker has ended")
        self._held.release()

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()
        if error is not None:
            print(f"---- log of the agent ----\n{self.log}")


def _score(words: list[str]) -> str:
    """Only what the real `attrd_updater` takes for the promotion score of this resource counts."""
    assert words[:2] == ["--quiet", "--name=master-broker"], words
    return "-" if words[2:] == ["--delete"] else words[2].removeprefix("--update=")


def write_program(path: Path, line: str) -> None:
    """The agent hands its environment on only in part, so the program itself says to which test run it belongs."""
    run = f"export {guard.VARIABLE}='{os.environ.get(guard.VARIABLE, '')}'"
    path.write_text(f"#!/bin/sh\n{run}\n{line}\n")
    path.chmod(0o755)


def process_state(pid: int) -> str:
    """One letter, as in ps; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def ended(pid: int) -> bool:
    """A zombie has ended: that its exit code was not read is no concern of the broker's."""
    return process_state(pid) in ("", "Z")


def holder(data_dir: Path) -> int:
    """The process that the lock file of this directory names; 0 without one."""
    try:
        return int((data_dir / "lock").read_text().split()[0])
    except (FileNotFoundError, NotADirectoryError, IndexError):
        return 0
