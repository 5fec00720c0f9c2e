"""The connecting end of a link over TLS: the AMQP handshake with the pure client, then the core's parser.     Shell.

A plain link is handed to the reactor (`connector.py`); this one stays with asyncio, and `TlsPump` moves the octets.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from ha.dial import why
from qpidd_py.amqp.client import AmqpClient
from qpidd_py.amqp.client_handshake import Closed, Opened, VersionRefused
from qpidd_py.core import Connection
from qpidd_py.errors import AmqpError
from qpidd_py.tls_pump import TlsPump

CLOSE_TIME: Final = 1.0
"""Seconds for the last octets of a link that we close."""
Run = Callable[[Callable[[], None]], None]


class TlsStream(asyncio.Protocol):
    """One connection.  `opened` is done with "" when it can be a link, or with the other broker's refusal; it fails
    with OSError or AmqpError."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: AmqpClient, run: Run) -> None:
        self._loop, self._client, self._run = loop, client, run
        self.opened: asyncio.Future[str] = loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._pump: TlsPump | None = None
        self._closed: Callable[[str], None] = lambda reason: None
        self._held: list[bytes] = []

    def begin(self, core: Connection, closed: Callable[[str], None]) -> None:
        """It is a link from now on."""
        self._closed = closed
        if self._transport is None:
            self._loop.call_soon(self._run, lambda: closed("closed by peer"))
            return
        self._pump = TlsPump(self._transport, core)
        rest = self._client.left_over() + b"".join(self._held)
        if rest:
            self._pump.feed(rest)
        self.flush()

    @property
    def waiting(self) -> int:
        return self._pump.waiting if self._pump is not None else 0

    def flush(self) -> None:
        if self._pump is not None:
            self._pump.flush()

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if self._pump is not None:
            self._pump.finish()
        elif transport is not None:
            transport.close()
        self._pump = None
        if transport is not None:
            self._loop.call_later(CLOSE_TIME, transport.abort)

    # ---- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._client.take_output())

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._pump is not None:
            self._run(lambda: self._feed(data))
        elif self.opened.done():
            self._held.append(data)
        else:
            self._shake_hands(data)

    def connection_lost(self, exc: Exception | None) -> None:
        over, self._transport, self._pump = self._transport is None, None, None
        if not self.opened.done():
            self.opened.set_exception(exc if isinstance(exc, ssl.SSLError) else ConnectionResetError("connection lost"))
        elif not over:
            reason = why(exc) if exc is not None else "closed by peer"
            self._run(lambda: self._closed(reason))

    def pause_writing(self) -> None:
        if self._pump is not None:
            self._pump.pause_writing()

    def resume_writing(self) -> None:
        if self._pump is not None:
            self._run(self._pump.resume_writing)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        if self._pump is not None:
            self._pump.feed(data)

    def _shake_hands(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            events = self._client.feed(data)
        except AmqpError as error:
            self.opened.set_exception(error)
            return
        if output := self._client.take_output():
            self._transport.write(output)
        for event in events:
            if isinstance(event, Opened):
                self.opened.set_result("")
            elif isinstance(event, Closed | VersionRefused):
                self.opened.set_result(event.reply_text if isinstance(event, Closed) else str(event))
