"""The broker's process.  Shell.

A broker holds a lock (`flock`) on `DATA_DIR/lock`, which contains its pid; the kernel drops the lock with the process.
A clean end removes the file, a crash leaves it behind.  A second line is the reason why a running broker refused to
stop.
"""

import fcntl
import os
import select
import time

from qpidd_agent.ocf import OCF_ERR_PERM, Failure, log
from qpidd_agent.parameters import Parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SIGHUP, SIGKILL, SIGTERM = 1, 9, 15
LOOK = 0.02
"""Seconds between two checks whether a stopping broker has refused."""


class Process:
    """A running broker.  Its pidfd stays valid even if the pid is reused."""

    def __init__(self, pid: int, lock: str) -> None:
        """Raises `ProcessLookupError`."""
        self.pid = pid
        self.descriptor = os.pidfd_open(pid)
        self._lock = lock
        self._before = _changed(lock)

    def wait(self, timeout: "float | None") -> bool:
        """Wait for its end.  Returns True if it has ended; `timeout` in seconds, None: no limit."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    @property
    def stopped(self) -> bool:
        """True if stopped by SIGSTOP or a debugger: it hangs, and only SIGKILL has an effect."""
        return self._stat() in ("T", "t")

    def _stat(self) -> str:
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return ""

    @property
    def user(self) -> int:
        """Effective user id; -1 if it has ended."""
        try:
            with open(f"/proc/{self.pid}/status") as file:
                return next((int(line.split()[2]) for line in file if line.startswith("Uid:")), -1)
        except OSError:
            return -1

    def variable(self, name: str) -> str:
        """A variable of its initial environment; empty if it is not set or cannot be read."""
        try:
            with open(f"/proc/{self.pid}/environ", "rb") as file:
                entries = file.read().decode(errors="replace").split("\0")
        except OSError:
            return ""
        return next((entry.partition("=")[2] for entry in entries if entry.startswith(name + "=")), "")

    @property
    def refusal(self) -> str:
        """Why it refuses to stop, if it did so since this object was created."""
        return _lines(self._lock)[1] if _changed(self._lock) != self._before and len(_lines(self._lock)) > 1 else ""

    def signal(self, number: int) -> None:
        """Send a signal.  Raises `Failure` without permission; no effect if the process has ended."""
        import signal

        try:
            signal.pidfd_send_signal(self.descriptor, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise Failure(OCF_ERR_PERM, f"may not signal process {self.pid} of user id {self.user}") from None

    def kill(self, why: str) -> None:
        """Send SIGKILL and wait for the end; a process in a disk operation ends only after it."""
        log("warning", f"SIGKILL for process {self.pid}: {why}")
        self.signal(SIGKILL)
        self.wait(None)


def find(parameters: Parameters) -> "Process | None":
    """The broker that runs on our data directory."""
    for _ in range(3):  # it may end, and another one start, between two reads
        pid = holder(parameters.lock)
        if not pid:
            return None
        try:
            process = Process(pid, parameters.lock)
        except ProcessLookupError:
            continue
        if holder(parameters.lock) == pid:
            return process
        os.close(process.descriptor)
    return None


def crashed(parameters: Parameters) -> str:
    """Text about a broker that crashed and left its lock file; empty if there is none."""
    lines = _lines(parameters.lock)
    return f"process {lines[0]} has died and left {parameters.lock} behind" if lines else ""


def holder(lock: str) -> int:
    """Pid of the holder of the lock; 0 if it is free."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise Failure(OCF_ERR_PERM, f"cannot look at {lock}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        lines = _lines(lock)
        return int(lines[0]) if lines and lines[0].isdigit() else 0
    finally:
        os.close(descriptor)
    return 0


def _lines(path: str) -> "list[str]":
    try:
        with open(path) as file:
            return file.read().splitlines()
    except OSError:
        return []


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def end(process: Process, patience: float, hangs: "Callable[[], bool]") -> None:
    """Send SIGTERM, twice if it refuses; SIGKILL if it `hangs`, or after `patience` seconds (0: never)."""
    since = time.monotonic()
    process.signal(SIGTERM)
    insisted = False
    while not process.wait(LOOK):
        refusal = "" if insisted else process.refusal
        if refusal:
            log("warning", f"process {process.pid} refuses to stop, and is told again: {refusal}")
            process.signal(SIGTERM)
            insisted = True
        if process.stopped or hangs():
            process.kill("it hangs")
        elif patience and time.monotonic() - since > patience:
            process.kill(f"it has not stopped within {patience:g} s, half of the time that Pacemaker gives")
