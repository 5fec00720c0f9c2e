"""Frames as octets: any frame, and a publish whole.  Without pamqp, as `client` is, so that tools start fast."""

from struct import Struct
from typing import Final

from qpidd_py.amqp.constants import BASIC_CLASS, FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD
from qpidd_py.amqp.fields import encode_shortstr

_HEAD = Struct(">BHI")
_METHOD = Struct(">HH")
_END: Final = bytes([FRAME_END])
_PUBLISH: Final = 40
_MANDATORY: Final = b"\x01"


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _HEAD.pack(kind, channel, len(payload)) + payload + _END


def method_frame(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return frame(FRAME_METHOD, channel, _METHOD.pack(class_id, method_id) + arguments)


def content_frames(channel: int, header: bytes, body: bytes, frame_max: int) -> bytes:
    """A header frame (`header` is its payload) and the body in frames of at most `frame_max` octets each."""
    room = frame_max - FRAME_OVERHEAD
    pieces = [frame(FRAME_BODY, channel, body[start : start + room]) for start in range(0, len(body), room)]
    return b"".join([frame(FRAME_HEADER, channel, header), *pieces])


def publish_frames(
    channel: int,
    exchange: str | bytes,
    routing_key: str | bytes,
    header: bytes,
    body: bytes,
    frame_max: int,
    mandatory: bool = False,
) -> bytes:
    """basic.publish with its content.  Raises `FieldError` for a name or key of more than 255 octets."""
    bits = _MANDATORY if mandatory else b"\0"
    arguments = b"\0\0" + encode_shortstr(exchange) + encode_shortstr(routing_key) + bits
    return method_frame(channel, BASIC_CLASS, _PUBLISH, arguments) + content_frames(channel, header, body, frame_max)
