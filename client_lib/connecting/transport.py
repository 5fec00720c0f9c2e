"""One connection to one broker: a `Conversation` on a socket (shell).

* One attempt at one IP address, started at once; the planner keeps the time.
* `abort` ends a connection without waiting for a peer that may be hung.
* `write` sends encoded frames, in the thread that calls it; `read_on` is backpressure, for receivers without a limit;
  after a failed write, data that the broker had sent before (possibly confirms) is still read.
* Heartbeats are sent twice in the negotiated interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import pika.exceptions

from client_lib.connecting.conversation import TIME as TIME
from client_lib.connecting.conversation import Answer, ConnectionState, Conversation, Host
from client_lib.connecting.lending import Lending
from client_lib.connecting.methods import Channel
from client_lib.connecting.opening import Opening, Result
from client_lib.connecting.proposal import Parameters
from client_lib.connecting.services import AsyncioServices, Services, ThreadServices
from client_lib.connecting.services import Timer as Timer
from client_lib.connecting.stream import Reader, Stream
from client_lib.connecting.wire import HEARTBEAT

ChannelClosed = pika.exceptions.ChannelClosedByBroker
CLIENT_ID, CONN_ID = "qpid.client_id", "qpid.conn_id"
"""In the properties of start-ok: as in our own log."""


def _now() -> int:
    return time.monotonic_ns() // 1000


def _today() -> int:
    return time.time_ns() // 1000


class HeartbeatLost(Exception):
    """The broker was silent for too long."""


class Aborted(Exception):
    """We ended the connection ourselves."""


@dataclass(frozen=True)
class Target:
    """The parameters, and the IP address and port to connect to."""

    parameters: Parameters
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


class Transport:
    """Never used again after it ended.  In the loop's thread, but for `write`."""

    def __init__(self, target: Target, services: Services, listener: Listener) -> None:
        self.cause: BaseException | None = None
        """The error that ended the stream."""
        opened, blocked = (lambda: listener.opened(self)), (lambda: listener.blocked(self))
        host = Host(self.write, opened, self._tuned, blocked, self._finished, _now, _today, self._aside)
        self.conversation = Conversation(target.parameters, target.identity, host)
        self._services, self._listener = services, listener
        self._ended = False
        self._eof = False
        self._stream: Stream | None = None
        self._beat: Timer | None = None
        told = Result(lambda: listener.reached(self), self._connected, self._not_connected)
        self._opening = Opening(target.parameters, services, told)
        self._opening.start(target.ip, target.port)

    # -- of the conversation

    @property
    def params(self) -> Parameters:
        """As negotiated."""
        return self.conversation.params

    @property
    def is_open(self) -> bool:
        return self.conversation.is_open

    @property
    def nearly_open(self) -> bool:
        """connection.open was written; the broker's answer is next."""
        return self.conversation.state is ConnectionState.TUNED

    @property
    def refusal(self) -> tuple[int, str] | None:
        """Code and text of the broker's connection.close."""
        return self.conversation.refusal

    @property
    def blocked(self) -> str:
        """The broker's reason for blocking publishers; empty while it does not."""
        return self.conversation.blocked

    @property
    def body_max(self) -> int:
        """Octets of a body that fit into one frame."""
        return self.conversation.body_max

    def channel(self, on_open_callback: Callable[[Any], Any]) -> Channel:
        return self.conversation.channel(on_open_callback)

    def close(self) -> None:
        """Says goodbye; `lost` is called when the broker has answered."""
        self.conversation.close()

    # -- for the conversation

    def _tuned(self, heartbeat: int) -> None:
        if heartbeat:
            self._beat = self._services.call_later(heartbeat / 2, lambda: self._send_beat(heartbeat))

    def _send_beat(self, heartbeat: int) -> None:
        self.write(HEARTBEAT)
        self._tuned(heartbeat)

    def _finished(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    def _aside(self, work: Callable[[], Answer], done: Callable[[Answer], None]) -> None:
        def run() -> None:
            with self._services.aside:
                answer = work()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._services.add_callback_threadsafe(lambda: done(answer))

        Thread(target=run, name="login", daemon=True).start()

    # -- the stream

    def _connected(self, sock: socket.socket) -> None:
        quick = self.conversation.received_quick if self._services.threaded else None
        reader = Reader(self.conversation.received, self._peer_closed, self._lost, quick)
        try:
            self._stream = Stream(sock, self._services, reader)
        except (OSError, ValueError) as error:
            sock.close()
            self._not_connected(error)
            return
        self.conversation.begin()

    def _not_connected(self, error: BaseException) -> None:
        self.cause = error
        self._end(pika.exceptions.AMQPConnectionError(error))

    def _peer_closed(self) -> None:
        self._eof = True

    def _lost(self, error: BaseException | None) -> None:
        self.cause = error
        if error is not None:
            self._end(pika.exceptions.StreamLostError(f"Stream connection lost: {error!r}"))
        else:
            self._end(pika.exceptions.StreamLostError("Transport indicated EOF") if self._eof else None)

    def _end(self, error: Exception | None) -> None:
        self._ended = True
        if self._beat is not None:
            self._beat.cancel()
        self._stream = None
        lost = self.conversation.ended(error)
        (self._listener.lost if lost else self._listener.failed)(self, self.conversation.error or Aborted())

    @property
    def hung_up(self) -> bool:
        """The peer has ended the connection before it sent any data."""
        ended = self._eof or isinstance(self.cause, (ConnectionResetError, BrokenPipeError))
        return ended and not self.conversation.bytes_received

    # -- using it, and the end

    def abort(self, reason: Exception) -> None:
        """Ends the connection at once; `failed` or `lost` is called soon after.  Harmless when it has ended already."""
        if self._ended:
            return
        self._ended = True
        self.conversation.error = reason
        if self._stream is not None:
            self._stream.abort()
        else:
            self._opening.abort()
            self._services.add_callback_threadsafe(lambda: self._end(None))

    def forget(self) -> None:
        """Closes our copy of the socket without sending anything, in a child after fork(2): the connection is the
        parent's."""
        self._opening.forget()
        if self._stream is not None:
            with contextlib.suppress(OSError):
                os.close(self._stream.sock.detach())

    def write(self, data: bytes) -> None:
        """Sends encoded frames, from any thread; nothing if the connection has just ended."""
        stream = self._stream
        if stream is not None:
            stream.write(data)

    def read_on(self, on: bool) -> None:
        """Stops reading, or goes on with it."""
        if self._stream is not None:
            self._stream.read_on(on)

    @property
    def reading(self) -> bool:
        return self._stream is None or self._stream.reading

    @property
    def lending(self) -> Lending | None:
        """How threads that wait read; None: they do not."""
        return self._stream.lending if self._stream is not None else None

    @property
    def backlog(self) -> int:
        """Octets waiting to be written to the socket."""
        return self._stream.backlog if self._stream is not None else 0


class Loop:
    """Where transports live."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def call_soon(self, callback: Callable[[], None]) -> None:
        """From any thread; asyncio's from its own only.  Nothing happens if the loop is closed."""
        self._services.call_soon(callback)

    def call_threadsafe(self, callback: Callable[[], None]) -> None:
        """From any thread.  Nothing happens if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._services.add_callback_threadsafe(callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """`delay` in seconds."""
        return self._services.call_later(delay, callback)

    def connect(self, target: Target, listener: Listener) -> Transport:
        """Starts to connect; the listener is called later."""
        return Transport(target, self._services, listener)

    def run(self) -> None:
        """Runs until `stop`; not for asyncio's loop, which the application runs."""
        self._services.run()

    def stop(self) -> None:
        self._services.stop()

    def close(self) -> None:
        self._services.close()


def thread_loop() -> Loop:
    """A loop of its own, for `run`."""
    return Loop(ThreadServices())


def asyncio_loop(loop: asyncio.AbstractEventLoop) -> Loop:
    return Loop(AsyncioServices(loop))


def root(error: BaseException) -> BaseException:
    """The root cause inside pika's exceptions."""
    for _ in range(6):
        inner = error.args[-1] if error.args else None
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def describe(error: BaseException) -> str:
    """The root cause in words."""
    error = root(error)
    return str(error) or type(error).__name__
