"""Arguments of bindings that a route hands on: what the source shows of them is what was wanted."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pika.data
from hypothesis import given
from hypothesis import strategies as st

from qpidd_py.amqp.fields import Int64, Timestamp, decode_table, encode_table
from qpidd_py.shovel.bound import canonical, sendable

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.binary(max_size=5),
    st.binary(max_size=5).map(bytearray),
    st.integers(-(1 << 31), 1 << 40).map(Int64),
    st.integers(0, (1 << 63) - 1).map(Timestamp),
    st.builds(
        lambda scale, raw: Decimal(raw).scaleb(-scale), st.integers(0, 255), st.integers(-(1 << 31), (1 << 31) - 1)
    ),
    st.datetimes(datetime.datetime(1980, 1, 1), datetime.datetime(2100, 1, 1)).map(
        lambda each: each.replace(microsecond=0)
    ),
)
NAMES = st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=1, max_size=5)
TABLES = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
    ),
    max_size=4,
)


def seen(octets: bytes) -> bytes:
    """Of a table, as a worker knows it."""
    return encode_table(canonical(decode_table(octets)[0]))


@given(TABLES)
def test_what_comes_back_is_what_was_wanted(table: dict[str, Any]) -> None:
    here = seen(encode_table(table))
    pieces: list[bytes] = []
    pika.data.encode_table(pieces, sendable(decode_table(here)[0]))
    assert seen(b"".join(pieces)) == here
