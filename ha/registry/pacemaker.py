"""The broker's side of the Pacemaker registry: starts the helper process that runs the tools, and asks it.       Shell.

The exchange and why it is sufficient: `registry/attributes.py`, `registry/view.py`.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import ha
from ha.model.environment import Exchanged
from ha.model.membership import HaState
from ha.registry.worker import RegistryError, Store
from qpidd_py.errors import ConfigError

GRACE: Final = 0.5
"""Seconds for the helper's answer after the timeout of the exchange."""
PRIVATE: Final = ("QPID_", "NOTIFY_SOCKET", "WATCHDOG_")
"""Prefixes of environment variables not passed on: passwords, and the supervisor's socket."""
NAME: Final = re.compile(r"[A-Za-z0-9._-]*")


def question(state: HaState | None, timeout: float) -> str:
    """A line for the helper."""
    return json.dumps({"state": None if state is None else state.to_json(), "timeout": timeout}) + "\n"


def exchanged(line: str) -> Exchanged:
    """The helper's answer.  Raises RegistryError when the exchange has failed."""
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise RegistryError(answer["error"])
    states = tuple(HaState.from_json(entry) for entry in answer["states"])
    return Exchanged(states, gone=frozenset(answer["gone"]))


class PacemakerRegistry(Store):
    """Used by one thread at a time.  Call `start` in the longest-lived thread, because the helper ends with it."""

    def __init__(self, cluster: str) -> None:
        """Raises ConfigError for a name that cannot be part of an attribute's."""
        if not NAME.fullmatch(cluster):
            raise ConfigError(
                f"option ha-cluster-name: found {cluster!r} with ha-registry=pacemaker, expected A-Z a-z 0-9 . _ - only"
            )
        self._cluster = cluster
        self._helper: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    @property
    def pid(self) -> int:
        """Pid of the helper; 0 if none runs."""
        return self._helper.pid if self._helper is not None else 0

    def start(self) -> None:
        """Start the helper.  Raises OSError.  Cheap for a large process: without a preexec function there is no
        fork."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._helper = subprocess.Popen(
                [sys.executable, "-m", "ha.registry.helper", self._cluster, str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),  # its standard error is the broker's
                cwd=Path(ha.__file__).parents[1],
                env={name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)},
                start_new_session=True,  # a Ctrl-C at the terminal is for the broker
            )
        self._socket = ours

    def close(self) -> None:
        """Ends the helper."""
        helper, self._helper = self._helper, None
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        if helper is not None:
            helper.kill()
            helper.wait()

    def exchange(self, state: HaState | None, timeout: float) -> Exchanged:
        """Raises RegistryError and OSError."""
        if self._helper is None or self._helper.poll() is not None:
            self.close()
            self.start()
        try:
            answer = self._ask(question(state, timeout), timeout)
        except OSError as error:
            self.close()
            self.start()  # now, so that the next exchange need not wait for it
            raise RegistryError(f"the process that runs Pacemaker's tools has failed: {error}") from error
        return exchanged(answer)

    def _ask(self, request: str, timeout: float) -> str:
        """Raises OSError."""
        assert self._socket is not None
        deadline = time.monotonic() + timeout + GRACE
        self._socket.settimeout(timeout + GRACE)
        self._socket.sendall(request.encode())
        line = b""
        while not line.endswith(b"\n"):
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            octets = self._socket.recv(1 << 16)
            if not octets:
                raise ConnectionResetError("it has ended")
            line += octets
        return line.decode()
