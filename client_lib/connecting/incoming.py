"""The stream of octets from the broker: deliveries and confirms are read in one step, other frames one by one (pure).

A delivery is three frames: method, header, body.  pika makes an object of each, decodes all properties and puts them
together again.  Here the three are read at once and the properties stay octets (`client_lib.message.unread`), if a
taker is known for the consumer tag and the body is one frame; the rest of a small delivery is waited for.  Deliveries
for one taker that follow each other are handed over together.  Everything else is given to `other`, frame by frame:
what is malformed, too, so that it is refused there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol

Arrival = tuple[int, bool, str, str, bytes, bytes]
"""delivery tag, redelivered, exchange, routing key, property list, body."""
Taker = Callable[[list[Arrival]], None]
Confirmed = Callable[[int, bool, bool], None]
"""delivery tag, multiple, taken."""

METHOD, HEADER, BODY = 1, 2, 3
KINDS = (METHOD, HEADER, BODY, 8)
END = 0xCE
DELIVER, ACK, NACK = (struct.pack(">HH", 60, number) for number in (60, 80, 120))
ONLY_ACK = (ACK,)
OTHER = -1
ROUTES = 1024  # pairs of exchange and routing key that are remembered
_HEAD = struct.Struct(">BHI")
_CONTENT = struct.Struct(">BHIHHQ")
_TAG = struct.Struct(">QB")


class Inbound(Protocol):
    """The part of a channel that this module uses."""

    takers: dict[bytes, Taker]
    """By consumer tag."""
    confirmed: Confirmed | None
    ending: Callable[[], None]


class Incoming:
    """One per connection.  `other(octets)` reads a frame and returns how many octets it used; 0: there must be more."""

    def __init__(self, other: Callable[[bytes], int]) -> None:
        self.channels: dict[int, Inbound] = {}
        self.body_max = 0
        """Octets of a body that fit into a frame."""
        self._other = other
        self._rest = b""
        self._end = 0
        self._routes: dict[bytes, tuple[str, str]] = {}
        self._taker: Taker | None = None
        self._arrived: list[Arrival] = []
        """What was read for `_taker`."""

    def feed(self, data: bytes) -> None:
        """Reads what is complete and keeps the rest.  Raises what `other` and the channels raise."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, limit = 0, len(data)
        while at < limit:
            used = self._read(data, at, limit)
            if used == OTHER:
                self._hand_over()
                used = self._other(data[at : self._end])
            if not used:
                self._rest = data[at:]
                break
            at += used
        self._hand_over()

    def feed_quick(self, data: bytes) -> bytes | None:
        """As `feed`, but stops before anything but a delivery or a basic.ack, and returns the rest: for `feed`."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, limit, left = 0, len(data), None
        while at < limit:
            used = self._read(data, at, limit, ONLY_ACK)
            if used == OTHER:
                left = data[at:]
                break
            if not used:
                self._rest = data[at:]
                break
            at += used
        self._hand_over()
        return left

    def _hand_over(self) -> None:
        arrived, taker = self._arrived, self._taker
        if arrived and taker is not None:
            self._arrived = []
            taker(arrived)

    def _read(self, data: bytes, at: int, limit: int, confirms: tuple[bytes, ...] = (ACK, NACK)) -> int:
        """Octets used; 0 if more is needed; OTHER for a frame that is not read here, and ends at `_end`."""
        if limit - at < _HEAD.size:
            return 0
        kind: int
        number: int
        size: int
        kind, number, size = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + size
        if kind not in KINDS:
            self._end = limit
            return OTHER
        if end >= limit:
            return 0
        if kind == METHOD and data[end] == END:
            channel = self.channels.get(number)
            if channel is not None:
                what = data[at + 7 : at + 11]
                if what == DELIVER:
                    used = self._delivery(channel, number, data, at, end, limit)
                    if used is not None:
                        return used
                elif what in confirms and size == 13 and channel.confirmed is not None:
                    tag, flags = _TAG.unpack_from(data, at + 11)
                    self._hand_over()
                    channel.confirmed(tag, bool(flags & 1), what == ACK)
                    return end + 1 - at
        self._end = end + 1
        return OTHER

    def _delivery(self, channel: Inbound, number: int, data: bytes, at: int, end: int, limit: int) -> int | None:
        """As `_read`; None: it is not for us.  `end` is that of the method."""
        tag_end = at + 12 + data[at + 11]
        taker = channel.takers.get(data[at + 12 : tag_end])
        route = data[tag_end + _TAG.size : end]
        strings = self._routes.get(route) or self._route(route)
        if taker is None or strings is None:
            return None
        header = end + 1
        if limit - header < _CONTENT.size:
            return 0 if limit == header or data[header] == HEADER else None
        kind, its, size, _, _, body_size = _CONTENT.unpack_from(data, header)
        stop: int = header + _HEAD.size + size
        if kind != HEADER or its != number or size < 14 or body_size > self.body_max:
            return None
        if stop >= limit:
            return 0
        if data[stop] != END:
            return None
        body, last = b"", stop
        if body_size:
            if limit - stop <= _HEAD.size:
                return 0 if limit == stop + 1 or data[stop + 1] == BODY else None
            kind, its, length = _HEAD.unpack_from(data, stop + 1)
            first = stop + 1 + _HEAD.size
            last = first + int(body_size)
            if kind != BODY or its != number or length != body_size:
                return None
            if last >= limit:
                return 0
            if data[last] != END:
                return None
            body = data[first:last]
        tag, flags = _TAG.unpack_from(data, tag_end)
        if taker is not self._taker:
            self._hand_over()
            self._taker = taker
        self._arrived.append((tag, bool(flags & 1), *strings, data[header + _CONTENT.size : stop], body))
        return last + 1 - at

    def _route(self, octets: bytes) -> tuple[str, str] | None:
        """Exchange and routing key; None: they are malformed."""
        try:
            between = 1 + octets[0]
            if len(octets) != between + 1 + octets[between]:
                return None
            found = octets[1:between].decode(), octets[between + 1 :].decode()
        except (IndexError, UnicodeDecodeError):
            return None
        if len(self._routes) >= ROUTES:
            self._routes.clear()
        self._routes[octets] = found
        return found
