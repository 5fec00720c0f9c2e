"""One timer for the whole broker: its ticks drive heartbeats, time limits, expiry and HA."""

import asyncio
from collections.abc import Callable
from typing import Final

LONGEST: Final = 0.1  # seconds between two ticks
SHORTEST: Final = 0.005


def tick_interval(link_heartbeat: float) -> float:
    """Seconds; a tenth of the link heartbeat, so that silence is noticed in good time."""
    return min(LONGEST, max(SHORTEST, link_heartbeat / 10))


class Ticker:
    """Calls `work(now)` every `interval` seconds; a late tick is not made up for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interval: float, work: Callable[[float], None]) -> None:
        self._loop = loop
        self._interval = interval
        self._work = work
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._tick)
        self._work(self._loop.time())
