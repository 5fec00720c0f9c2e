"""Sends salvaged messages to the primary as an AMQP client.  Pure: bytes in, outcomes out.

    connection open → channel.open → confirm.select → READY; then `publish`, with the mandatory bit, any number of times

Each publish has exactly one outcome: the primary confirms it (RESTORED), or no queue takes it (NO_QUEUE: returned, and
confirmed after that), or the queue refuses it (REFUSED: nack).  When the connection ends, publishes without an outcome
may or may not be at the primary.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from ha.model.salvaged import HOST
from qpidd_py.amqp.client import AmqpClient
from qpidd_py.amqp.client_handshake import (
    ClientHandshake,
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
from qpidd_py.amqp.fields import FieldError, Reader
from qpidd_py.amqp.frames import method_frame, publish_frames
from qpidd_py.errors import AmqpError, LinkError, ReplyCode

CHANNEL: Final = 1
_CHANNEL_OPEN, _CHANNEL_OPEN_OK, _CHANNEL_CLOSE, _CHANNEL_CLOSE_OK = (20, 10), (20, 11), (20, 40), (20, 41)
_CONFIRM_SELECT, _CONFIRM_SELECT_OK = (85, 10), (85, 11)
_RETURN, _ACK, _NACK = (60, 50), (60, 80), (60, 120)


class RestoreOutcome(Enum):
    """The outcome of one publish."""

    RESTORED = "restored"
    NO_QUEUE = "no such queue at the primary"
    NO_EXCHANGE = "no such exchange at the primary"
    NO_HOST = "no such virtual host at the primary"
    REFUSED = "refused by the queue"


class NoHostError(LinkError):
    """The virtual host is not there any more."""


class Publisher:
    """One connection."""

    def __init__(self, login: Login, host: str = HOST) -> None:
        """`host`: the virtual host."""
        self._client = AmqpClient(ClientHandshake(login, {"product": "qpid-ha salvage"}, virtual_host=host))
        self._frame_max = 4096
        self._tag = 0
        self._open: dict[int, tuple[int, str, bytes]] = {}
        """Delivery tag -> (number of the message, routing key, content header)."""
        self._returned: set[int] = set()
        self._return_key: str | None = None
        self.ready = False

    @property
    def outstanding(self) -> int:
        return len(self._open)

    def take_output(self) -> bytes:
        return self._client.take_output()

    def close(self) -> None:
        self._client.handshake.close()

    def publish(self, number: int, exchange: str, routing_key: str, header: bytes, body: bytes) -> None:
        """`number` identifies it in its outcome.  An exchange that is not there ends the connection."""
        self._tag += 1
        self._open[self._tag] = number, routing_key, header
        frames = publish_frames(CHANNEL, exchange, routing_key, header, body, self._frame_max, mandatory=True)
        self._client.handshake.write(frames)

    def feed(self, data: bytes) -> list[tuple[int, RestoreOutcome]]:
        """Take received octets.  Returns (number, outcome) of each decided publish.

        Raises LinkError when the connection has ended."""
        found: list[tuple[int, RestoreOutcome]] = []
        try:
            for event in self._client.feed(data):
                found += self._event(event)
        except (AmqpError, FieldError) as error:
            raise LinkError(f"the primary broke the protocol: {error}") from error
        return found

    def _event(self, event: object) -> list[tuple[int, RestoreOutcome]]:
        match event:
            case Opened():
                self._frame_max = event.frame_max or 131072
                self._client.handshake.send_method(CHANNEL, *_CHANNEL_OPEN, b"\0")
            case MethodReceived():
                return self._method(event.payload)
            case ContentReceived():
                self._content(event)
            case Closed():
                if event.reply_code == ReplyCode.NOT_ALLOWED and not self.ready:
                    raise NoHostError(f"the primary refused the virtual host: {event.reply_text}")
                raise LinkError(f"the primary closed the connection: {event.reply_code} {event.reply_text}")
            case VersionRefused() | PeerSilent() | CloseAnswered():
                raise LinkError(f"the connection to the primary has ended: {event}")
        return []

    def _method(self, payload: bytes) -> list[tuple[int, RestoreOutcome]]:
        reader = Reader(payload)
        method = reader.short(), reader.short()
        if method == _CHANNEL_OPEN_OK:
            self._client.handshake.send_method(CHANNEL, *_CONFIRM_SELECT, b"\0")
        elif method == _CONFIRM_SELECT_OK:
            self.ready = True
        elif method == _RETURN:
            reader.short(), reader.shortstr(), reader.shortstr()
            self._return_key = reader.shortstr()
        elif method in (_ACK, _NACK):
            return self._answered(reader.longlong(), bool(reader.octet() & 1), method == _ACK)
        elif method == _CHANNEL_CLOSE:
            closed = read_close(reader)
            self._client.handshake.write(method_frame(CHANNEL, *_CHANNEL_CLOSE_OK))
            raise LinkError(f"the primary closed the channel: {closed.reply_code} {closed.reply_text}")
        return []

    def _content(self, event: ContentReceived) -> None:
        """A returned message: matches the oldest publish with this key and this content header."""
        if not event.is_header or self._return_key is None:
            return
        wanted = self._return_key, event.payload
        self._return_key = None
        tags = (tag for tag, (_, *content) in self._open.items() if tag not in self._returned and (*content,) == wanted)
        tag = next(tags, None)
        if tag is None:
            raise LinkError("the primary returned a message that was not sent")
        self._returned.add(tag)

    def _answered(self, last: int, multiple: bool, acked: bool) -> list[tuple[int, RestoreOutcome]]:
        tags = [tag for tag in self._open if tag <= last] if multiple else [last] if last in self._open else []
        return [(self._open.pop(tag)[0], self._outcome(tag, acked)) for tag in tags]

    def _outcome(self, tag: int, acked: bool) -> RestoreOutcome:
        if tag in self._returned:
            self._returned.discard(tag)
            return RestoreOutcome.NO_QUEUE
        return RestoreOutcome.RESTORED if acked else RestoreOutcome.REFUSED
