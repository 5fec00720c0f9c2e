"""TLS connections of clients and of other brokers: asyncio decrypts, `TlsPump` moves the octets to and from the core.

A handshake runs in asyncio, and delays nothing else.  One that fails is logged with the peer's address and the reason,
as `TlsFailures` has it: once in a while for each host, since anybody can cause them.
"""

import asyncio
import logging
import ssl
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from qpidd_py.config import SecuritySettings, no_pass_phrase
from qpidd_py.errors import ConfigError
from qpidd_py.option_values import Address
from qpidd_py.tls_pump import TlsPump

if TYPE_CHECKING:
    from qpidd_py.broker.client_connection import ClientConnection

log = logging.getLogger(__name__)

QUIET: Final = 10.0
"""Seconds in which the same failure of the same host is not logged again."""
_HOSTS: Final = 256
"""Failures that are remembered for that."""


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
        made.load_cert_chain(settings.ssl_cert, settings.ssl_key, no_pass_phrase)
        if settings.ssl_ca is not None:
            made.load_verify_locations(settings.ssl_ca)
            required = settings.ssl_require_client_authentication
            made.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the certificate {settings.ssl_cert}: {error}") from None
    return made


def renew(running: ssl.SSLContext, settings: SecuritySettings) -> None:
    """Loads the files again, for the handshakes to come.  An authority that was taken out of the file is trusted until
    the broker restarts.  Raises OSError; `context` tells before whether the files can be used."""
    running.load_cert_chain(str(settings.ssl_cert), settings.ssl_key, no_pass_phrase)
    if settings.ssl_ca is not None:
        running.load_verify_locations(settings.ssl_ca)


def common_name(certificate: Any) -> str:
    """The name of the holder in a certificate as `ssl` shows it; empty if there is none."""
    fields = dict(field for group in (certificate or {}).get("subject", ()) for field in group)
    return str(fields.get("commonName", ""))


def reason(error: BaseException) -> str:
    """Why a handshake has failed, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        words = error.reason.lower().replace("_", " ")
        return f"it refuses our certificate: {words}" if "alert" in words else words
    if isinstance(error, ConnectionError):  # asyncio closes without telling the other side why
        return "it breaks the handshake off, as one does that refuses our certificate"
    return str(error) or type(error).__name__


class TlsFailures:
    """Logs handshakes that have failed."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()

    def failed(self, host: str, port: int, error: BaseException) -> None:
        why, now = reason(error), self._now()
        level = logging.DEBUG if now - self._told.get((host, why), -QUIET) < QUIET else logging.WARNING
        if level == logging.WARNING:
            self._told[host, why] = now
            self._told.move_to_end((host, why))
            if len(self._told) > _HOSTS:
                self._told.popitem(last=False)
        log.log(level, "no TLS connection with %s:%d: %s", host, port, why)


class TlsConnection(asyncio.Protocol):
    """Both the asyncio protocol and the connection's `SocketPort`."""

    def __init__(
        self, accept: Accepter, guard: Callable[[Callable[[], None]], None], pending: "set[TlsConnection]"
    ) -> None:
        """`pending`: those that the listener looks at again; it adds and removes itself."""
        self._accept = accept
        self._guard = guard
        self._pending = pending
        self._connection: ClientConnection | None = None
        self._pump: TlsPump | None = None
        self.descriptor = -1
        """Of its socket, before it is accepted."""

    # ---- from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.descriptor = transport.get_extra_info("socket").fileno()
        connection = self._connection = self._accept(str(Address(*peer[:2])), self)
        if connection is None:
            transport.abort()
            return
        self._pump = TlsPump(transport, connection.core)
        connection.handshake.certified = common_name(transport.get_extra_info("peercert"))

    def data_received(self, data: bytes) -> None:
        self._guard(lambda: self._feed(data))

    def connection_lost(self, error: Exception | None) -> None:
        self._pump = None
        self._pending.discard(self)
        connection, self._connection = self._connection, None
        if connection is not None:
            self._guard(lambda: connection.closed(str(error) if error else "closed by the peer"))

    def pause_writing(self) -> None:
        if self._pump is not None:
            self._pump.pause_writing()

    def resume_writing(self) -> None:
        if self._pump is not None:
            self._guard(self._pump.resume_writing)
            self._note()

    # ---- from the connection

    def output_ready(self) -> None:
        if self._pump is not None:
            self._pump.flush()
            self._note()

    def disconnect(self) -> None:
        if self._pump is not None:
            self._pump.finish()

    @property
    def waiting(self) -> int:
        return self._pump.waiting if self._pump is not None else 0

    # ---- from the listener

    def look(self) -> None:
        if self._pump is not None:
            self._pump.look()
            self._note()

    def _note(self) -> None:
        if self._pump is not None and self._pump.pending:
            self._pending.add(self)
        else:
            self._pending.discard(self)

    def _feed(self, data: bytes) -> None:
        if self._pump is not None and self._connection is not None and not self._connection.finished:
            self._pump.feed(data)
            self._note()
