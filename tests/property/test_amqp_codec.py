"""Cold methods, field tables and properties: round trips, against pamqp, and against garbage."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pamqp.frame
import pamqp.header
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, decode, encode
from pamqp.base import Frame

from qpidd_py.amqp.codec import (
    decode_method,
    decode_properties,
    encode_content,
    encode_method,
    encode_properties,
    make,
)
from qpidd_py.amqp.fields import FieldError, Reader, Timestamp, decode_table, encode_table
from qpidd_py.errors import ConnectionException

METHODS: list[type[Frame]] = sorted(commands.INDEX_MAPPING.values(), key=lambda command: command.index)

ascii_names = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=20)
any_names = st.text(st.characters(codec="utf-8"), max_size=60)
integers = st.integers(-(2**63), 2**63 - 1)

ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**63 - 1),
    "shortstr": any_names,
    "longstr": st.binary(max_size=60),
}


def nested(leaves: st.SearchStrategy[Any], names: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    values = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
    )
    return st.dictionaries(names, values, max_size=4)


shared_leaves = st.none() | st.booleans() | integers | any_names
"""What pamqp can write as well as read without a loss."""
all_leaves = (
    shared_leaves
    | st.floats(allow_nan=False)
    | st.binary(max_size=20).map(bytearray)
    | st.integers(0, 2**64 - 1).map(Timestamp)
    | st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-200_000, max_value=200_000)
)
shared_tables = nested(shared_leaves, ascii_names)
all_tables = nested(all_leaves, any_names)


@st.composite
def methods(draw: st.DrawFn, tables: st.SearchStrategy[dict[str, Any]] = all_tables) -> Frame:
    command = draw(st.sampled_from(METHODS))
    arguments = {**ARGUMENTS, "table": tables}
    return make(command, **{name: draw(arguments[command.amqp_type(name)]) for name in command.__slots__})


def arguments_of(command: Frame) -> dict[str, Any]:
    """Octets and text count as equal: pamqp reads long strings as text where it can."""
    return {name: as_octets(getattr(command, name)) for name in command.__slots__}


def as_octets(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


@given(methods(), st.integers(0, 65535))
def test_every_method_comes_back(command: Frame, channel: int) -> None:
    octets = encode_method(channel, command)
    assert octets[:3] == b"\x01" + channel.to_bytes(2, "big")
    found = decode_method(octets[7:-1])
    assert type(found) is type(command)
    assert arguments_of(found) == arguments_of(command)


@given(methods(shared_tables))
def test_pamqp_reads_what_we_write(command: Frame) -> None:
    octets = encode_method(7, command)
    consumed, channel, found = pamqp.frame.unmarshal(octets)
    assert (consumed, channel) == (len(octets), 7)
    assert isinstance(found, Frame)
    assert arguments_of(found) == arguments_of(command)


@given(methods(shared_tables))
def test_we_read_what_pamqp_writes(command: Frame) -> None:
    for name in command.__slots__:
        if isinstance(getattr(command, name), bytes):
            setattr(command, name, getattr(command, name).hex())  # pamqp writes text only
    with patch.object(type(command), "validate", lambda _: None):  # it refuses what other brokers allow
        octets = pamqp.frame.marshal(command, 7)
    assert arguments_of(decode_method(octets[7:-1])) == arguments_of(command)


@given(methods(), st.data())
def test_a_method_that_is_cut_or_too_long_is_refused_with_501(command: Frame, data: st.DataObject) -> None:
    payload = encode_method(1, command)[7:-1]
    longer = data.draw(st.booleans())
    broken = payload + b"\x00" if longer else payload[: data.draw(st.integers(0, len(payload) - 1))]
    try:
        decode_method(broken)
    except ConnectionException as error:
        assert error.reply_code in (501, 540)
    else:
        raise AssertionError(f"{broken!r} was taken for {command.name}")


@given(st.sampled_from(METHODS), st.binary(max_size=200))
def test_garbage_costs_the_connection_and_nothing_else(command: type[Frame], garbage: bytes) -> None:
    try:
        decode_method(command.index.to_bytes(4, "big") + garbage)
    except ConnectionException as error:
        assert error.reply_code == 501


@given(st.binary(max_size=300))
def test_any_payload_costs_at_most_the_connection(garbage: bytes) -> None:
    try:
        decode_method(garbage)
    except ConnectionException as error:
        assert error.reply_code in (501, 540)


@given(all_tables)
def test_tables_come_back_and_are_written_the_same_again(table: dict[str, Any]) -> None:
    octets = encode_table(table)
    found, end = decode_table(octets)
    assert (found, end) == (table, len(octets))
    assert encode_table(found) == octets


@given(shared_tables)
def test_pamqp_reads_our_tables(table: dict[str, Any]) -> None:
    octets = encode_table(table)
    assert decode.field_table(octets) == (len(octets), table)


@given(shared_tables)
def test_we_read_tables_of_pamqp(table: dict[str, Any]) -> None:
    octets = encode.field_table(table)
    assert decode_table(octets) == (table, len(octets))


@given(st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)))
def test_times_are_those_of_pamqp(moment: datetime) -> None:
    whole = moment.replace(microsecond=0, tzinfo=UTC)
    octets = encode_table({"t": whole})  # beyond 2106 pamqp takes the number for milliseconds
    assert decode.field_table(octets)[1] == {"t": whole}
    assert decode_table(octets)[0] == {"t": int(whole.timestamp())}


@given(st.binary(max_size=200))
def test_garbage_is_no_table(garbage: bytes) -> None:
    try:
        decode_table(len(garbage).to_bytes(4, "big") + garbage)
    except FieldError:
        pass


@given(st.binary(max_size=100), st.lists(st.sampled_from(["octet", "short", "long", "longlong", "shortstr", "longstr",
                                                          "table"]), max_size=8))  # fmt: skip
def test_the_reader_never_leaves_its_octets(garbage: bytes, steps: list[str]) -> None:
    reader = Reader(garbage)
    try:
        for step in steps:
            getattr(reader, step)()
    except FieldError:
        pass
    assert reader.offset <= len(garbage)


properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": any_names,
        "content_encoding": any_names,
        "headers": shared_tables,
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 9),
        "correlation_id": any_names,
        "reply_to": any_names,
        "expiration": any_names,
        "message_id": any_names,
        "timestamp": st.integers(0, 2**32 - 1),
        "message_type": any_names,
        "user_id": any_names,
        "app_id": any_names,
    },
)


@given(properties, st.integers(0, 2**63 - 1))
def test_properties_come_back(given_properties: dict[str, Any], body_size: int) -> None:
    octets = encode_properties(given_properties, body_size)
    assert decode_properties(octets) == given_properties
    assert int.from_bytes(octets[4:12], "big") == body_size


@given(properties)
def test_pamqp_reads_our_properties(given_properties: dict[str, Any]) -> None:
    found = pamqp.header.ContentHeader()
    found.unmarshal(encode_properties(given_properties, 5))
    expected = dict(given_properties)
    if "timestamp" in expected:
        expected["timestamp"] = datetime.fromtimestamp(expected["timestamp"], UTC)
    assert {name: getattr(found.properties, name) for name in expected} == expected


@given(st.binary(max_size=100))
def test_garbage_is_no_content_header(garbage: bytes) -> None:
    try:
        decode_properties(garbage)
    except ConnectionException as error:
        assert error.reply_code == 502


@given(properties, st.binary(max_size=300), st.integers(64, 128))
def test_content_is_cut_into_frames_that_fit(given_properties: dict[str, Any], body: bytes, frame_max: int) -> None:
    octets = encode_content(3, commands.Basic.Publish(routing_key="q"), given_properties, body, frame_max)
    bodies = []
    while octets:
        length = int.from_bytes(octets[3:7], "big") + 8
        if octets[0] == 3:
            assert length <= frame_max
            bodies.append(octets[7 : length - 1])
        octets = octets[length:]
    assert b"".join(bodies) == body
    assert all(bodies)
