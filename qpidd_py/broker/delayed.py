"""Exchanges of type `x-delayed-message`: a message with the header `x-delay` waits before it is routed.

As RabbitMQ's plug-in of that name: the argument `x-delayed-type` is the type that routes; a delay is a number of
milliseconds, or a string of one, above 0 and below 2^32; with any other the message is routed at once.  A message that
has waited has its delay with the other sign, so no further exchange delays it.

The waiting messages are in a queue of the exchange, which has no name for clients (`core/delays.pyx`).
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from qpidd_py.amqp.codec import join_properties, split_properties
from qpidd_py.amqp.fields import FieldError, decode_value, encode_value, join_table, split_table
from qpidd_py.broker.arguments import DELAYED_TYPE
from qpidd_py.broker.dead_letter import readable_properties
from qpidd_py.broker.exchange import CLASSES, DELAYED, Exchange
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.errors import ConnectionException

X_DELAY: Final = "x-delay"
MOST: Final = (1 << 32) - 1
"""Milliseconds."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,12}", re.ASCII)


class Delaying(Exchange):
    """What the exchanges of each type that can delay have in common."""

    type = DELAYED
    by_header = True

    def matching(self, routing_key: bytes, properties: Mapping[str, Any]) -> list[DeclaredQueue | Exchange]:
        if self.waiting is not None and delay_in(properties):
            return [self.waiting]
        return super().matching(routing_key, properties)


def make_exchange(
    kind: str, name: str, durable: bool, auto_delete: bool, internal: bool, arguments: Mapping[str, Any]
) -> Exchange:
    """An exchange of one of `EXCHANGE_TYPES`; the caller gives one that delays its queue."""
    found = _KINDS[arguments[DELAYED_TYPE]] if kind == DELAYED else CLASSES[kind]
    return found(name, durable, auto_delete, internal, arguments)


def delay_of(header: bytes) -> int:
    """As `delay_in`, of a content header."""
    return delay_in(readable_properties(header))


def delay_in(properties: Mapping[str, Any]) -> int:
    """Milliseconds for which a message waits; 0 = it does not."""
    delay = _milliseconds(properties.get("headers", {}).get(X_DELAY))
    return delay if 0 < delay <= MOST else 0


def _milliseconds(value: Any) -> int:
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return int(value) if _NUMBER.fullmatch(value) else 0
    if isinstance(value, float):
        return int(value) if isfinite(value) else 0
    return int(value) if isinstance(value, Decimal) else 0


def without_delay(header: bytes) -> bytes:
    """The content header of a message that has waited."""
    try:
        properties = split_properties(header)
        fields = split_table(properties.get("headers", b"\0\0\0\0"))
        delay = _milliseconds(decode_value(fields[X_DELAY]))
    except (ConnectionException, FieldError, KeyError):
        return header
    fields[X_DELAY] = encode_value(-delay)
    properties["headers"] = join_table(fields)
    return join_properties(properties, int.from_bytes(header[4:12], "big"))


_KINDS: Final[dict[str, type[Exchange]]] = {
    kind: type(f"Delaying{found.__name__}", (Delaying, found), {}) for kind, found in CLASSES.items()
}
