"""The rate of a catch-up.  Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW: Final = 5.0
"""Seconds over which the rate is measured."""


class Progress:
    """The progress of one backup."""

    def __init__(self, now: float) -> None:
        self.reported = now
        self._seen: deque[tuple[float, int, int]] = deque([(now, 0, 0)])

    def note(self, now: float, octets: int, messages: int) -> None:
        """Record the totals sent so far."""
        self._seen.append((now, octets, messages))
        while now - self._seen[1][0] > WINDOW:
            self._seen.popleft()

    def rates(self) -> tuple[float, float]:
        """Recent octets and messages per second."""
        (start, octets, messages), (end, more_octets, more_messages) = self._seen[0], self._seen[-1]
        if end <= start:
            return 0.0, 0.0
        return (more_octets - octets) / (end - start), (more_messages - messages) / (end - start)
