"""Detects a silent broker (pure; time is an argument).

The broker must send something at least once per interval.  The watchdog checks LOOKS times per interval whether
anything has arrived, and suspects the broker after SILENCE intervals without input.  A suspect is checked again before
it is given up, because its input may be unread: the loop reads between two checks.  So a silent broker is given up
after 1.25 to 1.5 intervals.  A peer has to send once per interval; RabbitMQ and qpidd-py do so twice.

If a check is more than an interval late, this process itself was paused (SIGSTOP, a closed laptop), and the count of
silence starts again.
"""

from __future__ import annotations

SILENCE = 1.125  # intervals
LOOKS = 8  # in one interval


class Watchdog:
    """`interval` in seconds; `received`: octets that have arrived so far."""

    def __init__(self, interval: float, now: float, received: int) -> None:
        self.pause = interval / LOOKS
        """Seconds between two checks."""
        self._interval = interval
        self._received = received
        self._heard = self._looked = now
        self._suspect = False

    def is_silent(self, now: float, received: int) -> bool:
        """Call every `pause` seconds; true when the broker should be given up."""
        overslept = now - self._looked > self._interval
        self._looked = now
        if received != self._received or overslept:
            self._received, self._heard, self._suspect = received, now, False
            return False
        if self._suspect:
            return True
        self._suspect = now - self._heard >= SILENCE * self._interval
        return False

    def silence(self, now: float) -> float:
        """Seconds since something arrived, as far as we know."""
        return now - self._heard
