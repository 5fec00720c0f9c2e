"""Arguments of queues that Apache Qpid's brokers have and RabbitMQ does not, or has by another name.             Pure.

Two names may stand for one mechanism: `canonical` gives the one that the rest of the broker knows, so that a queue may
be declared with one of them and redeclared with the other.  Both at a time are refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from qpidd_py.amqp.constants import SHORTSTR_MAX
from qpidd_py.core.groups import group_by
from qpidd_py.core.queue import Queue
from qpidd_py.core.shares import share_out
from qpidd_py.core.values import keep_last_of
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
LAST_VALUE_KEY: Final = "qpid.last_value_queue_key"
LAST_VALUE: Final = "qpid.last_value_queue"  # true: the key is `LEGACY_KEY`
LEGACY_KEY: Final = "qpid.LVQ_key"
BROWSE_ONLY: Final = "qpid.browse-only"
GROUP_KEY: Final = "qpid.group_header_key"
SHARED_GROUPS: Final = "qpid.shared_msg_group"
PRIORITIES: Final = "qpid.priorities"
FAIRSHARE: Final = "qpid.fairshare"
SELF_DESTRUCT: Final = "self-destruct"
EXCLUSIVE_BINDING: Final = "qpid.exclusive-binding"  # of bindings to direct exchanges
MSG_SEQUENCE: Final = "qpid.msg_sequence"  # of exchanges, and the header that it makes
IVE: Final = "qpid.ive"  # of exchanges: the last message is kept for new bindings

_LIMITS: Final = {MAX_COUNT: "x-max-length", MAX_SIZE: "x-max-length-bytes"}
_POLICIES: Final = {"ring": "drop-head", "reject": "reject-publish", SELF_DESTRUCT: SELF_DESTRUCT}
_OVERFLOW: Final = "x-overflow"
_MAX_PRIORITY: Final = "x-max-priority"
_SHARE: Final = re.compile(r"qpid\.fairshare-(0|[1-9][0-9]{0,2})")  # of one level
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


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)) else "is neither 1 nor 0"


def _header(value: Any) -> str:
    if not isinstance(value, str):
        return "is not a string"
    return "" if 0 < len(value.encode()) <= SHORTSTR_MAX else f"is not of 1 to {SHORTSTR_MAX} octets"


def _levels(value: Any) -> str:
    return _number(value) or ("" if 1 <= value <= 256 else "is not from 1 to 256")


def _legacy(value: Any) -> str:
    return f"is not implemented: use '{LAST_VALUE_KEY}'"


CHECKS: Final[dict[str, Callable[[Any], str]]] = {
    **dict.fromkeys((MAX_COUNT, MAX_SIZE), _number),
    **dict.fromkeys((FLOW_STOP_COUNT, FLOW_STOP_SIZE, FLOW_RESUME_COUNT, FLOW_RESUME_SIZE), _number),
    **dict.fromkeys((ALERT_COUNT, ALERT_SIZE, ALERT_GAP), _number),
    POLICY: _policy,
    **dict.fromkeys((LAST_VALUE, BROWSE_ONLY, SHARED_GROUPS), _flag),
    **dict.fromkeys((LAST_VALUE_KEY, GROUP_KEY), _header),
    **dict.fromkeys((LEGACY_KEY, "qpid.last_value_queue_no_browse"), _legacy),
    PRIORITIES: _levels,
    FAIRSHARE: _number,
}


EXCHANGE_CHECKS: Final[dict[str, Callable[[Any], str]]] = dict.fromkeys((MSG_SEQUENCE, IVE), _flag)
BINDING_CHECKS: Final[dict[str, Callable[[Any], str]]] = {EXCLUSIVE_BINDING: _flag}


def check_of(name: str) -> Callable[[Any], str] | None:
    """What says what is wrong with a value (empty: nothing); None for a name that is not known here."""
    return _number if _SHARE.fullmatch(name) else CHECKS.get(name)


def conflict(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """An argument, and why it cannot be there together with another one.  All values are of the right type."""
    for name, other in (*_LIMITS.items(), (POLICY, _OVERFLOW), (PRIORITIES, _MAX_PRIORITY)):
        if name in arguments and other in arguments:
            return name, f"there is '{other}', which says the same"
    for stop, resume in _RESUMES.items():
        if arguments.get(resume) and not arguments.get(stop):
            return resume, f"there is no '{stop}'"
        if arguments.get(stop) and arguments.get(resume, 0) > arguments[stop]:
            return resume, f"{arguments[resume]} is above '{stop}', {arguments[stop]}"
    if arguments.get(POLICY) == SELF_DESTRUCT and not limited(canonical(arguments)):
        return POLICY, f"'{SELF_DESTRUCT}' without a limit: there is no '{MAX_COUNT}' and no '{MAX_SIZE}'"
    return _other_kind(canonical(arguments)) or _wrong_share(arguments, canonical(arguments).get(_MAX_PRIORITY, 0))


def _other_kind(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """Of canonical arguments: a queue has one order of its messages."""
    for name, other in ((GROUP_KEY, SHARED_GROUPS), (SHARED_GROUPS, GROUP_KEY)):
        if arguments.get(name) and not arguments.get(other):
            return name, f"there is no '{other}'"
    kinds = [name for name in (LAST_VALUE_KEY, GROUP_KEY, _MAX_PRIORITY) if arguments.get(name)]
    if arguments.get(GROUP_KEY) and arguments.get("x-single-active-consumer"):
        kinds.append("x-single-active-consumer")
    if kinds and arguments.get("x-queue-type") == "quorum":
        kinds.append("x-queue-type")
    return (kinds[0], f"there is '{kinds[1]}', too") if len(kinds) > 1 else None


def _wrong_share(arguments: Mapping[str, Any], highest: int) -> tuple[str, str] | None:
    for name in arguments:
        if (name == FAIRSHARE or _SHARE.fullmatch(name)) and not highest:
            return name, f"there is no '{PRIORITIES}'"
        if (found := _SHARE.fullmatch(name)) and int(found[1]) > highest:
            return name, f"the highest priority is {highest}"
    return None


def limited(arguments: Mapping[str, Any]) -> bool:
    return any(name in arguments for name in _LIMITS.values())


def canonical(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """With the other name of what has two; as in Qpid a limit of 0 is none, and one without a policy rejects."""
    renamed = (*_LIMITS, POLICY, PRIORITIES, LAST_VALUE)
    found = {name: value for name, value in arguments.items() if name not in renamed}
    if PRIORITIES in arguments:
        found[_MAX_PRIORITY] = arguments[PRIORITIES] - 1
    if arguments.get(LAST_VALUE):
        found.setdefault(LAST_VALUE_KEY, LEGACY_KEY)
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


def shape(core: Queue, arguments: Mapping[str, Any]) -> None:
    """What makes a new queue one of these kinds, of canonical arguments; its levels of priority are there."""
    core.watch = watch_of(arguments)
    if LAST_VALUE_KEY in arguments:
        keep_last_of(core, arguments[LAST_VALUE_KEY])
    if GROUP_KEY in arguments:
        group_by(core, arguments[GROUP_KEY])
    if core.levels is not None:
        common = arguments.get(FAIRSHARE, 0)
        shares = [arguments.get(f"{FAIRSHARE}-{level}", common) for level in range(len(core.levels))]
        if any(shares):
            share_out(core, shares)
