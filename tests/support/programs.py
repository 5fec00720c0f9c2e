"""Starts our programs as subprocess does, at a small part of the cost: `start` for `Popen`, `run` for `run`.

`[sys.executable, "-m", MODULE, ...]` with a module of PROGRAMS is forked by a server that has imported the module (see
tests/support/fork_server.py; one for each module, begun at its first use).  Any other command is started as subprocess
does, and so is one with options or variables that have effect only when Python itself starts.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.support.fork_server import ROOM, STATUS

PROGRAMS: Final[Mapping[str, Sequence[str]]] = {
    "qpidd_py": ("qpidd_py.service", "ha.plugin"),
    "ha.qpid_ha.main": ("ha.qpid_ha.ask", "ha.qpid_ha.output"),
    "qpidd_py.cli.qpid_config": (),
    "client_lib.cli.send": (),
    "client_lib.cli.receive": (),
}
"""Module → what it imports only after its start."""
ROOM_SIZE: Final = 8192
"""Octets for arguments, and as many for variables."""
_SAME: Final = {"stdin", "stdout", "stderr", "env", "cwd", "text", "start_new_session"}
"""Options of `Popen` that a forked process has, too."""
_AT_START: Final = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC", "GLIBC", "OPENSSL", "SSL")
"""How the variables begin that are read only when a process or a library starts."""
_END_TIME: Final = 0.5
_servers: dict[str, _Server] = {}
_one_starts: Final = threading.Lock()


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """`subprocess.Popen`."""
    if _can_be_forked(command, options):
        return _Forked(command, **options)
    started: subprocess.Popen[Any] = subprocess.Popen(command, **options)
    return started


def run(
    command: Sequence[str], *, timeout: float, input: Any = None, capture_output: bool = False, check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:  # fmt: skip
    """`subprocess.run`."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with start(command, **options) as process:
        try:
            output, errors = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


def end() -> None:
    """Ends the servers, unless a process is left."""
    for server in _servers.values():
        server.end()
    _servers.clear()


def _can_be_forked(command: Sequence[str], options: Mapping[str, Any]) -> bool:
    ours = list(command[:2]) == [sys.executable, "-m"] and command[2] in PROGRAMS
    if not ours or not options.keys() <= _SAME:
        return False
    terminal = any(_is_terminal(options.get(name), number) for number, name in enumerate(("stdin", "stdout", "stderr")))
    return not terminal and _at_start(options.get("env") or os.environ) == _at_start(_server(command[2]).environment)


def _is_terminal(stream: Any, number: int) -> bool:
    descriptor = number if stream is None else stream if isinstance(stream, int) else stream.fileno()
    return descriptor >= 0 and os.isatty(descriptor)


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


class _Server:
    def __init__(self, module: str) -> None:
        self.environment = dict(os.environ)
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        command = [sys.executable, "-m", "tests.support.fork_server", module, *PROGRAMS[module], "-" * ROOM_SIZE]
        with theirs:
            env = self.environment | {ROOM: "-" * ROOM_SIZE}
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=env)

    def fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> tuple[int, socket.socket]:
        """The process id, and where its status can be read."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._lock:
            socket.send_fds(self._door, [json.dumps(request).encode()], [*streams, theirs.fileno()])
            answer = self._door.recv(STATUS.size)
        assert answer, f"{self._process.args!r} has ended"
        return STATUS.unpack(answer)[0], ours

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        self._door.close()
        try:
            self._process.wait(_END_TIME)
        except subprocess.TimeoutExpired:  # the guard names what is left
            self._process.returncode = 0


def _server(module: str) -> _Server:
    with _one_starts:
        if module not in _servers or _servers[module].has_ended:
            _servers[module] = _Server(module)
        return _servers[module]


class _Forked(subprocess.Popen[Any]):
    """Overrides what starts the process, and what takes its status."""

    _status: socket.socket

    def _execute_child(
        self, args: Sequence[str], executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any, p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int,
        errread: int, errwrite: int, restore_signals: Any, gid: Any, gids: Any, uid: Any, umask: Any,
        start_new_session: bool, *others: Any,
    ) -> None:  # fmt: skip
        request = {
            "command": list(args),
            "module": args[2],
            "directory": os.fspath(cwd or os.getcwd()),
            "environment": dict(os.environ if env is None else env),
            "session": start_new_session,
        }
        ends = enumerate((p2cread, c2pwrite, errwrite))
        streams = [number if descriptor == -1 else descriptor for number, descriptor in ends]
        try:
            self.pid, self._status = _server(args[2]).fork(request, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                self._take(os.WNOHANG)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        ready, _, _ = select.select([self._status], [], [], 0 if wait_flags & os.WNOHANG else None)
        if not ready:
            return 0, 0
        with self._status:
            told = self._status.recv(STATUS.size)
        return self.pid, STATUS.unpack(told)[0] if told else 9  # the server was killed, and its children with it

    def _take(self, wait_flags: int) -> None:
        if self.returncode is None:
            pid, status = self._try_wait(wait_flags)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
