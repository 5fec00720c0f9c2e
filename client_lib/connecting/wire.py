"""Frames as octets (pure): the encoders of what is sent for each message, and the reading of single frames.

pika's own encoder builds three objects of a message and marshals three times.  Its decoder of properties converts
floats to whole numbers, and an infinite one ends its connection, so the message would be delivered again for ever:
properties are read by `client_lib.message`.  All other frames are read and written by pika's codec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pika.frame
import pika.spec

from client_lib.content import check_depth
from client_lib.properties import read_properties

FRAME_OVERHEAD = 8
FRAME_END = b"\xce"
HEADER_FRAME = 2
BASIC_CLASS = 60
FRAME_HEAD = struct.Struct(">BHI")
BODY_SIZE = struct.Struct(">xxxxQ")
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
_CONTENT = struct.Struct(">BHIHxxQ")
_ACK = struct.Struct(">BHIHHQBc")

_decode: Callable[[bytes], tuple[int, Any]] = pika.frame.decode_frame


def read_frame(data: bytes) -> tuple[int, Any]:
    """Octets used and one of pika's frames; (0, None) if it is not there yet.  Raises what pika's decoder raises."""
    return read_header(data) if data[0] == HEADER_FRAME else _decode(data)


def read_header(data: bytes) -> tuple[int, Any]:
    """As `read_frame`, for a content header."""
    if len(data) < FRAME_HEAD.size:
        return 0, None
    _, channel, size = FRAME_HEAD.unpack_from(data)
    end = FRAME_HEAD.size + size
    if len(data) <= end:
        return 0, None
    if data[end : end + 1] != FRAME_END:
        raise pika.exceptions.InvalidFrameError(f"a frame ends with {data[end : end + 1]!r}, expected {FRAME_END!r}")
    (body_size,) = BODY_SIZE.unpack_from(data, FRAME_HEAD.size)
    properties = read_properties(data[FRAME_HEAD.size + BODY_SIZE.size : end], pika.BasicProperties())
    return end + 1, pika.frame.Header(channel, body_size, properties)


def method_frame(channel: int, method: Any) -> bytes:
    """Raises what pika's encoder raises."""
    return bytes(pika.frame.Method(channel, method).marshal())


def checked_method(channel: int, method: Any, frame_max: int) -> bytes:
    """As `method_frame`; raises ValueError, too, for a method that does not fit into a frame, or whose arguments lie
    too deep in each other."""
    check_depth(getattr(method, "arguments", None) or {}, "arguments")
    frame = method_frame(channel, method)
    size, most = len(frame) - FRAME_OVERHEAD, frame_max - FRAME_OVERHEAD
    if size > most:
        raise ValueError(f"{method.NAME} has {size} octets, {most} fit into a frame")
    return frame


def publish_method(channel: int, exchange: str, routing_key: str, mandatory: bool) -> bytes:
    """The frame of a basic.publish."""
    return method_frame(
        channel, pika.spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    )


def ack(channel: int, delivery_tag: int, multiple: bool) -> bytes:
    """The frame of a basic.ack."""
    return _ACK.pack(1, channel, 13, BASIC_CLASS, 80, delivery_tag, multiple, FRAME_END)


def flow_ok(channel: int, active: bool) -> bytes:
    """The frame of a channel.flow-ok."""
    return method_frame(channel, pika.spec.Channel.FlowOk(active=active))


def content_frames(channel: int, payload: bytes, body: bytes, body_max: int) -> list[bytes]:
    """The header frame and the body frames of a message; `payload` from Message.encode."""
    size = len(body)
    pieces = [_CONTENT.pack(2, channel, len(payload) + 12, BASIC_CLASS, size), payload, FRAME_END]
    for start in range(0, size, body_max):
        piece = body if size <= body_max else body[start : start + body_max]
        pieces += (FRAME_HEAD.pack(3, channel, len(piece)), piece, FRAME_END)
    return pieces
