"""Arguments of queues that Apache Qpid's brokers have and RabbitMQ does not, or has by another name.             Pure.

Two names may stand for one mechanism: `canonical` gives the one that the rest of the broker knows, so that a queue may
be declared with one of them and redeclared with the other.  Both at a time are refused.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from qpidd_py.core.watch import Watch

MAX_COUNT: Final = "qpid.max_count"
MAX_SIZE: Final = "qpid.max_size"
POLICY: Final = "qpid.policy_type"
FLOW_STOP_COUNT: Final = "qpid.flow_stop_count"
FLOW_STOP_SIZE: Final = "qpid.flow_stop_size"
FLOW_RESUME_COUNT: Final = "qpid.flow_resume_count"
FLOW_RESUME_SIZE: Final = "qpid.flow_resume_size"
ALERT_COUNT: Final = "qpid.alert_count"
ALERT_SIZE: Final = "qpid.alert_size"
ALERT_GAP: Final = "qpid.alert_repeat_gap"
ALERT_GAP_DEFAULT: Final = 60
"""Seconds."""
SELF_DESTRUCT: Final = "self-destruct"

_LIMITS: Final = {MAX_COUNT: "x-max-length", MAX_SIZE: "x-max-length-bytes"}
_POLICIES: Final = {"ring": "drop-head", "reject": "reject-publish", SELF_DESTRUCT: SELF_DESTRUCT}
_OVERFLOW: Final = "x-overflow"
_RESUMES: Final = {FLOW_STOP_COUNT: FLOW_RESUME_COUNT, FLOW_STOP_SIZE: FLOW_RESUME_SIZE}


def _number(value: Any) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return "is not a number"
    return "is negative" if value < 0 else ""


def _policy(value: Any) -> str:
    if value in ("flow-to-disk", "flow_to_disk"):
        return "is not implemented: all queues leave memory for the page file when there is need; set no limit"
    if value in ("ring-strict", "ring_strict"):
        return "is not implemented: use 'ring'"
    return "" if value in _POLICIES else f"is not one of {', '.join(_POLICIES)}"


CHECKS: Final[dict[str, Callable[[Any], str]]] = {
    **dict.fromkeys((MAX_COUNT, MAX_SIZE), _number),
    **dict.fromkeys((FLOW_STOP_COUNT, FLOW_STOP_SIZE, FLOW_RESUME_COUNT, FLOW_RESUME_SIZE), _number),
    **dict.fromkeys((ALERT_COUNT, ALERT_SIZE, ALERT_GAP), _number),
    POLICY: _policy,
}
"""What is wrong with a value; empty: nothing."""


def conflict(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """An argument, and why it cannot be there together with another one.  All values are of the right type."""
    for name, other in (*_LIMITS.items(), (POLICY, _OVERFLOW)):
        if name in arguments and other in arguments:
            return name, f"there is '{other}', which says the same"
    for stop, resume in _RESUMES.items():
        if arguments.get(resume) and not arguments.get(stop):
            return resume, f"there is no '{stop}'"
        if arguments.get(stop) and arguments.get(resume, 0) > arguments[stop]:
            return resume, f"{arguments[resume]} is above '{stop}', {arguments[stop]}"
    if arguments.get(POLICY) == SELF_DESTRUCT and not limited(canonical(arguments)):
        return POLICY, f"'{SELF_DESTRUCT}' without a limit: there is no '{MAX_COUNT}' and no '{MAX_SIZE}'"
    return None


def limited(arguments: Mapping[str, Any]) -> bool:
    return any(name in arguments for name in _LIMITS.values())


def canonical(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """With the other name of what has two; as in Qpid a limit of 0 is none, and one without a policy rejects."""
    found = {name: value for name, value in arguments.items() if name not in _LIMITS and name != POLICY}
    sizes = {other: arguments[name] for name, other in _LIMITS.items() if arguments.get(name)}
    if sizes and _OVERFLOW not in arguments:
        found[_OVERFLOW] = _POLICIES["reject"]
    if POLICY in arguments:
        found[_OVERFLOW] = _POLICIES[arguments[POLICY]]
    return {**found, **sizes}


def watch_of(arguments: Mapping[str, Any]) -> Watch | None:
    """The levels of a queue, of canonical arguments; publishers that wait go on at 7/8 unless it is said when."""
    stops = [arguments.get(name) or None for name in _RESUMES]
    resumes = [arguments.get(resume, 7 * arguments.get(stop, 0) // 8) for stop, resume in _RESUMES.items()]
    alerts = [arguments.get(name) or None for name in (ALERT_COUNT, ALERT_SIZE)]
    destructs = arguments.get(_OVERFLOW) == SELF_DESTRUCT
    if not destructs and stops == alerts == [None, None]:
        return None
    ends = [None if stop is None else resume for stop, resume in zip(stops, resumes, strict=True)]
    watch = Watch((stops[0], stops[1]), (ends[0], ends[1]), (alerts[0], alerts[1]))
    watch.destructs = destructs
    return watch
