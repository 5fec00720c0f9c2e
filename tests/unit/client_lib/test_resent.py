"""The header x-resent, put into encoded properties."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_lib.core.resent import mark_resent
from client_lib.message import Message
from client_lib.properties import decode_properties

MESSAGES = st.builds(
    Message,
    content=st.one_of(st.binary(), st.text(max_size=5)),
    correlation_id=st.none() | st.text(max_size=20),
    priority=st.none() | st.integers(0, 255),
    ttl=st.none() | st.integers(0, 1000),
    reply_to=st.none() | st.just("back"),
    properties=st.dictionaries(st.text("abc", min_size=1, max_size=5), st.integers(0, 9) | st.text(max_size=5)),
)


def fields(payload: bytes) -> dict[str, Any]:
    found = decode_properties(payload)
    return {name: getattr(found, name) for name in type(found).__slots__}


@given(MESSAGES)
def test_everything_else_stays(message: Message) -> None:
    payload = message.encode("id:1", False, "key", None)
    before, after = fields(payload), fields(mark_resent(payload))
    assert after.pop("headers") == {**(before.pop("headers") or {}), "x-resent": True}
    assert before == after
    assert mark_resent(payload) == mark_resent(mark_resent(payload))


@pytest.mark.parametrize("encoding", ["", "utf-8"])
def test_other_properties_before_the_headers(encoding: str) -> None:
    pika = pytest.importorskip("pika")
    properties = pika.BasicProperties(content_type="a/b", content_encoding=encoding, headers={"a": 1}, app_id="x")
    after = decode_properties(mark_resent(b"".join(properties.encode())))
    assert (after.content_type, after.content_encoding, after.app_id) == ("a/b", encoding, "x")
    assert after.headers == {"a": 1, "x-resent": True}
