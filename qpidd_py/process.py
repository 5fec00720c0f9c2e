"""The process around the broker: data directory lock, pid file, background, --check and --quit.  Shell.

Whoever runs holds a lock (`flock`) on `DATA_DIR/lock` and on its pid file; both contain its pid.  The kernel drops a
lock with its process, so a file that is left behind by a crash is told from a living broker without guessing.
"""

import contextlib
import errno
import fcntl
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from qpidd_py.errors import ConfigError

LOCK_NAME: Final = "lock"
POLL: Final = 0.05  # seconds between two looks while we wait for a process to end


def raise_descriptor_limit() -> int:
    """One descriptor for each connection: takes as many as we may have, and answers how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # the limit stays as it is; connections beyond it must wait
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            return hard
    return soft


class AlreadyRunning(ConfigError):
    """Another living process holds the lock."""


class PidFile:
    """A locked file with our pid in it."""

    def __init__(self, path: Path) -> None:
        """Raises `AlreadyRunning`, or `ConfigError` when the file cannot be written."""
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise AlreadyRunning(f"{path} is locked by the running process {_read_pid(path) or '?'}") from None
        try:
            self._write(f"{os.getpid()}\n")
        except OSError as error:
            os.close(self._descriptor)
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None

    def tell(self, text: str) -> None:
        """A second line for whoever waits for our end (`quit_running`): why that is not to be.  A full disk costs only
        that line."""
        with contextlib.suppress(OSError):
            self._write(f"{os.getpid()}\n{' '.join(text.split())}\n")

    def _write(self, text: str) -> None:
        """Raises OSError.  Cut afterwards: a file that is empty for a moment would look like that of an ended process,
        and the room that a crashed one has left is needed when the disk is full."""
        octets = text.encode()
        if os.pwrite(self._descriptor, octets, 0) != len(octets):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(self._descriptor, len(octets))

    def remove(self) -> None:
        """Removed while it is still locked, so that nobody's new file is removed."""
        self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def lock_path(data_dir: Path) -> Path:
    return data_dir / LOCK_NAME


def pid_path(pid_dir: Path, port: int) -> Path:
    return pid_dir / f"qpidd.{port}.pid"


def running_pid(path: Path) -> int | None:
    """The pid of the process that holds `path` locked; None when there is none."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot look at {path}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_pid(path)
    finally:
        os.close(descriptor)
    return None


def quit_running(path: Path, wait: float) -> str:
    """Asks the running process to stop and waits up to `wait` seconds.  Empty: it has ended; else why it has not."""
    pid = running_pid(path)
    if pid is None:
        return "no broker runs"
    before = _changed(path)
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return ""  # it ended by itself meanwhile
    deadline = time.monotonic() + wait
    while running_pid(path) == pid:
        if _changed(path) != before and (told := _read_lines(path)[1:]):
            return f"process {pid} refuses: {told[0]}"
        if time.monotonic() > deadline:
            return f"process {pid} still runs after {wait:g} s"
        time.sleep(POLL)
    return ""


def _read_pid(path: Path) -> int | None:
    lines = _read_lines(path)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _changed(path: Path) -> int:
    """When, in ns; 0 if the file is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class Readiness:
    """How a daemon tells the process that started it whether it came up."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor

    def tell(self, line: str) -> None:
        """Once; later calls do nothing."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # the starter may have given up waiting
                os.write(self._descriptor, line.encode() + b"\n")
            os.close(self._descriptor)
            self._descriptor = None


READY: Final = "ready"


def go_to_background(wait: float) -> Readiness:
    """Returns in the daemon; the process that called ends here, with 0 as soon as the daemon is ready, else with 1."""
    reading, writing = os.pipe()
    watched = os.environ.get("WATCHDOG_PID") == str(os.getpid())
    if os.fork():
        os.close(writing)
        os._exit(_await_daemon(reading, wait))
    os.close(reading)
    os.setsid()
    if os.fork():
        os._exit(0)  # so that the daemon leads no session and can never get a terminal
    if watched:
        os.environ["WATCHDOG_PID"] = str(os.getpid())  # who wanted beats of the starter wants ours (sd_notify)
    _detach_standard_files()
    return Readiness(writing)


def _await_daemon(reading: int, wait: float) -> int:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with _time_limit(wait), os.fdopen(reading) as pipe:
        line = pipe.readline().rstrip("\n")
    word, _, rest = line.partition(" ")
    if word == READY:
        if rest:
            print(rest, flush=True)
        return 0
    print(f"qpidd: {line or 'the daemon ended without a word; see its log'}", file=sys.stderr, flush=True)
    return 1


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def expired(number: int, frame: object) -> None:
        print(f"qpidd: the daemon was not ready within {seconds:g} s", file=sys.stderr, flush=True)
        os._exit(1)

    signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


def _detach_standard_files() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
