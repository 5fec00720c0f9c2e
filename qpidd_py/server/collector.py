"""When Python's collector of reference cycles visits all objects.  `set_up` and `collect` are shell, the rest is pure.

Such a visit takes 0.3 s for a million objects (queues, bindings, connections), and everybody waits.  By itself it
comes whenever there are a quarter more objects.  What comes and goes in number (connections, queues, messages,
routes) is freed without it, so little is left for it.  Here it comes when nothing is published or delivered; a short
one (`SHORT`) at any time; and at the latest after `LONGEST`: a pause is better than memory that is never freed.
Young objects are visited as before, some hundred at a time.
"""

import gc
from collections.abc import Callable
from typing import Final

EVERY: Final = 60.0
"""Seconds between two visits of all objects, at least."""
LONGEST: Final = 3600.0
"""Seconds between two of them, at most."""
SHORT: Final = 0.005
"""Seconds of one that nobody notices."""
_NEVER: Final = 1 << 30


def set_up() -> None:
    """Before the broker serves.  What exists now lives as long as the process, and is not visited again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)


class Collector:
    """Decides when `collect` is called; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float], collect: Callable[[], object] = gc.collect) -> None:
        self._clock = clock
        self._collect = collect
        self._last = clock()
        self._took = 0.0
        self._messages = -1

    def tick(self, now: float, messages: int) -> None:
        """Call several times a second; `messages`: published and delivered until now."""
        idle, self._messages = messages == self._messages, messages
        waited = now - self._last
        if waited >= LONGEST or (waited >= EVERY and (idle or self._took <= SHORT)):
            began = self._clock()
            self._collect()
            self._last = self._clock()
            self._took = self._last - began
