"""What a client connection is given by others: its socket, and by HA a refusal or the handler of a link."""

from dataclasses import dataclass
from typing import Protocol


class SocketPort(Protocol):
    """The interface of the shell that holds a connection's socket."""

    def disconnect(self) -> None:
        """Close the socket once what was written has left; called once."""

    def output_ready(self) -> None:
        """`connection.take_output()` has something (only for connections that the reactor does not serve)."""

    @property
    def waiting(self) -> int:
        """Octets that were taken with `take_output` and have not left the process."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection is not admitted: reply code and text of `connection.close`."""

    code: int
    text: str


class LinkHandler(Protocol):
    """Takes over a connection that left AMQP for the replication protocol (`ClientConnection.link`)."""

    def link_frame(self, kind: int, position: int, body: bytes) -> None: ...

    def link_batches(self, position: int) -> None: ...

    def closed(self, reason: str) -> None: ...
