"""How far the reading of a journal is.  The main thread reads; another one shows it meanwhile (`doorman.py`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from qpidd_py.logrules import log_notice
from qpidd_py.store.recovery import Frame

log = logging.getLogger(__name__)

REPORT: Final = 1.0
"""Seconds between two lines in the log."""
LOOK: Final = 100
"""Frames between two looks at the clock."""


class Interrupted(Exception):
    """The process was told to end while it read.  Nothing was changed."""


class Step(NamedTuple):
    """How far one of the two steps is: every octet is checked, then the frames are applied."""

    what: str
    unit: str
    done: int = 0
    of: int = 0
    """0: not known yet."""
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Units in a second; 0 if it is not known yet."""
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds until this step is over; None if that is not known yet."""
        return (self.of - self.done) / self.rate if self.rate else None

    def __str__(self) -> str:
        left = "" if self.remaining is None else f", {self.rate:.0f} {self.unit}/s, {self.remaining:.0f} s remain"
        return f"{self.what}: {self.done} of {self.of or '?'} {self.unit}{left}"

    def shown(self) -> dict[str, object]:
        """For management."""
        left = None if self.remaining is None else round(self.remaining, 1)
        numbers = {"done": self.done, "of": self.of, "rate": round(self.rate, 1), "remaining": left}
        return {"step": self.what, "unit": self.unit, "seconds": round(self.seconds, 1), **numbers}


class Progress:
    """Of the reading at one start."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._said = clock()
        self.stop = False
        """Set to end the reading with Interrupted."""
        self.step = Step("open the journal", "segments")
        """Replaced as a whole, so that another thread never sees half of it."""

    def begin(self, what: str, unit: str) -> None:
        self._began = self._said = self._clock()
        self.step = Step(what, unit)

    def at(self, done: int, of: int) -> None:
        """So many units are done.  Raises Interrupted."""
        now = self._clock()
        self.step = self.step._replace(done=done, of=of, seconds=now - self._began)
        if now - self._said >= REPORT:
            self._said = now
            log_notice(log, "%s", self.step)
        if self.stop:
            raise Interrupted

    def frames(self, found: Iterator[Frame], last: int) -> Iterator[Frame]:
        """Count them as they are taken; `last` is the number of the last one.  Raises Interrupted."""
        first = 0
        for frame in found:
            first = first or frame.number
            if self.stop or (frame.number - first) % LOOK == 0:
                self.at(frame.number - first, last - first + 1)
            yield frame
