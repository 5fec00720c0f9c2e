"""Data that one call of the agent leaves for the next, in files that a boot removes.  Shell.

`monitor-INTERVAL`: when and with what result the monitor of this interval last ended normally.  Removed while one is
held, and by every action after which Pacemaker begins a new series.

`demoted`: time of the last demote, and whether the broker was dead by then.  In the same transition Pacemaker promotes
another broker and monitors the demoted one.  A changed score or a death reported then makes Pacemaker plan again before
the promotion, and even recover the dead one first (up to 1 s was measured).  So for some time after a demote neither is
reported.
"""

import os
import time

from qpidd_agent.ocf import Operation

MONITOR, DEMOTED = "monitor", "demoted"
LATE = 1.0
"""Seconds.  Pacemaker begins a monitor one interval after the end of the previous one, on a busy node a bit later."""

DEATH_WAITS = 0.3
"""Seconds after a demote in which a death is not reported.  The promotion is requested 10 to 150 ms after the demote;
waiting longer would only delay the end of a transition that was aborted for another reason."""
SCORE_WAITS = 1.0
"""Seconds after a demote in which a changed score is not written; this delays nothing."""


class Before:
    """The result of a monitor, for the next one."""

    def __init__(self, pid: int = 0, found: int = -1, last: bool = False) -> None:
        """`pid` 0: there was none, or it is too old.  `last`: the broker was the only one that held some messages."""
        self.pid = pid
        self.found = found
        self.last = last


def take_marker(operation: Operation) -> Before:
    """Read the marker and remove it."""
    path = _monitor_path(operation)
    try:
        pid, found, last, ended = _read(path).split()
        os.unlink(path)
        late = time.monotonic() - float(ended) > operation.interval + LATE
        return Before(0 if late else int(pid), int(found), last == "1")
    except (OSError, ValueError):
        return Before()


def set_marker(operation: Operation, now: Before) -> None:
    _write(_monitor_path(operation), f"{now.pid} {now.found} {int(now.last)} {time.monotonic()}")


def remove_markers(operation: Operation) -> None:
    """Make the next monitor of every interval a first one."""
    prefix = os.path.basename(operation.path(MONITOR))
    try:
        for name in os.listdir(operation.directory):
            if name.startswith(prefix):
                os.unlink(os.path.join(operation.directory, name))
    except OSError:
        pass  # there are none


def note_demote(operation: Operation, dead: bool) -> None:
    """`dead`: there was no broker any more, so a primary has failed."""
    _write(operation.path(DEMOTED), f"{time.monotonic()}{' dead' * dead}")


def died_as_primary(operation: Operation) -> bool:
    try:
        return _read(operation.path(DEMOTED)).endswith("dead")
    except OSError:
        return False


def forget_demote(operation: Operation) -> None:
    try:
        os.unlink(operation.path(DEMOTED))
    except OSError:
        pass  # there was none


def quiet(operation: Operation, period: float) -> float:
    """Seconds left of `period` seconds after the last demote, in which nothing bad is reported."""
    try:
        since = time.monotonic() - float(_read(operation.path(DEMOTED)).split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, period - since) if since >= 0 else 0.0


def _monitor_path(operation: Operation) -> str:
    return operation.path(f"{MONITOR}-{operation.interval:g}")


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        pass  # the next call works without: a monitor is not held, or a plan is made twice
