"""Addresses, contents and properties that are made up: what is written is read again; only our errors are raised."""

import math
from datetime import UTC, datetime
from decimal import Decimal

import pika
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode as pamqp_decode

from client_lib import AddressError, InvalidOption, MalformedAddress, Message, UnauthorizedAccess
from client_lib import content as contents
from client_lib.addresses.address import (
    Address,
    Binding,
    Declare,
    LinkSection,
    Mode,
    NodeSection,
    NodeType,
    Policy,
    Reliability,
    Subscribe,
    parse,
)
from client_lib.addresses.operations import Answer
from client_lib.addresses.resolve import resolve_receiver, resolve_sender
from client_lib.addresses.text import scan
from client_lib.message import received
from client_lib.properties import decode_properties

# ---- addresses

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
names = text.filter(bool)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
numbers = int64 | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text.filter(bool), inner, max_size=3),
    max_leaves=8,
)
tables = st.dictionaries(names, values, max_size=3)
flags = st.none() | st.booleans()
declares = st.builds(Declare, st.none() | text, flags, flags, flags, st.none() | text, tables)
bindings = st.lists(st.builds(Binding, *[st.none() | text] * 3, tables), max_size=2).map(tuple)
policies = st.none() | st.sampled_from(Policy)
addresses = st.builds(
    Address,
    names,
    st.none() | text,
    policies,
    policies,
    policies,
    st.none() | st.sampled_from(Mode),
    st.builds(NodeSection, st.none() | st.sampled_from(NodeType), flags, declares, bindings),
    st.builds(
        LinkSection,
        st.none() | text,
        flags,
        st.none() | st.sampled_from(Reliability),
        declares,
        bindings,
        st.builds(Subscribe, flags, tables),
    ),
)
garbage = st.text(st.sampled_from("ab/;{}[]:,'\"\\ #.-1xu\n") | st.characters(), max_size=40)


@given(addresses)
def test_an_address_is_read_as_it_was_written(address: Address) -> None:
    assert parse(str(address)) == address


@given(garbage)
def test_any_text_is_an_address_or_an_error_with_a_position(given_text: str) -> None:
    try:
        name, _, _ = scan(given_text)
        assert name
        parse(given_text)
    except InvalidOption:
        pass
    except MalformedAddress as error:
        assert 0 <= error.position <= len(given_text)
        assert error.reason in str(error)


@given(addresses, st.lists(st.sampled_from([0, 404, 406, 405, 403])), st.booleans())
def test_every_resolution_ends(address: Address, codes: list[int], sends: bool) -> None:
    """Whatever the broker answers: with a plan, or with one of our errors."""
    resolution = (resolve_sender if sends else resolve_receiver)(address, "unique")
    answer: Answer | None = None
    try:
        for code in [*codes, *[0] * 20]:
            resolution.send(answer)  # type: ignore[arg-type]
            answer = Answer(code, "text" if code else "")
        raise AssertionError("it goes on asking")
    except StopIteration as stop:
        plan = stop.value
        assert all(operation.method.startswith(("queue_", "exchange_")) for operation in (*plan.restore, *plan.undo))
        assert not any(operation.arguments.get("passive") for operation in plan.restore)
    except (AddressError, UnauthorizedAccess):
        pass


# ---- contents

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
times = st.integers(0, 4_000_000_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
decimals = st.builds(
    lambda number, places: Decimal(number).scaleb(-places), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 9)
)
fields = st.none() | st.booleans() | int64 | st.floats(allow_nan=False, allow_infinity=False) | keys | times | decimals
nested = st.recursive(
    fields, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
maps = st.dictionaries(keys, nested, max_size=5)


@given(maps)
def test_maps_are_read_as_they_were_written(table: dict) -> None:
    assert contents.decode(contents.encode(table, None), contents.MAP) == table


@given(st.lists(nested, max_size=5))
def test_lists_are_read_as_they_were_written(items: list) -> None:
    assert contents.decode(contents.encode(items, None), contents.LIST) == items


@given(maps)
def test_another_decoder_reads_the_same(table: dict) -> None:
    data = contents.encode(table, None)
    size, found = pamqp_decode.field_table(data)
    assert (size, found) == (len(data), table)


@given(st.binary(max_size=40))
def test_octets_in_a_map_stay_octets(octets: bytes) -> None:
    assert contents.decode(contents.encode({"a": octets}, None), contents.MAP) == {"a": octets}


@given(
    st.binary(max_size=60),
    st.sampled_from([contents.MAP, contents.LIST, contents.JSON, "text/plain", "text/x; charset=y"]),
)
def test_any_octets_have_a_content(body: bytes, kind: str) -> None:
    contents.decode(body, kind)


@given(maps, st.data())
def test_half_a_map_is_octets(table: dict, data: st.DataObject) -> None:
    whole = contents.encode(table, None)
    half = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert contents.decode(half, contents.MAP) == half


# ---- property lists

shorts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
messages = st.builds(
    Message,
    content=st.binary(max_size=5),
    content_type=shorts,
    user_id=shorts,
    reply_to=shorts,
    correlation_id=shorts,
    durable=st.booleans(),
    priority=st.none() | st.integers(0, 255),
    ttl=st.none() | st.integers(0, 1 << 30).map(lambda milliseconds: milliseconds / 1000),
    properties=st.dictionaries(keys, nested, max_size=3),
)


@given(messages, st.text(max_size=40).filter(lambda found: found.isprintable()), st.booleans())
def test_property_lists_are_read_by_us_and_by_pika(message: Message, message_id: str, resent: bool) -> None:
    data = message.encode(message_id, resent)
    ours = received("", "q", False, decode_properties(data), message.body)
    pikas = pika.BasicProperties()
    pikas.decode(data)
    for name in ("content_type", "user_id", "reply_to", "correlation_id", "durable", "priority"):
        assert getattr(ours, name) == getattr(message, name)
    headers = {**message.properties, "x-resent": True} if resent else message.properties
    assert ours.properties == {key: value for key, value in headers.items() if key != "qpid.subject"}
    assert ours.id == pikas.message_id == message_id
    if message.ttl is not None:
        assert ours.ttl is not None and math.isclose(ours.ttl, message.ttl, abs_tol=0.0011)
    assert (pikas.content_type, pikas.user_id, pikas.priority) == (
        message.content_type,
        message.user_id,
        message.priority,
    )
    assert list(pikas.headers or {}) == list(headers)
