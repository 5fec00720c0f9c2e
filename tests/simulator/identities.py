"""Two living brokers with one identity at one primary (`ha/model/twins.py`): what must hold, I25."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from tests.simulator.scheduler import Violation

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess

MOST: Final = 3
"""Times, within twice the link's interval, that the place of a living broker may go to its twin.  Its link has to be
lost before, which takes that long, unless something resets the connection."""


class Place:
    """Who has the place of one identity at one primary."""

    def __init__(self) -> None:
        self._holder: BrokerProcess | None = None
        self._life = 0
        self._changed: deque[float] = deque(maxlen=MOST)

    def taken(self, by: BrokerProcess, primary: BrokerProcess) -> None:
        """A backup is let in.  Raises Violation."""
        holder, now = self._holder, by.scheduler.now
        lives = holder is not None and holder is not by and holder.running and holder.life == self._life
        self._holder, self._life = by, by.life
        if not lives or holder is None:
            return
        first = self._changed[0] if len(self._changed) == MOST else -1.0
        self._changed.append(now)
        if 0 <= now - first < 2 * primary.settings.heartbeat:
            both = f"{holder.name} and {by.name}, which both run,"
            raise Violation(
                f"I25: {both} take each other's place at {primary.name}, {MOST + 1} times in {now - first:.3f} s"
            )
