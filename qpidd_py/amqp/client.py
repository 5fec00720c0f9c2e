"""The client's side of AMQP 0-9-1: handshake, heartbeats, close.  Bytes in, events and bytes out; no I/O.

Theory.  Two layers, because there are two kinds of caller:

* `ClientHandshake` takes *method payloads* and leaves encoded frames in its output.  A caller whose frames are split
  elsewhere (by the data path, for the replication link) uses it alone, and may stop feeding it at `Opened`.
* `AmqpClient` takes *octets*, splits frames, and adds heartbeats.  With `stop_when_open=True` it stops after
  `open-ok`: later octets belong to another protocol; `left_over()` returns them.

States and transitions (any other method in a state is a violation by the peer, `ConnectionException` 503):

    state     waits for           then                                next
    IDLE      begin()             writes the protocol header          START
    START     start               start-ok with the SASL response     TUNE
    TUNE      tune                tune-ok, open                       OPENING
    OPENING   open-ok             event Opened                        OPEN
    OPEN      methods             event MethodReceived for others     OPEN
    CLOSING   close-ok            event CloseAnswered                 CLOSED
    any       close by the peer   writes close-ok, event Closed       CLOSED
    any       protocol header     event VersionRefused                CLOSED

After CLOSED all input is ignored.  Exceptions raised by `feed` or `method` mean that the peer broke the protocol; the
state is then CLOSED too.

No general codec is used (a test compares with one): `qpid-ha` runs once a second on every node of a Pacemaker cluster,
and importing pamqp would cost half of its processor time.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from qpidd_py.amqp.constants import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_MIN_SIZE,
    FRAME_OVERHEAD,
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
)
from qpidd_py.amqp.fields import (
    FieldError,
    Reader,
    encode_longstr,
    encode_shortstr,
    encode_table,
    encode_table_content,
)
from qpidd_py.amqp.frames import method_frame
from qpidd_py.errors import ConnectionException, ReplyCode

CONNECTION = 10
START, START_OK, SECURE, TUNE, TUNE_OK, OPEN, OPEN_OK, CLOSE, CLOSE_OK = 10, 11, 20, 30, 31, 40, 41, 50, 51
BLOCKED, UNBLOCKED = 60, 61

CAPABILITIES = {"authentication_failure_close": True, "consumer_cancel_notify": True, "basic.nack": True}


class ClientState(Enum):
    IDLE = "idle"
    START = "start"
    TUNE = "tune"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class Opened(NamedTuple):
    """The connection can be used; limits as negotiated (0 = none; heartbeat in seconds)."""

    server_properties: dict[str, Any]
    frame_max: int
    channel_max: int
    heartbeat: int


class Closed(NamedTuple):
    """The peer closed the connection; our close-ok is in the output."""

    reply_code: int
    reply_text: str
    class_id: int
    method_id: int


class CloseAnswered(NamedTuple):
    """The peer answered our close."""


class VersionRefused(NamedTuple):
    """The peer speaks another protocol and named it."""

    header: bytes

    def __str__(self) -> str:
        return f"the peer speaks AMQP {'-'.join(str(octet) for octet in self.header[5:8])}, wanted 0-9-1"


class MethodReceived(NamedTuple):
    """A method that the handshake does not handle; `payload` begins with class and method id."""

    channel: int
    payload: bytes


class ContentReceived(NamedTuple):
    """A content header or body frame of a channel."""

    channel: int
    is_header: bool
    payload: bytes


class PeerSilent(NamedTuple):
    """Nothing was received for two heartbeat intervals (section 4.2.7 of the specification): give up the connection."""

    seconds: float


Event = Opened | Closed | CloseAnswered | VersionRefused | MethodReceived | ContentReceived | PeerSilent


class Login(NamedTuple):
    """The login.  `mechanism` "" takes PLAIN if the server offers it, else AMQPLAIN."""

    user: str = "guest"
    password: str = "guest"
    mechanism: str = ""

    def choose(self, offered: list[str]) -> str:
        wanted = [self.mechanism.upper()] if self.mechanism else ["PLAIN", "AMQPLAIN"]
        for mechanism in wanted:
            if mechanism in offered and mechanism in _RESPONSES:
                return mechanism
        raise ConnectionException(
            ReplyCode.ACCESS_REFUSED,
            f"ACCESS_REFUSED - no common SASL mechanism: wanted {' '.join(wanted)}, offered {' '.join(offered)}",
        )

    def response(self, mechanism: str) -> bytes:
        return _RESPONSES[mechanism](self)


_RESPONSES: dict[str, Callable[[Login], bytes]] = {
    "PLAIN": lambda login: b"\0" + login.user.encode() + b"\0" + login.password.encode(),
    "AMQPLAIN": lambda login: encode_table_content({"LOGIN": login.user, "PASSWORD": login.password}),
    "EXTERNAL": lambda login: login.user.encode(),
    "ANONYMOUS": lambda login: login.user.encode(),
}


class ClientHandshake:
    """The state machine over method payloads; see the theory above."""

    def __init__(
        self,
        login: Login | None = None,
        properties: Mapping[str, Any] | None = None,
        *,
        virtual_host: str = "/",
        heartbeat: int = 0,
        frame_max: int = 131072,
        channel_max: int = 2047,
    ) -> None:
        """`heartbeat`: our proposal in seconds (0 = none); the smaller non-zero value of both sides is used."""
        self.state = ClientState.IDLE
        self.login = login or Login()
        self.properties = {"product": "qpidd-py", "capabilities": CAPABILITIES, **(properties or {})}
        self.virtual_host = virtual_host
        self.heartbeat = heartbeat
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.server_properties: dict[str, Any] = {}
        self._output = bytearray()

    # -- what the caller does

    def begin(self) -> None:
        self._move(ClientState.IDLE, ClientState.START)
        self.write(PROTOCOL_HEADER)

    def take_output(self) -> bytes:
        """The octets to send to the peer now."""
        taken = bytes(self._output)
        self._output.clear()
        return taken

    def write(self, data: bytes) -> None:
        """Queue frames that are already encoded."""
        self._output += data

    def send_method(self, channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> None:
        self.write(method_frame(channel, class_id, method_id, arguments))

    def close(self, reply_code: int = ReplyCode.REPLY_SUCCESS, reply_text: str = "") -> None:
        """Begin to close in an orderly way; idempotent."""
        if self.state in (ClientState.CLOSING, ClientState.CLOSED):
            return
        self.state = ClientState.CLOSING
        self.send_method(0, CONNECTION, CLOSE, _close_arguments(reply_code, reply_text))

    # -- what the peer does

    def method(self, channel: int, payload: bytes) -> Event | None:
        """One method frame.  Raises `ConnectionException` when the peer breaks the protocol."""
        if self.state is ClientState.CLOSED:
            return None
        try:
            return self._method(channel, payload)
        except FieldError as error:
            self.state = ClientState.CLOSED
            raise ConnectionException(ReplyCode.SYNTAX_ERROR, f"SYNTAX_ERROR - {error}") from error
        except ConnectionException:
            self.state = ClientState.CLOSED
            raise

    def version_refused(self, header: bytes) -> VersionRefused:
        self.state = ClientState.CLOSED
        return VersionRefused(header)

    def _method(self, channel: int, payload: bytes) -> Event | None:
        reader = Reader(payload)
        class_id, method_id = reader.short(), reader.short()
        if channel != 0:
            return self._channel_method(channel, payload, class_id, method_id)
        if class_id != CONNECTION:
            raise _unexpected(self.state, class_id, method_id)
        if method_id == CLOSE:
            return self._peer_closes(reader)
        if self.state is ClientState.CLOSING:
            return self._while_closing(method_id)
        return self._connection_method(method_id, reader)

    def _channel_method(self, channel: int, payload: bytes, class_id: int, method_id: int) -> Event | None:
        if self.state is ClientState.CLOSING:
            return None
        if self.state is not ClientState.OPEN or class_id == CONNECTION:
            raise _unexpected(self.state, class_id, method_id)
        return MethodReceived(channel, payload)

    def _connection_method(self, method_id: int, reader: Reader) -> Event | None:
        match (self.state, method_id):
            case (ClientState.START, 10):  # start
                self._start(reader)
                return None
            case (ClientState.TUNE, 30):  # tune
                self._tune(reader)
                return None
            case (ClientState.OPENING, 41):  # open-ok
                return self._open_ok()
            case (ClientState.OPEN, 60 | 61):  # blocked, unblocked: we publish next to nothing
                return None
        raise _unexpected(self.state, CONNECTION, method_id)

    def _start(self, reader: Reader) -> None:
        major, minor = reader.octet(), reader.octet()
        if (major, minor) != (0, 9):
            raise ConnectionException(ReplyCode.NOT_IMPLEMENTED, f"wanted AMQP 0-9, found {major}-{minor}")
        self.server_properties = reader.table()
        mechanism = self.login.choose(reader.longstr().decode("ascii", "replace").split())
        self.send_method(
            0,
            CONNECTION,
            START_OK,
            encode_table(self.properties)
            + encode_shortstr(mechanism)
            + encode_longstr(self.login.response(mechanism))
            + encode_shortstr("en_US"),
        )
        self.state = ClientState.TUNE

    def _tune(self, reader: Reader) -> None:
        self.channel_max = _smaller(self.channel_max, reader.short())
        self.frame_max = _smaller(self.frame_max, reader.long())
        self.heartbeat = _smaller(self.heartbeat, reader.short()) if self.heartbeat else 0
        if 0 < self.frame_max < FRAME_MIN_SIZE:
            raise ConnectionException(
                ReplyCode.NOT_ALLOWED, f"frame_max {self.frame_max}, at least {FRAME_MIN_SIZE} is wanted"
            )
        self.send_method(
            0,
            CONNECTION,
            TUNE_OK,
            self.channel_max.to_bytes(2, "big") + self.frame_max.to_bytes(4, "big") + self.heartbeat.to_bytes(2, "big"),
        )
        self.send_method(0, CONNECTION, OPEN, encode_shortstr(self.virtual_host) + b"\0\0")
        self.state = ClientState.OPENING

    def _open_ok(self) -> Opened:
        self.state = ClientState.OPEN
        return Opened(self.server_properties, self.frame_max, self.channel_max, self.heartbeat)

    def _peer_closes(self, reader: Reader) -> Closed:
        closed = read_close(reader)
        self.state = ClientState.CLOSED
        self.send_method(0, CONNECTION, CLOSE_OK)
        return closed

    def _while_closing(self, method_id: int) -> CloseAnswered | None:
        # Methods that were under way when we sent close are dropped.
        if method_id != CLOSE_OK:
            return None
        self.state = ClientState.CLOSED
        return CloseAnswered()

    def _move(self, wanted: ClientState, to: ClientState) -> None:
        if self.state is not wanted:
            raise RuntimeError(f"wanted state {wanted.value}, found {self.state.value}")
        self.state = to


class _Wait:
    """More octets are needed."""


class AmqpClient:
    """Octets in, events out, heartbeats; see the theory above.  Times are seconds of any steady clock."""

    def __init__(self, handshake: ClientHandshake, *, stop_when_open: bool = False) -> None:
        self.handshake = handshake
        self._stop_when_open = stop_when_open
        self._input = bytearray()
        self._handed_over = False
        self._last_received: float | None = None
        self._last_sent: float | None = None
        self._heard = False
        self._spoke = False
        handshake.begin()

    @property
    def state(self) -> ClientState:
        return self.handshake.state

    def take_output(self) -> bytes:
        output = self.handshake.take_output()
        self._spoke = self._spoke or bool(output)
        return output

    def left_over(self) -> bytes:
        """Octets received after `open-ok` (with `stop_when_open`), for another parser."""
        taken = bytes(self._input)
        self._input.clear()
        return taken

    def feed(self, data: bytes) -> list[Event]:
        """Raises `ConnectionException` when the peer breaks the protocol."""
        self._input += data
        self._heard = self._heard or bool(data)
        return list(self._events())

    def _events(self) -> Iterator[Event]:
        while not self._handed_over and self.state is not ClientState.CLOSED:
            event = self._next()
            if isinstance(event, _Wait):
                return
            if event is not None:
                yield event
            if isinstance(event, Opened) and self._stop_when_open:
                self._handed_over = True

    def _next(self) -> Event | _Wait | None:
        """One frame's event, None for a frame without one, `_Wait` when more octets are needed."""
        if self.state is ClientState.START and self._input[:4] == b"AMQP"[: len(self._input)] and self._input:
            return self.handshake.version_refused(bytes(self._input[:8])) if len(self._input) >= 8 else _Wait()
        if len(self._input) < 7:
            return _Wait()
        length = int.from_bytes(self._input[3:7], "big")
        self._check_length(length)
        if len(self._input) < length + FRAME_OVERHEAD:
            return _Wait()
        return self._frame(length)

    def _check_length(self, length: int) -> None:
        opened = self.state in (ClientState.OPEN, ClientState.CLOSING)
        # `start` carries a table of any size; allow more than the limit before tune, but bounded.
        limit = self.handshake.frame_max if opened and self.handshake.frame_max else 1 << 20
        if length + FRAME_OVERHEAD > limit:
            self.handshake.state = ClientState.CLOSED
            raise ConnectionException(
                ReplyCode.FRAME_ERROR, f"FRAME_ERROR - frame of {length + FRAME_OVERHEAD} octets, at most {limit}"
            )

    def _frame(self, length: int) -> Event | None:
        kind, channel = self._input[0], int.from_bytes(self._input[1:3], "big")
        payload, end = bytes(self._input[7 : 7 + length]), self._input[7 + length]
        del self._input[: length + FRAME_OVERHEAD]
        if end != FRAME_END:
            self.handshake.state = ClientState.CLOSED
            raise ConnectionException(ReplyCode.FRAME_ERROR, f"FRAME_ERROR - frame end 0xce wanted, found {end:#04x}")
        if kind == FRAME_METHOD:
            return self.handshake.method(channel, payload)
        if kind in (FRAME_HEADER, FRAME_BODY) and self.state is ClientState.OPEN:
            return ContentReceived(channel, kind == FRAME_HEADER, payload)
        if kind == FRAME_HEARTBEAT or self.state is ClientState.CLOSING:
            return None
        self.handshake.state = ClientState.CLOSED
        raise ConnectionException(ReplyCode.UNEXPECTED_FRAME, f"UNEXPECTED_FRAME - kind {kind} on channel {channel}")

    def tick(self, now: float) -> PeerSilent | None:
        """Call a few times per heartbeat interval: queues a heartbeat, or reports that the peer is gone."""
        if self._heard or self._last_received is None:
            self._last_received, self._heard = now, False
        if self._spoke or self._last_sent is None:
            self._last_sent, self._spoke = now, False
        interval = self.handshake.heartbeat
        if not interval or self.state is not ClientState.OPEN:
            return None
        if now - self._last_sent >= interval / 2:
            self.handshake.write(HEARTBEAT_FRAME)
        silence = now - self._last_received
        return PeerSilent(silence) if silence > 2 * interval else None


def read_close(reader: Reader) -> Closed:
    """The arguments of connection.close and of channel.close."""
    return Closed(reader.short(), reader.shortstr(), reader.short(), reader.short())


def _close_arguments(reply_code: int, reply_text: str) -> bytes:
    return reply_code.to_bytes(2, "big") + encode_shortstr(reply_text[:80]) + b"\0\0\0\0"


def _smaller(ours: int, theirs: int) -> int:
    """Negotiation of a limit: 0 means none, else the smaller one counts."""
    return min(ours, theirs) if ours and theirs else ours or theirs


def _unexpected(state: ClientState, class_id: int, method_id: int) -> ConnectionException:
    text = f"COMMAND_INVALID - method {class_id}.{method_id} in state {state.value}"
    return ConnectionException(ReplyCode.COMMAND_INVALID, text, class_id, method_id)
