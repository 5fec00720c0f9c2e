"""All that touches pika's inner workings, in one place (shell).

`Transport` is pika's SelectConnection with what fail-over needs and pika's public interface does not give:

* `abort`: end a connection without waiting for a peer that may be hung (pika's own heartbeat checker does it this way);
* `write`: several encoded frames in one piece; pika hands each frame to send(2) by itself otherwise;
* `blocked`: what connection.blocked has said last;
* `refusal`: code and text of a connection.close that came while connecting; pika keeps only a repr of them;
* the publish encoder: pika's own takes three objects and three marshallings a message.

Only public names of pika's are used otherwise.  Written against pika 1.3 and 1.4.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pika
import pika.exceptions
from pika.adapters.select_connection import IOLoop, SelectConnection

from client_lib.options import Options
from client_lib.url import Address

Properties = pika.BasicProperties
ChannelClosed = pika.exceptions.ChannelClosedByBroker
Loop = IOLoop

CHANNEL_FLOW = "qpid.channel_flow"
"""Tells the broker that we stop when channel.flow asks us to, and answer when we have; pika alone does neither."""
FRAME_OVERHEAD = 8
FRAME_END = b"\xce"
BASIC_CLASS = 60
_RECEIVE_SIZE = 16384

# A reconnecting client makes pika log each failed attempt as several errors with a traceback; we report them as
# events and through the logger "client_lib".  An application that sets the level of "pika" itself is left alone.
if logging.getLogger("pika").level == logging.NOTSET:
    logging.getLogger("pika").setLevel(logging.CRITICAL)


class HeartbeatLost(Exception):
    """The broker was silent for too long."""


class Aborted(Exception):
    """We ended the connection ourselves."""


class Transport(SelectConnection):  # type: ignore[misc]
    """One connection to one broker; never used again after it ended."""

    def __init__(
        self,
        parameters: Any,
        loop: Any,
        opened: Callable[[Transport], None],
        failed: Callable[[Transport, BaseException], None],
        lost: Callable[[Transport, BaseException], None],
        blocked: Callable[[Transport], None],
    ) -> None:
        """`blocked` is called when the broker asks us to stop publishing, and when it lets us go on."""
        self.refusal: tuple[int, str] | None = None
        self.blocked = ""
        """Why the broker asks us not to publish; empty while it does not."""
        self._on_blocked = blocked
        self._ended = False
        super().__init__(
            parameters=parameters,
            on_open_callback=opened,
            on_open_error_callback=failed,
            on_close_callback=lost,
            custom_ioloop=loop,
        )
        self.add_on_connection_blocked_callback(lambda _, frame: self._block(frame.method.reason or "no reason given"))
        self.add_on_connection_unblocked_callback(lambda _, frame: self._block(""))

    def _block(self, reason: str) -> None:
        self.blocked = reason
        self._on_blocked(self)

    def _on_connection_close_from_broker(self, method_frame: Any) -> None:
        self.refusal = (method_frame.method.reply_code, method_frame.method.reply_text)
        super()._on_connection_close_from_broker(method_frame)

    def _proto_connection_made(self, transport: Any) -> None:
        transport._MAX_RECV_BYTES = _RECEIVE_SIZE
        super()._proto_connection_made(transport)

    def abort(self, reason: Exception) -> None:
        """Ends the connection at once; `failed` or `lost` is called soon after.  Harmless when it has ended already."""
        if self._ended or self.is_closed:
            return
        self._ended = True
        self._terminate_stream(reason)

    def write(self, data: bytes) -> None:
        """Sends encoded frames."""
        self.bytes_sent += len(data)
        self._adapter_emit_data(data)

    @property
    def backlog(self) -> int:
        """Octets waiting to be written to the socket."""
        return int(self._get_write_buffer_size()) if self._transport is not None else 0

    @property
    def body_max(self) -> int:
        """Octets of a body that fit into one frame."""
        return int(self.params.frame_max) - FRAME_OVERHEAD


def describe(error: BaseException) -> str:
    """What really went wrong, inside the exceptions that pika wraps around it."""
    for _ in range(6):
        inner = getattr(error, "exceptions", None) or getattr(error, "exception", None) or error.args
        inner = inner[-1] if isinstance(inner, (tuple, list)) and inner else inner
        if not isinstance(inner, BaseException):
            break
        error = inner
    return str(error) or type(error).__name__


def parameters(address: Address, options: Options) -> Any:
    """pika's parameters for one attempt."""
    return pika.ConnectionParameters(
        host=address.host,
        port=address.port,
        virtual_host=address.virtual_host or options.virtual_host,
        credentials=pika.PlainCredentials(address.username or options.username, address.password or options.password),
        heartbeat=options.heartbeat,
        frame_max=options.frame_max,
        connection_attempts=1,
        socket_timeout=options.connect_timeout,
        stack_timeout=options.connect_timeout,
        client_properties=_client_properties(options.client_properties, options.client_id),
    )


def _client_properties(given: Mapping[str, Any], client_id: str | None) -> dict[str, Any]:
    properties = {"product": "qpidd-py client_lib", CHANNEL_FLOW: True, **given}
    if client_id is not None:
        properties.setdefault("connection_name", client_id)
    return properties


def encode_properties(properties: Any) -> bytes:
    """The property flags and values of a content header."""
    return b"".join(properties.encode())


def decode_properties(properties: Any) -> Any:
    return properties


def publish_method(channel: int, exchange: str, routing_key: str, mandatory: bool) -> bytes:
    """The frame of a basic.publish."""
    method = pika.spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    return bytes(pika.frame.Method(channel, method).marshal())


def flow_ok(channel: int, active: bool) -> bytes:
    """The frame of a channel.flow-ok."""
    return bytes(pika.frame.Method(channel, pika.spec.Channel.FlowOk(active=active)).marshal())


def content_frames(channel: int, payload: bytes, body: bytes, body_max: int) -> list[bytes]:
    """The header frame and the body frames of a message; `payload` from encode_properties."""
    size = len(body)
    pieces = [struct.pack(">BHIHxxQ", 2, channel, len(payload) + 12, BASIC_CLASS, size), payload, FRAME_END]
    for start in range(0, size, body_max):
        piece = body if size <= body_max else body[start : start + body_max]
        pieces += (struct.pack(">BHI", 3, channel, len(piece)), piece, FRAME_END)
    return pieces
