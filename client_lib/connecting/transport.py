"""All access to pika's private parts, in one place (shell).

`Loop` hides which of pika's loops runs us: its own in a thread of ours (`thread_loop`), or asyncio's (`asyncio_loop`).
`Transport` is one of pika's connections with what fail-over needs and pika's public interface does not give:

* one attempt at one IP address, started at once: pika's own workflow looks names up again and tries one record after
  the other; pika's timers are not used, since the planner keeps the time;
* `abort`: end a connection without waiting for a peer that may be hung (pika's own heartbeat checker does it this way);
* a `Stream` of ours in place of pika's: `write` sends several frames in one piece, in the thread that calls it;
  `read_on` is backpressure, for receivers without a limit; after a failed write, data that the broker had sent before
  (possibly confirms) is still read;
* `blocked`: the reason of the last connection.blocked;
* `refusal`: code and text of the broker's connection.close; pika keeps only a repr of them while connecting;
* heartbeats are sent at the negotiated rate, which is never slower than ours; `watchdog` checks whether any arrive, not
  pika, because pika allows five more seconds and counts our own pauses as silence of the broker;
* deliveries and confirms are read in one step (`incoming.py`), other frames by pika; properties are decoded by us: pika
  1.4 converts floats to whole numbers, and an infinite one ends its connection, so the message would be delivered again
  for ever;
* the encoders of what is sent for each message: pika's own build three objects and marshal three times;
* a method that cannot be encoded is refused at once: pika would keep it while another one waits for its answer, and the
  error would end the connection.

Otherwise only public names of pika are used.  Written for pika 1.3 and 1.4.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pika
import pika.exceptions
import pika.heartbeat
from pika.adapters import asyncio_connection, base_connection
from pika.adapters.base_connection import BaseConnection
from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.adapters.utils import connection_workflow as workflow
from pika.adapters.utils.selector_ioloop_adapter import SelectorIOServicesAdapter

from client_lib.connecting.incoming import Confirmed, Incoming, Taker
from client_lib.connecting.stream import Reader, Stream
from client_lib.content import check_depth
from client_lib.message import read_properties

Properties = pika.BasicProperties
ChannelClosed = pika.exceptions.ChannelClosedByBroker
GET, GET_EMPTY = pika.spec.Basic.Get, pika.spec.Basic.GetEmpty
decode_frame: Callable[[bytes], tuple[int, Any]] = pika.frame.decode_frame

FRAME_OVERHEAD = 8
FRAME_END = b"\xce"
FRAME_HEAD = struct.Struct(">BHI")
HEADER_FRAME = 2
BODY_SIZE = struct.Struct(">xxxxQ")
BASIC_CLASS = 60
_ACK = struct.Struct(">BHIHHQBc")
CLIENT_ID, CONN_ID = "qpid.client_id", "qpid.conn_id"
"""In the properties of start-ok: as in our own log."""
TIME = "qpid.time"
"""In the properties of connection.start and start-ok: µs since 1970 by the sender's clock, when it sent it."""

_our_threads: set[int] = set()
_our_loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
"""In which our connections live."""


def _is_ours() -> bool:
    """Called in a thread or loop of ours."""
    try:
        return asyncio.get_running_loop() in _our_loops
    except RuntimeError:
        return threading.get_ident() in _our_threads


def _is_wanted(_record: logging.LogRecord) -> bool:
    """A reconnecting client makes pika log each failed attempt as several errors with a traceback; we report them as
    events and through the logger "client_lib".  What pika logs for the application's own connections is not touched,
    nor is anything when the application has set a level of "pika"."""
    return not _is_ours() or logging.getLogger("pika").level != logging.NOTSET


for _name in [name for name in sys.modules if name.startswith("pika.")]:
    logging.getLogger(_name).addFilter(_is_wanted)


class HeartbeatLost(Exception):
    """The broker was silent for too long."""


class Aborted(Exception):
    """We ended the connection ourselves."""


@dataclass(frozen=True)
class Target:
    """pika's parameters, and the IP address and port to connect to."""

    parameters: Any
    ip: str
    port: int
    identity: Mapping[str, str] = field(default_factory=dict)
    """Client properties that identify this connection in our own log."""


@dataclass(frozen=True)
class Listener:
    """Callbacks of a transport: exactly one of `opened` and `failed`; `lost` only after `opened`."""

    opened: Callable[[Transport], None]
    failed: Callable[[Transport, BaseException], None]
    lost: Callable[[Transport, BaseException], None]
    reached: Callable[[Transport], None] = lambda _: None
    """There is a TCP connection."""
    blocked: Callable[[Transport], None] = lambda _: None
    """The broker asks to stop publishing, or allows it again."""


class Transport(BaseConnection):  # type: ignore[misc]
    """One connection to one broker; never used again after it ended."""

    def __init__(self, target: Target, services: Any, listener: Listener) -> None:
        self.refusal: tuple[int, str] | None = None
        self.blocked = ""
        """The broker's reason for blocking publishers; empty while it does not."""
        self.heartbeat_offered = 0
        """Seconds, as proposed by the broker; 0 = none."""
        self.cause: BaseException | None = None
        """The error that ended the stream; pika keeps only its repr."""
        self._started = 0
        self._target = target
        self._listener = listener
        self._ended = False
        self._incoming = Incoming(self._frame)
        super().__init__(
            parameters=target.parameters,
            on_open_callback=listener.opened,
            on_open_error_callback=listener.failed,
            on_close_callback=listener.lost,
            custom_ioloop=services,
        )
        self.add_on_connection_blocked_callback(lambda _, frame: self._block(frame.method.reason or "no reason given"))
        self.add_on_connection_unblocked_callback(lambda _, frame: self._block(""))

    def _block(self, reason: str) -> None:
        self.blocked = reason
        self._listener.blocked(self)

    # -- connecting

    def _adapter_connect_stream(self) -> None:
        self._connection_workflow = _Connector(
            lambda _: base_connection._StreamingProtocolShim(self),
            self._nbio,
            lambda: self._listener.reached(self),
        )
        try:
            self._connection_workflow.start(self._record(), self.params, self._connector_done)
        except Exception as error:  # no such address family, no file descriptor left, ...
            failure = workflow.AMQPConnectorSocketConnectError(error)
            self._nbio.add_callback_threadsafe(functools.partial(self._connector_done, failure))

    def _record(self) -> tuple[Any, ...]:
        ip, port = self._target.ip, self._target.port
        found = socket.getaddrinfo(ip, port, 0, socket.SOCK_STREAM, socket.IPPROTO_TCP, socket.AI_NUMERICHOST)
        *kind, where = found[0]
        # pika checks the address with inet_pton, which knows no zones; the zone is a number in `where` as well
        return (*kind, (str(where[0]).partition("%")[0], *where[1:]))

    def _connector_done(self, result: Any) -> None:
        if isinstance(result, workflow.AMQPConnectorAborted):
            result = workflow.AMQPConnectionWorkflowAborted()
        elif isinstance(result, Exception):
            result = workflow.AMQPConnectionWorkflowFailed([result])
        self._unshim_connection_workflow_callback(self._on_connection_workflow_done, result)

    def _proto_connection_made(self, transport: Any) -> None:
        transport._deactivate()
        transport._state = transport._STATE_COMPLETED
        if not getattr(self.params, "tcp_nodelay", True):  # pika switches it on
            transport._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        reader = Reader(self._on_data_available, self._proto_eof_received, self._proto_connection_lost)
        super()._proto_connection_made(Stream(transport._sock, self._nbio, reader))

    def _proto_connection_lost(self, error: BaseException | None) -> None:
        self.cause = error
        super()._proto_connection_lost(error)

    def _on_connection_close_from_broker(self, method_frame: Any) -> None:
        self.refusal = (method_frame.method.reply_code, method_frame.method.reply_text)
        super()._on_connection_close_from_broker(method_frame)

    # -- identity and clocks

    @property
    def _client_properties(self) -> dict[str, Any]:
        """Called by pika when it writes start-ok."""
        return {**super()._client_properties, **self._target.identity, TIME: time.time_ns() // 1000}

    def _set_server_information(self, method_frame: Any) -> None:
        self._started = time.monotonic_ns() // 1000
        super()._set_server_information(method_frame)

    @property
    def broker(self) -> str:
        """The broker's name, as in its own log; empty if it did not send one."""
        return str((self.server_properties or {}).get("cluster_name", ""))

    def broker_wall(self) -> int | None:
        """A lower bound of the broker's clock now, in µs since 1970: its time in connection.start plus the time since
        that arrived.  None if it sent none."""
        said = (self.server_properties or {}).get(TIME)
        return int(said) + time.monotonic_ns() // 1000 - self._started if isinstance(said, int) and said > 0 else None

    @property
    def nearly_open(self) -> bool:
        """connection.open was written; the broker's answer is next."""
        return bool(self.connection_state == self.CONNECTION_TUNE)

    def _create_channel(self, channel_number: int, on_open_callback: Any) -> Any:
        self._incoming.body_max = self.body_max
        self._incoming.channels[channel_number] = channel = _Channel(self, channel_number, on_open_callback)
        channel.add_on_close_callback(lambda *_: self._incoming.channels.pop(channel_number, None))
        return channel

    def _on_data_available(self, data: bytes) -> None:
        self.bytes_received += len(data)
        self._incoming.feed(data)

    def _frame(self, data: bytes) -> int:
        """A frame that pika reads; the octets that were used."""
        used, frame = _read_header(data) if data[0] == HEADER_FRAME else decode_frame(data)
        if frame is not None:
            if isinstance(getattr(frame, "method", None), pika.spec.Channel.Close):
                channel = self._incoming.channels.get(frame.channel_number)
                if channel is not None:
                    channel.ending()
            self._process_frame(frame)
        return used

    # -- heartbeats

    def _tune_heartbeat_timeout(self, client_value: int, server_value: int) -> int:
        self.heartbeat_offered = server_value
        return min(client_value, server_value) if server_value else client_value

    def _create_heartbeat_checker(self) -> Any:
        return _Heart(self, self.params.heartbeat) if self.params.heartbeat else None

    @property
    def heartbeats_received(self) -> int:
        checker = self._heartbeat_checker
        return int(checker._heartbeat_frames_received) if checker is not None else 0

    # -- using it, and the end

    def abort(self, reason: Exception) -> None:
        """Ends the connection at once; `failed` or `lost` is called soon after.  Harmless when it has ended already."""
        if self._ended or self.is_closed:
            return
        self._ended = True
        with contextlib.suppress(workflow.AMQPConnectorException):  # the attempt could not begin, and will report that
            self._terminate_stream(reason)

    def forget(self) -> None:
        """Closes our copy of the socket without sending anything, in a child after fork(2): the connection is the
        parent's."""
        for sock in (getattr(self._transport, "sock", None), getattr(self._connection_workflow, "_sock", None)):
            if sock is not None:
                with contextlib.suppress(OSError):
                    os.close(sock.detach())

    def write(self, data: bytes) -> None:
        """Sends encoded frames, from any thread; nothing if the connection has just ended."""
        stream = self._transport
        if stream is not None:
            stream.write(data)

    def read_on(self, on: bool) -> None:
        """Stops reading, or goes on with it."""
        if self._transport is not None:
            self._transport.read_on(on)

    @property
    def reading(self) -> bool:
        return self._transport is None or bool(self._transport.reading)

    @property
    def backlog(self) -> int:
        """Octets waiting to be written to the socket."""
        return int(self._transport.backlog) if self._transport is not None else 0

    @property
    def body_max(self) -> int:
        """Octets of a body that fit into one frame."""
        return int(self.params.frame_max) - FRAME_OVERHEAD


class ThreadTransport(Transport, SelectConnection):  # type: ignore[misc]
    """On pika's own loop."""


class AsyncioTransport(Transport, asyncio_connection.AsyncioConnection):  # type: ignore[misc]
    """On a loop of asyncio."""


class _Channel(pika.channel.Channel):  # type: ignore[misc]
    """Encodes methods before pika keeps them, or notes what it expects.  Confirms and deliveries can be taken without
    pika's objects (see `client_lib.connecting.incoming`)."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.takers: dict[bytes, Taker] = {}
        self.confirmed: Confirmed | None = None
        self.ending: Callable[[], None] = lambda: None
        """Called when the broker has closed it, before the answer is written: nothing may be written after that."""

    def select_confirms(self, confirmed: Confirmed, done: Callable[[Any], None]) -> None:
        """Raises what pika raises if the broker knows no publisher confirms."""
        self.confirm_delivery(lambda _frame: None, callback=done)
        self.confirmed = confirmed

    def _rpc(self, method: Any, *arguments: Any, **named: Any) -> None:
        check_method(self, method)
        super()._rpc(method, *arguments, **named)

    def basic_consume(self, queue: str, *arguments: Any, **named: Any) -> Any:
        said: dict[str, Any] = {
            name: named.get(name) or default for name, default in (("consumer_tag", ""), ("arguments", {}))
        }
        check_method(self, pika.spec.Basic.Consume(queue=queue, **said))
        return super().basic_consume(queue, *arguments, **named)


class _Connector(workflow.AMQPConnector):  # type: ignore[misc]
    """pika's connector, which also reports the TCP connection."""

    def __init__(self, factory: Any, services: Any, reached: Callable[[], None]) -> None:
        super().__init__(factory, services)
        self._reached = reached

    def _on_tcp_connection_done(self, exc: BaseException | None) -> None:
        if exc is None:
            self._reached()
        try:
            super()._on_tcp_connection_done(exc)
        except (ValueError, OSError) as error:  # the peer has gone again already
            self._report_completion_and_cleanup(workflow.AMQPConnectorTransportSetupError(error))


class _Heart(pika.heartbeat.HeartbeatChecker):  # type: ignore[misc]
    """Sends heartbeats and checks nothing."""

    def _start_check_timer(self) -> None:
        pass


def _read_header(data: bytes) -> tuple[int, Any]:
    """As pika's decode_frame: octets used and the frame; (0, None) if it is not there yet."""
    if len(data) < FRAME_HEAD.size:
        return 0, None
    _, channel, size = FRAME_HEAD.unpack_from(data)
    end = FRAME_HEAD.size + size
    if len(data) <= end:
        return 0, None
    if data[end : end + 1] != FRAME_END:
        raise pika.exceptions.InvalidFrameError(f"a frame ends with {data[end : end + 1]!r}, expected {FRAME_END!r}")
    (body_size,) = BODY_SIZE.unpack_from(data, FRAME_HEAD.size)
    properties = read_properties(data[FRAME_HEAD.size + BODY_SIZE.size : end], Properties())
    return end + 1, pika.frame.Header(channel, body_size, properties)


class Timer(Protocol):
    def cancel(self) -> None: ...


class Loop:
    """One of pika's loops."""

    def __init__(self, services: Any, transport: type[Transport]) -> None:
        self._services = services
        self._transport = transport

    def call_soon(self, callback: Callable[[], None]) -> None:
        """From any thread; asyncio's from its own only.  Nothing happens if the loop is closed."""
        self.call_threadsafe(callback)

    def call_threadsafe(self, callback: Callable[[], None]) -> None:
        """From any thread.  Nothing happens if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._services.add_callback_threadsafe(callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """`delay` in seconds."""
        timer: Timer = self._services.call_later(delay, callback)
        return timer

    def connect(self, target: Target, listener: Listener) -> Transport:
        """Starts to connect; the listener is called later."""
        return self._transport(target, self._services, listener)

    def run(self) -> None:
        """Runs until `stop`; not for asyncio's loop, which the application runs."""
        _our_threads.add(threading.get_ident())
        try:
            self._services.run()
        finally:
            _our_threads.discard(threading.get_ident())

    def stop(self) -> None:
        self._services.stop()

    def close(self) -> None:
        self._services.close()


class _AsyncioLoop(Loop):
    def call_soon(self, callback: Callable[[], None]) -> None:
        loop = self._services.get_native_ioloop()
        if not loop.is_closed():
            loop.call_soon(callback)  # without the system call that wakes it from another thread


def thread_loop() -> Loop:
    """A loop of its own, for `run`."""
    return Loop(SelectorIOServicesAdapter(IOLoop()), ThreadTransport)


def asyncio_loop(loop: asyncio.AbstractEventLoop) -> Loop:
    _our_loops.add(loop)
    return _AsyncioLoop(asyncio_connection._AsyncioIOServicesAdapter(loop), AsyncioTransport)


def root(error: BaseException) -> BaseException:
    """The root cause inside pika's exceptions."""
    for _ in range(6):
        inner = getattr(error, "exceptions", None) or getattr(error, "exception", None) or error.args
        inner = inner[-1] if isinstance(inner, (tuple, list)) and inner else inner
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def describe(error: BaseException) -> str:
    """The root cause in words."""
    error = root(error)
    return str(error) or type(error).__name__


def check_method(channel: Any, method: Any) -> None:
    """Raises what pika's encoder raises, and ValueError for a method that does not fit into a frame, or whose arguments
    lie too deep in each other."""
    check_depth(getattr(method, "arguments", None) or {}, "arguments")
    size, most = sum(map(len, method.encode())) + 4, channel.connection.params.frame_max - FRAME_OVERHEAD
    if size > most:
        raise ValueError(f"{method.NAME} has {size} octets, {most} fit into a frame")


def cancel_consumer(channel: Any, consumer_tag: str, done: Callable[[Any], None]) -> None:
    """basic.cancel; messages that arrive before the answer are delivered as before.  pika's own method returns messages
    that need an acknowledgement at once, drops the others, and confuses the answers of two cancels."""
    ok = pika.spec.Basic.CancelOk

    def answered(frame: Any) -> None:
        channel.takers.pop(consumer_tag.encode(), None)
        channel._on_cancelok(frame)
        done(frame)

    channel._rpc(pika.spec.Basic.Cancel(consumer_tag), answered, [(ok, {"consumer_tag": consumer_tag})])


def publish_method(channel: int, exchange: str, routing_key: str, mandatory: bool) -> bytes:
    """The frame of a basic.publish."""
    method = pika.spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    return bytes(pika.frame.Method(channel, method).marshal())


def ack(channel: int, delivery_tag: int, multiple: bool) -> bytes:
    """The frame of a basic.ack."""
    return _ACK.pack(1, channel, 13, BASIC_CLASS, 80, delivery_tag, multiple, FRAME_END)


def flow_ok(channel: int, active: bool) -> bytes:
    """The frame of a channel.flow-ok."""
    return bytes(pika.frame.Method(channel, pika.spec.Channel.FlowOk(active=active)).marshal())


def content_frames(channel: int, payload: bytes, body: bytes, body_max: int) -> list[bytes]:
    """The header frame and the body frames of a message; `payload` from Message.encode."""
    size = len(body)
    pieces = [struct.pack(">BHIHxxQ", 2, channel, len(payload) + 12, BASIC_CLASS, size), payload, FRAME_END]
    for start in range(0, size, body_max):
        piece = body if size <= body_max else body[start : start + body_max]
        pieces += (struct.pack(">BHI", 3, channel, len(piece)), piece, FRAME_END)
    return pieces
