"""A channel of a connection: its states, requests, and what arrives (pure: frames in, octets out).

    OPENING --channel.open-ok--> OPEN --close()--> CLOSING --close-ok--> CLOSED      any --channel.close--> CLOSED

* One request at a time waits for its answer; further ones are held back meanwhile.  Publishing, acknowledgements and
  rejections are not.
* A method that cannot be encoded is refused at once, in the call.
* Confirms and deliveries are usually taken by `client_lib.connecting.incoming`, without pika's objects: see `takers`.
* The methods of AMQP are in `client_lib.connecting.methods`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from pika.exceptions import ChannelClosedByBroker, ChannelClosedByClient, ChannelWrongStateError
from pika.frame import Method
from pika.spec import Basic
from pika.spec import Channel as Methods

from client_lib.connecting.contents import WITH_CONTENT, Contents
from client_lib.connecting.incoming import Confirmed, Taker
from client_lib.connecting.wire import checked_method, method_frame

LOGGER = logging.getLogger("client_lib")
Callback = Callable[[Any], Any]
"""Takes the frame of an answer."""
OnMessage = Callable[[Any, Any, Any, bytes], Any]
"""channel, method, properties, body."""
OnClose = Callable[[Any, Exception], Any]


class ChannelState(Enum):
    OPENING = "opening, but is not usable yet"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class Conveyor(Protocol):
    """The part of a connection that a channel uses."""

    params: Any
    """Has `frame_max`."""
    supports_confirms: bool

    @property
    def body_max(self) -> int: ...

    def write(self, data: bytes) -> None: ...

    def channel(self, on_open_callback: Callable[[Any], Any]) -> Any: ...


class _Request(NamedTuple):
    frame: bytes
    answers: tuple[type, ...]
    done: Callback | None


class ChannelCore:
    """What a channel is without the methods of AMQP."""

    def __init__(self, connection: Conveyor, number: int, opened: Callable[[Any], Any]) -> None:
        self.connection, self.channel_number = connection, number
        self.state = ChannelState.OPENING
        self.takers: dict[bytes, Taker] = {}
        self.confirmed: Confirmed | None = None
        self.ending: Callable[[], None] = lambda: None
        """Called when the broker has closed it, before the answer is written: nothing may be written after that."""
        self.gone: Callable[[], None] = lambda: None
        """Called when it has ended, first of all."""
        self._opened = opened
        self._consumers: dict[str, OnMessage] = {}
        self._contents = Contents()
        self._waiting: _Request | None = None
        self._held: deque[_Request] = deque()
        self._on_close: list[OnClose] = []
        self._on_return: list[OnMessage] = []
        self._on_cancel: list[Callback] = []
        self._on_flow: list[Callback] = []

    def __int__(self) -> int:
        return self.channel_number

    @property
    def is_open(self) -> bool:
        return self.state is ChannelState.OPEN

    @property
    def consumer_tags(self) -> list[str]:
        return list(self._consumers)

    def add_on_close_callback(self, callback: OnClose) -> None:
        """callback(channel, reason)"""
        self._on_close.append(callback)

    def add_on_return_callback(self, callback: OnMessage) -> None:
        self._on_return.append(callback)

    def add_on_cancel_callback(self, callback: Callback) -> None:
        self._on_cancel.append(callback)

    def add_on_flow_callback(self, callback: Callback) -> None:
        self._on_flow.append(callback)

    # -- requests

    def require_open(self) -> None:
        if self.state is not ChannelState.OPEN:
            raise ChannelWrongStateError(f"Channel is {self.state.value}.")

    def send(self, method: Any) -> None:
        """A method without an answer.  Raises what cannot be encoded."""
        self.connection.write(checked_method(self.channel_number, method, self.connection.params.frame_max))

    def ask(self, method: Any, done: Callback | None, *answers: type) -> None:
        """Sends a method, now or when the answers before it have come.  Without `answers` none is waited for.  Raises
        what cannot be encoded."""
        self.require_open()
        frame = checked_method(self.channel_number, method, self.connection.params.frame_max)
        self._held.append(_Request(frame, answers, done))
        self._send_held()

    def _send_held(self) -> None:
        while self._held and self._waiting is None:
            request = self._held.popleft()
            if request.answers:
                self._waiting = request
            self.connection.write(request.frame)

    # -- life

    def open(self) -> None:
        self._waiting = _Request(b"", (Methods.OpenOk,), self._open_ok)
        self.connection.write(method_frame(self.channel_number, Methods.Open()))

    def _open_ok(self, _frame: Any) -> None:
        if self.state is ChannelState.OPENING:
            self.state = ChannelState.OPEN
            self._opened(self)

    def close(self, reply_code: int = 0, reply_text: str = "Normal shutdown") -> None:
        """Nothing more is sent, and of what arrives only the end counts."""
        if self.state in (ChannelState.CLOSING, ChannelState.CLOSED):
            self.require_open()
        self.state = ChannelState.CLOSING
        self._held.clear()
        self._waiting = None
        self.connection.write(method_frame(self.channel_number, Methods.Close(reply_code, reply_text, 0, 0)))

    def ended(self, reason: Exception) -> None:
        """The channel is gone, or its connection."""
        if self.state is ChannelState.CLOSED:
            return
        self.state = ChannelState.CLOSED
        self._held.clear()
        self._waiting = None
        self.gone()
        for told in self._on_close:
            told(self, reason)

    # -- frames of the broker

    def frame(self, frame: Any) -> None:
        """One of pika's frames.  Raises what ends the connection."""
        if self.state is ChannelState.CLOSED:
            return
        if isinstance(frame, Method):
            self._method(frame)
        elif self.state is not ChannelState.CLOSING:
            content = self._contents.add(frame)
            if content is not None:
                self._content(*content)

    def _method(self, frame: Method[Any]) -> None:
        method = frame.method
        if isinstance(method, Methods.Close):
            self.ending()
            self._closed_by_broker(method)
        elif self.state is ChannelState.CLOSING:
            if isinstance(method, Methods.CloseOk):
                self.ended(ChannelClosedByClient(0, "Normal shutdown"))
        elif isinstance(method, WITH_CONTENT):
            self._contents.begin(method)
        elif self._waiting is not None and isinstance(method, self._waiting.answers):
            self._answered(frame)
        else:
            self._unasked(frame)

    def _closed_by_broker(self, method: Any) -> None:
        self.connection.write(method_frame(self.channel_number, Methods.CloseOk()))
        self.ended(ChannelClosedByBroker(method.reply_code, method.reply_text))

    def _answered(self, *answer: Any) -> None:
        request, self._waiting = self._waiting, None
        self._send_held()
        if request is not None and request.done is not None:
            request.done(*answer)

    def _unasked(self, frame: Any) -> None:
        if isinstance(frame.method, Methods.Flow):
            self._tell(self._on_flow, frame)
        elif isinstance(frame.method, Basic.Cancel):
            self.forget_consumer(frame.method.consumer_tag)
            self._tell(self._on_cancel, frame)
        else:
            LOGGER.debug("channel %d: nothing waits for %r", self.channel_number, frame.method)

    def _content(self, method: Any, properties: Any, body: bytes) -> None:
        if isinstance(method, Basic.Return):
            self._tell(self._on_return, self, method, properties, body)
        elif isinstance(method, Basic.Deliver):
            taker = self._consumers.get(method.consumer_tag)
            if taker is not None:
                taker(self, method, properties, body)
        elif self._waiting is not None and Basic.GetOk in self._waiting.answers:
            self._answered((method, properties, body))

    def forget_consumer(self, consumer_tag: str) -> None:
        self._consumers.pop(consumer_tag, None)
        self.takers.pop(consumer_tag.encode(), None)

    def _tell(self, callbacks: list[Any], *what: Any) -> None:
        for callback in list(callbacks):
            callback(*what)
