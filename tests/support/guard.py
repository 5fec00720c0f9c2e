"""Ends the processes that a test run leaves behind, also when the run itself is killed with SIGKILL.

Theory.  Each pytest process (the only one, or the controller and each worker of xdist) adds an id to the environment
variable TEST_RUNS and starts one guard.  All processes that its tests start inherit the variable: brokers, the brokers
of a supervisor, daemons in a session of their own.  The guard waits for the end of the pytest process, gives the
others a moment to end by themselves, and then kills every process whose environment has the id.

Why not PR_SET_PDEATHSIG in each of them: the kernel sends that signal when the *thread* that forked ends, children do
not inherit the request, and the programs under test start processes, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Final

VARIABLE: Final = "TEST_RUNS"
GRACE: Final = 1.0
"""Seconds for processes that end with their parent (a JVM whose standard input ends, clients of a dead broker)."""
POLL: Final = 0.05


def begin() -> None:
    """Guards the calling process: to be called once, before it starts others.  Its standard error is the guard's."""
    clean = {name: value for name, value in os.environ.items() if name != VARIABLE}
    run = f"{os.getpid()}-{time.time_ns()}"
    nothing = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (0, 1)]
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), run]
    os.posix_spawn(sys.executable, command, clean, file_actions=nothing, setsid=True)
    os.environ[VARIABLE] = " ".join([*os.environ.get(VARIABLE, "").split(), run])


def members(run: str) -> list[int]:
    """Process ids of those that belong to the run, except the dead that were not waited for."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _belongs(int(entry), run)]


def _belongs(pid: int, run: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to another user
        return False
    prefix = f"{VARIABLE}=".encode()
    return any(run.encode() in each[len(prefix) :].split() for each in environment if each.startswith(prefix))


def _kill(pid: int, run: str) -> str:
    """The command line of the killed process; empty when it has ended."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if _belongs(pid, run):  # not a new process with an old number
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                return command.strip()
        finally:
            os.close(descriptor)
    return ""


def _wait_for_parent(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        if os.getppid() == pid:
            select.select([descriptor], [], [])


def end(run: str, grace: float = GRACE) -> list[str]:
    """Kills what is left of the run after `grace` seconds; the command lines."""
    deadline = time.monotonic() + grace
    while members(run) and time.monotonic() < deadline:
        time.sleep(POLL)
    killed: list[str] = []
    while found := members(run):  # those that were starting others meanwhile
        killed += filter(None, [_kill(pid, run) for pid in found])
        time.sleep(POLL)
    return killed


def main(parent: int, run: str) -> None:
    _wait_for_parent(parent)
    for command in end(run):
        with contextlib.suppress(OSError):
            print(f"left behind by the tests, killed: {command[:200]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
