"""Notes that one call of the agent leaves to the next, in files that are gone after a boot.  Shell.

`monitor-INTERVAL`: the monitor of this interval has ended in the ordinary way, when and with what.  Removed while one
is held, and by whatever makes Pacemaker begin a new series.

`demoted`: when the last demote was.  In the same transition Pacemaker promotes another one, and asks the demoted
one how it is.  What is told then, a changed score or a death, makes it plan anew before it has promoted, and even
repair the dead one first (up to 1 s was seen).  So for a while after a demote no bad news is told.
"""

import os
import time

from qpidd_agent.ocf import Operation

MONITOR, DEMOTED = "monitor", "demoted"
LATE = 1.0
"""Seconds.  Pacemaker begins a monitor one interval after the end of the one before, a busy node a bit later."""

DEATH_WAITS = 0.3
"""Seconds after a demote in which a death is not told.  The promotion is asked for 10 to 150 ms after the demote; to
wait longer would only keep a transition that was aborted for another reason from ending."""
SCORE_WAITS = 1.0
"""Seconds after a demote in which a changed score is not written; nobody waits for that."""


class Before:
    """What a monitor leaves to the next one."""

    def __init__(self, pid: int = 0, found: int = -1, last: bool = False) -> None:
        """`pid` 0: there was none, or it is too long ago.  `last`: the broker was the only one that held something."""
        self.pid = pid
        self.found = found
        self.last = last


def take_marker(operation: Operation) -> Before:
    """Gone afterwards."""
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
    """The next monitor, of whatever interval, is a first one."""
    prefix = os.path.basename(operation.path(MONITOR))
    try:
        for name in os.listdir(operation.directory):
            if name.startswith(prefix):
                os.unlink(os.path.join(operation.directory, name))
    except OSError:
        pass  # there are none


def note_demote(operation: Operation) -> None:
    _write(operation.path(DEMOTED), str(time.monotonic()))


def forget_demote(operation: Operation) -> None:
    try:
        os.unlink(operation.path(DEMOTED))
    except OSError:
        pass  # there was none


def quiet(operation: Operation, period: float) -> float:
    """For how many seconds more bad news has to wait; `period` seconds are counted from the last demote on."""
    try:
        since = time.monotonic() - float(_read(operation.path(DEMOTED)))
    except (OSError, ValueError):
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
        pass  # then the next call does without: a monitor that is not held, a plan that is made twice
