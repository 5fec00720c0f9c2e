"""Requests to the broker (its standing, orders), and the command that writes the score in Pacemaker.  Shell."""

import os
import time

from qpidd_agent.ocf import OCF_ERR_GENERIC, OCF_ERR_INSTALLED, Failure, Operation, log
from qpidd_agent.parameters import Parameters
from qpidd_agent.score import Standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"


def run(
    command: "Sequence[str]",
    environment: "Mapping[str, str] | None" = None,
    identity: "Mapping[str, object] | None" = None,
    deadline: "float | None" = None,
) -> "tuple[int, str]":
    """Run a command, as `identity` (arguments of `subprocess`).  Returns its exit code and output, with errors.  Raises
    `Failure` if it cannot be started, or is killed at the deadline (of the monotonic clock)."""
    import subprocess

    limit = None if deadline is None else max(0.01, deadline - time.monotonic())
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
            timeout=limit,
            **(identity or {}),  # type: ignore[call-overload]
        )
    except OSError as error:
        raise Failure(OCF_ERR_INSTALLED, f"cannot run {command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Failure(OCF_ERR_GENERIC, f"{command[0]} has not ended in time and is killed") from None
    return done.returncode, done.stdout.decode(errors="replace").strip()


def request(parameters: Parameters, operation: Operation, method: str) -> "Mapping[str, object]":
    """The result from our own broker.  Raises `Failure` with its refusal, or the reason why there is no answer."""
    return _result(_ask(parameters, operation, method, "{}"))


def order(parameters: Parameters, operation: Operation, method: str, arguments: str = "{}") -> None:
    """As `request`, without a result: for speed a successful answer is not parsed."""
    answer = _ask(parameters, operation, method, arguments)
    if not answer.startswith(b'{"ok":true'):
        _result(answer)


def _ask(parameters: Parameters, operation: Operation, method: str, arguments: str) -> bytes:
    """Send one request; the timeout is half of Pacemaker's, so that there is time to report a missing answer."""
    import qpidd_agent.request as amqp

    place = parameters.host, int(parameters.door), parameters.tls
    login = (parameters.mechanism, *parameters.login)
    try:
        return amqp.ask(place, login, method, arguments, operation.half)
    except amqp.Refused as refusal:
        raise Failure(OCF_ERR_GENERIC, f"the broker hangs up: {refusal}") from None
    except OSError as error:
        address = f"{parameters.host}:{parameters.door}"
        raise Failure(OCF_ERR_GENERIC, f"the broker does not answer: {amqp.describe(error, address)}") from None


def _result(text: bytes) -> "Mapping[str, object]":
    import json

    try:
        answer = json.loads(text)
        if answer["ok"]:
            result = answer.get("result")
            return result if isinstance(result, dict) else {}
        refusal = str(answer.get("error", "no reason given"))
    except (ValueError, KeyError, TypeError) as error:
        refusal = f"unreadable answer: {error}"
    raise Failure(OCF_ERR_GENERIC, refusal)


def ask_standing(parameters: Parameters, operation: Operation) -> Standing:
    found = request(parameters, operation, "ha.status")
    return Standing(str(found.get("state", "")), _given(found))


def _given(found: "Mapping[str, object]") -> "str | None":
    """The reported score.  None: this broker reports no scores; empty: it must not be promoted."""
    if "score" not in found:
        return None
    return "" if found["score"] is None else str(found["score"])


def score_command(operation: Operation, score: str) -> "list[str]":
    """The command that does what `crm_attribute --promotion` does in half the time, since it does not ask the CIB
    first.

    The attribute has the resource's name as given by Pacemaker; the node is this one.
    """
    change = [f"--update={score}"] if score else ["--delete"]  # in one word, since a score may begin with a dash
    return ["attrd_updater", "--quiet", f"--name=master-{operation.instance}", *change]


def write_score(operation: Operation, score: str) -> bool:
    """Write the score; empty: delete it.  A failure is only a warning: it delays a promotion, the broker works."""
    path = os.environ.get("PATH", "")
    environment = {**os.environ, "PATH": f"{path}:{SBIN}" if path else SBIN}
    try:
        exit_code, text = run(score_command(operation, score), environment)
    except Failure as failure:
        exit_code, text = failure.code, failure.reason
    if exit_code:
        log("warning", f"promotion score {score or '(none)'} is not written: {text or exit_code}")
    return not exit_code
