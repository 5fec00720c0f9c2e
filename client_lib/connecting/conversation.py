"""The states of a connection (pure: octets in, octets and calls of a `Host` out; it has no socket and no clock).

    GREETING --connection.start--> LOGIN --tune--> TUNED --open-ok--> OPEN --close()--> CLOSING
    any --connection.close, close-ok, or the end of the stream--> ENDED

* `begin` writes the protocol header, `received` takes what the broker sends, `ended` is the end of the stream; the
  host ends the stream when `finished` asks for it.
* Heartbeats are negotiated to the shorter interval, never slower than ours.  The host sends them, and
  `client_lib.link.watchdog` checks whether any arrive.
* A broker that leaves without a word is explained by the state in which it left: GREETING means another protocol, LOGIN
  a wrong login, TUNED no such virtual host.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import pika
from pika import exceptions
from pika.frame import Heartbeat, Method, ProtocolHeader
from pika.spec import PROTOCOL_VERSION
from pika.spec import Connection as Methods

from client_lib.connecting.incoming import Incoming
from client_lib.connecting.methods import Channel
from client_lib.connecting.proposal import Parameters
from client_lib.connecting.wire import FRAME_OVERHEAD, method_frame, read_frame
from client_lib.errors import AuthenticationFailure

TIME = "qpid.time"
"""In the properties of connection.start and start-ok: µs since 1970 by the sender's clock, when it sent it."""
CHANNELS = 65535
CAPABILITIES = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "exchange_exchange_bindings",
    "publisher_confirms",
)


Answer = bytes | AuthenticationFailure
"""To the broker's challenge."""


class ConnectionState(Enum):
    GREETING = "greeting"
    LOGIN = "login"
    TUNED = "tuned"
    OPEN = "open"
    CLOSING = "closing"
    ENDED = "ended"


class AnotherProtocol(Exception):
    """The broker answers with the protocol header that it understands."""


EXPLAINED: dict[ConnectionState, Callable[[str], Exception]] = {
    ConnectionState.GREETING: exceptions.IncompatibleProtocolError,
    ConnectionState.LOGIN: exceptions.ProbableAuthenticationError,
    ConnectionState.TUNED: exceptions.ProbableAccessDeniedError,
}
"""What it means when the broker leaves in this state."""


@dataclasses.dataclass(frozen=True)
class Host:
    """What a conversation asks for."""

    write: Callable[[bytes], None]
    opened: Callable[[], None]
    tuned: Callable[[int], None]
    """Send heartbeats from now on, in this interval in seconds; 0: none."""
    blocked: Callable[[], None]
    """`Conversation.blocked` has changed."""
    finished: Callable[[], None]
    """End the stream."""
    now: Callable[[], int]
    """µs of a monotonic clock."""
    today: Callable[[], int]
    """µs since 1970."""
    aside: Callable[[Callable[[], Answer], Callable[[Answer], None]], None]
    """Calls the first in another thread, which may take tenths of a second; then the second with what it has
    returned."""


class Conversation:
    """One per connection."""

    def __init__(
        self,
        parameters: Parameters,
        identity: Mapping[str, str],
        host: Host,
    ) -> None:
        self.params = dataclasses.replace(parameters)
        """As negotiated, from `tuned` on."""
        self.state = ConnectionState.GREETING
        self.refusal: tuple[int, str] | None = None
        """Code and text of the broker's connection.close."""
        self.blocked = ""
        """The broker's reason for blocking publishers; empty while it does not."""
        self.heartbeat_offered = 0
        """Seconds, as proposed by the broker; 0 = none."""
        self.heartbeats_received = 0
        self.bytes_received = 0
        self.server_properties: dict[str, Any] = {}
        self.supports_confirms = False
        self.error: Exception | None = None
        """Why it ended, or will."""
        self.write = host.write
        self._host, self._identity = host, identity
        self._started = 0
        self._opened = False
        self._answering = False
        """The answer to a challenge is being computed."""
        self._channels: dict[int, Channel] = {}
        self._incoming = Incoming(self._frame)

    @property
    def body_max(self) -> int:
        """Octets of a body that fit into one frame."""
        return self.params.frame_max - FRAME_OVERHEAD

    @property
    def is_open(self) -> bool:
        return self.state is ConnectionState.OPEN and self.refusal is None

    @property
    def broker(self) -> str:
        """The broker's name, as in its own log; empty if it did not send one."""
        return str(self.server_properties.get("cluster_name", ""))

    def broker_wall(self) -> int | None:
        """A lower bound of the broker's clock now, in µs since 1970: its time in connection.start plus the time since
        that arrived.  None if it sent none."""
        said = self.server_properties.get(TIME)
        return int(said) + self._host.now() - self._started if isinstance(said, int) and said > 0 else None

    # -- for the host

    def begin(self) -> None:
        """There is a stream."""
        self.write(ProtocolHeader().marshal())

    def received(self, data: bytes) -> None:
        """Raises what the broker may not send."""
        self.bytes_received += len(data)
        self._incoming.feed(data)

    def received_quick(self, data: bytes) -> bytes | None:
        """As `received`, in any thread that reads alone: takes deliveries and confirms, and returns the rest."""
        rest = self._incoming.feed_quick(data)
        self.bytes_received += len(data) - len(rest or b"")
        return rest

    def ended(self, error: Exception | None) -> bool:
        """The stream is gone, with an `error` unless something here has asked for it.  True if it had been open."""
        self.error = self._explained(error or self.error or exceptions.StreamLostError("the stream has ended"))
        self.state = ConnectionState.ENDED
        for channel in list(self._channels.values()):
            channel.ended(self.error)
        return self._opened

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, (exceptions.StreamLostError, exceptions.ConnectionClosedByBroker)):
            kind = EXPLAINED.get(self.state)
            return error if kind is None else kind(repr(error))
        return error

    # -- for the application

    def channel(self, on_open_callback: Callable[[Any], Any]) -> Channel:
        """A new channel, which is not open yet.  Raises ConnectionWrongStateError, NoFreeChannels."""
        if not self.is_open:
            raise exceptions.ConnectionWrongStateError("the connection is not open")
        limit = min(self.params.channel_max or CHANNELS, CHANNELS)
        number = next((number for number in range(1, limit + 1) if number not in self._channels), None)
        if number is None:
            raise exceptions.NoFreeChannels
        channel = self._channels[number] = Channel(self, number, on_open_callback)
        self._incoming.channels[number] = channel
        channel.gone = lambda: self._forget(number)
        channel.open()
        return channel

    def _forget(self, number: int) -> None:
        self._channels.pop(number, None)
        self._incoming.channels.pop(number, None)

    def close(self, reply_code: int = 200, reply_text: str = "Normal shutdown") -> None:
        """Says goodbye; the broker's answer ends the connection."""
        if not self.is_open:
            raise exceptions.ConnectionWrongStateError("the connection is not open")
        self.state, self.error = ConnectionState.CLOSING, exceptions.ConnectionClosedByClient(reply_code, reply_text)
        self._say(Methods.Close(reply_code, reply_text, 0, 0))

    def _say(self, method: Any) -> None:
        self.write(method_frame(0, method))

    # -- frames of the broker

    def _frame(self, data: bytes) -> int:
        """Octets used; 0 if more is needed."""
        used, frame = read_frame(data)
        if frame is None or self.state is ConnectionState.ENDED:
            return used
        if isinstance(frame, ProtocolHeader):
            raise AnotherProtocol(f"the broker answers with {data[:8]!r}")
        if isinstance(frame, Heartbeat):
            self.heartbeats_received += 1
        elif frame.channel_number == 0:
            self._method(frame)
        elif self.is_open and frame.channel_number in self._channels:
            self._channels[frame.channel_number].frame(frame)
        return used

    def _method(self, frame: Any) -> None:
        method = frame.method if isinstance(frame, Method) else None
        match method, self.state:
            case Methods.Close(), _:
                self._closed_by_broker(method)
            case Methods.CloseOk(), ConnectionState.CLOSING:
                self._host.finished()
            case Methods.Start(), ConnectionState.GREETING:
                self._start(method)
            case Methods.Secure(), ConnectionState.LOGIN:
                self._challenged(_octets(method.challenge))
            case Methods.Tune(), ConnectionState.LOGIN:
                self._tune(method)
            case Methods.OpenOk(), ConnectionState.TUNED:
                self.state, self._opened = ConnectionState.OPEN, True
                self._host.opened()
            case Methods.Blocked(), _:
                self._block(method.reason or "no reason given")
            case Methods.Unblocked(), _:
                self._block("")

    def _block(self, reason: str) -> None:
        self.blocked = reason
        self._host.blocked()

    def _closed_by_broker(self, method: Any) -> None:
        self.refusal = method.reply_code, method.reply_text
        self.error = exceptions.ConnectionClosedByBroker(*self.refusal)
        self._say(Methods.CloseOk())
        self._host.finished()

    def _start(self, start: Any) -> None:
        self.state = ConnectionState.LOGIN
        if (start.version_major, start.version_minor) != PROTOCOL_VERSION[:2]:
            raise exceptions.ProtocolVersionMismatch(ProtocolHeader(), start)
        self._started = self._host.now()
        self.server_properties = dict(start.server_properties or {})
        said = self.server_properties.get("capabilities")
        capabilities = said if isinstance(said, dict) else {}
        self.supports_confirms = bool(capabilities.get("publisher_confirms") and capabilities.get("basic.nack"))
        mechanism, response = self.params.credentials.response_for(start)
        self._say(Methods.StartOk(self._client_properties(), mechanism, response, "en_US"))

    def _challenged(self, challenge: bytes) -> None:
        if self._answering:
            raise AuthenticationFailure(f"{self.params.credentials.place}: two challenges at a time")
        self._answering = True
        self._host.aside(lambda: self.params.credentials.answer(challenge), self._answered)

    def _answered(self, answer: Answer) -> None:
        self._answering = False
        if self.state is not ConnectionState.LOGIN:
            return
        if isinstance(answer, bytes):
            self._say(Methods.SecureOk(answer))
        else:
            self.error = answer
            self._host.finished()

    def _client_properties(self) -> dict[str, Any]:
        said = {
            "platform": f"Python {platform.python_version()}",
            "capabilities": dict.fromkeys(CAPABILITIES, True),
            "version": f"pika {pika.__version__}",
        }
        return {**said, **self.params.client_properties, **self._identity, TIME: self._host.today()}

    def _tune(self, tune: Any) -> None:
        self.params.credentials.accepted()
        self.state = ConnectionState.TUNED
        params, offered = self.params, int(tune.heartbeat or 0)
        self.heartbeat_offered = offered
        params.channel_max = _agreed(params.channel_max, tune.channel_max)
        params.frame_max = _agreed(params.frame_max, tune.frame_max)
        params.heartbeat = min(params.heartbeat, offered) if offered else params.heartbeat
        self._incoming.body_max = self.body_max
        self._say(Methods.TuneOk(params.channel_max, params.frame_max, params.heartbeat))
        self._host.tuned(params.heartbeat)
        self._say(Methods.Open(params.virtual_host, insist=True))


def _octets(challenge: str | bytes) -> bytes:
    return challenge if isinstance(challenge, bytes) else challenge.encode()


def _agreed(ours: int, theirs: int | None) -> int:
    """The smaller limit; 0 means none."""
    return min(ours, theirs) if ours and theirs else ours or theirs or 0
