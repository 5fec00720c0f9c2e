"""Limits how many rows are written: a burst first, then a rate.  Pure; times in seconds."""

from __future__ import annotations


class Allowance:
    """At most `burst` at once; `rate` a second come back.  `room` is below 0 when more was taken than there was."""

    def __init__(self, burst: float, rate: float) -> None:
        self._burst, self._rate = float(burst), rate
        self._filled: float | None = None
        self.room = self._burst

    def is_left(self, now: float) -> bool:
        """True when at least one row may be written."""
        elapsed = 0.0 if self._filled is None else now - self._filled
        self._filled = now
        self.room = min(self._burst, self.room + elapsed * self._rate)
        return self.room >= 1

    def take(self, count: int = 1) -> None:
        self.room -= count
