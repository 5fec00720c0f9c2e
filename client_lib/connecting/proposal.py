"""What one attempt to connect proposes to a broker (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pika
import pika.data

from client_lib.connecting.scram import SCRAM, Scram
from client_lib.errors import AuthenticationFailure


@dataclass(frozen=True)
class TlsOptions:
    context: Any
    server_hostname: str


@dataclass
class Parameters:
    """In pika's words."""

    host: str
    port: int
    virtual_host: str
    credentials: Credentials
    heartbeat: int
    frame_max: int
    channel_max: int
    ssl_options: TlsOptions | None
    client_properties: Mapping[str, Any]
    tcp_nodelay: bool


class Credentials:
    """Chooses the first of our mechanisms that the broker offers."""

    def __init__(
        self, place: str, mechanisms: Sequence[str], username: str, password: str, nonce: Callable[[], str] = str
    ) -> None:
        """`nonce`: for SCRAM, another one each time."""
        self.place, self.mechanisms = place, tuple(mechanisms)
        self.username, self.password = username, password
        self._nonce = nonce
        self._scram: Scram | None = None

    def __repr__(self) -> str:
        return f"<Credentials of {self.username!r} for {' '.join(self.mechanisms)}>"

    def response_for(self, start: Any) -> tuple[str, bytes]:
        """`start`: the broker's connection.start.  Raises AuthenticationFailure, which ends the attempt."""
        text = start.mechanisms.decode() if isinstance(start.mechanisms, bytes) else str(start.mechanisms)
        offered = text.split()
        chosen = next((mechanism for mechanism in self.mechanisms if mechanism in offered), None)
        if chosen is None:
            wanted = " ".join(self.mechanisms)
            raise AuthenticationFailure(f"{self.place}: offers {text or 'nothing'}, sasl_mechanisms wants {wanted}")
        self._scram = Scram(self.username or "", self.password or "", self._nonce()) if chosen == SCRAM else None
        return chosen, self._scram.first if self._scram is not None else self._response(chosen)

    def answer(self, challenge: bytes) -> bytes | AuthenticationFailure:
        """The response to the broker's connection.secure; in any thread, one at a time."""
        if self._scram is None:
            return AuthenticationFailure(f"{self.place}: a challenge that the mechanism does not have")
        try:
            return self._scram.answer(challenge)
        except ValueError as error:
            return AuthenticationFailure(f"{self.place}: {SCRAM}: {error}")

    def accepted(self) -> None:
        """The broker takes the login as finished.  Raises AuthenticationFailure if it has left out its part."""
        if self._scram is not None and not self._scram.proved:
            raise AuthenticationFailure(f"{self.place}: {SCRAM}: the broker did not prove that it knows the password")

    def _response(self, mechanism: str) -> bytes:
        user, password = self.username or "", self.password or ""
        if mechanism == "PLAIN":
            return f"\0{user}\0{password}".encode()
        if mechanism == "AMQPLAIN":
            pieces: list[bytes] = []
            pika.data.encode_table(pieces, {"LOGIN": user, "PASSWORD": password})
            return b"".join(pieces)[4:]
        return b""  # EXTERNAL: the certificate names the user; ANONYMOUS: there is none
