"""The client's side of the handshake of AMQP 0-9-1: method payloads in, events and frames out; no I/O.

States and transitions (any other method in a state is a violation by the peer, `ConnectionException` 503):

    state     waits for           then                                next
    IDLE      begin()             writes the protocol header          START
    START     start               start-ok with the SASL response     TUNE
    TUNE      secure (SCRAM)      secure-ok                           TUNE
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

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from qpidd_py.amqp.constants import (
    FRAME_MIN_SIZE,
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
from qpidd_py.amqp.sasl import SCRAM
from qpidd_py.errors import ConnectionException, ReplyCode

if TYPE_CHECKING:
    from qpidd_py.amqp.scram import ClientSide

CONNECTION = 10
START, START_OK, SECURE, SECURE_OK, TUNE, TUNE_OK = 10, 11, 20, 21, 30, 31
OPEN, OPEN_OK, CLOSE, CLOSE_OK = 40, 41, 50, 51
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
    SCRAM: lambda login: b"",  # the handshake begins it
}


def _begun(login: Login) -> ClientSide:
    import secrets  # here, as the next one: few tools log in like this, and many run every second

    from qpidd_py.amqp.scram import ClientSide

    return ClientSide(login.user, login.password, secrets.token_urlsafe())


class ClientHandshake:
    """The state machine over method payloads."""

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
        self._scram: ClientSide | None = None
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
            case (ClientState.TUNE, 20) if self._scram is not None:  # secure
                self._answer(self._scram, reader.longstr())
                return None
            case (ClientState.TUNE, 30):  # tune
                if self._scram is not None and not self._scram.proved:
                    raise _denied("the server did not prove that it knows the password")
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
        self._scram = _begun(self.login) if mechanism == SCRAM else None
        response = self.login.response(mechanism) if self._scram is None else self._scram.first
        self.send_method(
            0,
            CONNECTION,
            START_OK,
            encode_table(self.properties)
            + encode_shortstr(mechanism)
            + encode_longstr(response)
            + encode_shortstr("en_US"),
        )
        self.state = ClientState.TUNE

    def _answer(self, scram: ClientSide, challenge: bytes) -> None:
        try:
            answer = scram.answer(challenge)
        except ValueError as error:
            raise _denied(str(error)) from error
        self.send_method(0, CONNECTION, SECURE_OK, encode_longstr(answer))

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


def read_close(reader: Reader) -> Closed:
    """The arguments of connection.close and of channel.close."""
    return Closed(reader.short(), reader.shortstr(), reader.short(), reader.short())


def _close_arguments(reply_code: int, reply_text: str) -> bytes:
    return reply_code.to_bytes(2, "big") + encode_shortstr(reply_text[:80]) + b"\0\0\0\0"


def _smaller(ours: int, theirs: int) -> int:
    """Negotiation of a limit: 0 means none, else the smaller one counts."""
    return min(ours, theirs) if ours and theirs else ours or theirs


def _denied(why: str) -> ConnectionException:
    return ConnectionException(ReplyCode.ACCESS_REFUSED, f"ACCESS_REFUSED - {SCRAM}: {why}")


def _unexpected(state: ClientState, class_id: int, method_id: int) -> ConnectionException:
    text = f"COMMAND_INVALID - method {class_id}.{method_id} in state {state.value}"
    return ConnectionException(ReplyCode.COMMAND_INVALID, text, class_id, method_id)
