"""Exchanges that number their messages: the content header."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pamqp import commands
from pamqp.header import ContentHeader

from qpidd_py.amqp.codec import encode_method
from qpidd_py.amqp.frames import content_frames
from tests.unit.broker.numbered import HEADER, exchange, got, queue, site
from tests.unit.broker.peer import Peer

Basic = commands.Basic


# ---------------------------------------------------------------- the header


def octets(body: bytes, table: bytes, flags: int = 0x2000, before: bytes = b"", after: bytes = b"") -> bytes:
    """A publish with these octets as the table of its headers."""
    method = encode_method(1, Basic.Publish(exchange="x", routing_key="k"))
    header = struct.pack(">HHQH", 60, 0, len(body), flags) + before + table + after
    return method + content_frames(1, header, body, 131072)


def table(*fields: bytes) -> bytes:
    inside = b"".join(fields)
    return struct.pack(">I", len(inside)) + inside


def properties(peer: Peer) -> Any:
    peer.send(1, Basic.Get(queue="q", no_ack=True))
    _, header, _ = peer.frames()
    assert isinstance(header, ContentHeader)
    return header.properties


FORGED = b"\x11qpid.msg_sequencel" + b"\0" * 7 + b"\x63"


@pytest.mark.parametrize(
    "forged",
    [
        table(FORGED),
        table(b"\x11qpid.msg_sequenceS\0\0\0\x0299", b"\x01aI\0\0\0\x05"),
        table(b"\x01aI\0\0\0\x05", FORGED, FORGED, b"\x11qpid.msg_sequenceV"),
        table(*[FORGED] * 4000),
    ],
)
def test_a_client_cannot_give_a_number(forged: bytes) -> None:
    peer = site()
    exchange(peer)
    queue(peer)
    peer.feed(octets(b"m", forged))
    peer.frames()
    (message,) = peer.broker.vhost.queues["q"].core.peek(1)
    assert bytes(message[4]).count(b"qpid.msg_sequence") == 1
    found = properties(peer).headers
    assert found.pop(HEADER) == 1 and found in ({}, {"a": 5})


def test_other_properties_stay() -> None:
    peer = site()
    exchange(peer)
    queue(peer)
    peer.publish(
        b"m",
        "k",
        "x",
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"a": [1, {"b": "c"}], "qpid.msg_sequences": 5},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        expiration="60000",
        message_id="i",
        user_id="guest",
        app_id="p",
    )
    found = properties(peer)
    assert found.headers == {"a": [1, {"b": "c"}], "qpid.msg_sequences": 5, HEADER: 1}
    assert (found.content_type, found.content_encoding, found.delivery_mode) == ("text/plain", "utf-8", 2)
    assert (found.priority, found.correlation_id, found.expiration) == (3, "c", "60000")
    assert (found.message_id, found.user_id, found.app_id) == ("i", "guest", "p")


@pytest.mark.parametrize("flags", [0, 0x8000, 0xC000, 0x4000, 0x1000])
def test_a_message_without_headers_gets_them(flags: int) -> None:
    peer = site()
    exchange(peer)
    queue(peer)
    before = b"\x01t" * (bool(flags & 0x8000) + bool(flags & 0x4000))
    peer.feed(octets(b"m", b"", flags, before, b"\x02" if flags & 0x1000 else b""))
    assert properties(peer).headers == {HEADER: 1}


@pytest.mark.parametrize("left", [26, 27, 28])
def test_a_header_that_would_not_fit_a_frame_goes_without(left: int) -> None:
    """The number is used up: the gap is seen.  What the client says is taken out anyhow."""
    peer = site()
    exchange(peer)
    queue(peer)
    most = 131072 - 8 - 14 - 4
    text = most - 8 - left
    peer.feed(octets(b"m", table(b"\x02ttS" + struct.pack(">I", text) + b"t" * text)))
    peer.feed(octets(b"n", table(b"\x02ttS" + struct.pack(">I", most - 8 - 28) + b"t" * (most - 36), FORGED)))
    peer.publish(b"o", "k", "x")
    assert got(peer) == [(b"m", 1 if left >= 27 else None), (b"n", 2), (b"o", 3)]
