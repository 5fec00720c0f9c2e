"""The broker's process.  Shell.

Whoever runs on a data directory holds `DATA_DIR/lock` locked (`flock`), and the file contains its pid; the kernel drops
the lock with the process.  A clean end removes the file, a crash leaves it behind.  A second line is the reason why a
running broker has refused to stop.
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

SIGKILL, SIGTERM = 9, 15
LOOK = 0.02
"""Seconds between two looks at a broker that is about to end: whether it has refused."""


class Process:
    """A broker that runs.  The descriptor stays its own, whoever gets the pid afterwards."""

    def __init__(self, pid: int, lock: str) -> None:
        """Raises `ProcessLookupError`."""
        self.pid = pid
        self.descriptor = os.pidfd_open(pid)
        self._lock = lock
        self._before = _changed(lock)

    def wait(self, timeout: "float | None") -> bool:
        """Whether it has ended; `timeout` in seconds, None: until it has."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    @property
    def stopped(self) -> bool:
        """SIGSTOP, or a debugger: it hangs for certain, and takes no signal but SIGKILL."""
        return self._stat() in ("T", "t")

    def _stat(self) -> str:
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return ""

    @property
    def user(self) -> int:
        """Effective user id; -1 when it has ended."""
        try:
            with open(f"/proc/{self.pid}/status") as file:
                return next((int(line.split()[2]) for line in file if line.startswith("Uid:")), -1)
        except OSError:
            return -1

    def variable(self, name: str) -> str:
        """Of the environment that it was started with; empty when it has none, or we may not look."""
        try:
            with open(f"/proc/{self.pid}/environ", "rb") as file:
                entries = file.read().decode(errors="replace").split("\0")
        except OSError:
            return ""
        return next((entry.partition("=")[2] for entry in entries if entry.startswith(name + "=")), "")

    @property
    def refusal(self) -> str:
        """Why it will not stop, if it has said so since this object was made."""
        return _lines(self._lock)[1] if _changed(self._lock) != self._before and len(_lines(self._lock)) > 1 else ""

    def signal(self, number: int) -> None:
        """Raises `Failure` if we may not; that it has ended is no error."""
        import signal

        try:
            signal.pidfd_send_signal(self.descriptor, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise Failure(OCF_ERR_PERM, f"may not signal process {self.pid} of user id {self.user}") from None

    def kill(self, why: str) -> None:
        """For certain; a process in the middle of a disk operation ends only with that."""
        log("warning", f"SIGKILL for process {self.pid}: {why}")
        self.signal(SIGKILL)
        self.wait(None)


def find(parameters: Parameters) -> "Process | None":
    """The broker that runs on our data directory."""
    for _ in range(3):  # it may end, and another one begin, between two of our looks
        pid = _holder(parameters.lock)
        if not pid:
            return None
        try:
            process = Process(pid, parameters.lock)
        except ProcessLookupError:
            continue
        if _holder(parameters.lock) == pid:
            return process
        os.close(process.descriptor)
    return None


def crashed(parameters: Parameters) -> str:
    """What a broker has left behind that did not end by itself; empty when there is nothing."""
    lines = _lines(parameters.lock)
    return f"process {lines[0]} has died and left {parameters.lock} behind" if lines else ""


def _holder(lock: str) -> int:
    """Pid of who holds it; 0 when nobody does."""
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
    """Asks it to end, twice if it refuses; SIGKILL when it `hangs`, or after `patience` seconds (0: never)."""
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
