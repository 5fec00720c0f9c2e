"""The interfaces between `broker` and the HA plug-in.

The broker works without any of it (`Broker.hooks` is None).  Layering: HA imports the broker, never the other way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from qpidd_py.broker.client_connection import ClientConnection


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


class HaHooks(Protocol):
    """The hooks that HA implements."""

    def admit(self, connection: "ClientConnection", properties: Mapping[str, Any]) -> Refusal | None:
        """At `connection.open`, after authentication.  `properties` are the client's properties."""

    def opened(self, connection: "ClientConnection") -> bool:
        """`open-ok` was written.  True: the connection is a link now; `connection.link` was set and
        `connection.core.switch_to_link()` was called."""

    def connection_closed(self, connection: "ClientConnection") -> None:
        """An opened connection is gone; `connection.end_reason` says why.  (For links
        `connection.link.closed` is called as well.)"""

    def request(
        self, method: str, arguments: dict[str, Any], reply: Callable[[dict[str, Any]], None], user: str
    ) -> bool:
        """A management request "ha.*" of `user`; False if the method is unknown.  `reply` may be called later."""

    def limited(self, reason: str) -> None:
        """This broker has reached a limit of its own (`Broker.limit`); empty: it is at none any more."""

    def alarm(self, name: str, reason: str) -> None:
        """An alarm has begun (`Broker.alarm`), or, with an empty reason, is over."""

    def paging(self, result: str, reason: str) -> None:
        """Messages leave memory for the page file ("begun"); it is empty again ("ended"); it cannot be written
        ("failed", with the reason)."""

    def tick(self, now: float) -> None:
        """Runs periodic work; `now` in seconds of a monotonic clock."""
