"""TLS connections: asyncio decrypts, the same core parser is fed, and its output goes back through asyncio.

Back-pressure both ways: while asyncio's buffer is full the output stays in the core, which bounds it; while the core
has paused a connection's input, reading is paused.  The core does not call when it wants input again, so the server
calls `look` at each tick.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from qpidd_py.config import SecuritySettings
from qpidd_py.errors import ConfigError

if TYPE_CHECKING:
    from qpidd_py.broker.client_connection import ClientConnection

BUFFER: int = 1 << 20
"""Octets that asyncio buffers before it pauses writing."""


class Accepter(Protocol):
    """The listener's callback for a new TLS connection."""

    def __call__(self, peer: str, transport: "TlsConnection") -> "ClientConnection | None": ...


def context(settings: SecuritySettings) -> ssl.SSLContext | None:
    """None when no certificate is given.  Raises `ConfigError`."""
    if settings.ssl_cert is None:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_cert_chain(settings.ssl_cert, settings.ssl_key)
        if settings.ssl_ca is not None:
            made.load_verify_locations(settings.ssl_ca)
            required = settings.ssl_require_client_authentication
            made.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the certificate {settings.ssl_cert}: {error}") from None
    return made


def waiting(transport: asyncio.Transport) -> int:
    """Octets of a TLS connection that the kernel has not got yet, encrypted or not."""
    inner = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    encrypted: int = inner.get_write_buffer_size() if inner is not None else 0
    return transport.get_write_buffer_size() + encrypted


class TlsConnection(asyncio.Protocol):
    """Both the asyncio protocol and the connection's `Transport`."""

    def __init__(self, accept: Accepter, guard: Callable[[Callable[[], None]], None]) -> None:
        self._accept = accept
        self._guard = guard
        self._connection: ClientConnection | None = None
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self._reading = True

    # ---- from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(BUFFER)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self._connection = self._accept(f"{peer[0]}:{peer[1]}", self)
        if self._connection is None:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._guard(lambda: self._feed(data))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        connection, self._connection = self._connection, None
        if connection is not None:
            self._guard(lambda: connection.closed(str(error) if error else "closed by the peer"))

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._guard(self.output_ready)

    # ---- from the connection

    def output_ready(self) -> None:
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        while self._writable:
            output = connection.core.take_output(False)
            if not output:
                break
            transport.write(output)
        connection.core.left(waiting(transport))

    def disconnect(self) -> None:
        self._writable = True
        self.output_ready()
        if self._transport is not None:
            self._transport.close()

    # ---- from the listener

    def fileno(self) -> int:
        """-1 if it is closed already."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        return int(sock.fileno()) if sock is not None else -1

    @property
    def closed(self) -> bool:
        return self._transport is None

    def look(self) -> None:
        """Pauses or resumes reading as the core asks, and reports to it how much output has left."""
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        connection.core.left(waiting(transport))
        wanted = not connection.core.input_paused
        if wanted and not self._reading:
            transport.resume_reading()
        elif self._reading and not wanted:
            transport.pause_reading()
        self._reading = wanted

    def _feed(self, data: bytes) -> None:
        if self._connection is not None and not self._connection.finished:
            self._connection.core.feed(data)
            self._connection.broker.engine.end_turn()
            self.look()
