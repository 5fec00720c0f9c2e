"""A publish as octets, compared with pamqp's."""

from typing import Any

import pamqp.body
import pamqp.frame
import pamqp.header
import pytest
from pamqp import commands

from qpidd_py.amqp.codec import encode_properties
from qpidd_py.amqp.fields import FieldError
from qpidd_py.amqp.frames import publish_frames


def by_pamqp(channel: int, method: commands.Basic.Publish, body: bytes, piece: int, **properties: Any) -> bytes:
    header = pamqp.header.ContentHeader(body_size=len(body), properties=commands.Basic.Properties(**properties))
    pieces: list[Any] = [method, header]
    pieces += [pamqp.body.ContentBody(body[at : at + piece]) for at in range(0, len(body), piece)]
    return b"".join(bytes(pamqp.frame.marshal(each, channel)) for each in pieces)


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 10_000])
@pytest.mark.parametrize("mandatory", [False, True])
def test_a_publish_is_as_pamqp_writes_it(size: int, mandatory: bool) -> None:
    body = bytes(range(251)) * 40
    properties: dict[str, Any] = {"message_id": "m", "priority": 3, "headers": {"a": "b"}}
    method = commands.Basic.Publish(exchange="e", routing_key="é", mandatory=mandatory)
    header = encode_properties(properties, size)
    found = publish_frames(7, "e", "é", header, body[:size], 4096, mandatory)
    assert found == by_pamqp(7, method, body[:size], 4088, **properties)


def test_no_frame_is_above_the_limit_and_a_key_of_256_octets_is_refused() -> None:
    octets = publish_frames(1, "", b"k" * 255, encode_properties({}, 5000), bytes(5000), 4096)
    assert b"\x03\x00\x01\x00\x00\x0f\xf8" in octets and len(octets) < 5000 + 4 * 8 + 300
    with pytest.raises(FieldError):
        publish_frames(1, "", "k" * 256, b"", b"", 4096)
