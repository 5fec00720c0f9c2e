"""The server's side of opening a connection (specification 2.2.4), without I/O.

    HEADER --protocol header / start--> START --start-ok--> VERIFY --verified / tune--> TUNE --tune-ok--> OPEN
                                          |          ^                                                      |
                                          +--secure--+  (a response came empty: we ask for it once;         |
                                                         SCRAM: `challenge`)                                |
                                                                           OPENED <-----------------open----+

`receive` takes a method of the peer and returns the methods to send; a method that a state does not list is a
`ConnectionException` 503.  In VERIFY the owner has `response` verified and calls `verified`, now or later; until then
no method of the peer may be given to us.  After OPENED the object only holds the negotiated values.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

from pamqp import commands
from pamqp.base import Frame

from qpidd_py.amqp.codec import ids
from qpidd_py.amqp.constants import CHANNEL_MAX, FRAME_MAX, FRAME_MIN_SIZE, HEARTBEAT, PROTOCOL_HEADER, TIME
from qpidd_py.amqp.sasl import ANONYMOUS, EXTERNAL, MECHANISMS, SCRAM, refused
from qpidd_py.errors import ConnectionException, ReplyCode


class HandshakeState(enum.Enum):
    """The method that the server waits for."""

    HEADER = "protocol header"
    START = "start-ok"
    SECURE = "secure-ok"
    VERIFY = "nothing, since its login is being verified,"
    TUNE = "tune-ok"
    OPEN = "open"
    OPENED = "opened"


class Handshake:
    """The negotiated values of one server connection."""

    def __init__(self, server_properties: Mapping[str, Any], heartbeat: int = HEARTBEAT) -> None:
        self.state = HandshakeState.HEADER
        self.server_properties = server_properties
        self.client_properties: Mapping[str, Any] = {}
        self.certified = ""
        """The name in the peer's certificate, if an authority of ours has signed it; EXTERNAL logs in by that."""
        self.anonymous = ""
        """As whom ANONYMOUS logs in; empty: it is not offered."""
        self.scram = False
        """Whether SCRAM-SHA-256 is offered."""
        self.mechanism = ""
        self.response = b""
        """Of the login; empty when it was verified."""
        self.user = ""
        self.channel_max = CHANNEL_MAX
        self.frame_max = FRAME_MAX
        self.heartbeat = heartbeat  # seconds, 0 = none
        self.virtual_host = ""

    def capability(self, name: str) -> bool:
        """Whether the client announced this capability."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    def protocol_header(self, header: bytes, wall: int = 0) -> Frame | None:
        """`connection.start`, or None if the peer speaks another protocol or version; `wall`: µs since 1970, 0 = the
        peer is not told."""
        if header != PROTOCOL_HEADER:
            return None
        self.state = HandshakeState.START
        start = commands.Connection.Start(mechanisms=" ".join(self._mechanisms), locales="en_US")
        start.server_properties = {**self.server_properties, TIME: wall} if wall else dict(self.server_properties)
        return start

    @property
    def _mechanisms(self) -> tuple[str, ...]:
        others = {SCRAM: self.scram, EXTERNAL: self.certified, ANONYMOUS: self.anonymous}
        return (*MECHANISMS, *(mechanism for mechanism, offered in others.items() if offered))

    def receive(self, command: Frame) -> Frame | None:
        """The answer to a method; None for a login and for `connection.open`, about which the owner decides."""
        step = _STEPS.get((self.state, type(command)))
        if step is None:
            text = f"{command.name} where {self.state.value} was expected"
            raise ConnectionException(ReplyCode.COMMAND_INVALID, text, *ids(command))
        return step(self, command)

    def challenge(self, challenge: bytes) -> Frame:
        """Asks the peer for another response to verify; `challenge` is text."""
        self.response = b""
        self.state = HandshakeState.SECURE
        return commands.Connection.Secure(challenge=challenge.decode())

    def verified(self, user: str | None) -> Frame:
        """The answer to the login; None stands for a refused one, which is a `ConnectionException` 403."""
        self.response = b""
        if user is None:
            raise refused(self.mechanism)
        self.user = user
        self.state = HandshakeState.TUNE
        return commands.Connection.Tune(self.channel_max, self.frame_max, self.heartbeat)

    def _start_ok(self, command: commands.Connection.StartOk) -> Frame | None:
        self.client_properties = command.client_properties or {}
        self.mechanism = command.mechanism
        if self.mechanism not in self._mechanisms:
            text = f"unknown authentication mechanism '{self.mechanism}'"
            raise ConnectionException(ReplyCode.COMMAND_INVALID, text, *ids(command))
        if not command.response and self.mechanism != ANONYMOUS:
            self.state = HandshakeState.SECURE
            return commands.Connection.Secure(challenge="")
        return self._secure_ok(command)

    def _secure_ok(self, command: Any) -> Frame | None:
        if self.mechanism == EXTERNAL:
            # The name that the client asks for must be that in its certificate.
            return self.verified(self.certified if command.response in (b"", self.certified.encode()) else None)
        if self.mechanism == ANONYMOUS:
            return self.verified(self.anonymous)  # the response is for a log, if anything
        self.response = command.response
        self.state = HandshakeState.VERIFY
        return None

    def _tune_ok(self, command: commands.Connection.TuneOk) -> None:
        self.channel_max = _agreed("channel_max", command.channel_max, self.channel_max, 1)
        self.frame_max = _agreed("frame_max", command.frame_max, self.frame_max, FRAME_MIN_SIZE)
        self.heartbeat = command.heartbeat
        self.state = HandshakeState.OPEN

    def _open(self, command: commands.Connection.Open) -> None:
        self.virtual_host = command.virtual_host
        self.state = HandshakeState.OPENED


def _agreed(name: str, wanted: int, offered: int, least: int) -> int:
    """The limit that both sides accept; 0 from the client means no preference."""
    if wanted == 0:
        return offered
    if not least <= wanted <= offered:
        text = f"{name} {wanted} is not between {least} and {offered}"
        raise ConnectionException(ReplyCode.NOT_ALLOWED, text, 10, 31)
    return wanted


_STEPS: Final[dict[tuple[HandshakeState, type[Frame]], Callable[[Handshake, Any], Frame | None]]] = {
    (HandshakeState.START, commands.Connection.StartOk): Handshake._start_ok,
    (HandshakeState.SECURE, commands.Connection.SecureOk): Handshake._secure_ok,
    (HandshakeState.TUNE, commands.Connection.TuneOk): Handshake._tune_ok,
    (HandshakeState.OPEN, commands.Connection.Open): Handshake._open,
}
