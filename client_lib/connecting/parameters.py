"""The parameters of one attempt to connect, from the options and an address."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from client_lib.connecting import tls
from client_lib.connecting.proposal import Credentials as Credentials
from client_lib.connecting.proposal import Parameters, TlsOptions
from client_lib.options import Options, effective
from client_lib.urls.url import Endpoint

CHANNEL_FLOW = "qpid.channel_flow"
"""Tells the broker that this client stops publishing on channel.flow and then answers; pika does neither."""


def connection_parameters(address: Endpoint, options: Options) -> Parameters:
    """Without timeouts, since the planner keeps the time.  Raises ConnectError, ValueError."""
    options = effective(options, address)
    user = address.username if address.username is not None else options.username
    password = address.password if address.password is not None else options.password
    return Parameters(
        host=address.host,
        port=address.port,
        virtual_host=options.virtual_host if address.virtual_host is None else address.virtual_host,
        credentials=Credentials(str(address), options.mechanisms(), user, password, secrets.token_urlsafe),
        heartbeat=options.heartbeat,
        frame_max=options.frame_max,
        channel_max=options.channel_max,
        ssl_options=_ssl_options(address, options) if address.tls else None,
        client_properties=client_properties(options.client_properties, options.client_id),
        tcp_nodelay=options.tcp_nodelay,
    )


def check(addresses: Iterable[Endpoint], options: Options) -> None:
    """Raises what `connection_parameters` would at the first attempt: ConnectError, ValueError."""
    for address in addresses:
        connection_parameters(address, options)


def _ssl_options(address: Endpoint, options: Options) -> TlsOptions:
    return TlsOptions(tls.context(options), tls.server_name(address, options))


def client_properties(given: Mapping[str, Any], client_id: str | None) -> dict[str, Any]:
    properties = {"product": "qpidd-py client_lib", CHANNEL_FLOW: True, **given}
    if client_id is not None:
        properties.setdefault("connection_name", client_id)
    return properties
