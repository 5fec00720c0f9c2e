"""Is the broker still there? (pure; time is an argument)

The broker promised to send something at least once an interval.  We look LOOKS times an interval whether anything has
arrived, and suspect the broker when nothing has for SILENCE intervals.  A suspect is looked at once more before it is
given up, because what it said may be unread: the loop reads between two looks.  So a silent broker is given up before
two intervals have passed.

If a look comes more than an interval late, this process was paused itself (SIGSTOP, a closed laptop) and the silence
was ours: it is counted anew from there.
"""

from __future__ import annotations

SILENCE = 1.625  # intervals
LOOKS = 8  # in one interval


class Watchdog:
    """`interval` in seconds; `received`: octets that have arrived so far."""

    def __init__(self, interval: float, now: float, received: int) -> None:
        self.pause = interval / LOOKS
        """Seconds between two looks."""
        self._interval = interval
        self._received = received
        self._heard = self._looked = now
        self._suspect = False

    def is_silent(self, now: float, received: int) -> bool:
        """To be asked every `pause` seconds; true when the broker should be given up."""
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
