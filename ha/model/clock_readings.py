"""Clock readings that heartbeats carry, from which the reports compute how far the clocks of two brokers are apart.

A reading is the sender's wall clock at the moment of sending.  The receiver writes an event `clock`, whose own time is
the time of receiving.  From such pairs in both directions the reports compute the offset of two clocks, with a bound.
Nothing is decided by readings, and a peer may ignore them or send none.

Most readings add nothing.  An event is written for the first reading of a link; for one that bounds the clocks closer
than the last one written, at most once a second; and otherwise every LATEST seconds.  After a clock was set, one of the
two ends sees readings that seem to have travelled faster, and writes the next one.                              Pure.
"""

from __future__ import annotations

import struct
from typing import Final

EVERY: Final = 1.0
"""Seconds between two readings on a link that is too busy for heartbeats; also the least time between two events."""
LATEST: Final = 10.0
"""The longest time between two events of one link, in seconds."""

_WALL = struct.Struct("<q")


def encode(wall: int) -> bytes:
    """The body of a heartbeat; `wall` in µs since 1970."""
    return _WALL.pack(wall)


def decode(body: bytes) -> int | None:
    """µs since 1970; None if the body has no reading.  Octets after the reading are ignored."""
    if len(body) < _WALL.size:
        return None
    wall: int = _WALL.unpack_from(body)[0]
    return wall if wall > 0 else None


class ClockReadings:
    """The readings at one end of one link.  Times are monotonic seconds, `wall` is in µs since 1970."""

    def __init__(self) -> None:
        self._said: float | None = None
        self._noted: float | None = None
        self._delay = 0

    def due(self, now: float) -> bool:
        """True when a reading must be sent, even if the link is not idle."""
        return self._said is None or now - self._said >= EVERY

    def say(self, now: float, wall: int) -> bytes:
        """The body of the heartbeat that is sent now."""
        self._said = now
        return encode(wall)

    def hear(self, body: bytes, now: float, wall: int) -> int | None:
        """Take a received heartbeat.  Returns its reading if an event should be written, else None."""
        sent = decode(body)
        if sent is None:
            return None
        since, delay = None if self._noted is None else now - self._noted, wall - sent
        if since is not None and since < LATEST and (since < EVERY or delay >= self._delay):
            return None
        self._noted, self._delay = now, delay
        return sent
