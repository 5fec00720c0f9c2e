"""Events about clients that connect and disconnect, limited in rate.  Pure; times are arguments, in seconds.

Each client has a row `client_open` and a row `client_close`.  Clients that open a connection for each message, or
thousands that reconnect at once after a fail-over, would fill the log: BURST clients are written one by one, then RATE
a second; the others are counted, with one row of counts a second.  A client without a `client_open` row has no
`client_close` row either.
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
        """A client has connected.  `number` is this broker's number of the connection."""
        if not self._allowance.is_left(now):
            self._opened += 1
            return
        self._allowance.take()
        self._written[number] = fields
        self._write("client_open", **fields, attrs=attrs)

    def closed(self, number: int, reason: str) -> None:
        """The client of that connection has disconnected."""
        fields = self._written.pop(number, None)
        if fields is None:
            self._closed += 1
        else:
            self._write("client_close", **fields, reason=reason)

    def tick(self, now: float) -> None:
        """Called several times a second."""
        if now - self._counted >= COUNTED:
            self._counted = now
            self.count()

    def count(self) -> None:
        """Write the row with the counts."""
        if self._opened or self._closed:
            attrs = {"left_out": self._opened, "left_out_closed": self._closed}
            self._opened = self._closed = 0
            self._write("client_open", attrs=attrs)


def described(peer: str, user: str, properties: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, object]]:
    """Fields and attrs of `client_open`, from the client's own properties; `peer` is its HOST:PORT."""
    fields = {"peer": peer, "client_id": _text(properties.get(CLIENT_ID)), "conn_id": _text(properties.get(CONN_ID))}
    attrs: dict[str, object] = {"user": _text(user), "product": _text(properties.get("product"))}
    return fields, {name: value for name, value in attrs.items() if value}


def carried(properties: Mapping[str, Any], elapsed: int) -> int | None:
    """The least that the client's clock must show now, in µs since 1970: the time in its start-ok, which was received
    `elapsed` µs ago.  None if it sent no time."""
    time = properties.get(TIME)
    return time + elapsed if isinstance(time, int) and not isinstance(time, bool) and time > 0 else None


def _text(value: object, most: int = 200) -> str:
    """Text of bounded length from a client's property of any type."""
    return value[:most] if isinstance(value, str) else ""
