"""The headers of dead letters, as RabbitMQ documents them, and what of the original stays as it was."""

import struct
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from qpidd_py.amqp.codec import decode_properties, join_properties, split_properties
from qpidd_py.amqp.fields import FieldError, encode_table, join_table, split_table
from qpidd_py.broker.dead_letter import Death, goes_round, mark
from qpidd_py.errors import ConnectionException

NOW = 1_700_000_000


def content(**properties):
    return header.ContentHeader(0, 5, commands.Basic.Properties(**properties)).marshal()


def death(queue="q", reason="expired", exchange=b"e", key=b"k", time=NOW):
    return Death(queue, reason, exchange, key, time)


def headers(payload):
    return decode_properties(payload)["headers"]


def test_the_first_death():
    marked, deaths = mark(content(expiration="60", headers={"mine": 1}), death())
    found = headers(marked)
    assert found["x-death"] == [
        {
            "count": 1,
            "reason": "expired",
            "queue": "q",
            "time": NOW,
            "exchange": "e",
            "routing-keys": ["k"],
            "original-expiration": "60",
        }
    ]
    first = {name: found[f"x-first-death-{name}"] for name in ("reason", "queue", "exchange")}
    assert first == {"reason": "expired", "queue": "q", "exchange": "e"}
    assert found["mine"] == 1
    assert "expiration" not in decode_properties(marked)
    assert [entry["queue"] for entry in deaths] == ["q"]


def test_types_are_those_of_rabbitmq():
    """count is long, time a timestamp, the rest long strings: clients in typed languages depend on it."""
    marked, _ = mark(content(), death(key=b"\xff"))
    octets = split_table(split_properties(marked)["headers"])["x-death"]
    assert b"\x05countl" + struct.pack(">q", 1) in octets
    assert b"\x04timeT" + struct.pack(">Q", NOW) in octets
    assert b"\x06reasonS" in octets and b"\x05queueS" in octets and b"\x08exchangeS" in octets
    assert b"\x0crouting-keysA" in octets and b"S\0\0\0\x01\xff" in octets


def test_the_same_death_counts_on_and_comes_first():
    payload, _ = mark(content(), death("a", "rejected"))
    payload, _ = mark(payload, death("b", "expired", b"dlx"))
    payload, deaths = mark(payload, death("a", "rejected", b"other", b"other", NOW + 5))
    assert [(entry["queue"], entry["count"], entry["time"]) for entry in deaths] == [("a", 2, NOW), ("b", 1, NOW)]
    payload, deaths = mark(payload, death("a", "maxlen"))
    assert [(entry["queue"], entry["reason"]) for entry in deaths] == [
        ("a", "maxlen"),
        ("a", "rejected"),
        ("b", "expired"),
    ]
    assert headers(payload)["x-first-death-reason"] == "rejected"
    assert [entry["count"] for entry in headers(payload)["x-death"]] == [1, 2, 1]
    assert split_table(split_properties(payload)["headers"])["x-death"].count(b"\x05countl") == 3


def test_a_body_size_stays():
    assert decode_size(mark(content(), death())[0]) == 5


def decode_size(payload):
    return struct.unpack_from(">Q", payload, 4)[0]


@pytest.mark.parametrize(
    ("queue", "deaths", "round_"),
    [
        ("a", [], False),
        ("a", [{"queue": "b", "reason": "expired"}], False),
        ("a", [{"queue": "b", "reason": "expired"}, {"queue": "a", "reason": "maxlen"}], True),
        ("a", [{"queue": "b", "reason": "rejected"}, {"queue": "a", "reason": "maxlen"}], False),
        ("a", [{"queue": "b", "reason": "expired"}, {"queue": "a", "reason": "rejected"}], False),
        ("a", [{"queue": "a", "reason": "expired"}, {"queue": "b", "reason": "rejected"}], True),
        ("a", ["odd", {}, {"queue": "a"}], True),
    ],
)
def test_goes_round(queue, deaths, round_):
    assert goes_round(queue, deaths) is round_


@pytest.mark.parametrize(
    "value", ["x", 5, None, {"count": 1}, [1, "a", {"count": "many", "queue": "q", "reason": "expired"}]]
)
def test_what_clients_put_into_x_death_does_no_harm(value):
    marked, deaths = mark(content(headers={"x-death": value}), death())
    assert headers(marked)["x-death"][0]["queue"] == "q" == deaths[0]["queue"]


def test_a_header_that_cannot_be_read_is_replaced():
    broken = content(content_type="x")[:-1] + b"\xff"
    marked, _ = mark(broken[:12] + b"\x20\0" + b"\0\0\0\xff", death())
    assert list(decode_properties(marked)) == ["headers"]
    assert headers(marked)["x-death"][0]["queue"] == "q"


def test_other_properties_stay_octet_by_octet():
    odd = b"\x01bb\xff" + b"\x01ff\x3f\x80\0\0" + b"\x01sS\0\0\0\x01\xfe"  # types that our own encoder would not write
    table = struct.pack(">I", len(odd)) + odd
    parts = split_properties(content(content_type="t", correlation_id="c", timestamp=datetime(2024, 1, 1), priority=3))
    parts["headers"] = table
    marked, _ = mark(join_properties(parts, 5), death())
    after = split_properties(marked)
    assert {name: value for name, value in after.items() if name != "headers"} == {
        name: value for name, value in parts.items() if name != "headers"
    }
    assert after["headers"][4:].startswith(odd)


@given(st.binary(max_size=60))
def test_no_octets_raise(rest):
    marked, _ = mark(content()[:12] + rest.ljust(2, b"\0"), death())
    assert headers(marked)["x-death"][0]["reason"] == "expired"


@given(st.dictionaries(st.text(max_size=5), st.integers(-5, 1 << 40) | st.text(max_size=9) | st.none(), max_size=5))
def test_tables_are_put_together_as_they_were(table):
    octets = encode_table(table)
    assert join_table(split_table(octets)) == octets


@pytest.mark.parametrize("octets", [b"", b"\0\0\0\x01", b"\0\0\0\x02\x05a", b"\0\0\0\x03\x01aS"])
def test_what_is_no_table(octets):
    with pytest.raises(FieldError):
        split_table(octets)


def test_what_are_no_properties():
    with pytest.raises(ConnectionException):
        split_properties(content()[:12] + b"\x80\0\xff")
