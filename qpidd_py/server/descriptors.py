"""File descriptors: a reserve is kept for brokers, administrators and our own files.                            Shell.

    0 ... clients ... | limit - reserve ... links and administrators ... | ... own files, links that we open ... limit

The system gives the lowest free number, so the number of an accepted socket says how many are left.  One in the middle
part is *scarce*: only a link or an administrator may open it (`broker/limits.py`), and the connection that began its
handshake first gives way to the next.  The last part is not for sockets that are accepted.
"""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

MOST: Final = 128
"""Descriptors of the reserve, of which a quarter of all is taken at most."""
LOOK: Final = 0.5
"""Seconds between two looks whether the alarm has ended."""
DESCRIPTORS: Final = "descriptors"


class Descriptors:
    """Of this process."""

    def __init__(self, alarm: Callable[[str, str], None], limit: int = 0) -> None:
        """`alarm` is called with DESCRIPTORS and a reason; empty: not any more."""
        self._alarm = alarm
        self.limit = limit or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        reserve = min(MOST, self.limit // 4)
        self.scarce_from = self.limit - reserve
        self.full_from = self.limit - reserve // 2
        self._looked = 0.0
        self.alarmed = False

    def scarce(self, number: int) -> bool:
        """Whether an accepted socket with this number is none for clients."""
        if number >= self.scarce_from:
            self.out()
        return number >= self.scarce_from

    def out(self) -> None:
        """There are none for clients."""
        if not self.alarmed:
            self.alarmed = True
            text = f"descriptors: fewer than {self.limit - self.scarce_from} of {self.limit} are left (ulimit -n)"
            log.error("%s; clients are refused", text)
            self._alarm(DESCRIPTORS, text)

    def tick(self, now: float) -> None:
        """`now` in seconds of a monotonic clock."""
        if not self.alarmed or now - self._looked < LOOK:
            return
        self._looked = now
        if self._next() < self.scarce_from - (self.limit - self.scarce_from) // 4:
            self.alarmed = False
            log.warning("there are descriptors for clients again")
            self._alarm(DESCRIPTORS, "")

    def _next(self) -> int:
        """The lowest free number."""
        try:
            number = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return self.limit
        os.close(number)
        return number
