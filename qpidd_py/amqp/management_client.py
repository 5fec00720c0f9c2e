"""Management requests to a broker over its AMQP port.  Pure: bytes in, events and bytes out.

Theory.  One channel: it consumes (no-ack) from the pseudo queue `qpid.management`, and publishes requests to the
exchange of that name, the method as routing key, the arguments as a JSON object, a correlation id of its own.  Answers
come back as deliveries with the same correlation id, in any order, so several requests may be outstanding.

    connection open → channel.open → open-ok → basic.consume → consume-ok: event Ready
    request() before Ready waits in the object; after Ready it is written at once.

The end of the connection or of the channel is one event, `Closed`, `VersionRefused` or `PeerSilent`; outstanding
requests are then void, and whether the broker has acted on them is unknown.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from qpidd_py.amqp.client import AmqpClient
from qpidd_py.amqp.client_handshake import (
    ClientHandshake,
    ClientState,
    CloseAnswered,
    Closed,
    ContentReceived,
    Login,
    MethodReceived,
    Opened,
    PeerSilent,
    VersionRefused,
    read_close,
)
from qpidd_py.amqp.constants import FRAME_MIN_SIZE
from qpidd_py.amqp.fields import FieldError, Reader, encode_shortstr
from qpidd_py.amqp.frames import publish_frames
from qpidd_py.errors import ConnectionException, ReplyCode

MANAGEMENT = "qpid.management"
"""Name of the pseudo queue and of the exchange."""

ADMIN_PROPERTIES: Mapping[str, Any] = {"qpid.ha-admin": 1}
"""Client properties that a backup requires to admit a connection."""

MAX_ANSWER = 256 << 20
"""Octets of one answer; a longer one is a protocol error."""

CHANNEL = 1
BASIC = 60
_CHANNEL_OPEN, _CHANNEL_OPEN_OK, _CHANNEL_CLOSE, _CHANNEL_CLOSE_OK = (20, 10), (20, 11), (20, 40), (20, 41)
_BASIC_CONSUME, _BASIC_CONSUME_OK = (BASIC, 20), (BASIC, 21)
_BASIC_CANCEL, _BASIC_RETURN, _BASIC_DELIVER = (BASIC, 30), (BASIC, 50), (BASIC, 60)

_NO_ACK = 0x02
_CONTENT_TYPE, _CORRELATION_ID = 1 << 15, 1 << 10
_PROPERTY_READERS = (
    ("content_type", 1 << 15, Reader.shortstr),
    ("content_encoding", 1 << 14, Reader.shortstr),
    ("headers", 1 << 13, Reader.table),
    ("delivery_mode", 1 << 12, Reader.octet),
    ("priority", 1 << 11, Reader.octet),
    ("correlation_id", _CORRELATION_ID, Reader.shortstr),
)


class Ready(NamedTuple):
    """The broker takes requests; limits and properties as negotiated."""

    opened: Opened


class Answer(NamedTuple):
    """`number` is what `request` returned; `result` counts when `ok`, else `error` and `code` do, a reply code of
    AMQP; 0 if the broker named none."""

    number: int
    ok: bool
    result: Any
    error: str
    code: int = 0


ManagementEvent = Ready | Answer | Closed | VersionRefused | PeerSilent | CloseAnswered


class ManagementClient:
    """See the theory above.  Not thread-safe."""

    def __init__(
        self,
        login: Login | None = None,
        properties: Mapping[str, Any] = ADMIN_PROPERTIES,
        *,
        heartbeat: int = 0,
        consume: bool = True,
        virtual_host: str = "/",
    ) -> None:
        """`heartbeat`: seconds, 0 = none.  With `consume=False`, Ready comes when the channel is open: a ping, without
        requests."""
        self.connection = AmqpClient(ClientHandshake(login, properties, virtual_host=virtual_host, heartbeat=heartbeat))
        self.outstanding: set[int] = set()
        self._opened: Opened | None = None
        self._ready = False
        self._consume = consume
        self._next = 0
        self._waiting: list[bytes] = []
        self._answering = ""
        self._missing = 0
        self._body = bytearray()
        self._parts: dict[int, list[Any]] = {}

    # -- what the caller does

    def request(self, method: str, arguments: Mapping[str, Any] | None = None) -> int:
        """Queue a request; returns the number that its `Answer` will carry."""
        self._next += 1
        self.outstanding.add(self._next)
        body = json.dumps(arguments or {}, separators=(",", ":")).encode()
        encoded = self._publish(method, str(self._next), body)
        if self._ready:
            self.connection.handshake.write(encoded)
        else:
            self._waiting.append(encoded)
        return self._next

    def take_output(self) -> bytes:
        return self.connection.take_output()

    def tick(self, now: float) -> PeerSilent | None:
        return self.connection.tick(now)

    def close(self) -> None:
        self.connection.handshake.close()

    @property
    def closed(self) -> bool:
        return self.connection.state is ClientState.CLOSED

    # -- what the broker does

    def feed(self, data: bytes) -> list[ManagementEvent]:
        """Raises `ConnectionException` when the broker breaks the protocol."""
        try:
            found = [self._event(event) for event in self.connection.feed(data)]
        except (FieldError, ConnectionException) as error:
            self.connection.handshake.state = ClientState.CLOSED
            if isinstance(error, ConnectionException):
                raise
            raise ConnectionException(ReplyCode.SYNTAX_ERROR, f"SYNTAX_ERROR - {error}") from error
        return [event for event in found if event is not None]

    def _event(self, event: object) -> ManagementEvent | None:
        match event:
            case Opened():
                self._opened = event
                self._method(_CHANNEL_OPEN, b"\0")
            case MethodReceived():
                return self._received(event.payload)
            case ContentReceived():
                return self._content(event)
            case Closed() | VersionRefused() | CloseAnswered():
                return event
        return None

    def _received(self, payload: bytes) -> ManagementEvent | None:
        reader = Reader(payload)
        method = reader.short(), reader.short()
        if method == _CHANNEL_OPEN_OK and not self._consume:
            return self._now_ready()
        if method == _CHANNEL_OPEN_OK:
            # reserved, queue, consumer tag (empty: the broker makes one), bits, arguments
            self._method(_BASIC_CONSUME, b"\0\0" + encode_shortstr(MANAGEMENT) + b"\0%c" % _NO_ACK + bytes(4))
        elif method == _BASIC_CONSUME_OK:
            return self._now_ready()
        elif method == _CHANNEL_CLOSE:
            self._method(_CHANNEL_CLOSE_OK)
            return self._given_up(read_close(reader))
        elif method == _BASIC_CANCEL:
            return self._given_up(Closed(ReplyCode.CONNECTION_FORCED, "the broker cancelled our consumer", *method))
        elif method == _BASIC_RETURN:
            return self._given_up(Closed(reader.short(), reader.shortstr(), *method))
        return None

    def _now_ready(self) -> Ready:
        assert self._opened is not None, "a channel method came before open-ok"
        self._ready = True
        for encoded in self._waiting:
            self.connection.handshake.write(encoded)
        self._waiting.clear()
        return Ready(self._opened)

    def _given_up(self, closed: Closed) -> Closed:
        # The connection has a single channel: without it, it is useless.
        self._ready = False
        self.connection.handshake.close()
        return closed

    def _content(self, event: ContentReceived) -> Answer | None:
        if event.is_header:
            self._begin_answer(Reader(event.payload))
        else:
            self._body += event.payload
            self._missing -= len(event.payload)
        if self._missing < 0:
            raise ConnectionException(ReplyCode.UNEXPECTED_FRAME, f"{-self._missing} octets more than announced")
        return self._end_answer() if self._missing == 0 else None

    def _begin_answer(self, reader: Reader) -> None:
        reader.long()  # class, weight
        self._missing = reader.longlong()
        if self._missing > MAX_ANSWER:
            raise ConnectionException(ReplyCode.CONTENT_TOO_LARGE, f"an answer of {self._missing} octets")
        flags = reader.short()
        found = {name: read(reader) for name, flag, read in _PROPERTY_READERS if flags & flag}
        self._answering = str(found.get("correlation_id", ""))
        self._body.clear()

    def _end_answer(self) -> Answer | None:
        number = int(self._answering) if self._answering.isdecimal() else 0
        if number not in self.outstanding:
            return None
        try:
            answer = json.loads(bytes(self._body))
            if answer.get("more"):
                self._parts.setdefault(number, []).extend(answer["result"])
                return None
            self.outstanding.discard(number)
            parts = self._parts.pop(number, None)
            if answer["ok"]:
                return Answer(number, True, parts + answer["result"] if parts else answer.get("result"), "")
            text = str(answer.get("error", "no reason given"))
            return Answer(number, False, None, text, int(answer.get("code", 0)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.outstanding.discard(number)
            return Answer(number, False, None, f"unreadable answer: {type(error).__name__}: {error}")

    # -- frames

    def _method(self, method: tuple[int, int], arguments: bytes = b"") -> None:
        self.connection.handshake.send_method(CHANNEL, *method, arguments)

    def _publish(self, method: str, correlation_id: str, body: bytes) -> bytes:
        flags = _CONTENT_TYPE | _CORRELATION_ID
        header = BASIC.to_bytes(2, "big") + b"\0\0" + len(body).to_bytes(8, "big") + flags.to_bytes(2, "big")
        header += encode_shortstr("application/json") + encode_shortstr(correlation_id)
        # Requests are short, and may be encoded before `tune`.
        return publish_frames(CHANNEL, MANAGEMENT, method, header, body, FRAME_MIN_SIZE)
