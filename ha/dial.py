"""How this broker connects to other brokers: name and password, and TLS for addresses that begin with `ssl:`."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ha.model.settings import HaSettings, split_address, uses_tls
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.config import SecuritySettings, no_pass_phrase
from qpidd_py.errors import ConfigError


class NoAuthorities(OSError):
    """A connection needs TLS, and we trust no authority."""


@dataclass(frozen=True)
class Dial:
    """A login, and what it takes for TLS."""

    login: Login
    tls: ssl.SSLContext | None = None

    def options(self, address: str, limit: float | None = None) -> dict[str, Any]:
        """What `create_connection` and `open_connection` of asyncio need for that address in addition to host and port.
        `limit`: seconds for the TLS handshake.  Raises NoAuthorities."""
        if not uses_tls(address):
            return {}
        if self.tls is None:
            raise NoAuthorities("there is no ha-ssl-ca (or ssl-ca) here: expected the authorities of the brokers")
        return {"ssl": self.tls, "server_hostname": split_address(address)[0], "ssl_handshake_timeout": limit}


def why(error: BaseException) -> str:
    """The reason of a connection that failed, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        words = error.reason.lower().replace("_", " ")
        return f"it refuses our certificate: {words}" if "alert" in words else f"TLS: {words}"
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__


def tls_of(options: HaSettings, security: SecuritySettings) -> ssl.SSLContext | None:
    """TLS towards other brokers; None without authorities.  Raises ConfigError."""
    files = _files(options, security)
    return client_tls(*files) if files is not None else None


def _files(options: HaSettings, security: SecuritySettings) -> tuple[Path, Path | None, Path | None] | None:
    """Authorities, certificate, key."""
    authorities = options.ha_ssl_ca or security.ssl_ca
    if authorities is None:
        return None
    if options.ha_ssl_cert is not None:
        return authorities, options.ha_ssl_cert, options.ha_ssl_key
    return authorities, security.ssl_cert, security.ssl_key


def renewal(
    dial: Dial, options: HaSettings, security: SecuritySettings, listening: ssl.SSLContext | None
) -> Callable[[], None]:
    """Checks the files; what it returns loads them, for the connections to come.  Raises ConfigError."""
    files = _files(options, security)
    if files is not None:
        client_tls(*files)

    def load() -> None:
        if files is not None and dial.tls is not None:
            _load(dial.tls, *files)
        if listening is not None and options.ha_ssl_ca is not None:
            trust(listening, options.ha_ssl_ca)

    return load


def client_tls(authorities: Path, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Raises ConfigError for files that cannot be used."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(made, authorities, certificate, key)
    return made


def trust(context: ssl.SSLContext, authorities: Path) -> None:
    """Let the listener take certificates of these authorities, too.  Raises ConfigError."""
    _load(context, authorities, None, None)
    if context.verify_mode == ssl.CERT_NONE:
        context.verify_mode = ssl.CERT_OPTIONAL


def _load(context: ssl.SSLContext, authorities: Path, certificate: Path | None, key: Path | None) -> None:
    try:
        context.load_verify_locations(authorities)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the authorities in {authorities}: {error}") from None
    try:
        if certificate is not None:
            context.load_cert_chain(certificate, key, no_pass_phrase)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the certificate {certificate}: {error}") from None
