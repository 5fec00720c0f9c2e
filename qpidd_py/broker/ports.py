"""What a client connection is given by others: its broker, its socket, and by HA admission or the handler of a link."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from qpidd_py.broker import client_channel, opening
from qpidd_py.broker.vhosts import VHosts
from qpidd_py.core.engine import Engine
from qpidd_py.logrules import Floods
from qpidd_py.security.acl.in_force import Acl
from qpidd_py.security.rights import Rights

Taken = TypeVar("Taken", contravariant=True)
"""The connection, which `ClientConnection` is."""


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


@dataclass(frozen=True, slots=True)
class Later:
    """Whether a connection is admitted is not known yet: nothing more of it is read until admission calls
    `ClientConnection.ask_again`."""


class Admission(Protocol[Taken]):
    """HA admits connections, and may take them over."""

    def admit(self, connection: Taken, properties: Mapping[str, Any]) -> Refusal | Later | None:
        """At `connection.open`, after authentication.  `properties` are the client's properties."""

    def opened(self, connection: Taken) -> bool:
        """`open-ok` was written.  True: the connection is a link now; `connection.link` was set and
        `connection.core.switch_to_link()` was called."""

    def connection_closed(self, connection: Taken) -> None:
        """An opened connection is gone; `connection.end_reason` says why.  (For links
        `connection.link.closed` is called as well.)"""


class Host(client_channel.Host, opening.Host, Protocol[Taken]):
    """What a connection uses of the broker, which `Broker` is."""

    acl: Acl
    anonymous: str
    coming_and_going: Floods
    couriers: set[str]
    engine: Engine
    heartbeat: int
    known_hosts: str
    rights: Rights
    server_properties: dict[str, Any]
    vhosts: VHosts

    @property
    def blocked(self) -> str: ...

    @property
    def hooks(self) -> Admission[Taken] | None: ...

    @property
    def scram(self) -> Callable[[], bool]: ...

    def joins(self, connection: Taken) -> int: ...

    def leaves(self, connection: Taken) -> None: ...

    def watch(self, connection: Taken) -> None: ...


class LinkHandler(Protocol):
    """Takes over a connection that left AMQP for the replication protocol (`ClientConnection.link`)."""

    def link_frame(self, kind: int, position: int, body: bytes) -> None: ...

    def link_batches(self, position: int) -> None: ...

    def closed(self, reason: str) -> None: ...
