"""A message that is sent on has the property list that it came with, octet for octet, but for what was asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from client_lib.forwarded import Forwarded
from client_lib.message import RESENT_HEADER, Message, unread
from client_lib.properties import decode_properties
from tests.unit.client_lib.test_resent import MESSAGES


def delivery(payload: bytes, redelivered: bool = False) -> Message:
    return unread(Message, "x", "key", redelivered, payload, b"body")


@given(MESSAGES)
def test_nothing_changes(message: Message) -> None:
    payload = message.encode("m-1")
    forwarded = Forwarded(delivery(payload))
    assert (forwarded.id, forwarded.subject, forwarded.body) == ("m-1", "key", b"body")
    assert forwarded.encode("m-1") == payload


@given(MESSAGES)
def test_what_may_have_been_sent_before_is_marked_and_nothing_else_changes(message: Message) -> None:
    payload = message.encode("m-1")
    found = decode_properties(Forwarded(delivery(payload, redelivered=True)).encode("m-1"))
    assert found.headers.pop(RESENT_HEADER) is True
    before = decode_properties(payload)
    before.headers = before.headers or {}
    assert found == before


def test_a_missing_id_and_what_is_asked_for() -> None:
    payload = bytes.fromhex("2000") + bytes.fromhex("0000000b") + b"\x01aI\x00\x00\x00\x05\x01bt\x01"
    forwarded = Forwarded(delivery(payload))
    assert forwarded.id is None
    found = decode_properties(forwarded.encode("new"))
    assert (found.message_id, found.headers, found.delivery_mode) == ("new", {"a": 5, "b": True}, None)
    wanted: dict[str, Any] = {"delivery_mode": 2, "app_id": "we", "timestamp": 7, "message_id": "mine"}
    forwarded = Forwarded(delivery(payload), wanted, lambda headers: {**headers, "c": [headers["a"]]})
    found = decode_properties(forwarded.encode(forwarded.id or ""))
    assert {name: getattr(found, name) for name in wanted} == wanted
    assert found.headers == {"a": 5, "b": True, "c": [5]}


@pytest.mark.parametrize("payload", [b"", b"\x80", b"\x80\x00", b"\x80\x00\x05abc", b"\x20\x00\x00\x00\x00\x09\x01a"])
def test_a_list_that_cannot_be_read(payload: bytes) -> None:
    with pytest.raises(ValueError):
        Forwarded(delivery(payload))
