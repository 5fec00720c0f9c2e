"""Events about clients that come and go, so many as the log can bear (pure; times are arguments, in seconds).

Each client is a row `client_open` and a row `client_close`.  Clients that open a connection for each message, or
thousands that come back at once after a fail-over, would fill the log and cost more than the rows are worth: BURST
clients are written one by one, then RATE a second; the others are counted, and the counts are one row a second.  A
client whose opening is not written has no closing either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ha.model.allowance import Allowance
from qpidd_py.amqp.constants import CLIENT_ID, CONN_ID, TIME

BURST: Final = 1000
RATE: Final = 1.0
COUNTED: Final = 1.0
"""Seconds between two rows of counts."""


class ClientRows:
    """`write(kind, **fields)` gets the rows."""

    def __init__(self, write: Callable[..., None], burst: int = BURST, rate: float = RATE) -> None:
        self._write = write
        self._allowance = Allowance(burst, rate)
        self._written: dict[int, Mapping[str, str]] = {}
        self._opened = self._closed = 0
        self._counted = float("-inf")

    def opened(self, number: int, fields: Mapping[str, str], attrs: Mapping[str, object], now: float) -> None:
        """A client is in.  `number` is this broker's, for its connection."""
        if not self._allowance.is_left(now):
            self._opened += 1
            return
        self._allowance.take()
        self._written[number] = fields
        self._write("client_open", **fields, attrs=attrs)

    def closed(self, number: int, reason: str) -> None:
        """It has gone."""
        fields = self._written.pop(number, None)
        if fields is None:
            self._closed += 1
        else:
            self._write("client_close", **fields, reason=reason)

    def tick(self, now: float) -> None:
        """Several times a second."""
        if now - self._counted >= COUNTED:
            self._counted = now
            self.count()

    def count(self) -> None:
        """The row about those that have none."""
        if self._opened or self._closed:
            attrs = {"left_out": self._opened, "left_out_closed": self._closed}
            self._opened = self._closed = 0
            self._write("client_open", attrs=attrs)


def described(peer: str, user: str, properties: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, object]]:
    """Fields and attrs of `client_open`, by what the client has said of itself; `peer` is its HOST:PORT."""
    fields = {"peer": peer, "client_id": _text(properties.get(CLIENT_ID)), "conn_id": _text(properties.get(CONN_ID))}
    attrs: dict[str, object] = {"user": _text(user), "product": _text(properties.get("product"))}
    return fields, {name: value for name, value in attrs.items() if value}


def carried(properties: Mapping[str, Any], elapsed: int) -> int | None:
    """What the client's clock must show by now at least, µs since 1970: it has said what it showed when it sent its
    start-ok, which came `elapsed` µs ago.  None if it has not."""
    time = properties.get(TIME)
    return time + elapsed if isinstance(time, int) and not isinstance(time, bool) and time > 0 else None


def _text(value: object, most: int = 200) -> str:
    """Of what a client may have said of any type and length."""
    return value[:most] if isinstance(value, str) else ""
