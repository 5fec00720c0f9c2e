"""Bindings as a broker tells them (`management/routes.py`), and as pika takes them.                          Pure."""

from __future__ import annotations

from base64 import b64decode
from decimal import Decimal
from typing import Any, Final

from qpidd_py.amqp.fields import decode_table, encode_table
from qpidd_py.broker.arguments import REPLICATE
from qpidd_py.broker.followed import FED_PATH
from qpidd_py.broker.qpid_arguments import EXCLUSIVE_BINDING
from qpidd_py.shovel.federation import Bound, Destination, read_path

Json = dict[str, Any]
_KEPT_HERE: Final = (FED_PATH, REPLICATE, EXCLUSIVE_BINDING)
"""Arguments of a binding that are not handed on."""


def destination_of(item: Json) -> Destination:
    return bool(item["to_exchange"]), str(item["destination"])


def read_bound(item: Json) -> tuple[Destination, Bound]:
    """Of an answer."""
    table = decode_table(b64decode(item["arguments"]))[0]
    path = read_path(table.get(FED_PATH))
    rest = {name: canonical(value) for name, value in table.items() if name not in _KEPT_HERE}
    return destination_of(item), Bound((b64decode(item["key"]), encode_table(rest)), path)


def arguments_of(bound: Bound) -> Json:
    """For pika."""
    table: Json = sendable(decode_table(bound.terms[1])[0])
    return {**table, FED_PATH: ",".join(bound.path)} if bound.path else table


def sendable(value: Any) -> Any:
    """As pika takes it: octets of both kinds are sent as one kind."""
    if isinstance(value, dict):
        return {name: sendable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [sendable(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


def canonical(value: Any) -> Any:
    """The same for what is to be sent, and for what the source shows of it then: else it would be bound anew, and
    unbound."""
    if isinstance(value, dict):
        return {name: canonical(each) for name, each in value.items()}
    if isinstance(value, list):
        return [canonical(each) for each in value]
    if isinstance(value, Decimal):
        return value.normalize()
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)  # of 64 bits, or a time: equal ones match
    return bytearray(value) if isinstance(value, bytes) else value
