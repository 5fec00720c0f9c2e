"""From pika's connection parameters to our addresses and options (pure).

Host, port, virtual host, user and TLS of each parameters object become an `Endpoint`; without ssl_options it is one
without TLS.  Texts are left to `client_lib.options.connection_settings`, as in the other APIs.  Settings of the
connection (heartbeat, timeouts ...) come from the first object that differs from pika's default; keyword
arguments override them.

Ignored, because the fail-over replaces them: connection_attempts, retry_delay, stack_timeout; also locale, tcp_options.
`blocked_connection_timeout` is the time basic_publish may wait for its confirm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pika
import pika.credentials
from pika.connection import Parameters

from client_lib.urls.url import Endpoint

Where = str | Endpoint | Any  # pika's Parameters
PUBLISH_TIMEOUT = "publish_timeout"


def read_parameters(where: Where | Iterable[Where] | None) -> tuple[list[str | Endpoint], dict[str, Any]]:
    """The addresses, those in texts not read yet, and the options that pika's parameters ask for.

    Raises TypeError for anything else than text, addresses and parameters, NotImplementedError for credentials and
    callables that cannot be carried over."""
    addresses: list[str | Endpoint] = []
    options: dict[str, Any] = {}
    for item in ["localhost"] if where is None else _listed(where):
        if isinstance(item, Parameters):
            addresses.append(_address(item))
            options = {**_options(item), **options}
        elif isinstance(item, (str, Endpoint)):
            addresses.append(item)
        else:
            raise TypeError(f"expected a URL or pika's connection parameters, not {item!r}")
    return addresses, options


def _listed(where: Where | Iterable[Where]) -> list[Any]:
    return [where] if isinstance(where, (str, Endpoint, Parameters)) else list(where)


def _address(given: Any) -> Endpoint:
    username, password = _login(given.credentials)
    return Endpoint(
        host=given.host,
        port=given.port,
        username=username,
        password=password,
        virtual_host=given.virtual_host,
        transport="ssl" if given.ssl_options is not None else "tcp",
    )


def _login(credentials: Any) -> tuple[str | None, str | None]:
    if isinstance(credentials, pika.credentials.PlainCredentials):
        return credentials.username, credentials.password
    if isinstance(credentials, pika.credentials.ExternalCredentials):
        return None, None
    raise NotImplementedError(f"credentials of the kind {type(credentials).__name__}: plain or external only")


def _options(given: Any) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if given.heartbeat is not None:
        options["heartbeat"] = _heartbeat(given.heartbeat)
    if given.socket_timeout not in (None, Parameters.DEFAULT_SOCKET_TIMEOUT):
        options["connect_timeout"] = given.socket_timeout
    if given.blocked_connection_timeout is not None:
        options[PUBLISH_TIMEOUT] = given.blocked_connection_timeout
    if given.client_properties:
        options["client_properties"] = given.client_properties
    if given.frame_max != Parameters.DEFAULT_FRAME_MAX:
        options["frame_max"] = given.frame_max
    if isinstance(given.credentials, pika.credentials.ExternalCredentials):
        options["sasl_mechanisms"] = "EXTERNAL"
    if given.ssl_options is not None:
        options["ssl_context"] = given.ssl_options.context
        if given.ssl_options.server_hostname:
            options["ssl_server_name"] = given.ssl_options.server_hostname
    return options


def _heartbeat(given: Any) -> int:
    if callable(given):
        raise NotImplementedError("heartbeat as a callable: give the seconds")
    return int(given)
