"""The load processes of a campaign.  Shell."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

from demo.progress import Board, create
from torture.brokers import die_with_parent
from torture.load import ALL_SLOTS, ROLES, busy, groups_of

STOP_TIME: Final = 45.0  # seconds


class Place(Protocol):
    """Where the clients run: what is started inside belongs to it."""

    def inside(self) -> AbstractContextManager[None]: ...


class LoadFailed(Exception):
    """A client ended that should not have: a defect of the campaign or of the client library."""


class Loaders:
    """Producers and consumers, each role a process on the clients' host."""

    def __init__(
        self, directory: Path, host: Place, addresses: str, rate: float, group: str = "", patience: float = 1.0,
        decided: bool = False, login: str = "guest/guest", far: str = "",
    ) -> None:  # fmt: skip
        """`decided`: with the clients of queues in which the broker decides; `far`: with those of shovels and routes,
        whose other end is there.  `login`: USER/PASSWORD."""
        self._directory = directory
        self._host = host
        self._words = ["--addresses", addresses, "--rate", str(rate), "--group", group, "--patience", str(patience)]
        self._words += ["--login", login, "--far", far]
        self._words += ["--decided"] if decided else []
        self.groups = groups_of(decided, bool(far))
        self.busy: Sequence[int] = busy(self.groups)
        self._prefix = f"{group}-" if group else ""
        progress = directory / f"{self._prefix}progress"
        create(progress, ALL_SLOTS)
        self.board = Board(progress)
        self._progress = progress
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        for role in ROLES:
            words = [role, "--directory", str(self._directory / "history"), "--progress", str(self._progress)]
            words += self._words
            with self._log(role).open("wb") as output, self._host.inside():
                self._processes[role] = subprocess.Popen(
                    [sys.executable, "-m", "torture.load", *words],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                    preexec_fn=die_with_parent,
                )  # fmt: skip

    def _log(self, role: str) -> Path:
        return self._directory / f"{self._prefix}{role}.log"

    def check(self) -> None:
        """Raises LoadFailed."""
        for role, process in self._processes.items():
            if process.poll():
                log = self._log(role).read_text(errors="replace")
                raise LoadFailed(f"{role} ended with {process.returncode}:\n{log[-2000:]}")

    def drain(self) -> None:
        """What was kept is consumed, too, from now on."""
        self._processes["consumers"].send_signal(signal.SIGUSR1)

    def stop(self, role: str, tick: Callable[[], None]) -> None:
        """In an orderly way; `tick` is called meanwhile.  Raises LoadFailed."""
        process = self._processes[role]
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIME
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise LoadFailed(f"{role} did not end within {STOP_TIME:g} s")
            tick()
        self.check()

    def kill(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
