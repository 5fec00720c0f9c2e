"""The headers of dead letters, as RabbitMQ writes them, and the detection of cycles.

`x-death` is an array of tables, the latest death first, one for each (queue, reason): count, reason, queue, time,
exchange, routing-keys and, if the message had a time to live of its own, original-expiration (the message loses its
expiration, so that the letter does not expire again).  `x-first-death-reason`, `-queue` and `-exchange` keep the first.

Pure: octets in, octets out.  Everything else in the content header stays as it was, octet by octet.  A header that
cannot be read is replaced: the body matters more than the properties, and without `x-death` the message might circulate
for ever.
"""

from dataclasses import dataclass
from typing import Any, Final

from qpidd_py.amqp.codec import decode_properties, join_properties, split_properties
from qpidd_py.amqp.fields import FieldError, Int64, Timestamp, decode_value, encode_value, join_table, split_table
from qpidd_py.broker.addressing import CC, copied_to
from qpidd_py.errors import ConnectionException

X_DEATH: Final = "x-death"
REJECTED: Final = "rejected"

Deaths = list[Any]
"""The entries of `x-death`: tables, unless a client has put something else there."""


@dataclass(frozen=True, slots=True)
class Death:
    """How a message left a queue: `reason` is rejected, expired, maxlen or delivery_limit; exchange and key are those
    it came with."""

    queue: str
    reason: str
    exchange: bytes
    routing_key: bytes
    time: int  # seconds since 1970


def mark(header: bytes, death: Death, copied: bool = True) -> tuple[bytes, Deaths]:
    """The payload of the content header with this death noted, and all its deaths; not `copied`: without CC."""
    properties, fields = _read(header)
    deaths = _deaths(fields)
    if not deaths:
        for name, value in (("reason", death.reason), ("queue", death.queue), ("exchange", death.exchange)):
            fields[f"x-first-death-{name}"] = encode_value(value)
    expiration = properties.pop("expiration", b"")[1:]
    deaths = _added(deaths, death, expiration, copied_to({CC: decode_value(fields[CC])} if CC in fields else {}))
    if not copied:
        fields.pop(CC, None)
    fields[X_DEATH] = encode_value(deaths)
    properties["headers"] = join_table(fields)
    return join_properties(properties, int.from_bytes(header[4:12], "big")), deaths


def goes_round(queue: str, deaths: Deaths) -> bool:
    """True if a message that is routed to `queue` was there since its last rejection: such a cycle would never end."""
    for entry in deaths:
        if isinstance(entry, dict):
            if entry.get("reason") == REJECTED:
                return False
            if entry.get("queue") == queue:
                return True
    return False


def readable_properties(header: bytes) -> dict[str, Any]:
    """The properties by name; empty if they cannot be read."""
    try:
        return decode_properties(header)
    except ConnectionException:
        return {}


def _read(header: bytes) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The properties, and the fields of the property headers, as octets."""
    try:
        properties = split_properties(header)
        return properties, split_table(properties.get("headers", b"\0\0\0\0"))
    except (ConnectionException, FieldError):
        return {}, {}


def _deaths(fields: dict[str, bytes]) -> Deaths:
    value = decode_value(fields[X_DEATH]) if X_DEATH in fields else []
    return value if isinstance(value, list) else []


def _added(deaths: Deaths, death: Death, expiration: bytes, copies: list[bytes]) -> Deaths:
    """A death of the same queue and reason increments its count and becomes the latest."""
    same = [entry for entry in deaths if _is(entry, death)]
    others = [_typed(entry) for entry in deaths if not _is(entry, death)]
    if same:
        return [_typed({**same[0], "count": sum(_count(entry) for entry in same) + 1}), *others]
    entry = {
        "count": 1,
        "reason": death.reason,
        "queue": death.queue,
        "time": Timestamp(death.time),
        "exchange": death.exchange,
        "routing-keys": [death.routing_key, *copies],
    }
    if expiration:
        entry["original-expiration"] = expiration
    return [_typed(entry), *others]


def _is(entry: Any, death: Death) -> bool:
    return isinstance(entry, dict) and entry.get("queue") == death.queue and entry.get("reason") == death.reason


def _count(entry: dict[str, Any]) -> int:
    count = entry.get("count", 1)
    return count if isinstance(count, int) else 1


def _typed(entry: Any) -> Any:
    """Clients in typed languages expect a 64-bit count."""
    return {**entry, "count": Int64(_count(entry))} if isinstance(entry, dict) else entry
