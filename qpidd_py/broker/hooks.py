"""The interfaces between `broker` and the HA plug-in.

The broker works without any of it (`Broker.hooks` is None).  Layering: HA imports the broker, never the other way.
"""

from collections.abc import Callable
from typing import Any, Protocol

from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.ports import Admission


class HaHooks(Admission[ClientConnection], Protocol):
    """The hooks that HA implements."""

    cluster: bool
    """True if other brokers hold what this one holds."""

    def request(
        self, method: str, arguments: dict[str, Any], reply: Callable[[dict[str, Any]], None], user: str
    ) -> bool:
        """A management request "ha.*" of `user`; False if the method is unknown.  `reply` may be called later."""

    def limited(self, reason: str) -> None:
        """This broker has reached a limit of its own (`Broker.limit`); empty: it is at none any more."""

    def alarm(self, name: str, reason: str) -> None:
        """An alarm has begun (`Broker.alarm`), or, with an empty reason, is over."""

    def damaged(self, reason: str) -> None:
        """Other messages than before, which wait here, cannot be read any more; empty: none are left that cannot."""

    def paging(self, result: str, reason: str) -> None:
        """Messages leave memory for the page file ("begun"); it is empty again ("ended"); it cannot be written
        ("failed", with the reason)."""

    def tick(self, now: float) -> None:
        """Runs periodic work; `now` in seconds of a monotonic clock."""
