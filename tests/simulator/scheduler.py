"""Virtual time: what happens next is a matter of the scenario only."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

Call = Callable[[], None]
TICK = 0.1
"""Seconds between the ticks of a broker's shell."""


class Violation(AssertionError):
    """An invariant does not hold, or a program broke; the simulation ends."""


class Scheduler:
    """Events in order of time; events of one instant in an order that the seed decides."""

    def __init__(self, seed: int | str) -> None:
        self._rng = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.lines: list[tuple[float, str, str]] = []
        self._events: list[tuple[float, float, int, Call]] = []
        self._number = 0

    def at(self, delay: float, call: Call) -> None:
        """`delay` in seconds of virtual time."""
        self._number += 1
        heapq.heappush(self._events, (self.now + delay, self._rng.random(), self._number, call))

    def step(self) -> bool:
        """The next event; False when there is none."""
        if not self._events:
            return False
        self.now, _, _, call = heapq.heappop(self._events)
        self.steps += 1
        call()
        return True

    def run_until(self, time: float) -> None:
        """Everything that happens before `time`."""
        events, pop = self._events, heapq.heappop
        while events and events[0][0] < time:
            self.now, _, _, call = pop(events)
            self.steps += 1
            call()
        self.now = max(self.now, time)

    def stop(self) -> None:
        """Forget what would happen next."""
        self._events.clear()

    def log(self, who: str, text: str) -> None:
        """A line of the schedule."""
        self.lines.append((self.now, who, text))

    def schedule(self) -> str:
        """What has happened, for people."""
        return "\n".join(f"{now:9.4f} {who:>4} {text}" for now, who, text in self.lines)
