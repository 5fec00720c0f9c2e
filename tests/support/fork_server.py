"""Starts one of our programs again and again, by forking a process that has imported it: a start costs the import once.

    python -m tests.support.fork_server MODULE IMPORTED... ROOM

tests/support/programs.py asks for processes over a socket on descriptor 0.  What is forked is as `python -m MODULE`
would be: its arguments, environment (also in /proc), directory, standard streams and signals are its own; it runs the
module as __main__, and ends as Python ends.  It stays a zombie until the test has taken its exit status.

What differs: the processes of one server have one seed for the hashes of strings, and are children of the server.  They
get SIGKILL when the server ends, which ends when the test process has closed the socket (by ending, however it ends)
and no child is left.  Those that are left have LEFT seconds, in which tests/support/guard.py names and kills them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import time
from typing import Any, Final

from tests.support import guard

ROOM: Final = "FORK_SERVER_ROOM"
"""A variable that makes room for the environment of others."""
LEFT: Final = 10.0
"""Seconds, longer than the guard takes."""
STATUS: Final = struct.Struct("=i")
"""A process id, then a wait status."""
MAX_REQUEST: Final = 1 << 20
_PR_SET_PDEATHSIG: Final = 1
_ARGUMENTS, _ENVIRONMENT = (48, 49), (50, 51)
"""Fields of /proc/PID/stat: where the areas begin and end that cmdline and environ in /proc show."""


class Children:
    """Processes that run, and those whose status has been told but not taken."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._running: dict[int, tuple[int, socket.socket]] = {}  # descriptor of the process → process id, listener
        self._told: dict[int, tuple[int, socket.socket]] = {}  # descriptor of the listener → the same

    def __len__(self) -> int:
        return len(self._running)

    def add(self, pid: int, listener: socket.socket) -> None:
        descriptor = os.pidfd_open(pid)
        self._running[descriptor] = pid, listener
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, other: int, seconds: float | None) -> bool:
        """Looks after the children until `other` is readable (true), or one turn has passed."""
        if other >= 0:
            self._poll.register(other, select.POLLIN)
        ready = [descriptor for descriptor, _ in self._poll.poll(None if seconds is None else seconds * 1000)]
        for descriptor in ready:
            if descriptor in self._running:
                self._tell(descriptor)
            elif descriptor in self._told:
                self._reap(descriptor)
        return other in ready

    def _tell(self, descriptor: int) -> None:
        pid, listener = self._running.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        code = ended.si_status << 8 if ended.si_code == os.CLD_EXITED else ended.si_status
        self._told[listener.fileno()] = pid, listener
        self._poll.register(listener, select.POLLIN)
        with contextlib.suppress(OSError):  # the test does not want to know; the next turn reaps
            listener.send(STATUS.pack(code))

    def _reap(self, descriptor: int) -> None:
        pid, listener = self._told.pop(descriptor)
        self._poll.unregister(descriptor)
        listener.close()
        os.waitpid(pid, 0)

    def forget(self) -> None:
        """In a new child: its siblings are none of its business."""
        for descriptor, (_, listener) in self._running.items():
            os.close(descriptor)
            listener.close()
        for _, listener in self._told.values():
            listener.close()


def serve(door: socket.socket) -> dict[str, Any] | None:
    """Returns in each new process, with its request; None in the server, at its end."""
    children = Children()
    while True:
        if not children.wait(door.fileno(), None):
            continue
        data, descriptors, _, _ = socket.recv_fds(door, MAX_REQUEST, 4)
        if not data:
            break
        *streams, told = descriptors
        listener = socket.socket(fileno=told)
        request: dict[str, Any] = json.loads(data)
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(server, request, streams, [door, listener], children)
            return request
        children.add(pid, listener)
        for descriptor in streams:
            os.close(descriptor)
        door.send(STATUS.pack(pid))
    door.close()
    _wait_for_the_last(children)
    return None


def _wait_for_the_last(children: Children) -> None:
    deadline = time.monotonic() + LEFT
    while children and (left := deadline - time.monotonic()) > 0:
        children.wait(-1, left)


def _become(
    server: int, request: dict[str, Any], streams: list[int], sockets: list[socket.socket], children: Children
) -> None:
    """The process that was asked for."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    children.forget()
    for each in sockets:
        each.close()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, INTERRUPT)
    os.chdir(request["directory"])
    sys.path[0] = request["directory"]
    _take_environment(request["environment"])
    _show(_ARGUMENTS, request["command"])


def _take_environment(wanted: dict[str, str]) -> None:
    """For `os.environ`, for C and for /proc."""
    os.environ.clear()  # after which C does not use the area any more
    _show(_ENVIRONMENT, [f"{name}={value}" for name, value in wanted.items()])
    os.environ.update(wanted)


def _show(area: tuple[int, int], words: list[str]) -> None:
    """In /proc, as far as there is room; NULs behind it."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()  # from the third
    start, end = (int(fields[number - 3]) for number in area)
    data = b"".join(os.fsencode(word) + b"\0" for word in words)[: end - start - 1]
    ctypes.memmove(start, data.ljust(end - start, b"\0"), end - start)


def main() -> None:
    _, module, *imported, _ = sys.argv  # the last makes room for the arguments of others
    for name in (module, *imported):
        importlib.import_module(name)
    del sys.modules[module]  # it runs as __main__
    assert len(os.listdir("/proc/self/task")) == 1, f"{module} begins a thread when it is imported: no child has it"
    gc.collect()
    gc.freeze()  # pages of objects that the collector does not visit stay shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests still need it to end what they started
    door = socket.socket(fileno=os.dup(0))
    own = {name: value for name, value in os.environ.items() if name not in (ROOM, guard.VARIABLE)}
    _take_environment(own)  # the guard does not take it for a broker that was left behind
    request = serve(door)
    if request is not None:
        sys.argv[1:] = request["command"][3:]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


INTERRUPT = signal.getsignal(signal.SIGINT)
"""As each Python finds it."""

if __name__ == "__main__":
    main()
