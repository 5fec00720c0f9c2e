"""What the clock of the broker at the other end of a link shows: readings that heartbeats carry, for the reports.

A reading is the sender's wall clock at the moment of sending.  Whoever gets it writes an event `clock`, whose own time
is that of receiving: from such pairs, both ways, the reports find how far two clocks are apart, with a bound.  Nothing
is decided by them, and a peer that sends none, or does not read them, is as good as any.

Most readings say nothing new.  Written are the first of a link, one that bounds the clocks closer than the last one
written, at most one a second, and else one every LATEST seconds.  If a clock is set, one of the two ends sees readings
that seem to have travelled faster, and writes the next one.                                                     Pure.
"""

from __future__ import annotations

import struct
from typing import Final

EVERY: Final = 1.0
"""Seconds between two readings on a link that is too busy for heartbeats; and between two events, at least."""
LATEST: Final = 10.0
"""Seconds between two events of one link, at most."""

_WALL = struct.Struct("<q")


def encode(wall: int) -> bytes:
    """The body of a heartbeat; `wall` in µs since 1970."""
    return _WALL.pack(wall)


def decode(body: bytes) -> int | None:
    """µs since 1970; None if there is no reading in it.  What may follow one day is left alone."""
    if len(body) < _WALL.size:
        return None
    wall: int = _WALL.unpack_from(body)[0]
    return wall if wall > 0 else None


class ClockReadings:
    """Of one end of one link.  Times are seconds of the monotonic clock, `wall` is in µs since 1970."""

    def __init__(self) -> None:
        self._said: float | None = None
        self._noted: float | None = None
        self._delay = 0

    def due(self, now: float) -> bool:
        """Is it time for a reading, whatever else is sent?"""
        return self._said is None or now - self._said >= EVERY

    def say(self, now: float, wall: int) -> bytes:
        """The body of the heartbeat that is sent now."""
        self._said = now
        return encode(wall)

    def hear(self, body: bytes, now: float, wall: int) -> int | None:
        """A heartbeat has come.  The reading in it if that is worth an event."""
        sent = decode(body)
        if sent is None:
            return None
        since, delay = None if self._noted is None else now - self._noted, wall - sent
        if since is not None and since < LATEST and (since < EVERY or delay >= self._delay):
            return None
        self._noted, self._delay = now, delay
        return sent
