"""What a content header says about where a message goes, next to exchange and routing key.                       Pure.

Copies, as RabbitMQ has them: the headers CC and BCC are arrays of further routing keys of the same exchange; BCC is not
stored.  A direct reply: a client consumes from the pseudo queue `amq.rabbitmq.reply-to`, and publishes with that as
`reply-to`; what is stored is the name of a queue that exists on this broker only, as long as that consumer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from qpidd_py.amqp.codec import join_properties, routing_key_octets, split_properties
from qpidd_py.amqp.fields import decode_value, encode_shortstr, join_table, split_table
from qpidd_py.errors import ChannelException, ReplyCode

REPLY_TO: Final = "amq.rabbitmq.reply-to"
CC: Final = "CC"
BCC: Final = "BCC"


def copies(header: bytes) -> tuple[list[bytes], bytes]:
    """Further routing keys, and the content header without BCC.  Raises 406 for a CC or BCC that is no array."""
    properties = split_properties(header)
    fields = split_table(properties.get("headers", b"\0\0\0\0"))
    keys = [key for name in (CC, BCC) if name in fields for key in _keys(name, decode_value(fields[name]))]
    if fields.pop(BCC, None) is None:
        return keys, header
    properties["headers"] = join_table(fields)
    return keys, join_properties(properties, _body_size(header))


def copied_to(headers: Mapping[str, Any]) -> list[bytes]:
    """The keys of CC of a message that is stored; none if they cannot be read."""
    value = headers.get(CC)
    return _octets(value) if isinstance(value, list) else []


def with_reply_to(header: bytes, address: str) -> bytes:
    properties = split_properties(header)
    properties["reply_to"] = encode_shortstr(address)
    return join_properties(properties, _body_size(header))


def _keys(name: str, value: Any) -> list[bytes]:
    if not isinstance(value, list):
        raise ChannelException(ReplyCode.PRECONDITION_FAILED, f"header {name} is not an array of routing keys")
    return _octets(value)


def _octets(values: list[Any]) -> list[bytes]:
    """Of those that are long strings: others count for nothing, as in RabbitMQ."""
    return [
        key if isinstance(key, bytes) else routing_key_octets(key) for key in values if isinstance(key, (str, bytes))
    ]


def _body_size(header: bytes) -> int:
    return int.from_bytes(header[4:12], "big")
