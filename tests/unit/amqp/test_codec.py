"""Methods: compared with pamqp's own codec for every method of the specification."""

import struct
from typing import Any

import pamqp.frame
import pamqp.header
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from qpidd_py.amqp.codec import (
    decode_method,
    decode_properties,
    encode_content,
    encode_method,
    encode_properties,
    make,
    routing_key_octets,
)
from qpidd_py.errors import ConnectionException, ReplyCode

SAMPLES = {
    "bit": True,
    "octet": 7,
    "short": 513,
    "long": 70000,
    "longlong": 2**40,
    "shortstr": "grüße",
    "longstr": b"long string",
    "table": {"a": True, "b": "text"},
    "timestamp": 12345,
}


def sample(command_type):
    return make(command_type, **{name: SAMPLES[command_type.amqp_type(name)] for name in command_type.__slots__})


@pytest.mark.parametrize("command_type", commands.INDEX_MAPPING.values(), ids=lambda item: item.name)
def test_every_method(command_type):
    command = sample(command_type)
    octets = encode_method(3, command)
    decoded: Any = decode_method(octets[7:-1])
    assert type(decoded) is command_type
    assert {name: getattr(decoded, name) for name in command_type.__slots__} == {
        name: getattr(command, name) for name in command_type.__slots__
    }
    used, channel, theirs = pamqp.frame.unmarshal(octets)
    assert (used, channel) == (len(octets), 3)
    for name in command_type.__slots__:
        expected = getattr(command, name)
        assert getattr(theirs, name) == (expected.decode() if isinstance(expected, bytes) else expected)


@pytest.mark.parametrize("command_type", commands.INDEX_MAPPING.values(), ids=lambda item: item.name)
def test_cut_anywhere_or_too_long(command_type):
    payload = encode_method(1, sample(command_type))[7:-1]
    for end in range(4, len(payload)):
        with pytest.raises(ConnectionException) as info:
            decode_method(payload[:end])
        assert info.value.reply_code == ReplyCode.FRAME_ERROR
        assert (info.value.class_id, info.value.method_id) == struct.unpack_from(">HH", payload)
    with pytest.raises(ConnectionException):
        decode_method(payload + b"\0")


@given(st.sampled_from(sorted(commands.INDEX_MAPPING)), st.binary(max_size=100))
def test_hostile_arguments(index, octets):
    try:
        decode_method(struct.pack(">I", index) + octets)
    except ConnectionException as error:
        assert error.reply_code == ReplyCode.FRAME_ERROR


def test_unknown_method():
    with pytest.raises(ConnectionException) as info:
        decode_method(struct.pack(">HH", 50, 99))
    assert (info.value.reply_code, info.value.class_id, info.value.method_id) == (540, 50, 99)
    with pytest.raises(ConnectionException):
        decode_method(b"\0")


def test_many_bits_share_octets():
    declare = commands.Exchange.Declare(exchange="e", durable=True, internal=True, nowait=True)
    decoded: Any = decode_method(encode_method(1, declare)[7:-1])
    assert [decoded.passive, decoded.durable, decoded.auto_delete, decoded.internal, decoded.nowait] == [
        False,
        True,
        False,
        True,
        True,
    ]


@given(st.binary(max_size=255))
def test_routing_keys_are_octets(key):
    command = make(commands.Queue.Bind, ticket=0, queue="q", exchange="e", routing_key=key, nowait=False, arguments={})
    decoded: Any = decode_method(encode_method(1, command)[7:-1])
    assert routing_key_octets(decoded.routing_key) == key


def test_properties():
    properties = commands.Basic.Properties(
        content_type="a/b", headers={"x": 1}, delivery_mode=2, priority=3, correlation_id="c", message_id="m"
    )
    header = pamqp.frame.marshal(pamqp.header.ContentHeader(body_size=9, properties=properties), 1)[7:-1]
    found = decode_properties(header)
    assert found == {
        "content_type": "a/b",
        "headers": {"x": 1},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "message_id": "m",
    }
    assert decode_properties(encode_properties(found, 9)) == found
    assert decode_properties(encode_properties({}, 0)) == {}


@given(st.binary(max_size=60))
def test_hostile_properties(octets):
    try:
        decode_properties(struct.pack(">HHQ", 60, 0, 0) + octets)
    except ConnectionException as error:
        assert error.reply_code == ReplyCode.SYNTAX_ERROR


def test_content_is_cut_to_frames():
    deliver = commands.Basic.Deliver("t", 1, False, "", "q")
    octets = encode_content(1, deliver, {"correlation_id": "7"}, b"x" * 5000, 4096)
    sizes = []
    while octets:
        used, _, _ = pamqp.frame.unmarshal(octets)
        octets = octets[used:]
        sizes.append(used)
    assert len(sizes) == 4 and max(sizes) == 4096 and sum(sizes[2:]) == 5000 + 16
