"""Pacemaker's command line tools, run through `sh`: in the helper process only (`registry/helper.py`).           Shell.

With a time limit, `sh` polls for the end of a command ten times a second, so an exchange of four commands would take
half a second.  So it gets none: we wait for the processes themselves (pidfd), for several at once, and kill those that
have not ended in time.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import time
from collections.abc import Iterable
from typing import Final

import sh

from ha.registry.steps import Steps, T, failed
from ha.registry.worker import RegistryError

logging.getLogger("sh").setLevel(logging.WARNING)  # otherwise it logs every command

_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded before any fork: after it, only the call itself is safe


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when the thread that started it ends.  `parent`: its expected pid."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we could ask
        os._exit(1)


class RunningCommand:
    """One command that has been started."""

    def __init__(self, name: str, *words: str) -> None:
        """Raises RegistryError when there is no such command."""
        self.name = name
        parent = os.getpid()
        try:
            # A command that outlived its broker could still write after the broker's restart.
            self._process = sh.Command(name)(
                *words, _bg=True, _bg_exc=False, _tty_out=False, _preexec_fn=lambda: die_with_parent(parent)
            )
        except sh.CommandNotFound:
            raise RegistryError(f"{name} is not there: is Pacemaker installed?") from None
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except ProcessLookupError:
            self._pidfd = -1  # it has ended, and a thread of `sh` has seen it

    def fileno(self) -> int:
        return self._pidfd

    @property
    def ended(self) -> bool:
        return self._pidfd < 0 or bool(select.select([self._pidfd], [], [], 0)[0])

    def result(self) -> str:
        """The output of an ended command.  Raises RegistryError if it failed."""
        self._close()
        try:
            self._process.wait()
        except sh.ErrorReturnCode as error:
            raise failed(self.name, error.exit_code, error.stderr.decode(errors="replace")) from None
        return bytes(self._process.stdout).decode(errors="replace")

    def kill(self) -> None:
        """No effect if it has ended already."""
        try:
            self._process.kill()
        except (ProcessLookupError, OSError):
            pass
        try:
            self._process.wait()
        except sh.ErrorReturnCode:
            pass  # killed, as intended
        self._close()

    def _close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


class LocalTools:
    """`steps.Tools`: the commands are processes of this machine."""

    def now(self) -> float:
        return time.monotonic()

    def start(self, name: str, *words: str) -> RunningCommand:
        return RunningCommand(name, *words)


def wait(commands: Iterable[RunningCommand], deadline: float) -> list[RunningCommand]:
    """Wait until one has ended.  Returns all that have; none at the deadline (monotonic seconds)."""
    waiting = list(commands)
    while not (ended := [command for command in waiting if command.ended]):
        left = deadline - time.monotonic()
        if left <= 0:
            return []
        select.select(waiting, [], [], left)
    return ended


def finish(steps: Steps[T]) -> T:
    """Run all steps, blocking.  Raises what the steps raise."""
    try:
        step = next(steps)
        while True:
            commands = [command for command in step.commands if isinstance(command, RunningCommand)]
            step = steps.send([*wait(commands, step.until)])
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()
