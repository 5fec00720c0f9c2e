"""Who the client is: the login of one connection, from start-ok on, and secrets that it renews later.

While a login is being verified nothing more of this peer is read; while a new secret is, everything goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from pamqp import commands
from pamqp.base import Frame

from qpidd_py.amqp.codec import ids
from qpidd_py.amqp.handshake import Handshake, HandshakeState
from qpidd_py.amqp.sasl import ANONYMOUS, EXTERNAL, Attempt, Authenticate, response
from qpidd_py.core.connection import Connection
from qpidd_py.errors import ConnectionException, ReplyCode

_START_OK: Final = (10, 11)


class Host(Protocol):
    """What a login uses of the broker."""

    authenticate: Authenticate
    clocks: Callable[[], tuple[int, int]]


class Owner(Protocol):
    """The connection."""

    core: Connection
    handshake: Handshake
    peer: str

    @property
    def broker(self) -> Host: ...

    @property
    def negotiating(self) -> bool: ...

    @property
    def opened(self) -> bool: ...

    def send(self, channel: int, command: Frame) -> None: ...

    def failed(self, channel: int, code: int, text: str, class_id: int, method_id: int) -> None: ...


class Opening:
    """`started`: when start-ok came, µs of `broker.clocks`.  Its connection says each time who it is (`Channels`)."""

    def __init__(self) -> None:
        self._renewing = False  # a new secret is being verified
        self._answered: Callable[[bytes], None] | None = None  # takes the response to our challenge
        self.started = 0

    def receive(self, connection: Owner, command: Frame) -> bool:
        """True when `command` was connection.open, and the client may have it.  Raises ConnectionException."""
        handshake = connection.handshake
        if handshake.state is HandshakeState.START:
            self.started = connection.broker.clocks()[1]
        answer = handshake.receive(command)
        if answer is not None:
            connection.send(0, answer)
        elif handshake.state is HandshakeState.VERIFY:
            self._verify(connection)
        elif handshake.state is not HandshakeState.OPENED:
            connection.core.frame_max = handshake.frame_max
        return answer is None and handshake.state is HandshakeState.OPENED

    def _verify(self, connection: Owner) -> None:
        handshake = connection.handshake
        mechanism, secret = handshake.mechanism, handshake.response
        if (answered := self._answered) is not None:
            self._answered = None
            answered(secret)
        else:
            ask = partial(self._ask, connection)
            attempt = Attempt(connection.peer, mechanism, secret, lambda: connection.negotiating, ask)
            connection.broker.authenticate(attempt, partial(self._verified, connection))
        if handshake.state is HandshakeState.VERIFY:
            connection.core.wait()

    def _ask(self, connection: Owner, challenge: bytes, answered: Callable[[bytes], None]) -> None:
        """It may come while `_verify` calls, as the decision."""
        if connection.negotiating:
            self._answered = answered
            connection.send(0, connection.handshake.challenge(challenge))
            connection.core.go_on()

    def _verified(self, connection: Owner, user: str | None) -> None:
        """The decision; it may come while `_verify` calls."""
        if not connection.negotiating:
            return
        try:
            connection.send(0, connection.handshake.verified(user))
        except ConnectionException as error:
            connection.core.stop()
            connection.failed(0, error.reply_code, error.reply_text, *_START_OK)
        else:
            connection.core.go_on()

    def renew(self, connection: Owner, command: commands.Connection.UpdateSecret) -> None:
        """A client has a new password or token: it is checked as at the login.  A certificate has no secret, nor has
        who logs in without one."""
        handshake = connection.handshake
        if handshake.mechanism in (EXTERNAL, ANONYMOUS):
            connection.send(0, commands.Connection.UpdateSecretOk())
            return
        if self._renewing:
            text = f"{command.name} while the one before is being verified"
            raise ConnectionException(ReplyCode.COMMAND_INVALID, text, *ids(command))
        self._renewing = True
        secret = response("PLAIN", handshake.user, _text(command.new_secret or ""))
        attempt = Attempt(connection.peer, "PLAIN", secret, lambda: connection.opened)
        connection.broker.authenticate(attempt, partial(self._renewed, connection, command))

    def _renewed(self, connection: Owner, command: commands.Connection.UpdateSecret, user: str | None) -> None:
        self._renewing = False
        if not connection.opened:
            return
        if user is not None:
            connection.send(0, commands.Connection.UpdateSecretOk())
        else:
            connection.core.stop()
            connection.failed(0, ReplyCode.NOT_ALLOWED, "the new secret was refused", *ids(command))


def misplaced(command: Frame) -> ConnectionException:
    """For a method that has no place on channel 0 of an open connection."""
    if command.index >> 16 != commands.Connection.frame_id:
        return ConnectionException(ReplyCode.CHANNEL_ERROR, f"{command.name} on channel 0", *ids(command))
    started = isinstance(command, commands.Connection.StartOk)
    code = ReplyCode.CHANNEL_ERROR if started else ReplyCode.COMMAND_INVALID
    return ConnectionException(code, f"{command.name} after open", *ids(command))


def tells_refusals(handshake: Handshake) -> bool:
    """A refused client is told why: it has asked for that, or admission refuses it, not the login."""
    return handshake.capability("authentication_failure_close") or handshake.state is HandshakeState.OPENED


def _text(secret: str | bytes) -> str:
    return secret.decode("utf-8", "surrogateescape") if isinstance(secret, bytes) else secret
