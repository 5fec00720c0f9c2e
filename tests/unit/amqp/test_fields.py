"""Field tables: what is written is read; hostile octets are refused; pamqp agrees where it can express the same."""

import datetime
from decimal import Decimal

import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidd_py.amqp.fields import (
    FieldError,
    Reader,
    Timestamp,
    decode_table,
    encode_longstr,
    encode_shortstr,
    encode_table,
    encode_value,
)

names = st.text(max_size=30)
both = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.none()
    | st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-2000000, max_value=2000000),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)
values = both | st.floats(allow_nan=False) | st.binary().map(bytearray) | st.integers(0, 2**64 - 1).map(Timestamp)


@given(st.dictionaries(names, values, max_size=6))
def test_round_trip(table):
    octets = encode_table(table)
    assert decode_table(octets) == (table, len(octets))
    assert encode_table(decode_table(octets)[0]) == octets


@given(st.dictionaries(names, both, max_size=6))
def test_pamqp_reads_what_we_write(table):
    octets = encode_table(table)
    assert pamqp.decode.field_table(octets) == (len(octets), table)


@given(st.dictionaries(names, both, max_size=6))
def test_we_read_what_pamqp_writes(table):
    octets = pamqp.encode.field_table(table)
    assert decode_table(octets) == (table, len(octets))


@given(st.binary(max_size=200))
def test_hostile_octets(octets):
    try:
        _, end = decode_table(octets)
    except FieldError:
        return
    assert end <= len(octets)


@given(st.dictionaries(names, both, min_size=1, max_size=4), st.data())
def test_cut_off_anywhere(table, data):
    octets = encode_table(table)
    with pytest.raises(FieldError):
        decode_table(octets[: data.draw(st.integers(0, len(octets) - 1))])


def test_long_strings_that_are_not_text_come_back_as_they_were():
    octets = encode_table({"a": b"\xff\x00"})
    assert decode_table(octets)[0] == {"a": b"\xff\x00"}


def test_all_integer_letters():
    octets = b"\x01aB\xff\x01bb\xff\x01cs\xff\xff\x01du\xff\xff\x01eI\xff\xff\xff\xff\x01fi\xff\xff\xff\xff"
    octets += b"\x01gl" + b"\xff" * 8 + b"\x01hL" + b"\xff" * 8
    table, _ = decode_table(len(octets).to_bytes(4, "big") + octets)
    assert table == {"a": 255, "b": -1, "c": -1, "d": 65535, "e": -1, "f": 2**32 - 1, "g": -1, "h": -1}


def test_datetime():
    moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    assert decode_table(encode_table({"a": moment}))[0] == {"a": int(moment.timestamp())}
    assert encode_value(moment.replace(tzinfo=None)) == encode_value(moment)


@pytest.mark.parametrize("value", [object(), 2**63, Decimal("NaN"), Decimal(2**40), {"x" * 256: 1}])
def test_what_no_table_can_carry(value):
    with pytest.raises(FieldError):
        encode_table({"a": value})


def test_reader():
    reader = Reader(
        b"\1\0\2\0\0\0\3" + (4).to_bytes(8, "big") + encode_shortstr("ab") + encode_longstr("cd") + bytes(4)
    )
    assert [reader.octet(), reader.short(), reader.long(), reader.longlong()] == [1, 2, 3, 4]
    assert [reader.shortstr(), reader.longstr(), reader.table()] == ["ab", b"cd", {}]
    with pytest.raises(FieldError):
        reader.octet()
    with pytest.raises(FieldError):
        Reader(b"\x05ab").shortstr()
    with pytest.raises(FieldError):
        encode_shortstr("x" * 256)
