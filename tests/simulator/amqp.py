"""What simulated clients say in AMQP: the few frames of the data path by hand (they are most of the traffic), the
rest through pamqp."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import pamqp.frame
from pamqp import commands

from qpidd_py.amqp.constants import FRAME_MAX
from qpidd_py.amqp.fields import encode_table
from qpidd_py.amqp.frames import frame, publish_frames

DECLARE_OK = 0x0032000B
PURGE_OK = 0x0032001F
DELETE_OK = 0x00320029
EXCHANGE_OK = 0x0028000B
EXCHANGE_DELETE_OK = 0x00280015
BIND_OK = 0x00320015
UNBIND_OK = 0x00320033
CHANNEL_OK = 0x0014000B
CHANNEL_CLOSE = 0x00140028
CONFIRM_OK = 0x0055000B
TX_OK = 0x005A000B
COMMIT_OK = 0x005A0015
ROLLBACK_OK = 0x005A001F
CONSUME_OK = 0x003C0015
QOS_OK = 0x003C000B
DELIVER = 0x003C003C
GET_OK = 0x003C0047
GET_EMPTY = 0x003C0048
RETURN = 0x003C0032
ACK = 0x003C0050
NACK = 0x003C0078
REJECT = 0x003C005A
FLOW = 0x00140014
BLOCKED = 0x000A003C
UNBLOCKED = 0x000A003D

RESENT = b"\x08x-resentt\x01"


class Deliver(NamedTuple):
    """basic.deliver."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    returns: int = 0
    """How often the message came back (`x-delivery-count`)."""
    token: int = 0
    """Of its consumer (`x-fencing-token`)."""
    resent: bool = False
    """A broker has sent it here, and an earlier one may have done so (`x-resent`)."""

    @property
    def marked(self) -> bool:
        """It may have come before."""
        return self.redelivered or self.resent


def marshal(command: Any) -> bytes:
    return bytes(pamqp.frame.marshal(command, 1))


@cache
def channel_open() -> bytes:
    return marshal(commands.Channel.Open())


@cache
def confirm_select() -> bytes:
    return marshal(commands.Confirm.Select())


@cache
def tx_select() -> bytes:
    return marshal(commands.Tx.Select())


@cache
def tx_commit() -> bytes:
    return marshal(commands.Tx.Commit())


@cache
def qos(prefetch: int) -> bytes:
    return marshal(commands.Basic.Qos(prefetch_count=prefetch))


def declare(queue: str, **options: Any) -> bytes:
    """Durable by default; `arguments` and the flags of queue.declare as options."""
    return marshal(commands.Queue.Declare(queue=queue, **{"durable": True, **options}))


def delete(queue: str) -> bytes:
    return marshal(commands.Queue.Delete(queue=queue))


def purge(queue: str) -> bytes:
    return marshal(commands.Queue.Purge(queue=queue))


def delete_exchange(exchange: str) -> bytes:
    return marshal(commands.Exchange.Delete(exchange=exchange))


def unbind(queue: str, exchange: str, routing_key: str) -> bytes:
    return marshal(commands.Queue.Unbind(queue=queue, exchange=exchange, routing_key=routing_key))


@cache
def declare_exchange(exchange: str, kind: str, alternate: str = "", delayed: str = "") -> bytes:
    """`delayed`: the type that routes what is due."""
    arguments: dict[str, Any] = {"alternate-exchange": alternate} if alternate else {}
    arguments |= {"x-delayed-type": delayed} if delayed else {}
    command = commands.Exchange.Declare(exchange=exchange, exchange_type=kind, durable=True, arguments=arguments)
    return marshal(command)


@cache
def bind(queue: str, exchange: str, routing_key: str) -> bytes:
    return marshal(commands.Queue.Bind(queue=queue, exchange=exchange, routing_key=routing_key))


@cache
def consume(queue: str, tag: str, no_ack: bool = False) -> bytes:
    return marshal(commands.Basic.Consume(queue=queue, consumer_tag=tag, no_ack=no_ack))


@cache
def get(queue: str) -> bytes:
    return marshal(commands.Basic.Get(queue=queue))


def publish(
    exchange: str,
    routing_key: str,
    body: bytes,
    priority: int = 0,
    mandatory: bool = False,
    headers: Mapping[str, Any] | None = None,
) -> bytes:
    id = message_id(body.partition(b"|")[0].decode()).encode()
    flags = 0x1080 | (0x0800 if priority else 0) | (0x2000 if headers else 0)
    properties = flags.to_bytes(2, "big") + (encode_table(headers) if headers else b"") + b"\x02"
    properties += bytes([priority] if priority else []) + bytes([len(id)]) + id
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + properties
    return publish_frames(1, exchange, routing_key, header, body, FRAME_MAX, mandatory)


def message_id(name: str) -> str:
    """The property of the copy `p1.17@2`: its producer and attempt, and its number, so that many make one run."""
    producer, _, rest = name.partition(".")
    number, _, attempt = rest.partition("@")
    return f"{producer}@{attempt}:{number}" if attempt else name


def ack(tag: int, multiple: bool = False) -> bytes:
    return frame(1, 1, struct.pack(">IQB", ACK, tag, multiple))


def requeue(tag: int) -> bytes:
    return frame(1, 1, struct.pack(">IQB", NACK, tag, 2))


def discard(tag: int) -> bytes:
    """basic.reject without requeue."""
    return frame(1, 1, struct.pack(">IQB", REJECT, tag, 0))


def flow_ok(active: bool) -> bytes:
    return frame(1, 1, struct.pack(">IB", 0x00140015, active))


def number_in(header: bytes, name: str) -> int:
    """The long-long of this name in a content header; 0 without the field."""
    _, found, rest = header.partition(bytes([len(name)]) + name.encode() + b"l")
    return int.from_bytes(rest[:8], "big") if found else 0


def read_deliver(payload: bytes) -> Deliver:
    """basic.deliver or basic.get-ok, which has no consumer tag."""
    at = 5 + payload[4] if int.from_bytes(payload[:4], "big") == DELIVER else 4
    tag = int.from_bytes(payload[at : at + 8], "big")
    redelivered = bool(payload[at + 8])
    at += 9
    exchange = payload[at + 1 : at + 1 + payload[at]].decode()
    at += 1 + payload[at]
    return Deliver(tag, redelivered, exchange, payload[at + 1 : at + 1 + payload[at]].decode())
