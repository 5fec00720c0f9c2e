"""The scanner against pamqp, and id sets against Python's sets."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pamqp.body
import pamqp.exceptions
import pamqp.frame
import pamqp.heartbeat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from qpidd_py.core import crc32c, decode_ids, encode_ids, link_frame, records, scan
from qpidd_py.errors import ConnectionException, LinkError

names = st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=30)
frames = st.one_of(
    st.builds(lambda c, e, k: (c, commands.Basic.Publish(exchange=e, routing_key=k)), st.integers(1, 9), names, names),
    st.builds(lambda c, t, m: (c, commands.Basic.Ack(t, m)), st.integers(1, 9), st.integers(0, 2**62), st.booleans()),
    st.builds(lambda c, b: (c, pamqp.body.ContentBody(b)), st.integers(1, 9), st.binary(min_size=1, max_size=200)),
    st.builds(
        lambda c, n, k: (
            c,
            header.ContentHeader(body_size=n, properties=commands.Basic.Properties(headers={"k": k}, priority=3)),
        ),
        st.integers(1, 9),
        st.integers(0, 2**62),
        names,
    ),
    st.just((0, pamqp.heartbeat.Heartbeat())),
)


@given(st.lists(frames, max_size=20), st.integers(0, 40))
def test_the_scanner_sees_what_pamqp_sees(given_frames: list[tuple[int, Any]], cut: int) -> None:
    octets = b"".join(pamqp.frame.marshal(frame, channel) for channel, frame in given_frames)
    octets = octets[: len(octets) - cut]
    expected, at = [], 0
    while len(octets) - at >= 7:
        size = int.from_bytes(octets[at + 3 : at + 7], "big")
        if len(octets) - at < size + 8:
            break
        used, channel, _ = pamqp.frame.unmarshal(octets[at:])
        expected.append((octets[at], channel, at + 7, at + used - 1))
        at += used
    assert scan(octets) == expected


@pytest.mark.parametrize(
    ("octets", "says"),
    [
        (b"\x04\0\0\0\0\0\0\xce", "frame type 4"),
        (b"GET / HTTP/1.1", "frame type 71"),
        (b"\x01\0\0\0\0\0\x01X\xcd", "octet 206"),
        (b"\x01\0\0\xff\xff\xff\xff", "frame_max 131072"),
    ],
)
def test_what_is_no_frame_is_refused_before_it_is_waited_for(octets: bytes, says: str) -> None:
    with pytest.raises(ConnectionException, match=says) as caught:
        scan(octets)
    assert caught.value.reply_code == 501


@given(st.sets(st.integers(1, 5000)))
def test_id_sets_survive_their_encoding(ids: set[int]) -> None:
    runs: list[tuple[int, int]] = []
    for i in sorted(ids):
        if runs and runs[-1][1] + 1 == i:
            runs[-1] = (runs[-1][0], i)
        else:
            runs.append((i, i))
    assert decode_ids(encode_ids(runs)) == runs
    assert all(a[1] < b[0] for a, b in pairwise(decode_ids(encode_ids(runs))))


@given(st.binary(max_size=60))
def test_any_octets_are_an_id_set_or_a_link_error(octets: bytes) -> None:
    try:
        runs = decode_ids(octets)
    except LinkError:
        return
    assert all(low <= high < 2**64 for low, high in runs)


@given(st.binary(max_size=80))
def test_any_octets_are_records_or_a_link_error(octets: bytes) -> None:
    try:
        found = records(octets)
    except LinkError:
        return
    assert len(found) <= len(octets) // 16


def slow_crc32c(data: bytes) -> int:
    """By its definition, a bit at a time."""
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("lane", [1, 256, 8192])
def test_crc32c_of_any_length_is_the_same(lane: int) -> None:
    """Three lanes of this length are taken together, and the rest in others."""
    data = random.Random(lane).randbytes(3 * 8192 + 3 * 256 + 99)
    for length in sorted({max(0, 3 * lane + more) for more in (-9, -1, 0, 1, 7, 8, 3 * 256)}):
        for start in (0, 3):
            part = data[start : start + length]
            assert crc32c(part) == slow_crc32c(part), (length, start)
            assert crc32c(part[5:], crc32c(part[:5])) == crc32c(part)


def test_crc32c_is_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


@given(st.binary(max_size=300), st.integers(0, 299), st.integers(1, 255))
def test_a_changed_octet_of_a_link_frame_is_noticed(body: bytes, at: int, change: int) -> None:
    from qpidd_py.core import Engine

    frame = bytearray(link_frame(1, 77, body))
    at %= len(frame)
    frame[at] ^= change
    with pytest.raises(LinkError):
        Engine().apply(bytes(frame))
