"""TLS of a client: contexts from options, and error texts for administrators.

A context takes milliseconds to build (the system's authorities are parsed), too long during a fail-over, so contexts
are cached.  When a file changes, such as a renewed certificate, a new one is built.
"""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Callable
from pathlib import Path

from client_lib.errors import ConnectError
from client_lib.options import Options
from client_lib.urls.url import Endpoint

_KEPT = 32
_HOST_MISMATCH, _IP_MISMATCH = 62, 64  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
File = str | Path | None
Stamp = tuple[str, int, int, int] | None

# OpenSSL's name of an error: what to check.  The broker's alerts come with ALERT in their names.
_DATES = (9, 10)  # not yet valid, expired
_PLAIN = "it does not speak TLS on this port"
_REASONS = {
    "WRONG_VERSION_NUMBER": _PLAIN,
    "RECORD_LAYER_FAILURE": _PLAIN,
    "HTTP_REQUEST": _PLAIN,
    "UNSUPPORTED_PROTOCOL": "it speaks an outdated version of TLS only",
    "ALERT_PROTOCOL_VERSION": "it does not speak our version of TLS",
    "CERTIFICATE_REQUIRED": "it wants a certificate of ours (ssl_certfile)",
    "ALERT_UNKNOWN_CA": "it does not trust the authority of our certificate (ssl_certfile)",
    "ALERT_BAD_CERTIFICATE": "it does not take our certificate (ssl_certfile)",
    "ALERT_CERTIFICATE_EXPIRED": "it says that our certificate has expired (ssl_certfile)",
    "ALERT_CERTIFICATE_REVOKED": "it says that our certificate is revoked (ssl_certfile)",
    "ALERT_HANDSHAKE_FAILURE": "it wants a certificate of ours (ssl_certfile), or we have no cipher in common",
}


ENDED = "TLS failed: the broker ended it, for it stops or does not take our certificate (ssl_certfile)"
"""A broker on asyncio closes before it can send the reason."""


def context(options: Options) -> ssl.SSLContext:
    """Raises ConnectError if a file cannot be used."""
    if options.ssl_context is not None:
        return options.ssl_context
    check_name = options.ssl_verify and not options.ssl_skip_hostname_check
    files = (options.ssl_trustfile, options.ssl_certfile, options.ssl_keyfile)
    return _context(*map(_stamp, files), options.ssl_key_password, options.ssl_verify, check_name)


def server_name(address: Endpoint, options: Options) -> str:
    """The name sent in SNI, which the certificate must contain."""
    return options.ssl_server_name or address.host.partition("%")[0]


def _stamp(file: File) -> Stamp:
    """The file's name and the metadata that changes with its content."""
    if file is None:
        return None
    try:
        found = os.stat(file)
    except OSError as error:
        raise ConnectError(f"cannot read {str(file)!r}: {error.strerror}") from None
    return str(file), found.st_mtime_ns, found.st_size, found.st_ino


@functools.lru_cache(_KEPT)
def _context(
    trust: Stamp, certificate: Stamp, key: Stamp, password: str | None, verify: bool, check_name: bool
) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.check_hostname = check_name
    made.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if trust is not None:
        _load(trust, "authorities (ssl_trustfile)", lambda: made.load_verify_locations(trust[0]))
    elif verify:
        made.load_default_certs()
    if certificate is not None:
        key_file = key[0] if key is not None else None
        # An empty password, not None: with None OpenSSL would prompt on the terminal for an encrypted key
        secret = password or ""
        what = "our certificate and key (ssl_certfile, ssl_keyfile, ssl_key_password)"
        _load(certificate, what, lambda: made.load_cert_chain(certificate[0], key_file, secret))
    return made


def _load(stamp: tuple[str, int, int, int], what: str, load: Callable[[], object]) -> None:
    try:
        load()
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        raise ConnectError(f"cannot use {stamp[0]!r} as {what}: {reason}") from None


def is_wrong(error: BaseException) -> bool:
    """Trying again would not help: the certificate cannot be verified, or there is no TLS at the other end.  One that
    has expired will be renewed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_code not in _DATES
    return isinstance(error, ssl.SSLError) and _REASONS.get(error.reason or "") == _PLAIN


def explain(error: BaseException) -> str | None:
    """The TLS error in words for an administrator.  None if `error` is not about TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {_verification(error)}"
    if not isinstance(error, ssl.SSLError):
        return None
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return ENDED
    reason = error.reason or str(error)
    advice = next((text for name, text in _REASONS.items() if name in reason), None)
    return f"TLS failed: {advice + ': ' if advice else ''}{reason}"


def _verification(error: ssl.SSLCertVerificationError) -> str:
    message = error.verify_message
    if error.verify_code in (_HOST_MISMATCH, _IP_MISMATCH):
        return f"{message} (ssl_server_name, ssl_skip_hostname_check)"
    if "self-signed" in message or "self signed" in message or "issuer" in message:
        return f"{message}: it is not signed by an authority in ssl_trustfile"
    return message
