"""What messages carry, the errors that name what they cannot, and how a message shows itself."""

import copy
import gzip
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pika
import pytest

from client_lib import Message, MessagingError, errors
from client_lib import content as contents
from client_lib.failover.errors import translate
from client_lib.message import RARE, received
from client_lib.properties import decode_properties


def sent(message: Message, **how: Any) -> Message:
    """As the other side gets it."""
    return received("", "q", False, decode_properties(message.encode("id", **how)), message.body)


@pytest.mark.parametrize(
    ("content", "kind", "body"),
    [
        (b"\xff", None, b"\xff"),
        ("größe", "text/plain; charset=utf-8", "größe".encode()),
        ({"a": 1}, "amqp/map", b"\0\0\0\x07\x01aI\0\0\0\x01"),
        ([True, None], "amqp/list", b"\0\0\0\x03t\x01V"),
        ((1.5,), "amqp/list", b"\0\0\0\x09d\x3f\xf8\0\0\0\0\0\0"),
        (None, None, b""),
    ],
)
def test_contents_travel_with_their_type(content: Any, kind: str | None, body: bytes) -> None:
    message = Message(content)
    found = sent(message)
    assert (message.body, found.content_type, found.body) == (body, kind, body)
    wanted = b"" if content is None else list(content) if isinstance(content, tuple) else content
    assert (found.content, type(found.content)) == (wanted, type(wanted))


def test_bytes_like_contents_are_copied() -> None:
    assert (Message(bytearray(b"ab")).body, Message(memoryview(b"ab")).body) == (b"ab", b"ab")


def test_json_is_written_and_read_when_the_content_type_says_so() -> None:
    message = Message({"ä": [1, None]}, "application/json")
    assert message.body == '{"ä":[1,null]}'.encode()
    assert sent(message).content == {"ä": [1, None]}
    assert sent(Message('{"a":1}', "application/json")).body == b'{"a":1}'


def test_a_charset_is_kept() -> None:
    message = Message("größe", "text/plain; charset=latin-1")
    assert message.body == "größe".encode("latin-1")
    assert sent(message).content == "größe"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\0\0\0\0x", "amqp/map"),
        (b"\xff", "text/plain"),
        (b"x", "text/plain; charset=klingon"),
        (b"\0\0\0\x09", "amqp/map"),
        (b"{", "application/json"),
    ],
)
def test_what_cannot_be_decoded_stays_octets(body: bytes, kind: str) -> None:
    assert sent(Message(body, kind)).content == body


def test_a_map_keeps_its_types() -> None:
    there = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    content = {
        "small": -1,
        "large": 1 << 40,
        "float": -0.25,
        "octets": b"\xff\0",
        "decimal": Decimal("-12.50"),
        "power": Decimal("3E+2"),
        "time": there,
        "flag": False,
        "inner": {"list": [[], {}, "x"]},
    }
    found = sent(Message(content)).content
    assert found == content
    assert found["time"].tzinfo is UTC
    assert [type(found[key]) for key in ("flag", "float")] == [bool, float]


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        (17, TypeError, "content is a int, expected bytes, str, a map or a list"),
        ({"a": {"b": [0, object()]}}, TypeError, "content['a']['b'][1] is a object, which AMQP 0-9-1 cannot carry"),
        ({1: 2}, TypeError, "content[1]: the key is a int, expected str"),
        ({"k" * 256: 1}, ValueError, "256 octets, at most 255"),
        ({"a": 1 << 63}, ValueError, "content['a'] is 9223372036854775808, which does not fit into 64 bits"),
        ({"a": float("inf")}, ValueError, "content['a'] is inf, expected a finite number"),
        ({"a": Decimal("1E-256")}, ValueError, "content['a'] is 1E-256, expected a decimal"),
        ({"a": Decimal("NaN")}, ValueError, "expected a decimal"),
        ({"a": datetime(1969, 1, 1)}, ValueError, "before 1970"),
        ({"a": "\ud800"}, ValueError, "content['a'] is '\\ud800', which is no valid text"),
    ],
)
def test_errors_name_the_offending_key(content: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        _ = Message(content).body
    assert text in str(caught.value)


def test_a_map_that_contains_itself_is_an_error() -> None:
    content: dict[str, Any] = {}
    content["a"] = content
    with pytest.raises(ValueError, match="inside each other"):
        _ = Message(content).body


@pytest.mark.parametrize("depth", [contents.DEPTH_MAX + 3, 2000])
def test_nesting_beyond_the_limit_is_not_decoded(depth: int) -> None:
    data = b""
    for _ in range(depth):
        data = b"A" + len(data).to_bytes(4, "big") + data
    assert contents.decode(data[1:], contents.LIST) == data[1:]


def test_a_map_is_not_sent_as_text() -> None:
    with pytest.raises(TypeError, match="a dict is sent as amqp/map or application/json, not as text/plain"):
        Message({}, "text/plain").encode("id")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message(b"", properties={"a": object()}), "properties['a'] is a object"),
        (Message(b"", reply_to=5), "reply_to is 5, expected str"),  # type: ignore[arg-type]
        (Message(b"", correlation_id="x" * 256), "correlation_id has 256 octets"),
        (Message(b"", priority=256), "priority is 256, expected 0 to 255"),
        (Message(b"", ttl=-1), "ttl is -1, expected seconds"),
        (Message(b"", ttl=float("nan")), "ttl is nan"),
    ],
)
def test_properties_that_cannot_be_sent(message: Message, text: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        message.encode("id")
    assert text in str(caught.value)


# ---- the message


def test_the_order_of_arguments_is_qpids() -> None:
    message = Message(b"c", "t", "i", "s", "u", "r", "k", False, 1, 2.0, {"p": 1})
    names = ("content", "content_type", "id", "subject", "user_id", "reply_to", "correlation_id", "durable", "priority")
    assert [getattr(message, name) for name in names] == [b"c", "t", "i", "s", "u", "r", "k", False, 1]
    assert (message.ttl, message.properties) == (2.0, {"p": 1})
    assert (Message().durable, Message(durable=None).durable) == (True, True)


def test_a_property_list_is_what_pika_writes() -> None:
    message = Message("x", None, None, None, "u", "r", "k", True, 7, 1.5, {"a": 1, "b": "two", "c": None})
    wanted = pika.BasicProperties(
        content_type="text/plain; charset=utf-8",
        headers={"a": 1, "b": "two", "c": None},
        delivery_mode=2,
        priority=7,
        correlation_id="k",
        reply_to="r",
        expiration="1500",
        message_id="the id",
        user_id="u",
    )
    assert message.encode("the id") == b"".join(wanted.encode())


def test_all_properties_are_read() -> None:
    given = pika.BasicProperties("t", "e", {"h": 1}, 2, 3, "c", "r", "5", "m", 99, "y", "u", "a", "l")
    assert vars_of(decode_properties(b"".join(given.encode()))) == vars(given)


def vars_of(properties: Any) -> dict[str, Any]:
    return {name: getattr(properties, name) for name in properties.__slots__}


@pytest.mark.parametrize("data", [b"\xa0\x00", b"\x80\x00\x05abc", b"\x20\x00\0\0\0\x09a", b"\x00\x40\0\0"])
def test_a_property_list_that_is_cut_off(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_properties(data)


@pytest.mark.parametrize(
    ("own", "address", "routing_key", "header"),
    [
        ("red", None, "red", None),  # a topic: the routing key says it
        ("red", None, "q", "red"),
        (None, "blue", "q", "blue"),
        ("red", "blue", "q", "red"),
        (None, "blue", "blue", None),
        (None, None, "q", None),
    ],
)
def test_the_subject_travels(own: str | None, address: str | None, routing_key: str, header: str | None) -> None:
    message = Message(b"", subject=own, properties={"a": 1})
    found = decode_properties(message.encode("id", False, routing_key, address)).headers or {}
    assert found == ({"a": 1} if header is None else {"a": 1, "qpid.subject": header})
    assert message.properties == {"a": 1}


def test_a_received_subject_is_the_header_else_the_key_of_a_named_exchange() -> None:
    def subject(exchange: str, headers: dict[str, Any] | None) -> tuple[str | None, dict[str, Any]]:
        message = received(exchange, "key", False, pika.BasicProperties(headers=headers), b"")
        return message.subject, message.properties

    assert subject("", None) == (None, {})
    assert subject("x", None) == ("key", {})
    assert subject("x", {"qpid.subject": "s", "a": 1}) == ("s", {"a": 1})
    assert subject("", {"qpid.subject": 5}) == (None, {"qpid.subject": 5})


def test_durability_travels() -> None:
    assert [sent(Message(b"", durable=durable)).durable for durable in (True, False)] == [True, False]


def test_a_resent_message_says_so() -> None:
    message = Message(b"", properties={"a": 1})
    assert (sent(message).resent, sent(message, resent=True).resent) == (False, True)
    assert message.properties == {"a": 1}


def test_a_received_message_can_be_sent_on_and_changed() -> None:
    found = sent(Message({"a": 1}))
    assert sent(found).content == {"a": 1}
    found.content = b"else"
    found.content_type = None
    assert sent(found).content == b"else"


def test_repr_is_short() -> None:
    assert repr(Message(b"x")) == "Message(b'x')"
    text = repr(Message("x" * 5000, id="i", subject="s", properties={"a": "y" * 5000}))
    assert text.startswith("Message('xxx") and "id='i', subject='s'" in text
    assert len(text) < 200
    assert "resent" in repr(sent(Message(b""), resent=True))


ALL = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "id": "1",
    "user_id": "guest",
    "reply_to": "r",
    "correlation_id": "c",
    "priority": 3,
    "ttl": 1.5,
    "properties": {"a": 1},
    "timestamp": 1_700_000_000,
    "type": "order",
    "app_id": "shop",
    "cluster_id": "x",
}


def arrived(message: Message) -> Message:
    found = pika.BasicProperties()
    decode_properties(message.encode(message.id or "1"), found)
    return received("", "q", False, found, message.body)


def test_a_mover_keeps_all_properties() -> None:
    octets = gzip.compress("Grüße".encode())
    moved = arrived(arrived(Message(octets, **ALL)))  # type: ignore[arg-type]
    assert {name: getattr(moved, name) for name in ALL} == ALL
    assert gzip.decompress(moved.body).decode() == "Grüße"
    assert moved.content == octets
    moved.timestamp, moved.app_id = None, "other"
    again = arrived(moved)
    assert (again.timestamp, again.app_id, again.type) == (None, "other", "order")
    assert "app_id='other'" in repr(again)


def test_every_property_list_is_what_pika_reads_and_writes() -> None:
    for number in range(32):
        rare = {name: ALL[name] for bit, name in enumerate(RARE) if number >> bit & 1}
        message = Message("x", id="1", **rare)  # type: ignore[arg-type]
        payload = message.encode("1")
        read = pika.BasicProperties().decode(payload)
        assert b"".join(read.encode()) == payload
        assert {name: getattr(read, name) for name in RARE if getattr(read, name) is not None} == rare


@pytest.mark.parametrize(
    ("name", "value"),
    [("timestamp", -1), ("timestamp", "now"), ("type", 5), ("app_id", "x" * 256), ("cluster_id", b"x")],
)
def test_rare_properties_that_cannot_be_sent(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        Message(**{name: value}).encode("1")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_messages_are_copied_and_pickled(again: Callable[[Message], Message]) -> None:
    message = arrived(Message("text", **{**ALL, "content_encoding": None}))  # type: ignore[arg-type]
    message._delivery = object()  # type: ignore[assignment]
    for twin in (again(message), again(again(message))):
        assert twin.content == "text" and {name: getattr(twin, name) for name in ALL} == {
            **ALL,
            "content_encoding": None,
        }
        assert twin._delivery is None
    assert message.content == "text" and again(message).content == "text"
    written = Message({"a": [1]}, subject="s")
    assert again(written).content == {"a": [1]} and again(written).subject == "s"


def every_error() -> list[MessagingError]:
    where, message = ("expected a host", "a:b", 2), Message("x", id="7")
    special: dict[type[MessagingError], Any] = {
        errors.UrlError: where,
        errors.MalformedAddress: where,
        errors.ServerError: (404, "no queue"),
        errors.UnauthorizedAccess: (403, "no"),
        errors.InternalError: (541, "broken"),
        errors.FatalCommand: (541, "internal", "queue.declare"),
        errors.SendError: ("no", message),
        errors.Rejected: ("no", message),
        errors.Returned: (312, "NO_ROUTE", message),
        errors.Unsendable: (501, "frame", message),
    }
    kinds = [getattr(errors, name) for name in errors.__all__]
    found = [kind(*special.get(kind, ("text",))) for kind in kinds]
    return [*found, *(translate(error) for error in found)]


@pytest.mark.parametrize("error", every_error(), ids=lambda error: type(error).__name__)
def test_errors_are_copied_and_pickled(error: MessagingError) -> None:
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error) and str(twin) == str(error)
        for name, value in error.__dict__.items():
            found = getattr(twin, name)
            assert (found.id if isinstance(found, Message) else found) == (
                value.id if isinstance(value, Message) else value
            )
