"""The stream of octets from the broker, cut anywhere: nothing is lost, doubled or put in another order."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from client_lib.connecting.incoming import ACK, DELIVER, NACK, Arrival, Confirmed, Incoming, Taker
from client_lib.message import Message
from tests.support.slow import few

BODY_MAX = 20
PAYLOAD = Message(b"", id="m", properties={"n": 1}).encode("m")
KNOWN, UNKNOWN = b"ctag-1", b"other"


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def delivery(channel: int, consumer: bytes, tag: int, redelivered: bool, exchange: str, key: str) -> bytes:
    where = short(exchange.encode()) + short(key.encode())
    return frame(1, channel, DELIVER + short(consumer) + struct.pack(">QB", tag, redelivered) + where)


def content(channel: int, payload: bytes, body: bytes, most: int = BODY_MAX) -> list[bytes]:
    pieces = [body[at : at + most] for at in range(0, len(body), most)]
    return [
        frame(2, channel, struct.pack(">HHQ", 60, 0, len(body)) + payload),
        *(frame(3, channel, piece) for piece in pieces),
    ]


def settled(channel: int, what: bytes, tag: int, multiple: bool) -> bytes:
    return frame(1, channel, what + struct.pack(">QB", tag, multiple))


class Ear:
    """A channel, and what is heard, put into frames again."""

    def __init__(self, number: int, heard: list[bytes]) -> None:
        self.taken = 0
        self.takers: dict[bytes, Taker] = {KNOWN: self._take}
        self.confirmed: Confirmed | None = self._confirmed
        self.ending: Callable[[], None] = lambda: None
        self._number, self._heard = number, heard

    def _take(self, arrivals: list[Arrival]) -> None:
        assert arrivals, "nothing is handed over"
        for tag, redelivered, exchange, key, payload, body in arrivals:
            self.taken += 1
            self._heard.append(delivery(self._number, KNOWN, tag, redelivered, exchange, key))
            self._heard += content(self._number, payload, body)

    def _confirmed(self, tag: int, multiple: bool, taken: bool) -> None:
        self._heard.append(settled(self._number, ACK if taken else NACK, tag, multiple))


def listen(data: bytes, cuts: list[int]) -> tuple[list[bytes], list[Ear], bytes]:
    heard: list[bytes] = []

    def other(octets: bytes) -> int:
        heard.append(octets)
        return len(octets)

    incoming, ears = Incoming(other), [Ear(1, heard), Ear(2, heard)]
    incoming.channels, incoming.body_max = {1: ears[0], 2: ears[1]}, BODY_MAX
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        incoming.feed(data[start:end])
    return heard, ears, incoming._rest


channels = st.sampled_from([1, 2, 9])
tags = st.integers(1, 1 << 63)
keys = st.sampled_from(["", "q", "ключ", "x" * 255])
deliveries = st.builds(
    lambda channel, consumer, tag, again, exchange, key, body: [
        delivery(channel, consumer, tag, again, exchange, key),
        *content(channel, PAYLOAD, body),
    ],
    channels, st.sampled_from([KNOWN, KNOWN, UNKNOWN]), tags, st.booleans(), keys, keys, st.binary(max_size=50),
)  # fmt: skip
confirms = st.builds(lambda *words: [settled(*words)], channels, st.sampled_from([ACK, NACK]), tags, st.booleans())
others = st.sampled_from([[frame(8, 0, b"")], [frame(1, 1, struct.pack(">HHB", 20, 20, 1))], [frame(3, 2, b"stray")]])
streams = st.lists(st.one_of(deliveries, deliveries, confirms, others), max_size=12)
cuts = st.lists(st.integers(0, 1 << 20), max_size=8)


@given(streams, cuts)
def test_each_frame_is_heard_once_and_in_order(items: list[list[bytes]], cuts: list[int]) -> None:
    data = b"".join(piece for item in items for piece in item)
    heard, ears, rest = listen(data, cuts)
    assert (b"".join(heard), rest) == (data, b"")
    small = [item for item in items if len(item) in (2, 3) and KNOWN in item[0] and item[0][1:3] != b"\x00\x09"]
    assert sum(ear.taken for ear in ears) == len(small), "each small one for a known consumer is taken in one step"


@given(streams, cuts)
def test_frames_between_those_of_a_delivery(items: list[list[bytes]], cuts: list[int]) -> None:
    """Allowed by the protocol on another channel; then pika reads it."""
    beat = frame(8, 0, b"")
    data = b"".join(piece + beat for item in items for piece in item)
    heard, ears, rest = listen(data, cuts)
    assert (b"".join(heard), rest) == (data, b"")
    assert not any(ear.taken for ear in ears) or b"\x00" * 8 in data


@given(streams, cuts, st.integers(0, 1 << 20), st.integers(0, 255))
def test_what_is_malformed_is_left_to_pika(items: list[list[bytes]], cuts: list[int], where: int, value: int) -> None:
    data = bytearray(b"".join(piece for item in items for piece in item))
    if data:
        data[where % len(data)] = value
    heard, _, rest = listen(bytes(data), cuts)
    assert len(b"".join(heard)) + len(rest) == len(data)


def test_a_frame_of_an_unknown_kind_goes_to_pika_with_all_that_follows() -> None:
    """Another version of the protocol, for example."""
    heard, _, _ = listen(b"AMQP\x00\x00\x09\x01", [])
    assert heard == [b"AMQP\x00\x00\x09\x01"]


def test_routes_are_not_kept_without_limit() -> None:
    data = b"".join(
        delivery(1, KNOWN, number, False, "", f"key-{number}") + b"".join(content(1, PAYLOAD, b"x"))
        for number in range(few(9000))
    )
    heard, ears, _ = listen(data, [])
    assert ears[0].taken == few(9000) and b"".join(heard) == data
