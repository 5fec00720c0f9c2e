"""Parameters of the resource that change while a broker runs.  Shell.

Pacemaker calls `reload-agent` on a node when the last of `start`, `promote`, `demote` and `reload-agent` there is not a
`demote`.  Its history of a resource has one entry for all of them (`qpidd_last_0`), and the scheduler compares the
parameters of an entry only if it is a start, a promote or a single monitor (`process_rsc_history` in
pcmk_sched_actions.c).  So a node that has handed over its role is left out: only its monitors begin again,
with the new parameters.  There the monitor does what `reload-agent` would have done.
"""

import os

from qpidd_agent.ocf import OCF_ERR_GENERIC, OCF_NOT_RUNNING, OCF_SUCCESS, Failure, Operation, log
from qpidd_agent.parameters import Parameters
from qpidd_agent.process import SIGHUP, Process, find
from qpidd_agent.running import keep_applied, no_room, note_applied, write_applied
from qpidd_agent.settings import validate_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def reload_agent(parameters: Parameters, operation: Operation) -> int:
    """Parameters have changed: the broker reads its file again (SIGHUP), the rest takes effect at its next start.

    The result is success even if they are wrong: a failure would make Pacemaker restart all brokers together.
    """
    process = find(parameters)
    if process is None:
        return OCF_NOT_RUNNING
    _apply(process, operation)
    note_applied(parameters, operation)
    return OCF_SUCCESS


def catch_up(parameters: Parameters, operation: Operation, process: Process, names: "Sequence[str]") -> bool:
    """Apply what Pacemaker has not had reloaded.  True if that has taken time.  Nothing here may fail the monitor of a
    healthy broker.

    The note is written before, since each monitor would begin again if it cannot be, and counts only after: when
    Pacemaker ends the monitor meanwhile, the next one begins again."""
    said = no_room(operation)
    try:
        write_applied(parameters, operation)
    except OSError as error:
        log("debug" if said else "warning", f"changed parameters are not applied ({', '.join(names)}): {error}")
        return False
    log("notice", f"changed, and not reloaded by Pacemaker: {', '.join(names)}")
    try:
        _apply(process, operation)
    except (Failure, OSError) as error:
        log("error", f"changed parameters are not applied: {error}")
    keep_applied(operation)
    return True


def _apply(process: Process, operation: Operation) -> None:
    """Raises `Failure` without the right to signal the broker."""
    try:
        validate_all(Parameters(os.environ), operation)
    except Failure as failure:
        if failure.code != OCF_ERR_GENERIC:
            log("error", f"changed parameters are refused, and the next start will fail: {failure.reason}")
            return
        log("warning", f"changed parameters are not checked: {failure.reason}")
    process.signal(SIGHUP)
    log("notice", f"process {process.pid} reads its configuration; other parameters count from its next start")
