"""What a monitor reports when no broker runs."""

import select

from qpidd_agent.marker import DEATH_WAITS, died_as_primary, quiet
from qpidd_agent.ocf import OCF_NOT_RUNNING, Operation, exit_reason, log
from qpidd_agent.parameters import Parameters
from qpidd_agent.process import crashed
from qpidd_agent.tool import write_score

OTHER_EFFECTS = ("fence", "block", "standby", "stop")
"""Values of `on-fail` that act only when the promoted monitor itself fails: a demotion would end it before."""


def gone(parameters: Parameters, operation: Operation, promoted: bool, reason: str = "") -> int:
    """The broker does not run: a normal result for a probe, otherwise a failure.  `promoted`: its last known role."""
    if operation.interval:
        reason = reason or crashed(parameters) or f"no broker runs on {parameters.data_dir}"
        if promoted or died_as_primary(operation):
            reason = f"the primary has failed: {reason}"  # whichever monitor reports it, as `monitor.py` says
        log("error", reason)
        if not (promoted and operation.on_fail in OTHER_EFFECTS):
            _be_demoted(parameters, operation, promoted)
        exit_reason(reason, logged=True)
    return OCF_NOT_RUNNING


def _be_demoted(parameters: Parameters, operation: Operation, promoted: bool) -> None:
    wait(quiet(operation, DEATH_WAITS))
    if write_score(operation, "") and promoted:
        wait(min(parameters.silence, operation.half or parameters.silence))  # Pacemaker ends us meanwhile


def wait(seconds: float) -> None:
    if seconds:
        select.poll().poll(seconds * 1000)
