"""One request to the local supervisor through its control socket.

Shell.  Used by the commands of `qpid-cluster` and by the tests.
"""

import json
import os
import socket
from pathlib import Path
from typing import Any


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
    """Connect through /proc, because the name of a socket is limited to 107 octets."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        directory = os.open(path.parent, os.O_PATH)
        try:
            connection.connect(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
    except OSError as error:
        connection.close()
        raise NotRunning(f"the cluster is not running ({path}: {error.strerror})") from error
    return connection
