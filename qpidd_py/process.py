"""The process around the broker: data directory lock, pid file, background, --check and --quit.  Shell.

A running broker holds a lock (`flock`) on `DATA_DIR/lock` and on its pid file; both contain its pid.  The kernel
releases a lock with its process, so a file left by a crash is never mistaken for a running broker.
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
    """Raises the limit of open files, one per connection, as far as allowed; returns the limit."""
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
        """Writes a second line for `quit_running`, which waits for our end: why the stop was refused.  On a full disk
        only that line is missing."""
        with contextlib.suppress(OSError):
            self._write(f"{os.getpid()}\n{' '.join(text.split())}\n")

    def _write(self, text: str) -> None:
        """Raises OSError.  Truncates after writing: a file that is empty for a moment would look like that of an ended
        process, and on a full disk the space of the old content is needed."""
        octets = text.encode()
        if os.pwrite(self._descriptor, octets, 0) != len(octets):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(self._descriptor, len(octets))

    def remove(self) -> None:
        """Removed while it is still locked, so that no new file of another process is removed."""
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
    """Asks the running process to stop and waits up to `wait` seconds.  Returns empty text if it has ended, otherwise
    the reason."""
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
    """A daemon's report to the process that started it: whether it came up."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor

    def busy(self, text: str) -> None:
        """It lives, and is not ready yet: the starter need not wait longer than its time limit."""
        self._write(f"{BUSY} {text}")

    def tell(self, line: str) -> None:
        """Once; later calls do nothing."""
        if self._descriptor is not None:
            self._write(line)
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, line: str) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # the starter may have given up waiting
                os.write(self._descriptor, " ".join(line.split()).encode() + b"\n")


READY: Final = "ready"
BUSY: Final = "busy"


def go_to_background(wait: float) -> Readiness:
    """Returns in the daemon; the calling process ends here: with 0 as soon as the daemon is ready, or after `wait`
    seconds if it is busy with its journal; otherwise with 1."""
    reading, writing = os.pipe()
    watched = os.environ.get("WATCHDOG_PID") == str(os.getpid())
    if os.fork():
        os.close(writing)
        os._exit(_await_daemon(reading, wait))
    os.close(reading)
    os.setsid()
    if os.fork():
        os._exit(0)  # so that the daemon is no session leader and can never get a terminal
    if watched:
        # a supervisor that watched the starting process watches the daemon (sd_notify)
        os.environ["WATCHDOG_PID"] = str(os.getpid())
    _detach_standard_files()
    return Readiness(writing)


def _await_daemon(reading: int, wait: float) -> int:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    busy: list[str] = []
    with _time_limit(wait, busy), os.fdopen(reading) as pipe:
        while (line := pipe.readline().rstrip("\n")).startswith(f"{BUSY} "):
            busy.append(line.partition(" ")[2])
    word, _, rest = line.partition(" ")
    if word == READY:
        if rest:
            print(rest, flush=True)
        return 0
    print(f"qpidd: {line or 'the daemon ended without a word; see its log'}", file=sys.stderr, flush=True)
    return 1


@contextlib.contextmanager
def _time_limit(seconds: float, busy: list[str]) -> Iterator[None]:
    def expired(number: int, frame: object) -> None:
        if busy:
            print(f"qpidd: the daemon runs, and is not ready yet: {busy[-1]}", flush=True)
            os._exit(0)
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
