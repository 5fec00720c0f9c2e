"""Arguments of declarations: which are known, of what type, and which this broker cannot honour yet.

Unknown arguments are kept: they come back in listings and reach the backups.  A known one of the wrong type is
`precondition-failed` (406), as RabbitMQ has it.  So is one that is not implemented here and that an application relies
on (`_REFUSED`): to accept it and do nothing could lose messages or change their order.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from qpidd_py.amqp.constants import SHORTSTR_MAX
from qpidd_py.broker import qpid_arguments
from qpidd_py.errors import ChannelException, ConnectionException, ReplyCode

REPLICATE: Final = "qpid.replicate"
LEVELS: Final = ("none", "configuration", "all")
EXPIRES: Final = "x-expires"  # milliseconds
AUTO_DELETE_TIMEOUT: Final = "qpid.auto_delete_timeout"  # seconds without a consumer, once there has been one
MAX_LENGTH: Final = "x-max-length"  # messages that are ready
MAX_BYTES: Final = "x-max-length-bytes"  # octets of their bodies
OVERFLOW: Final = "x-overflow"
MAX_PRIORITY: Final = "x-max-priority"
MESSAGE_TTL: Final = "x-message-ttl"  # milliseconds
ALTERNATE: Final = "alternate-exchange"
DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
DEAD_LETTER_KEY: Final = "x-dead-letter-routing-key"
DEAD_LETTER_STRATEGY: Final = "x-dead-letter-strategy"
AT_LEAST_ONCE: Final = "at-least-once"
SINGLE_CONSUMER: Final = "x-single-active-consumer"
FENCING_TOKEN: Final = "x-fencing-token"  # each consumer of a queue with one at a time gets one
QUEUE_TYPE: Final = "x-queue-type"
CONSUMER_TIMEOUT: Final = "x-consumer-timeout"  # milliseconds for which a client may keep a delivery
DELIVERY_LIMIT: Final = "x-delivery-limit"  # times that a message comes back; -1: no limit
CONSUMER_PRIORITY: Final = "x-priority"  # of consumers
QUEUE_MODE: Final = "x-queue-mode"
LEADER_LOCATOR: Final = "x-queue-leader-locator"  # means nothing here: the leader is the primary
MASTER_LOCATOR: Final = "x-queue-master-locator"  # the same, of classic queues
DEDUPLICATION: Final = "x-message-deduplication"  # see deduplication.py
DEDUPLICATION_WINDOW: Final = "x-deduplication-window"  # keys that are remembered
DEDUPLICATION_TIME: Final = "x-deduplication-time"  # milliseconds for which they are
DEDUPLICATION_KEY: Final = "x-deduplication-key"  # the header that has the key, instead of the property message_id
DEDUPLICATION_ARGUMENTS: Final = (DEDUPLICATION, DEDUPLICATION_WINDOW, DEDUPLICATION_TIME, DEDUPLICATION_KEY)
MATCH: Final = "x-match"  # of bindings
HASH_HEADER: Final = "hash-header"  # of exchanges
HASH_PROPERTY: Final = "hash-property"
DELAYED_TYPE: Final = "x-delayed-type"  # of exchanges of type x-delayed-message: which type routes
MOST_KEYS: Final = 100_000_000
LONGEST: Final = 315_360_000_000
"""Milliseconds: ten years.  RabbitMQ takes no longer time to live; `LONGEST` of the core is the same."""
DELIVERIES: Final = 20
"""The delivery limit of a quorum queue that names none."""


def _natural(value: Any) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return "is not a number"
    return "is negative" if value < 0 else ""


def _positive(value: Any) -> str:
    return _natural(value) or ("" if value else "must be above 0")


def _time(value: Any) -> str:
    return _natural(value) or ("" if value <= LONGEST else f"is above {LONGEST}, ten years")


def _lifetime(value: Any) -> str:
    return _positive(value) or _time(value)


def _integer(value: Any) -> str:
    return "" if isinstance(value, int) and not isinstance(value, bool) else "is not a number"


def _anything(value: Any) -> str:
    return ""


def _priority(value: Any) -> str:
    return _natural(value) or ("" if value <= 255 else "is above 255")


def _keys(value: Any) -> str:
    return _positive(value) or ("" if value <= MOST_KEYS else f"is above {MOST_KEYS}")


def _text(value: Any) -> str:
    return "" if isinstance(value, str) else "is not a string"


def _name(value: Any) -> str:
    return _text(value) or ("" if len(value.encode()) <= SHORTSTR_MAX else f"is longer than {SHORTSTR_MAX} octets")


def _header(value: Any) -> str:
    return _name(value) or ("" if value else "is empty")


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "is not a boolean"


def _one_of(*words: object) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        same = any(value == word and type(value) is type(word) for word in words)
        return "" if same else f"is not one of {', '.join(map(str, words))}"

    return check


_LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders")


def _locator(*words: str) -> Callable[[Any], str]:
    wrong = _one_of(*words)
    return lambda value: _text(value) or wrong(value)


_KNOWN: Final[dict[str, Callable[[Any], str]]] = {
    EXPIRES: _lifetime,
    AUTO_DELETE_TIMEOUT: _natural,
    MESSAGE_TTL: _time,
    MAX_LENGTH: _natural,
    MAX_BYTES: _natural,
    MAX_PRIORITY: _priority,
    DEAD_LETTER_EXCHANGE: _name,
    DEAD_LETTER_KEY: _name,
    DEAD_LETTER_STRATEGY: _one_of("at-most-once", AT_LEAST_ONCE),
    ALTERNATE: _name,
    OVERFLOW: _one_of("drop-head", "reject-publish", "reject-publish-dlx"),
    SINGLE_CONSUMER: _flag,
    FENCING_TOKEN: _flag,
    QUEUE_TYPE: _one_of("classic", "quorum", "stream"),
    DELIVERY_LIMIT: _anything,  # see delivery_limit
    CONSUMER_TIMEOUT: _positive,
    QUEUE_MODE: _one_of("default", "lazy"),
    LEADER_LOCATOR: _locator(*_LOCATORS),
    DEDUPLICATION: _flag,
    DEDUPLICATION_WINDOW: _keys,
    DEDUPLICATION_TIME: _positive,
    DEDUPLICATION_KEY: _header,
    REPLICATE: _one_of(*LEVELS),
}
_CHECKS: Final = {
    **_KNOWN,
    MATCH: _one_of("all", "any", "all-with-x", "any-with-x"),
    HASH_HEADER: _text,
    HASH_PROPERTY: _one_of("message_id", "correlation_id", "timestamp"),
    **qpid_arguments.EXCHANGE_CHECKS,
    **qpid_arguments.BINDING_CHECKS,
    CONSUMER_PRIORITY: _integer,
    "x-cancel-on-ha-failover": _flag,  # each fail-over ends the connection anyhow
    "x-stream-offset": lambda value: "is of streams only",
    "x-queue-version": _one_of(1, 2),
    MASTER_LOCATOR: _locator(*_LOCATORS, "min-masters"),
    **dict.fromkeys(("x-max-in-memory-length", "x-max-in-memory-bytes"), _natural),
    "x-quorum-initial-group-size": _positive,
}

_REFUSED: Final[dict[str, Callable[[Any], bool]]] = {
    QUEUE_TYPE: lambda value: bool(value == "stream"),
}
_THEIRS: Final = dict.fromkeys((LEADER_LOCATOR, MASTER_LOCATOR), "invalid_queue_locator_arg, ")
"""What RabbitMQ says of a word that it does not know, where that is no sentence."""
_NEEDS: Final = {
    DEAD_LETTER_KEY: DEAD_LETTER_EXCHANGE,
    FENCING_TOKEN: SINGLE_CONSUMER,
    DEDUPLICATION_WINDOW: DEDUPLICATION,
    DEDUPLICATION_TIME: DEDUPLICATION,
    DEDUPLICATION_KEY: DEDUPLICATION,
}
"""Arguments that mean nothing without another one."""


def check_known(arguments: Mapping[str, Any], what: str) -> None:
    """Raises 406 for a known argument of a wrong type."""
    _check(arguments, what, *(name for name in arguments if _known(name)))


def _known(name: str) -> bool:
    return name in _KNOWN or qpid_arguments.check_of(name) is not None


def check_queue_arguments(arguments: Mapping[str, Any], what: str) -> None:
    """Raises 406 for a wrong type and for what is not implemented.  `what` names the queue in the text."""
    check_known(arguments, what)
    _check_needs(arguments, what, *_NEEDS)
    if (found := qpid_arguments.conflict(arguments)) is not None:
        text = f"invalid arg '{found[0]}' for {what}: {found[1]}"
        raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)
    for name, value in arguments.items():
        if name in _REFUSED and _REFUSED[name](value):
            text = f"arg '{name}' for {what} is not implemented"
            raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)


def _check_needs(arguments: Mapping[str, Any], what: str, *names: str) -> None:
    for name in names:
        needed = _NEEDS.get(name)
        if needed and arguments.get(name, False) is not False and arguments.get(needed, False) is False:
            text = f"invalid arg '{name}' for {what}: there is no '{needed}'"
            raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)


_ONLY_STREAM: Final = ("x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size")
_ONLY_CLASSIC: Final = (MAX_PRIORITY, QUEUE_MODE, "x-queue-version", MASTER_LOCATOR)
_ONLY_QUORUM: Final = (
    *(DELIVERY_LIMIT, "x-quorum-initial-group-size"),
    *("x-max-in-memory-length", "x-max-in-memory-bytes"),
)


def check_type(arguments: Mapping[str, Any], level: str, what: str, **flags: bool) -> None:
    """Raises 406 for a quorum queue that would be on this broker only, or for a while only (one of the `flags`), and
    for an argument of the other type."""
    quorum = arguments.get(QUEUE_TYPE) == "quorum"
    if quorum and level != "all":
        text = f"invalid arg '{QUEUE_TYPE}' for {what}: 'quorum' needs '{REPLICATE}' all, found {level}"
        raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)
    for name in (name for name, value in flags.items() if quorum and value):
        raise ChannelException(ReplyCode.PRECONDITION_FAILED, f"invalid property '{name}' for {what} of type quorum")
    if not quorum and arguments.get(DEAD_LETTER_STRATEGY) == AT_LEAST_ONCE:
        text = f"invalid arg '{DEAD_LETTER_STRATEGY}' for {what} of type classic: '{AT_LEAST_ONCE}' needs quorum"
        raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)
    others, own = (_ONLY_CLASSIC, _ONLY_QUORUM) if quorum else (_ONLY_QUORUM, _ONLY_CLASSIC)
    for name in (name for name in (*others, *_ONLY_STREAM) if name in arguments):
        text = f"invalid arg '{name}' for {what} of type {'quorum' if quorum else 'classic'}"
        raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)
    _check(arguments, what, *own)


def delivery_limit(arguments: Mapping[str, Any]) -> int:
    """Of a quorum queue; negative: none.  RabbitMQ 3.10 takes any value, and what is no number is no limit."""
    value = arguments.get(DELIVERY_LIMIT, DELIVERIES)
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return max(math.floor(min(value, LONGEST)), -1) if number else -1


def keeps_letters(arguments: Mapping[str, Any]) -> bool:
    """Whether dead letters stay until another queue has them.  As in RabbitMQ, only with a limit that refuses."""
    wanted = arguments.get(DEAD_LETTER_STRATEGY) == AT_LEAST_ONCE and DEAD_LETTER_EXCHANGE in arguments
    return wanted and arguments.get(OVERFLOW) == "reject-publish"


def check_exchange_arguments(arguments: Mapping[str, Any], what: str) -> None:
    """As `check_queue_arguments`."""
    _check(arguments, what, REPLICATE, ALTERNATE, HASH_HEADER, HASH_PROPERTY, *qpid_arguments.EXCHANGE_CHECKS)
    _check(arguments, what, *DEDUPLICATION_ARGUMENTS)
    _check_needs(arguments, what, *DEDUPLICATION_ARGUMENTS)
    both = HASH_HEADER in arguments and HASH_PROPERTY in arguments
    twice = arguments.get(qpid_arguments.IVE) and arguments.get(DEDUPLICATION)
    if both or twice:
        one, other = (HASH_HEADER, HASH_PROPERTY) if both else (qpid_arguments.IVE, DEDUPLICATION)
        text = f"invalid arg '{other}' for {what}: there is '{one}', too"
        raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)


def check_delayed_type(arguments: Mapping[str, Any], types: Iterable[str], what: str) -> None:
    """Raises 406 for an exchange that delays without a type that routes, or that keeps something else, too; 503 for one
    of an unknown type."""
    kind = arguments.get(DELAYED_TYPE)
    if kind == "x-delayed-message" or not isinstance(kind, str):
        text = f"invalid arg '{DELAYED_TYPE}' for {what}: {kind!r:.60} is no type of an exchange that routes"
        raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)
    if kind not in types:
        raise ConnectionException(ReplyCode.COMMAND_INVALID, f"unknown exchange type '{kind:.255}'")
    for name in (qpid_arguments.IVE, DEDUPLICATION):
        if arguments.get(name):
            text = f"invalid arg '{name}' for {what}: it is of type x-delayed-message"
            raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)


def check_consumer_arguments(arguments: Mapping[str, Any], what: str) -> None:
    """Raises 406 for what a consumer cannot ask for."""
    _check(arguments, what, CONSUMER_PRIORITY, "x-cancel-on-ha-failover", "x-stream-offset")


def check_match(arguments: Mapping[str, Any], what: str) -> None:
    """Raises 406 for arguments with which no headers exchange can decide."""
    _check(arguments, what, MATCH)


def check_binding_arguments(arguments: Mapping[str, Any], what: str, kind: str = "direct") -> None:
    """Raises 406 for an unknown level of replication, and for what an exchange of this kind cannot honour."""
    _check(arguments, what, REPLICATE, qpid_arguments.EXCLUSIVE_BINDING)
    if arguments.get(qpid_arguments.EXCLUSIVE_BINDING) and kind != "direct":
        text = f"invalid arg '{qpid_arguments.EXCLUSIVE_BINDING}' for {what}: it is of type {kind}, not direct"
        raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)


def check_argument(name: str, value: Any) -> str:
    """What is wrong with the value of a queue's argument; empty if nothing is."""
    return _KNOWN[name](value)


def _check(arguments: Mapping[str, Any], what: str, *names: str) -> None:
    for name in names:
        check = _CHECKS.get(name) or qpid_arguments.check_of(name)
        if name in arguments and check is not None and (problem := check(arguments[name])):
            theirs = _THEIRS.get(name, "") if isinstance(arguments[name], str) else ""
            text = f"invalid arg '{name}' for {what}: {theirs}{arguments[name]!r} {problem}"
            raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)


def queue_level(arguments: Mapping[str, Any], temporary: bool, default: str) -> str:
    """How far a queue is replicated; temporary ones (exclusive, without a time limit) are not."""
    if REPLICATE in arguments:
        return str(arguments[REPLICATE])
    timed = EXPIRES in arguments or AUTO_DELETE_TIMEOUT in arguments
    return "none" if temporary and not timed else default


def compared(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What of a queue's arguments a redeclaration has to repeat: those that are known; classic is the type anyhow."""
    arguments = qpid_arguments.canonical(arguments)
    names = (name for name in arguments if _known(name) or name in _REFUSED)
    found = {name: arguments[name] for name in names if name != REPLICATE}
    if found.get(QUEUE_TYPE) == "classic":
        del found[QUEUE_TYPE]
    return found


def first_difference(name: str, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raises 406 for the first entry in which a redeclaration differs; `name` is the object's description."""
    for key in sorted(wanted.keys() | found.keys()):
        if wanted.get(key) != found.get(key):
            values = f"received {_show(wanted, key)} but current is {_show(found, key)}"
            text = f"inequivalent arg '{key}' for {name}: {values}"
            raise ChannelException(ReplyCode.PRECONDITION_FAILED, text)


def _show(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if value is None:
        return "none"
    return f"'{str(value).lower() if isinstance(value, bool) else value}'"
