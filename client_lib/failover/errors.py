"""The errors of `FailoverConnection`: each is a subclass of pika's and of ours, so either `except` clause catches it.

    pika.exceptions                     client_lib
    AMQPConnectionError                 ConnectError             ConnectFailed
    ProbableAuthenticationError         AuthenticationFailure    LoginRefused
    ConnectionWrongStateError           ConnectionClosed         ConnectionUnusable
    AMQPHeartbeatTimeout                HeartbeatTimeout         BrokerSilent
    ChannelClosedByBroker               ServerError              ChannelClosedByBroker
    UnroutableError                     Returned                 Unroutable
    NackError                           Rejected                 Nacked
    ConnectionBlockedTimeout            InDoubt                  PublishInDoubt
    AMQPConnectionError                 InsufficientCapacity     WindowFull
    AMQPConnectionError                 TransactionAborted       TransactionLost
    AMQPConnectionError                 TransactionUnknown       TransactionInDoubt

pika's classes come first where both define an attribute, because a program written for pika looks at those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika.exceptions as pika_errors

from client_lib import errors


class ConnectFailed(errors.ConnectError, pika_errors.AMQPConnectionError):  # type: ignore[misc]
    """No broker could be connected (in time), or none again after a loss."""


class LoginRefused(errors.AuthenticationFailure, pika_errors.ProbableAuthenticationError):  # type: ignore[misc]
    """The broker refused the user or the virtual host."""


class ConnectionUnusable(errors.ConnectionClosed, pika_errors.ConnectionWrongStateError):  # type: ignore[misc]
    """The connection was closed by this program."""


class BrokerSilent(errors.HeartbeatTimeout, pika_errors.AMQPHeartbeatTimeout):  # type: ignore[misc]
    """The broker was silent for too long and reconnecting is off."""


class ChannelClosedByBroker(pika_errors.ChannelClosedByBroker, errors.ServerError):  # type: ignore[misc]
    """`reply_code` and `reply_text` say why; the channel cannot be used any more."""

    def __init__(self, reply_code: int, reply_text: str) -> None:
        # ServerError would set what is a property of pika's class
        Exception.__init__(self, int(reply_code), str(reply_text))


class Unroutable(pika_errors.UnroutableError, errors.Returned):  # type: ignore[misc]
    """basic.return of a mandatory message; `messages` has it in pika's form, `message` in ours."""

    def __init__(self, cause: errors.Returned, messages: list[Any]) -> None:
        Exception.__init__(self, f"{len(messages)} unroutable message(s) returned: {cause}")
        self.messages, self.message = messages, cause.message
        self.reply_code, self.reply_text = cause.reply_code, cause.reply_text


class Nacked(pika_errors.NackError, errors.Rejected):  # type: ignore[misc]
    """The broker could not take responsibility for the message."""

    def __init__(self, cause: errors.Rejected) -> None:
        Exception.__init__(self, str(cause))
        self.messages: list[Any] = []
        self.message = cause.message


class PublishInDoubt(errors.InDoubt, pika_errors.ConnectionBlockedTimeout):  # type: ignore[misc]
    """No confirm within `publish_timeout`: the message is still kept and will be sent; do not send it again."""


class WindowFull(errors.InsufficientCapacity, pika_errors.AMQPConnectionError):  # type: ignore[misc]
    """No room in `publish_window` within `publish_timeout`: the message was not taken."""


class TransactionLost(errors.TransactionAborted, pika_errors.AMQPConnectionError):  # type: ignore[misc]
    """The connection was lost before the commit: call tx_rollback() and do the transaction again."""


class TransactionInDoubt(errors.TransactionUnknown, pika_errors.AMQPConnectionError):  # type: ignore[misc]
    """The connection was lost during the commit: all of the transaction has happened, or nothing."""


_BOTH: list[tuple[type[errors.MessagingError], Callable[[str], Exception]]] = [
    (errors.AuthenticationFailure, LoginRefused),
    (errors.ConnectionClosed, ConnectionUnusable),
    (errors.HeartbeatTimeout, BrokerSilent),
    (errors.ConnectionError, ConnectFailed),
    (errors.TransactionAborted, TransactionLost),
    (errors.TransactionUnknown, TransactionInDoubt),
    (errors.InsufficientCapacity, WindowFull),
    (errors.InDoubt, PublishInDoubt),
]


def translate(error: errors.MessagingError) -> Exception:
    """The error that is also pika's; the same error if pika has none for it.  Bad addresses stay `UrlError`."""
    if isinstance(error, (pika_errors.AMQPError, errors.UrlError)):
        return error
    if isinstance(error, errors.ServerError):
        return ChannelClosedByBroker(error.reply_code, error.reply_text)
    for kind, both in _BOTH:
        if isinstance(error, kind):
            return both(str(error))
    return error
