"""A received message whose properties are read when they are asked for."""

import copy
import pickle
from typing import Any

import pytest

from client_lib.content import DEPTH_MAX
from client_lib.failover.content import Incoming
from client_lib.message import Message, received, unread
from client_lib.properties import Properties, decode_properties

SENT = Message("text", "text/plain", "id-1", "subject", "user", "back", "c-1", True, 4, 1.5, {"n": 1}, type="t")
PAYLOAD = SENT.encode("id-1", routing_key="q")
NAMES = [*sorted(Message._LATER - {"_rare"}), "content", "body", "type", "timestamp", "exchange", "resent"]


def delivery(payload: bytes = PAYLOAD) -> Message:
    return unread(Message, "", "q", True, payload, b"text")


@pytest.mark.parametrize("name", NAMES)
def test_each_attribute_is_as_if_read_at_once(name: str) -> None:
    at_once = received("", "q", True, decode_properties(PAYLOAD, Properties()), b"text")
    assert getattr(delivery(), name) == getattr(at_once, name)
    assert repr(delivery()) == repr(at_once)


def test_what_was_set_before_is_kept() -> None:
    message = delivery()
    message.subject, message.properties = "mine", {}
    assert (message.subject, message.properties, message.id) == ("mine", {}, "id-1")


@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_copies_are_whole(through: Any) -> None:
    twin = through(delivery())
    assert [getattr(twin, name) for name in NAMES] == [getattr(delivery(), name) for name in NAMES]


def test_a_name_that_no_message_has() -> None:
    with pytest.raises(AttributeError, match="'Message' object has no attribute 'colour'"):
        delivery().colour  # type: ignore[attr-defined]
    assert not hasattr(Message.__new__(Message), "id")


@pytest.mark.parametrize("payload", [b"", b"\x80", b"\xff\xff", b"\x80\x00\x09x", b"\x20\x00" + b"\xff" * DEPTH_MAX])
def test_what_cannot_be_read_is_left_out_and_logged(payload: bytes, caplog: pytest.LogCaptureFixture) -> None:
    message = delivery(payload)
    assert (message.id, message.properties, message.body) == (None, {}, b"text")
    assert "properties that cannot be read" in caplog.text


def test_pikas_objects_are_made_when_they_are_asked_for() -> None:
    message = Incoming.unread("tag", True, "x", "q", PAYLOAD, b"text")
    method, properties, body = message.numbered(7)
    assert (method.consumer_tag, method.delivery_tag, method.redelivered) == ("tag", 7, True)
    assert (method.exchange, method.routing_key, body) == ("x", "q", b"text")
    assert (properties.message_id, properties.headers["n"], properties.priority) == ("id-1", 1, 4)
    assert properties.headers is message.properties
