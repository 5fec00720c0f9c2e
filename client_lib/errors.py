"""Errors of the client library, one tree: `ClientError` is the base of all.

Three questions an application asks, three families: did the *connection* fail for good (`ConnectionFailed`), did a
*message* fail (`DeliveryFailed`), or is the outcome merely unknown (`InDoubt`)?  A fail-over that succeeds raises
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client_lib.message import Message


class ClientError(Exception):
    """Base of everything this package raises on its own account."""


class UrlError(ClientError, ValueError):
    """An address that cannot be read; `position` is the offending character, counted from 0."""

    def __init__(self, reason: str, text: str, position: int) -> None:
        super().__init__(f"{reason} at character {position}: {text!r}")
        self.reason, self.text, self.position = reason, text, position


class ConnectionFailed(ClientError):
    """No address could be connected within the limits, or reconnecting is switched off."""


class AuthenticationFailed(ConnectionFailed):
    """A broker refused the login or the virtual host; trying again would not help."""


class Closed(ClientError):
    """The connection, session, sender or receiver was closed by the application."""


class SessionFailed(ClientError):
    """The broker closed the channel: `reply_code` and `reply_text` say why.  Open a new session."""

    def __init__(self, reply_code: int, reply_text: str) -> None:
        super().__init__(f"{reply_code} {reply_text}")
        self.reply_code, self.reply_text = reply_code, reply_text


class ReceiverCancelled(ClientError):
    """The broker cancelled the subscription (its queue was deleted)."""


class Empty(ClientError):
    """`fetch` found no message within its timeout."""


class Timeout(ClientError):
    """Something did not finish in time and had no effect, or may be repeated without harm."""


class CapacityTimeout(Timeout):
    """The sender's window stayed full: the message was *not* taken."""


class InDoubt(Timeout):
    """No confirm yet.  The message is still kept and will be re-sent: it may or may not have arrived."""


class DeliveryFailed(ClientError):
    """The broker did not take a message; `message` is the one that was given to `send`."""

    def __init__(self, text: str, message: Message) -> None:
        super().__init__(text)
        self.message = message


class Rejected(DeliveryFailed):
    """basic.nack: the broker could not take responsibility for the message."""


class Returned(DeliveryFailed):
    """basic.return: a mandatory message that no queue was bound for."""

    def __init__(self, reply_code: int, reply_text: str, message: Message) -> None:
        super().__init__(f"{reply_code} {reply_text}", message)
        self.reply_code, self.reply_text = reply_code, reply_text
