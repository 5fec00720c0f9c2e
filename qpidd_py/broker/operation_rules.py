"""What an operation of the configuration must be before a backup, or a broker that reads its journal, follows it. Pure.

The primary has checked what its clients sent.  A backup checks again: what a defective primary sends must not make it
fail in the middle of an operation, nor have a queue that no client could have declared.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from qpidd_py.amqp.constants import SHORTSTR_MAX
from qpidd_py.broker.arguments import (
    DELAYED_TYPE,
    REPLICATE,
    check_binding_arguments,
    check_exchange_arguments,
    check_known,
)
from qpidd_py.broker.exchange import CLASSES, DELAYED, EXCHANGE_TYPES, PREDECLARED, has_queue
from qpidd_py.broker.host_settings import KINDS as HOSTS
from qpidd_py.broker.host_settings import check_name
from qpidd_py.broker.numbering import MOST, NUMBER
from qpidd_py.broker.qpid_arguments import conflict
from qpidd_py.broker.queue import LOCAL_NUMBERS
from qpidd_py.broker.setting_kinds import KINDS, check_setting
from qpidd_py.errors import ChannelException, LinkError
from qpidd_py.security.entries import HOST

_FLAGS: Final = dict.fromkeys(("durable", "auto_delete"), bool)
_ENDS: Final = {"source": str, "exchange": bool, "destination": str, "key": (str, bytes), "arguments": dict}
_KEY: Final = dict.fromkeys(("kind", "host", "name"), str)
_FIELDS: Final[dict[str, Mapping[str, Any]]] = {
    "queue.declare": {"name": str, "number": int, **_FLAGS, "exclusive": bool, "arguments": dict},
    "queue.delete": {"name": str, "number": int},
    "queue.used": {"name": str},
    "exchange.declare": {"name": str, "type": str, **_FLAGS, "internal": bool, "arguments": dict},
    "exchange.delete": {"name": str},
    NUMBER: {"name": str},
    "bind": _ENDS,
    "unbind": _ENDS,
    "numbers": {"next": int},
    "setting.put": {**_KEY, "value": dict},
    "setting.delete": _KEY,
}


_ARGUMENTS: Final[dict[str, Callable[[Mapping[str, Any], str], None]]] = {
    "queue.declare": check_known,
    "exchange.declare": check_exchange_arguments,
    "bind": check_binding_arguments,
    "unbind": check_binding_arguments,
}
"""What the primary asks of the arguments: a name that means something for a queue is any header for a binding."""


def check_operation(operation: Mapping[str, Any]) -> None:
    """Raises LinkError."""
    kind = operation.get("op")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise LinkError(f"unknown operation {kind!r:.60}")
    for name, wanted in fields.items():
        value = operation.get(name)
        if not isinstance(value, wanted) or (wanted is int and not _is_number(value)):
            raise LinkError(f"{kind}: field {name}: found {value!r:.60}")
        if isinstance(value, str | bytes) and len(value) > SHORTSTR_MAX:
            raise LinkError(f"{kind}: field {name} has {len(value)} characters, at most {SHORTSTR_MAX} are possible")
    _check_host(operation)
    if kind == "queue.declare" and REPLICATE not in operation["arguments"]:
        raise LinkError(f"queue {operation['name']!r} without {REPLICATE}")
    if kind == "exchange.declare" and (operation["type"] not in EXCHANGE_TYPES or operation["name"] in PREDECLARED):
        raise LinkError(f"exchange {operation['name']!r} of type {operation['type']!r:.60}")
    if kind == "exchange.declare" and has_queue(operation["type"], operation["arguments"]):
        _check_own_queue(operation)
    if kind == NUMBER and not _is_last(operation.get("last")):
        raise LinkError(f"exchange {operation['name']!r}: last number {operation.get('last')!r:.60}")
    if kind in ("setting.put", "setting.delete") and operation["kind"] not in KINDS:
        raise LinkError(f"unknown kind of setting {operation['kind']!r:.60}")
    if kind == "setting.put":
        _check_setting(operation)
    try:
        if "arguments" in fields:
            _ARGUMENTS[operation["op"]](operation["arguments"], operation["op"])
    except ChannelException as error:
        raise LinkError(f"{error.reply_text:.200}") from error
    plain = kind != "queue.declare" or len(operation["arguments"]) == 1  # which is REPLICATE
    if not plain and (found := conflict(operation["arguments"])) is not None:
        raise LinkError(f"queue {operation['name']!r}: {found[0]:.60}: {found[1]}")


def _check_host(operation: Mapping[str, Any]) -> None:
    made = operation.get("kind") in HOSTS
    if not made and "vhost" not in operation:
        return
    host = operation["host"] if made else operation["vhost"]
    if made and (host == HOST or operation.get("name")):
        raise LinkError(f"{operation['op']}: virtual host {host!r:.60} {operation.get('name')!r:.60}")
    try:
        check_name(host if isinstance(host, str) else "")
    except ValueError as error:
        raise LinkError(f"{operation['op']}: {error}") from error


def _check_own_queue(operation: Mapping[str, Any]) -> None:
    """Of an exchange that has a queue."""
    kind, number = operation["arguments"].get(DELAYED_TYPE), operation.get("number")
    if operation["type"] == DELAYED and kind not in CLASSES:
        raise LinkError(f"exchange {operation['name']!r} delays: {kind!r:.60}")
    if not isinstance(number, int) or not _is_number(number):
        raise LinkError(f"exchange {operation['name']!r} has a queue: number {number!r:.60}")


def _check_setting(operation: Mapping[str, Any]) -> None:
    try:
        check_setting(operation["kind"], operation["value"])
    except ValueError as error:
        raise LinkError(f"setting {operation['kind']} {operation['name']!r}: {error}") from error


def _is_last(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


def _is_number(value: Any) -> bool:
    """One of a queue."""
    return not isinstance(value, bool) and 0 <= value <= LOCAL_NUMBERS
