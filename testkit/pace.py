"""The rate of a load.  Shell."""

import time


class Pace:
    """Limits a loop to `rate` turns a second; time lost in an outage is not made up for."""

    def __init__(self, rate: float) -> None:
        self._interval = 1.0 / rate
        self._due = time.monotonic()

    def left(self) -> float:
        """Begins a turn; seconds to wait before it."""
        now = time.monotonic()
        self._due = max(self._due + self._interval, now - 0.1)
        return max(0.0, self._due - now)

    def wait(self) -> None:
        time.sleep(self.left())
