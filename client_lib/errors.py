"""Errors of the client library: the tree of qpid.messaging, and those that an AMQP 0-9-1 client needs in addition.

    MessagingError
      ConnectionError          ConnectError (AuthenticationFailure, VersionError), UrlError, ConnectionClosed,
                               HeartbeatTimeout
      SessionError             SessionClosed, ServerError (UnauthorizedAccess, InternalError), NontransactionalSession,
                               TransactionError (TransactionAborted, TransactionUnknown), Unsendable, FatalCommand
      LinkError                LinkClosed, InsufficientCapacity
        AddressError           MalformedAddress, InvalidOption, ResolutionError (NotFound, AssertionFailed)
        SenderError            SendError (Rejected, Returned, Unsendable)
        ReceiverError          ReceiverCancelled, FetchError (Empty)
      Timeout                  InDoubt; InsufficientCapacity and Empty are timeouts, too

A fail-over that succeeds raises nothing, except in a transaction.  Where Python has an error of the same meaning
(`ConnectionError`, `TimeoutError`, `ValueError`), ours is a subclass of it.
"""

from __future__ import annotations

import builtins
from typing import Any

from client_lib.message import Message

__all__ = [
    "AddressError",
    "AssertionFailed",
    "AuthenticationFailure",
    "ConnectError",
    "ConnectionClosed",
    "ConnectionError",
    "Empty",
    "FatalCommand",
    "FetchError",
    "HeartbeatTimeout",
    "InDoubt",
    "InsufficientCapacity",
    "InternalError",
    "InvalidOption",
    "LinkClosed",
    "LinkError",
    "MalformedAddress",
    "MessagingError",
    "NontransactionalSession",
    "NotFound",
    "ReceiverCancelled",
    "ReceiverError",
    "Rejected",
    "ResolutionError",
    "Returned",
    "SendError",
    "SenderError",
    "ServerError",
    "SessionClosed",
    "SessionError",
    "TargetCapacityExceeded",
    "Timeout",
    "TransactionAborted",
    "TransactionError",
    "TransactionUnknown",
    "UnauthorizedAccess",
    "Unsendable",
    "UrlError",
    "VersionError",
]


class MessagingError(Exception):
    """Base of all errors that this package defines.  They can be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[MessagingError], arguments: tuple[Any, ...], state: dict[str, Any]) -> MessagingError:
    """Without the constructor, whose arguments differ."""
    error: MessagingError = (OSError if issubclass(kind, OSError) else kind).__new__(kind)
    error.args = arguments
    error.__dict__.update(state)
    return error


class Timeout(MessagingError, builtins.TimeoutError):
    """A call did not finish in time and had no effect, or may be repeated without harm."""


class InDoubt(Timeout):
    """No confirm yet.  The message is still kept and will be sent again: it may or may not have arrived."""


# -- connections


class ConnectionError(MessagingError, builtins.ConnectionError):
    """The connection cannot be used (any more)."""


class ConnectError(ConnectionError):
    """No address could be connected within the limits, or reconnecting is switched off."""


class AuthenticationFailure(ConnectError):
    """A broker refused the login or the virtual host; trying again would not help."""


class VersionError(ConnectError):
    """A broker answered with the header of another protocol."""


class ConnectionClosed(ConnectionError):
    """The application closed the connection."""


class HeartbeatTimeout(ConnectionError):
    """The broker was silent for too long, and reconnecting is switched off."""


class _Located(ValueError):
    """A text with a syntax error: `position` is the offending character, counted from 0."""

    def __init__(self, reason: str, text: str, position: int) -> None:
        super().__init__(f"{reason} at character {position}: {text!r}")
        self.reason, self.text, self.position = reason, text, position


class UrlError(_Located, ConnectionError):
    """The address of a broker that cannot be read."""


# -- sessions


class SessionError(MessagingError):
    """The session has ended, or does not allow this call."""


class SessionClosed(SessionError):
    """The application closed the session."""


class ServerError(SessionError):
    """The broker closed the channel: `reply_code` and `reply_text` say why.  Open a new session."""

    def __init__(self, reply_code: int, reply_text: str) -> None:
        super().__init__(f"{reply_code} {reply_text}")
        self.reply_code, self.reply_text = reply_code, reply_text


class FatalCommand(ServerError):
    """The broker closed the connection each time it got this command; its session has ended.  `command`: the method
    and its arguments."""

    def __init__(self, reply_code: int, reply_text: str, command: str) -> None:
        MessagingError.__init__(self, f"{reply_code} {reply_text}, each time for {command}")
        self.reply_code, self.reply_text, self.command = reply_code, reply_text, command


class UnauthorizedAccess(ServerError):
    """403 access-refused."""


class InternalError(ServerError):
    """541 internal-error."""


class NontransactionalSession(SessionError):
    """commit or rollback of a session that has no transactions."""


class TransactionError(SessionError):
    """A transaction did not end as asked."""


class TransactionAborted(TransactionError):
    """The connection was lost before the commit was sent: nothing of the transaction has happened.  Call rollback()
    and do it again."""


class TransactionUnknown(TransactionError):
    """The connection was lost after the commit was sent and before its answer: all of it has happened, or nothing."""


# -- senders and receivers


class LinkError(MessagingError):
    """A sender or receiver cannot do what was asked."""


class LinkClosed(LinkError):
    """The application closed the sender or receiver."""


class InsufficientCapacity(LinkError, Timeout):
    """The sender's window stayed full: the message was *not* taken."""


class AddressError(LinkError):
    """The address of a node cannot be used."""


class MalformedAddress(_Located, AddressError):
    """An address string that cannot be read."""


class InvalidOption(AddressError, ValueError):
    """An address option that does not exist, has a wrong value, or cannot be had over AMQP 0-9-1."""


class ResolutionError(AddressError):
    """The node is not what the address says."""


class NotFound(ResolutionError):
    """There is no such node, and the address does not ask to create it."""


class AssertionFailed(ResolutionError):
    """The node is there and is not as the address asserts."""


class SenderError(LinkError):
    """A sender failed."""


class SendError(SenderError):
    """The broker did not take a message; `message` is the one that was given to `send`."""

    def __init__(self, text: str, message: Message) -> None:
        super().__init__(text)
        self.message = message


class Rejected(SendError):
    """basic.nack: the broker could not take responsibility for the message."""


TargetCapacityExceeded = Rejected
"""Qpid's name.  A basic.nack has no reason; the usual one is a full queue with `x-overflow: reject-publish`."""


class Returned(SendError):
    """basic.return: a mandatory message that no queue was bound for."""

    def __init__(self, reply_code: int, reply_text: str, message: Message) -> None:
        super().__init__(f"{reply_code} {reply_text}", message)
        self.reply_code, self.reply_text = reply_code, reply_text


class Unsendable(ServerError, SendError):
    """The broker closed the connection each time it got this message; its session has ended."""

    def __init__(self, reply_code: int, reply_text: str, message: Message) -> None:
        MessagingError.__init__(self, f"{reply_code} {reply_text}")
        self.reply_code, self.reply_text, self.message = reply_code, reply_text, message


class ReceiverError(LinkError):
    """A receiver failed."""


class ReceiverCancelled(ReceiverError):
    """The broker cancelled the subscription (its queue was deleted)."""


class FetchError(ReceiverError):
    """`fetch` returned no message."""


class Empty(FetchError, Timeout):
    """`fetch` found no message within its timeout."""


def server_error(reply_code: int, reply_text: str) -> ServerError:
    """The error for a channel that the broker closed."""
    return {403: UnauthorizedAccess, 541: InternalError}.get(reply_code, ServerError)(reply_code, reply_text)
