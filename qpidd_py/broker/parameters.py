"""Parameters: settings that the broker keeps for a program beside it.                                            Pure.

kind      host    name    value
shovel    host    name    a definition as of RabbitMQ's dynamic shovels; `qpid-shovel` does what it says

The kind of a parameter is what RabbitMQ calls its component.  Definitions hold addresses with passwords, so no error
names the value of an address.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from qpidd_py.amqp import codec
from qpidd_py.amqp.fields import FieldError, encode_table
from qpidd_py.option_values import TAG, TAG_MAX
from qpidd_py.security.entries import HOST

SHOVEL: Final = "shovel"
KINDS: Final = (SHOVEL,)
PARAMETERS_MAX: Final = 200
"""Of a kind, in all virtual hosts: `qpid-shovel` is told all of them each second."""
VALUE_MAX: Final = 8192
"""Octets of a value."""
FOLLOWS: Final = "src-follow-bindings"
"""Its queue at the source is bound like those of the exchange at the destination (`shovel/follower.py`)."""
NEVER: Final = "never"
QUEUE_LENGTH: Final = "queue-length"
ON_CONFIRM: Final = "on-confirm"
ON_PUBLISH: Final = "on-publish"
NO_ACK: Final = "no-ack"
PROPERTIES: Final = tuple(name for name in codec.SPECIFIED if name != "headers")
"""That a shovel may set: all but the headers."""
NUMBERS: Final[Mapping[str, int]] = {"delivery_mode": 2, "priority": 255, "timestamp": (1 << 63) - 1}
"""The properties that are numbers, and the highest ones."""
_ADDRESS: Final = re.compile(r"amqps?://[!-~]{0,2000}")
_LOCAL: Final = re.compile(r"amqp://(?:/(?P<host>[!-.0->@-~]*))?")
_ADDRESSES_MAX: Final = 20
_TAGS_MAX: Final = 20
_REASONS: Final[Mapping[str, str]] = {
    "federation-upstream": "federation by upstreams is not here; a shovel from an exchange moves its messages",
    "federation-upstream-set": "federation by upstreams is not here",
    "vhost-limits": "they are set by set_vhost_limits, or below /api/vhost-limits",
    "operator_policy": "they are set by set_operator_policy, or below /api/operator-policies",
}


def check_component(name: str) -> str:
    """Raises ValueError for a component that is not here."""
    if name not in KINDS:
        raise ValueError(f"component {name!r:.60}: {_REASONS.get(name, 'expected ' + SHOVEL)}")
    return name


def check_parameter(kind: str, value: Mapping[str, Any]) -> None:
    """Raises ValueError for a value that is none of this kind."""
    assert kind == SHOVEL, kind
    for key, each in value.items():
        check = _KEYS.get(key)
        if check is None:
            raise ValueError(f"key {key!r:.60}: {_OTHER_KEYS.get(key) or 'expected some of ' + ', '.join(_KEYS)}")
        if problem := check(each):
            shown = "" if key in ("src-uri", "dest-uri") else f"{each!r:.60}, "
            raise ValueError(f"{key}: {shown}{problem}")
    _check_together(value)
    try:
        size = len(encode_table(value))
    except FieldError as error:
        raise ValueError(str(error)) from None
    if size > VALUE_MAX:
        raise ValueError(f"the definition has {size} octets, at most {VALUE_MAX} are possible")


def addresses(value: Any) -> list[str]:
    """Of `src-uri` or `dest-uri`; none: the cluster of the broker itself."""
    return [] if local_host(value) is not None else [value] if isinstance(value, str) else list(value)


def local_host(value: Any) -> str | None:
    """The virtual host of the cluster of the broker itself: `/` of `amqp://`, NAME of `amqp:///NAME`.  None for another
    cluster, and for what is no address."""
    single = value[0] if isinstance(value, list) and len(value) == 1 else value
    found = _LOCAL.fullmatch(single) if isinstance(single, str) else None
    return None if found is None else unquote(found["host"] or HOST)


def _check_together(value: Mapping[str, Any]) -> None:
    for name in ("src-uri", "dest-uri"):
        if name not in value:
            raise ValueError(f"{name} is missing, expected an address or a list of addresses")
    if ("src-queue" in value) == ("src-exchange" in value):
        raise ValueError("expected src-queue or src-exchange, and not both")
    if "dest-queue" in value and "dest-exchange" in value:
        raise ValueError("expected dest-queue or dest-exchange, and not both")
    for name, other in _ONLY_WITH.items():
        if name in value and other not in value:
            raise ValueError(f"{name} is of no use without {other}")
    after = value.get("src-delete-after", NEVER)
    if after != NEVER and "src-queue" not in value:
        raise ValueError("src-delete-after is of no use without src-queue")
    if after != NEVER and value.get("ack-mode") == NO_ACK:
        raise ValueError("src-delete-after cannot be had with ack-mode no-ack: more would be taken than is moved")
    hosts = local_host(value["src-uri"]), local_host(value["dest-uri"])
    if value.get(FOLLOWS):
        _check_follower(value, hosts)
    if hosts[0] is not None and hosts[0] == hosts[1]:
        _check_within(value)


def _check_follower(value: Mapping[str, Any], hosts: tuple[str | None, str | None]) -> None:
    """Of one that asks its source for what its destination has bindings for."""
    lacking = [name for name in ("src-exchange", "src-exchange-queue", "dest-exchange") if name not in value]
    if lacking:
        raise ValueError(f"{FOLLOWS} is of no use without {lacking[0]}")
    if value["src-exchange"] != value["dest-exchange"]:
        raise ValueError(f"{FOLLOWS}: src-exchange and dest-exchange have one name")
    if unfit := [name for name in ("src-exchange-key", "dest-exchange-key") if name in value]:
        raise ValueError(f"{FOLLOWS} and {unfit[0]} exclude each other: the keys are those of the bindings")
    if hosts[1] is None or hosts[0] is not None:
        raise ValueError(f"{FOLLOWS}: dest-uri is this cluster, amqp://, and src-uri another one")


def _check_within(value: Mapping[str, Any]) -> None:
    """Of one whose source and destination are a virtual host of the cluster itself: messages must not come back for
    ever."""
    if "dest-queue" not in value and "dest-exchange" not in value:
        raise ValueError("within one cluster a dest-queue or a dest-exchange is wanted, else messages come back")
    for kind in ("queue", "exchange"):
        source = value.get(f"src-{kind}")
        if source is not None and source == value.get(f"dest-{kind}"):
            raise ValueError(f"src-{kind} and dest-{kind} are both {source!r:.60} of this cluster")


# ---- what is wrong with a single value; "" if nothing is


def _address(value: Any) -> str:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not 1 <= len(found) <= _ADDRESSES_MAX:
        return f"expected an address or a list of 1 to {_ADDRESSES_MAX} addresses"
    for number, each in enumerate(found, 1):
        if not isinstance(each, str) or not _ADDRESS.fullmatch(each):
            return f"address {number} is none of amqp://USER:PASSWORD@HOST:PORT/VHOST or amqps://, without blanks"
        if each.partition("://")[2][:1] in ("", "/", "?") and not _LOCAL.fullmatch(each):
            return f"address {number} names no host; amqp:// and amqp:///VHOST are of this cluster"
    if len(found) > 1 and any(_LOCAL.fullmatch(each) for each in found):
        return "amqp:// without a host is this cluster, and stands alone"
    return ""


def _protocol(value: Any) -> str:
    return "" if value == "amqp091" else "expected amqp091, the only protocol here"


def _name(value: Any) -> str:
    return "" if isinstance(value, str) and value and _short(value) else "expected a name of 1 to 255 octets"


def _key(value: Any) -> str:
    return "" if isinstance(value, str) and _short(value) else "expected text of at most 255 octets"


def _short(value: str) -> bool:
    return len(value.encode("utf-8", "surrogatepass")) <= 255


def _tag(value: Any) -> str:
    return "" if _is_tag(value) else f"expected a name of 1 to {TAG_MAX} characters without commas and blanks"


def _tags(value: Any) -> str:
    good = isinstance(value, list) and 1 <= len(value) <= _TAGS_MAX and all(map(_is_tag, value))
    return "" if good else f"expected a list of 1 to {_TAGS_MAX} tags"


def _is_tag(value: Any) -> bool:
    return isinstance(value, str) and TAG.fullmatch(value) is not None


def _table(value: Any) -> str:
    return "" if isinstance(value, dict) else "expected an object"


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "expected true or false"


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _prefetch(value: Any) -> str:
    return "" if _whole(value, 1, 65535) else "expected a whole number from 1 to 65535"


def _after(value: Any) -> str:
    if value in (NEVER, QUEUE_LENGTH) or _whole(value, 1, 1 << 53):
        return ""
    return f"expected {NEVER}, {QUEUE_LENGTH} or a whole number above 0"


def _delay(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if number and 0 < value <= 86400 else "expected seconds, more than 0 and at most 86400"


def _mode(value: Any) -> str:
    modes = (ON_CONFIRM, ON_PUBLISH, NO_ACK)
    return "" if value in modes else f"expected one of {', '.join(modes)}"


def _properties(value: Any) -> str:
    if not isinstance(value, dict):
        return "expected an object"
    for name, each in value.items():
        if name not in PROPERTIES:
            return f"property {name!r:.60} is none of {', '.join(PROPERTIES)}"
        if name in NUMBERS and not _whole(each, name == "delivery_mode", NUMBERS[name]):
            return f"property {name} is no whole number of at most {NUMBERS[name]}"
        if name not in NUMBERS and (not isinstance(each, str) or not _short(each)):
            return f"property {name} is no text of at most 255 octets"
    return ""


_KEYS: Final[Mapping[str, Callable[[Any], str]]] = {
    "src-protocol": _protocol,
    "src-uri": _address,
    "src-queue": _name,
    "src-queue-args": _table,
    "src-exchange": _name,
    "src-exchange-key": _key,
    "src-exchange-queue": _name,
    "src-exclude-traces": _tags,
    FOLLOWS: _flag,
    "src-consumer-args": _table,
    "src-prefetch-count": _prefetch,
    "src-delete-after": _after,
    "dest-protocol": _protocol,
    "dest-uri": _address,
    "dest-queue": _name,
    "dest-queue-args": _table,
    "dest-exchange": _name,
    "dest-exchange-key": _key,
    "dest-publish-properties": _properties,
    "dest-add-forward-headers": _flag,
    "dest-add-timestamp-header": _flag,
    "dest-add-trace": _tag,
    "ack-mode": _mode,
    "reconnect-delay": _delay,
}
_ONLY_WITH: Final[Mapping[str, str]] = {
    "src-queue-args": "src-queue",
    "src-exchange-key": "src-exchange",
    "src-exchange-queue": "src-exchange",
    "src-exclude-traces": "src-exchange",
    "dest-queue-args": "dest-queue",
    "dest-exchange-key": "dest-exchange",
}
_NEW_NAMES: Final[Mapping[str, str]] = {
    "prefetch-count": "src-prefetch-count",
    "delete-after": "src-delete-after",
    "publish-properties": "dest-publish-properties",
    "add-forward-headers": "dest-add-forward-headers",
    "add-timestamp-header": "dest-add-timestamp-header",
}
_OTHER_KEYS: Final[Mapping[str, str]] = {
    **{old: f"its name is {new}" for old, new in _NEW_NAMES.items()},
    **dict.fromkeys(("src-address", "dest-address"), "it belongs to AMQP 1.0, which is not here"),
}
