"""An admin connection to one broker that stays open: management requests over asyncio and the pure client.     Shell.

Brokers ask each other over it, and `qpid-cluster` steers its brokers: a request is one write and its answer one read,
without a handshake.  Heartbeats are off, because both callers watch the deadlines of their requests.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ha.dial import why
from qpidd_py.amqp.client_handshake import CloseAnswered, Closed, Login, PeerSilent, VersionRefused
from qpidd_py.amqp.management_client import Answer, ManagementClient, Ready
from qpidd_py.errors import AmqpError

Reply = Callable[[Answer], None]


class End(NamedTuple):
    """Why a connection has ended."""

    reason: str
    complaint: str
    """What the other broker said when it closed the connection; empty if it said nothing."""
    hung_up: bool
    """True if the other broker closed it, or broke the protocol; False if the connection was lost or aborted."""


class ManagementLink(asyncio.Protocol):
    """One connection; `opened` and `closed` are called at most once each."""

    def __init__(self, login: Login, closed: Callable[[End], None], opened: Callable[[], None] = lambda: None) -> None:
        self.heard = 0
        """Octets received."""
        self.over = False
        """True when no request on it will be answered any more."""
        self._client = ManagementClient(login)
        self._opened, self._closed = opened, closed
        self._transport: asyncio.Transport | None = None
        self._replies: dict[int, Reply] = {}
        self._reason, self._complaint = "connection lost", ""

    def request(self, method: str, arguments: Mapping[str, Any], reply: Reply) -> int:
        """Sends a request, when the connection is open.  If it ends first, `closed` is called and `reply` never.
        Returns the number of the request."""
        number = self._client.request(method, arguments)
        self._replies[number] = reply
        self._flush()
        return number

    def forget(self, number: int) -> None:
        """The request was given up: a late answer is dropped."""
        self._replies.pop(number, None)

    def close(self) -> None:
        """Aborts the connection."""
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self.over:
            return
        self.heard += len(data)
        try:
            events = self._client.feed(data)
        except AmqpError as error:
            self._end(f"the broker broke the protocol: {error}")
            return
        self._flush()
        for event in events:
            if isinstance(event, Ready):
                self._opened()
            elif isinstance(event, Answer):
                self._answered(event)
            else:
                self._ended_by(event)
                return

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):  # with TLS 1.3 the other side refuses our certificate after the handshake
            self._complaint, self.over = why(exc), True
        hung_up, self.over = self.over, True
        self._transport = None
        self._replies.clear()
        reason = self._reason if exc is None else why(exc)
        self._closed(End(reason, self._complaint, hung_up))

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _answered(self, answer: Answer) -> None:
        reply = self._replies.pop(answer.number, None)
        if reply is not None:
            reply(answer)

    def _ended_by(self, event: Closed | VersionRefused | PeerSilent | CloseAnswered) -> None:
        if isinstance(event, Closed):
            self._complaint = event.reply_text
            self._end(f"closed by the broker: {event.reply_code} {event.reply_text}")
        else:
            self._complaint = str(event)
            self._end(str(event))

    def _end(self, reason: str) -> None:
        self._reason, self.over = reason, True
        self._flush()
        self.close()

    def _flush(self) -> None:
        if self._transport is not None and (output := self._client.take_output()):
            self._transport.write(output)
