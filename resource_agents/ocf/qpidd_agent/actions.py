"""The actions of the agent: functions that return the exit code or raise `Failure`.  Shell.

Time limits are derived from the timeout that Pacemaker gives.
"""

import os
import time

from qpidd_agent.beats import BEATS_IN_SILENCE, allowed_silence, environment
from qpidd_agent.changes import reload_agent
from qpidd_agent.marker import forget_demote, note_demote, remove_markers
from qpidd_agent.monitor import check_user, monitor
from qpidd_agent.ocf import (
    OCF_ERR_GENERIC,
    OCF_ERR_PERM,
    OCF_NOT_RUNNING,
    OCF_SUCCESS,
    Failure,
    Operation,
    log,
)
from qpidd_agent.parameters import Parameters, account, check
from qpidd_agent.process import Process, end, find
from qpidd_agent.running import forget_start, note_start
from qpidd_agent.score import STANDALONE, Standing
from qpidd_agent.settings import check_files, check_settings, identity, settings, validate_all
from qpidd_agent.tool import ask_standing, order, write_score

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "PCMK_ipc_type", "PCMK_ipc_buffer")
"""Variables passed on to the broker, which may call Pacemaker's tools itself (ha-registry=pacemaker)."""


OOM_SCORE_ADJ = "-500"
ENDING = 0.5
"""Seconds in which a process that does not answer may end: its threads go one after the other."""

PROMOTION = '{"behind": true, "takeover": true}'
"""`behind`: the broker that holds most has the best score; if Pacemaker chose another one, accept that.
`takeover`: a primary that still lives, after a demote that was lost, is asked to hand over; otherwise it would block
the promotion."""


# ---- start, stop


def start(parameters: Parameters, operation: Operation) -> int:
    """Start the broker, always as backup.  Returns when it serves; while it reads its journal at half of the timeout,
    since only Pacemaker could wait longer: it runs, has no score, and its monitors succeed until it has one."""
    check(parameters)
    remove_markers(operation)
    forget_demote(operation)
    process = find(parameters)
    if process is None:
        os.makedirs(operation.directory, mode=0o755, exist_ok=True)
        note_start(parameters, operation)
        _launch(parameters, operation)
    else:
        check_user(parameters, process)
        log("info", f"process {process.pid} runs already")
    write_score(operation, ask_standing(parameters, operation).score)
    return OCF_SUCCESS


def _launch(parameters: Parameters, operation: Operation) -> None:
    """Start `qpidd --daemon`, which returns when it listens or has said that it reads its journal, or with the reason
    why it does not."""
    import subprocess

    user, group, home = account(parameters.user)
    variables = {name: os.environ[name] for name in KEPT if name in os.environ}
    variables |= {"HOME": home, "USER": parameters.user, "LOGNAME": parameters.user}
    variables |= environment(parameters, operation)
    if os.geteuid() not in (0, user):
        raise Failure(OCF_ERR_PERM, f"user id {os.geteuid()} may not start a broker as {parameters.user}")
    _make_data_dir(parameters, user, group)
    check_files(parameters)
    _spare_from_oom()
    done = subprocess.run(
        command(parameters, operation),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=variables,
        umask=0o027,
        check=False,
        **identity(parameters),  # type: ignore[call-overload]
    )
    said = done.stdout.decode(errors="replace").strip()
    if done.returncode:
        check_settings(parameters)
        raise Failure(OCF_ERR_GENERIC, f"{parameters.binary} does not start: {said or done.returncode}")
    if said:
        log("notice", said)


def _spare_from_oom() -> None:
    """The broker inherits it from us; as in its systemd unit."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(OOM_SCORE_ADJ)
    except OSError:
        pass  # no right to; it is then as likely to be killed as others


def command(parameters: Parameters, operation: Operation) -> "list[str]":
    result = [parameters.binary, "--daemon"]
    if operation.timeout:
        result += ["--wait", f"{operation.half:g}"]
    return result + settings(parameters)


def _make_data_dir(parameters: Parameters, user: int, group: int) -> None:
    """Create the data directory, since the broker's user may lack permission; an existing one is not changed."""
    try:
        os.mkdir(parameters.data_dir, mode=0o750)
    except FileExistsError:
        return
    except OSError as error:
        raise Failure(OCF_ERR_PERM, f"cannot make {parameters.data_dir}: {error.strerror}") from None
    if os.geteuid() == 0:
        os.chown(parameters.data_dir, user, group)


def stop(parameters: Parameters, operation: Operation) -> int:
    """Stop the broker that runs on our data directory.  A failure means fencing, so nothing else is checked."""
    remove_markers(operation)
    process = find(parameters)
    if process is not None:
        log("info", f"stopping process {process.pid}")
        end(process, operation.half, _hung(parameters, process, operation))
    write_score(operation, "")
    _forget(operation)
    return OCF_SUCCESS


def _hung(parameters: Parameters, process: Process, operation: Operation) -> "Callable[[], bool]":
    """Returns a function that is true if the broker is silent although it sends beats until its end."""
    from qpidd_agent.ear import Ear

    silence = allowed_silence(parameters, process, operation)
    if not silence:
        return lambda: False
    try:
        ear = Ear(operation.path("notify"), process)
    except OSError as error:
        log("warning", f"cannot listen for beats: {error}")
        return lambda: False
    heard = looked = time.monotonic()

    def hangs() -> bool:
        nonlocal heard, looked
        now = time.monotonic()
        starved = now - looked > silence / BEATS_IN_SILENCE  # this process was paused: silence proves nothing
        if ear.hear() or starved:
            heard = now
        looked = now
        return now - heard > silence

    return hangs


def _forget(operation: Operation) -> None:
    forget_demote(operation)
    forget_start(operation)
    try:
        os.unlink(operation.path("notify"))
    except OSError:
        pass  # there was none


# ---- promote, demote: they wait for the broker's answer only


def promote(parameters: Parameters, operation: Operation) -> int:
    """Promote the broker, which decides whether that is safe; its refusal becomes the exit reason."""
    remove_markers(operation)
    forget_demote(operation)
    process = find(parameters)
    if process is None:
        raise Failure(OCF_NOT_RUNNING, "there is no broker that could be promoted")
    _refuse_stopped(process)
    try:
        order(parameters, operation, "ha.promote", PROMOTION)
    except Failure as failure:
        raise Failure(failure.code, f"not promoted: {failure.reason}") from None
    standing = ask_standing(parameters, operation)
    if standing.state == STANDALONE:
        raise Failure(OCF_ERR_GENERIC, "not promoted: the broker stands alone (ha-cluster=no), which has no primary")
    log("info", f"process {process.pid} is promoted")
    # Written now, not by the next monitor: with score 10 (after a total failure) the first ready backup would replace
    # it.
    write_score(operation, standing.score)
    return OCF_SUCCESS


def demote(parameters: Parameters, operation: Operation) -> int:
    """Demote in place.  For a dead broker the result is success, since any other one makes Pacemaker plan again."""
    remove_markers(operation)
    process = find(parameters)
    note_demote(operation, dead=process is None)
    if process is None:
        log("info", "there is no broker that could be demoted")
        return OCF_SUCCESS
    _refuse_stopped(process)
    try:
        order(parameters, operation, "ha.demote")
        log("info", f"process {process.pid} is not primary any more")
    except Failure as failure:
        standing = _standing_unless_ended(parameters, operation, process)
        if standing is None:
            note_demote(operation, dead=True)
        elif standing.promoted:
            raise Failure(failure.code, f"not demoted: {failure.reason}") from None
        log("info", f"process {process.pid} is no primary: {failure.reason}")
    return OCF_SUCCESS


def _standing_unless_ended(parameters: Parameters, operation: Operation, process: Process) -> "Standing | None":
    """None: it was about to end when we looked for it.  Raises Failure if a living one does not answer."""
    try:
        return None if process.wait(0) else ask_standing(parameters, operation)
    except Failure:
        if process.wait(ENDING):
            return None
        raise


def _refuse_stopped(process: Process) -> None:
    """Fail at once for a process stopped by a signal: it cannot answer, and `stop` handles it."""
    if process.stopped:
        raise Failure(OCF_ERR_GENERIC, f"process {process.pid} is stopped by a signal and takes no request")


# ---- the rest


def notify(parameters: Parameters, operation: Operation) -> int:
    """Nothing to do: the brokers inform each other."""
    return OCF_SUCCESS


ACTIONS: "dict[str, Callable[[Parameters, Operation], int]]" = {
    "start": start,
    "stop": stop,
    "monitor": monitor,
    "promote": promote,
    "demote": demote,
    "notify": notify,
    "reload-agent": reload_agent,
    "validate-all": validate_all,
}
