"""How this broker connects to other brokers: name and password, and TLS for addresses that begin with `ssl:`."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ha.model.settings import HaSettings, split_address, uses_tls
from qpidd_py.amqp.client import Login
from qpidd_py.config import SecuritySettings
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
    authorities = options.ha_ssl_ca or security.ssl_ca
    if authorities is None:
        return None
    certificate, key = options.ha_ssl_cert, options.ha_ssl_key
    if certificate is None:
        certificate, key = security.ssl_cert, security.ssl_key
    return client_tls(authorities, certificate, key)


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
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the certificate {certificate}: {error}") from None
