"""A persistent admin connection to one broker: management requests for asyncio, over the pure client.

Shell.  The supervisor keeps one to each broker, so that a fail-over needs no connection setup: a request is one write
and its answer one read.  Heartbeats are off, because the supervisor sends requests all the time and watches their
deadlines.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from qpidd_py.amqp.client import CloseAnswered, Closed, Login, PeerSilent, VersionRefused
from qpidd_py.amqp.management_client import Answer, ManagementClient, Ready
from qpidd_py.errors import ConnectionException

Reply = Callable[[Answer], None]


class AdminLink(asyncio.Protocol):
    """One connection; `on_open` and `on_close(reason)` are called at most once each."""

    def __init__(self, login: Login, on_open: Callable[[], None], on_close: Callable[[str], None]) -> None:
        self._client = ManagementClient(login)
        self._on_open = on_open
        self._on_close = on_close
        self._transport: asyncio.Transport | None = None
        self._replies: dict[int, Reply] = {}
        self._reason = "connection lost"

    def request(self, method: str, arguments: Mapping[str, Any], reply: Reply) -> None:
        """Sends a request.  If the connection breaks first, `on_close` is called and `reply` never."""
        self._replies[self._client.request(method, arguments)] = reply
        self._write()

    def close(self) -> None:
        """Aborts the connection."""
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio.Protocol --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._replies.clear()
        self._on_close(self._reason if exc is None else str(exc) or type(exc).__name__)

    def data_received(self, data: bytes) -> None:
        try:
            events = self._client.feed(data)
        except ConnectionException as error:
            self._ended(f"the broker broke the protocol: {error}")
            return
        self._write()
        for event in events:
            if isinstance(event, Ready):
                self._on_open()
            elif isinstance(event, Answer):
                self._answered(event)
            else:
                self._ended(_why(event))

    # ---- inside ------------------------------------------------------------------------------------------------

    def _answered(self, answer: Answer) -> None:
        reply = self._replies.pop(answer.number, None)
        if reply is not None:
            reply(answer)

    def _ended(self, reason: str) -> None:
        self._reason = reason
        self.close()

    def _write(self) -> None:
        if self._transport is not None:
            self._transport.write(self._client.take_output())


def _why(event: Closed | VersionRefused | PeerSilent | CloseAnswered) -> str:
    if isinstance(event, Closed):
        return f"closed by the broker: {event.reply_code} {event.reply_text}"
    return str(event)
