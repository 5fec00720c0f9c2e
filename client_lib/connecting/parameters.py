"""Builds pika's parameters for one attempt to connect, from the options and an address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pika
import pika.data

from client_lib.connecting import tls
from client_lib.errors import AuthenticationFailure
from client_lib.options import Options, effective
from client_lib.urls.url import Endpoint

CHANNEL_FLOW = "qpid.channel_flow"
"""Tells the broker that this client stops publishing on channel.flow and then answers; pika alone does neither."""


class Parameters(pika.ConnectionParameters):  # type: ignore[misc]
    """pika's parameters, with the fields that pika lacks."""

    __slots__ = ("tcp_nodelay",)
    tcp_nodelay: bool


class Credentials(pika.PlainCredentials):  # type: ignore[misc]
    """Chooses the first of our mechanisms that the broker offers; each of pika's own classes knows only one."""

    def __init__(self, place: str, mechanisms: Sequence[str], username: str, password: str) -> None:
        super().__init__(username, password)
        self.place, self.mechanisms = place, tuple(mechanisms)

    def __repr__(self) -> str:
        return f"<Credentials of {self.username!r} for {' '.join(self.mechanisms)}>"

    def response_for(self, start: Any) -> tuple[str, bytes]:
        """pika calls it with connection.start.  Raises AuthenticationFailure, which ends the attempt."""
        text = start.mechanisms.decode() if isinstance(start.mechanisms, bytes) else str(start.mechanisms)
        offered = text.split()
        chosen = next((mechanism for mechanism in self.mechanisms if mechanism in offered), None)
        if chosen is None:
            wanted = " ".join(self.mechanisms)
            raise AuthenticationFailure(f"{self.place}: offers {text or 'nothing'}, sasl_mechanisms wants {wanted}")
        return chosen, self._response(chosen)

    def _response(self, mechanism: str) -> bytes:
        user, password = self.username or "", self.password or ""
        if mechanism == "PLAIN":
            return f"\0{user}\0{password}".encode()
        if mechanism == "AMQPLAIN":
            pieces: list[bytes] = []
            pika.data.encode_table(pieces, {"LOGIN": user, "PASSWORD": password})
            return b"".join(pieces)[4:]
        return b""  # EXTERNAL: the certificate names the user; ANONYMOUS: there is none


def connection_parameters(address: Endpoint, options: Options) -> Parameters:
    """Without timeouts, since the planner keeps the time.  Raises ConnectError, ValueError."""
    options = effective(options, address)
    user = address.username if address.username is not None else options.username
    password = address.password if address.password is not None else options.password
    made = Parameters(
        host=address.host,
        port=address.port,
        virtual_host=options.virtual_host if address.virtual_host is None else address.virtual_host,
        credentials=Credentials(str(address), options.mechanisms(), user, password),
        heartbeat=options.heartbeat,
        frame_max=options.frame_max,
        channel_max=options.channel_max,
        connection_attempts=1,
        socket_timeout=None,
        stack_timeout=None,
        ssl_options=_ssl_options(address, options) if address.tls else None,
        client_properties=client_properties(options.client_properties, options.client_id),
    )
    made.tcp_nodelay = options.tcp_nodelay
    return made


def check(addresses: Iterable[Endpoint], options: Options) -> None:
    """Raises what `connection_parameters` would at the first attempt: ConnectError, ValueError."""
    for address in addresses:
        connection_parameters(address, options)


def _ssl_options(address: Endpoint, options: Options) -> Any:
    return pika.SSLOptions(tls.context(options), tls.server_name(address, options))


def client_properties(given: Mapping[str, Any], client_id: str | None) -> dict[str, Any]:
    properties = {"product": "qpidd-py client_lib", CHANNEL_FLOW: True, **given}
    if client_id is not None:
        properties.setdefault("connection_name", client_id)
    return properties
