"""Methods of one channel, one at a time: the client's side of declare, delete, bind.  Pure: bytes in, events and bytes
out.

    connection open → channel.open → open-ok: event ChannelReady → call() → the method's answer: event Answered ...

A channel that the broker closes (the method was refused) is the event `Refused`; the client cannot be used after that,
nor after `Closed`, `VersionRefused` and `PeerSilent`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pamqp import commands
from pamqp.base import Frame

from qpidd_py.amqp.client import AmqpClient
from qpidd_py.amqp.client_handshake import (
    ClientHandshake,
    ClientState,
    CloseAnswered,
    Closed,
    Login,
    MethodReceived,
    Opened,
    PeerSilent,
    VersionRefused,
)
from qpidd_py.amqp.codec import decode_method, encode_method

CHANNEL = 1


class ChannelReady(NamedTuple):
    """Methods may be called."""


class Answered(NamedTuple):
    """The broker's answer to the last method."""

    command: Frame


class Refused(NamedTuple):
    """The broker closed the channel because of the last method."""

    reply_code: int
    reply_text: str


MethodEvent = ChannelReady | Answered | Refused | Closed | VersionRefused | PeerSilent | CloseAnswered


class MethodClient:
    """See the theory above.  Not thread-safe."""

    def __init__(
        self, login: Login | None = None, properties: Mapping[str, Any] | None = None, virtual_host: str = "/"
    ) -> None:
        self.connection = AmqpClient(ClientHandshake(login, properties, virtual_host=virtual_host))

    def call(self, command: Frame) -> None:
        """Queue a method; wait for its answer before the next."""
        self.connection.handshake.write(encode_method(CHANNEL, command))

    def take_output(self) -> bytes:
        return self.connection.take_output()

    def close(self) -> None:
        self.connection.handshake.close()

    @property
    def closed(self) -> bool:
        return self.connection.state is ClientState.CLOSED

    def feed(self, data: bytes) -> list[MethodEvent]:
        """Raises `ConnectionException` when the broker breaks the protocol."""
        found = [self._event(event) for event in self.connection.feed(data)]
        return [event for event in found if event is not None]

    def _event(self, event: object) -> MethodEvent | None:
        match event:
            case Opened():
                self.call(commands.Channel.Open())
            case MethodReceived():
                return self._received(decode_method(event.payload))
            case Closed() | VersionRefused() | CloseAnswered():
                return event
        return None

    def _received(self, command: Frame) -> MethodEvent:
        match command:
            case commands.Channel.OpenOk():
                return ChannelReady()
            case commands.Channel.Close():
                self.call(commands.Channel.CloseOk())
                return Refused(command.reply_code or 0, command.reply_text or "")
        return Answered(command)
