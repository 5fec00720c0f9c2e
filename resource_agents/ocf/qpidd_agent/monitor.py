"""Monitors: the state of the broker, and monitors that are held until there is something to report.  Shell.

Three independent signs are used: the process (and its user), its lock on the data directory, and its answer: a beat, a
greeting, the words of `qpid-ha`.

**Held monitors.**  Pacemaker learns of a failure when a monitor ends.  So a recurring monitor whose result has not
changed does not end: it waits on the process and its beats for half of its timeout, and ends when something is wrong.
The death of a broker is reported at once, a hang after `heartbeat`.

* The first monitor after start, promote and demote (they remove the marker) ends at once, because Pacemaker waits for
  it.  So does one with interval 0 (a probe), the one after a probe (Pacemaker has lost its history and starts again),
  and a late one (the series was interrupted).  With notifications in the clone all end at once: notifications would
  have to wait for a held monitor.
* Pacemaker ends a held monitor by SIGKILL when it has other plans.  Only the file of a socket is left; the marker was
  removed when the hold began, so that a new series begins with a monitor that ends at once.
* A hung broker is killed: then it can be neither promoted nor primary, and no action waits for it.
* When a promoted broker dies its score is deleted, and nothing else is reported for some time.  That alone makes
  Pacemaker demote here and promote elsewhere, in one transition.  A failure reported at the same moment would make it
  plan a second time, and the promotion would wait until the first plan has ended (70 to 150 ms were measured; on a busy
  machine clients were back after 1.2 s instead of 0.7).  The demote ends this monitor; the next one reports the death
  of the primary, when that cannot delay the promotion any more (`marker.py`).  With `on-fail=fence` and others that do
  more than a demotion this monitor reports it, at once, and leaves the score (`absence.py`).
"""

from qpidd_agent.absence import gone
from qpidd_agent.beats import allowed_silence
from qpidd_agent.marker import SCORE_WAITS, Before, quiet, remove_markers, set_marker, take_marker
from qpidd_agent.ocf import (
    OCF_ERR_GENERIC,
    OCF_FAILED_PROMOTED,
    OCF_RUNNING_PROMOTED,
    OCF_SUCCESS,
    Failure,
    Operation,
    exit_reason,
    log,
)
from qpidd_agent.parameters import Parameters, account, check
from qpidd_agent.process import Process, find
from qpidd_agent.running import missed
from qpidd_agent.score import code
from qpidd_agent.tool import ask_standing, write_score


def monitor(parameters: Parameters, operation: Operation) -> int:
    """Returns the exit code; a failure also reports a reason."""
    process = find(parameters)
    before = take_marker(operation)
    if not operation.interval:
        remove_markers(operation)
    if process is None:
        check(parameters)  # not while a broker runs: it goes on, and a wrong parameter must not stop all of them
        return gone(parameters, operation, before.found == OCF_RUNNING_PROMOTED)
    check_user(parameters, process)
    if _caught_up(parameters, operation, process):
        before = Before(0, before.found, before.last)  # not held, since the timeout is used up in part
    if before.pid == process.pid and may_hold(operation):
        now = hold(parameters, operation, process, before)
    else:
        now = Before(process.pid, look(parameters, operation, process, before.found), before.last)
    if may_hold(operation) and now.found in (OCF_SUCCESS, OCF_RUNNING_PROMOTED):
        set_marker(operation, now)
    return now.found


def _caught_up(parameters: Parameters, operation: Operation, process: Process) -> bool:
    """True if that took time: parameters had changed that Pacemaker has not had reloaded.  A probe changes nothing."""
    names = missed(parameters, operation) if operation.interval else []
    if not names:
        return False
    from qpidd_agent.changes import catch_up

    return catch_up(parameters, operation, process, names)


def look(parameters: Parameters, operation: Operation, process: Process, before: int) -> int:
    """Query the broker and write its score.  `before`: the result of the previous monitor."""
    try:
        if process.stopped:
            raise Failure(OCF_ERR_GENERIC, f"process {process.pid} is stopped by a signal and does not answer")
        standing = ask_standing(parameters, operation)
    except Failure as failure:
        if process.wait(0):
            return gone(parameters, operation, before == OCF_RUNNING_PROMOTED)
        exit_reason(failure.reason)
        return OCF_FAILED_PROMOTED if before == OCF_RUNNING_PROMOTED else failure.code
    if not quiet(operation, SCORE_WAITS):
        write_score(operation, standing.score)
    log("debug", f"process {process.pid} is {standing.state}, score {standing.score or 'none'}")
    return code(standing.state)


def check_user(parameters: Parameters, process: Process) -> None:
    """Raises `Failure` for a broker of another user, whose files ours cannot read; Pacemaker restarts it."""
    wanted = account(parameters.user)[0]
    found = process.user
    if found not in (wanted, -1):
        reason = f"process {process.pid} runs as user id {found}, wanted {wanted} ({parameters.user})"
        raise Failure(OCF_ERR_GENERIC, reason)


def may_hold(operation: Operation) -> bool:
    return operation.interval > 0 and operation.timeout > 0 and not operation.notified


# ---- held


def hold(parameters: Parameters, operation: Operation, process: Process, before: Before) -> Before:
    """Hold the monitor until its previous result is no longer true, or for half of the timeout."""
    silence = allowed_silence(parameters, process, operation)
    if not silence:
        # Not started by this agent, so it sends no beats: its death is detected at once, the rest by queries.
        if process.wait(min(parameters.silence, operation.half)):
            return Before(process.pid, gone(parameters, operation, before.found == OCF_RUNNING_PROMOTED))
        return Before(process.pid, look(parameters, operation, process, before.found))
    from qpidd_agent.hold import Hold

    try:
        held = Hold(parameters, operation, process, before, silence)
    except OSError as error:
        log("warning", f"cannot listen for beats, so the monitor only looks: {error}")
        return Before(process.pid, look(parameters, operation, process, before.found))
    return Before(process.pid, held.run(), held.last)
