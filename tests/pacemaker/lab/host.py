"""Where tests run commands and open connections: the nodes, and the clients' host.      Shell."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.wait import wait_for

NEW_NETWORK: Final = 0x40000000  # CLONE_NEWNET
COMMAND_TIME: Final = 60.0
"""Seconds after which a command in a node counts as hung."""
PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
BOOT_LOG: Final = "var/log/boot.log"
TELLING: Final = (
    "var/log/corosync", "var/log/pacemaker", "var/log/qpidd", "var/lib/pacemaker/cib", "var/lib/pacemaker/pengine",
    "etc/corosync", "etc/qpid",
)  # fmt: skip
"""Directories whose content tells the story of a node."""

_libc = ctypes.CDLL(None, use_errno=True)
Ask = Callable[[str], dict[str, Any]]


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Host:
    """Something with a network namespace."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    def _pid(self) -> int:
        """Of a process that lives there, as this machine sees it."""
        raise NotImplementedError

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What this thread opens and starts in here belongs to the host's network."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            there = os.open(f"/proc/{self._pid()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _enter(there)
            finally:
                os.close(there)
            try:
                yield
            finally:
                _enter(home)
        finally:
            os.close(home)

    def command(self, *words: str) -> list[str]:
        """The command line that runs these words there."""
        raise NotImplementedError

    def run(self, *words: str, check: bool = False, timeout: float = COMMAND_TIME,
            stdin: str | None = None) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Runs to its end; output as text.  With `check` a code other than 0 is an AssertionError with the output."""
        feed: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=timeout, **feed)
        if check and done.returncode:
            raise AssertionError(f"{self.name}: {words} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[Any]:
        """Starts it and does not wait; the caller ends it, or the power of the node does."""
        return subprocess.Popen(self.command(*words), **options)


class Clients(Host):
    """Where the clients live: next to the switch, with the machine's own files and processes."""

    def __init__(self, address: str, supervisor: int) -> None:
        super().__init__("clients", address)
        self.supervisor = supervisor
        """Process id of the lab's supervisor, whose network namespace this is."""

    def _pid(self) -> int:
        return self.supervisor

    def command(self, *words: str) -> list[str]:
        return ["nsenter", "-t", str(self.supervisor), "-n", *words]


class Node(Host):
    """One node of the cluster.  Its disk can be read while it is off, too."""

    def __init__(self, name: str, address: str, disk: Path, ask: Ask) -> None:
        super().__init__(name, address)
        self.disk = disk
        """Its whole file system as this machine sees it; without what is mounted inside, such as /run."""
        self._ask = ask
        self._init = 0

    def _pid(self) -> int:
        if not self._init or not os.path.exists(f"/proc/{self._init}"):
            self._init = self.init
        if not self._init:
            raise OSError(f"{self.name} is off")
        return self._init

    @property
    def init(self) -> int:
        """Process id of its process 1 as this machine sees it; 0 while it is off."""
        return int(self._ask("status")[self.name]["init"])

    @property
    def running(self) -> bool:
        return self.init != 0

    def command(self, *words: str) -> list[str]:
        flags = ["-t", str(self._pid()), "-m", "-u", "-i", "-n", "-p"]
        return ["nsenter", *flags, "env", "-i", f"PATH={PATH}", "HOME=/root", "LANG=C.UTF-8", *words]

    def path(self, inside: str | Path) -> Path:
        """A file of the node for tests to read: from the live node (with /run) when it is on, else from its disk."""
        init = self.init
        root = Path(f"/proc/{init}/root") if init else self.disk
        return root / str(inside).lstrip("/")

    def read(self, inside: str | Path) -> str:
        """Text of a file of the node; empty when there is none."""
        try:
            return self.path(inside).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    # Power

    def off(self) -> None:
        """As if the plug was pulled; returns when nothing of it runs any more."""
        self._ask(f"off {self.name}")

    def on(self) -> None:
        """Returns when commands can be run there; the services are still coming up."""
        self._ask(f"on {self.name}")

    def reboot(self) -> None:
        """Off; the power unit switches it on again after its boot delay."""
        self._ask(f"reboot {self.name}")

    def wipe(self) -> None:
        """Off, and an empty disk: with `on` a new machine comes up in its place and is provisioned."""
        self._ask(f"wipe {self.name}")

    def kill_init(self) -> None:
        """The node dies at once, and the power unit has nothing to do with it."""
        os.kill(self._pid(), signal.SIGKILL)
        wait_for(lambda: not self.running, 60, f"the end of {self.name}", poll=0.005)

    # Processes

    def pids(self, pattern: str) -> list[int]:
        """Process ids, as the node sees them, whose command line matches; as `pgrep -f`."""
        return [int(line) for line in self.run("pgrep", "-f", "--", pattern).stdout.split()]

    def signal(self, pattern: str, number: int = signal.SIGKILL) -> list[int]:
        """To all processes that match; which those were.  AssertionError when there is none."""
        found = self.pids(pattern)
        assert found, f"{self.name}: no process matches {pattern!r}"
        self.run("kill", f"-{int(number)}", *map(str, found), check=True)
        return found

    def save_logs(self, target: Path) -> None:
        """Copies what tells the story of the node."""
        target.mkdir(parents=True, exist_ok=True)
        for name in TELLING:
            if (self.disk / name).is_dir():
                shutil.copytree(self.disk / name, target / name, symlinks=True)
        if (self.disk / BOOT_LOG).exists():
            shutil.copy(self.disk / BOOT_LOG, target)
