"""Each argument with values of every type, right and wrong: RabbitMQ and we take and refuse the same ones."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
from pamqp import commands

from qpidd_py.amqp.codec import encode_method
from tests.differential.conversation import OPTIONS
from tests.interop.raw import frame
from tests.support.three_ways import Client

Basic, Channel, Connection, Queue = commands.Basic, commands.Channel, commands.Connection, commands.Queue

TEN_YEARS: Final = 315_360_000_000


def long(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def short(text: str) -> bytes:
    return struct.pack("B", len(text.encode())) + text.encode()


def integer(value: int) -> bytes:
    return b"l" + struct.pack(">q", value)


def text(value: str) -> bytes:
    return b"S" + long(value.encode())


VALUES: Final[Mapping[str, bytes]] = {
    **{str(value): integer(value) for value in (0, 1, 2, 3, -1, 255, 256, 1 << 31, 1 << 32, TEN_YEARS, TEN_YEARS + 1)},
    **{name: integer(value) for name, value in (("2^63-1", (1 << 63) - 1), ("-2^63", -1 << 63))},
    **{repr(value): text(value) for value in ("1", "abc", "", "-1", "1.5")},
    "an octet": b"B\xc8",
    "a negative octet": b"b\xff",
    "a small number": b"u" + struct.pack(">H", 1),
    "1.0": b"d" + struct.pack(">d", 1.0),
    "1.5": b"d" + struct.pack(">d", 1.5),
    "true": b"t\x01",
    "false": b"t\x00",
    "a decimal": b"D\x00" + struct.pack(">I", 1),
    "nothing": b"V",
    "a list": b"A" + long(integer(1)),
    "a table": b"F" + long(b""),
    "octets": b"x" + long(b"1"),
}
QUORUM: Final = {"x-queue-type": text("quorum"), "qpid.replicate": text("all")}
OF_QUEUES: Final = (
    *("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority", "x-overflow"),
    *("x-delivery-limit", "x-queue-mode", "x-queue-version", "x-single-active-consumer", "x-queue-type"),
    *("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy"),
    *("x-max-in-memory-length", "x-max-in-memory-bytes", "x-quorum-initial-group-size"),
    *("x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size", "x-mine"),
)
"""Not `x-queue-master-locator` (RabbitMQ 3.10 fails with 541 or says nothing) and `x-queue-leader-locator` (3.10 takes
it for some types only, later ones for classic queues, too), nor `x-consumer-timeout`, which RabbitMQ 3.10 does not
know."""
OF_CONSUMERS: Final = ("x-priority", "x-cancel-on-ha-failover", "x-stream-offset", "x-mine")
LIFETIMES: Final = (
    *("0", "1", "+1", "-1", "-0", "", "+", "abc", "1.5", "1 ", " 1", "007", "1e3", "0x10", "٣", "1" * 30),
    *(str(TEN_YEARS), str(TEN_YEARS + 1), str(1 << 63)),
)
KNOWN: Final = {("expiration", "-0"): "RabbitMQ takes a minus in front of nothing"}


def queue_declare(queue: str, arguments: Mapping[str, bytes]) -> bytes:
    return method(50, 10, struct.pack(">H", 0) + short(queue) + b"\x02" + table(arguments))


def table(entries: Mapping[str, bytes]) -> bytes:
    return long(b"".join(short(name) + value for name, value in entries.items()))


def method(class_id: int, method_id: int, fields: bytes) -> bytes:
    octets: bytes = frame(1, 1, struct.pack(">HH", class_id, method_id) + fields)
    return octets


class Asked:
    """A broker that is asked about arguments."""

    def __init__(self, port: int) -> None:
        self._client = Client(port)
        self._client.open(**OPTIONS)
        self._numbers = iter(range(1 << 30))

    def answer(self, *octets: bytes) -> str:
        """`taken`, or the code with which the channel is closed (and opened again)."""
        self._client.send(*octets)
        frame = self._client.read()[1]
        if not isinstance(frame, Channel.Close):
            return "taken"
        self._client.send(encode_method(1, Channel.CloseOk()))
        self._client.open_channel(1)
        return str(frame.reply_code)

    def declared(self, arguments: Mapping[str, bytes]) -> str:
        queue = f"argument.{next(self._numbers)}"
        found = self.answer(queue_declare(queue, arguments))
        if found == "taken":
            self._client.call(1, Queue.Delete(queue=queue), Queue.DeleteOk)
        return found

    def consumed(self, arguments: Mapping[str, bytes]) -> str:
        self._client.declare("argument")
        octets = struct.pack(">H", 0) + short("argument") + short("t") + b"\0" + table(arguments)
        found = self.answer(method(60, 20, octets))
        if found == "taken":
            self._client.call(1, Basic.Cancel("t"), Basic.CancelOk)
        return found

    def published(self, lifetime: str) -> str:
        self._client.declare("argument")
        publish = method(60, 40, struct.pack(">H", 0) + short("") + short("argument") + b"\0")
        header = frame(2, 1, struct.pack(">HHQH", 60, 0, 1, 0x0100) + short(lifetime))
        asked = encode_method(1, Queue.Declare(queue="argument", passive=True))
        return self.answer(publish, header, frame(3, 1, b"x"), asked)

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def brokers(ports: dict[str, int]) -> Iterator[list[Asked]]:
    """RabbitMQ's is the first."""
    found = [Asked(port) for port in ports.values()]
    yield found
    for each in found:
        each.close()


def alike(brokers: list[Asked], name: str, ask: Callable[[Asked, str], str], values: Iterator[str] | Any) -> None:
    wrong = []
    for value in values:
        theirs, *ours = (ask(broker, value) for broker in brokers)
        if ours != [theirs] * len(ours) and (name, value) not in KNOWN:
            wrong.append(f"{name} = {value}: RabbitMQ {theirs}, we {ours}")
    assert wrong == []


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("name", OF_QUEUES)
def test_of_queues(brokers: list[Asked], name: str, kind: str) -> None:
    others = {"qpid.replicate": text("all")} if kind == "classic" else QUORUM
    if name == "x-dead-letter-routing-key":
        others = {**others, "x-dead-letter-exchange": text("")}
    alike(brokers, name, lambda broker, value: broker.declared({**others, name: VALUES[value]}), VALUES)


@pytest.mark.parametrize("name", OF_CONSUMERS)
def test_of_consumers(brokers: list[Asked], name: str) -> None:
    alike(brokers, name, lambda broker, value: broker.consumed({name: VALUES[value]}), VALUES)


def test_of_messages(brokers: list[Asked]) -> None:
    alike(brokers, "expiration", lambda broker, value: broker.published(value), LIFETIMES)
