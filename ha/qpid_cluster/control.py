"""The control socket of the local supervisor: how it listens, and one request to it.

Shell.  Used by the supervisor, by the commands of `qpid-cluster` and by the tests.
"""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qpidd_py.errors import ConfigError


class ControlError(Exception):
    """The supervisor refused or did not answer; the text is the reason."""


class NotRunning(ControlError):
    """No process listens on the control socket."""


def request(path: Path, command: str, timeout: float = 10.0, **arguments: Any) -> Any:
    """Send one command and return its result.  Raises ControlError with the supervisor's text for a refusal."""
    line = json.dumps({"command": command, **arguments}).encode() + b"\n"
    with _connect(path, timeout) as connection:
        try:
            connection.sendall(line)
            answer = connection.makefile("rb").readline()
        except TimeoutError as error:
            raise ControlError(f"the supervisor did not answer within {timeout:g} s") from error
        except OSError as error:
            raise ControlError(f"the connection to the supervisor is lost: {error.strerror}") from error
    if not answer:
        raise ControlError("the supervisor ended before it answered")
    found = json.loads(answer)
    if not found["ok"]:
        raise ControlError(found["error"])
    return found["result"]


def _connect(path: Path, timeout: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        with short_path(path) as short:
            connection.connect(short)
    except OSError as error:
        connection.close()
        raise NotRunning(f"the cluster is not running ({path}: {error.strerror})") from error
    return connection


def listen(path: Path) -> socket.socket:
    """A listening control socket.  An existing one belongs to a dead supervisor, since we hold the lock."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with short_path(path) as short:
        listener.bind(short)
    os.chmod(path, 0o600)
    listener.listen()
    listener.setblocking(False)
    return listener


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A name of at most 107 octets (the kernel's limit) for a socket in any directory."""
    directory = os.open(path.parent, os.O_PATH)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


@contextlib.contextmanager
def supervisor_lock(directory: Path) -> Iterator[None]:
    """Holds the lock of a cluster's directory.  Raises ConfigError if a supervisor has it."""
    with (directory / "supervisor.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"a supervisor runs already in {directory}") from error
        yield
