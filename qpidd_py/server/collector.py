"""When Python's collector of reference cycles visits all objects.  `set_up` and `collect` are shell, the rest is pure.

Such a visit takes 0.3 s for a million objects (queues, bindings, connections), and everybody waits.  By itself it
comes whenever there are a quarter more objects.  What comes and goes in number (connections, queues, messages,
routes) is freed without it, so little is left for it.  Here it comes when nothing is published or delivered; a short
one (`SHORT`) at any time; and at the latest after `LONGEST`: a pause is better than memory that is never freed.

Young objects are visited when there are some hundred more than before.  While as many old ones are freed (those of a
deleted exchange, of connections that end) there are never more, and then all young ones are visited at once: 28 ms for
74,000.  So each tick has them visited too.
"""

import gc
from collections.abc import Callable
from functools import partial
from typing import Final

EVERY: Final = 60.0
"""Seconds between two visits of all objects, at least."""
LONGEST: Final = 3600.0
"""Seconds between two of them, at most."""
SHORT: Final = 0.005
"""Seconds of one that is not noticed."""
_NEVER: Final = 1 << 30


def set_up() -> None:
    """Before the broker serves.  What exists now lives as long as the process, and is not visited again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)


class Collector:
    """Decides when `collect` is called, and `collect_young` with each tick; `clock` gives seconds."""

    def __init__(
        self,
        clock: Callable[[], float],
        collect: Callable[[], object] = gc.collect,
        collect_young: Callable[[], object] = partial(gc.collect, 1),  # noqa: B008 (immutable)
    ) -> None:
        self._clock = clock
        self._collect, self._collect_young = collect, collect_young
        self._last = clock()
        self._took = 0.0
        self._messages = -1

    def tick(self, now: float, messages: int) -> None:
        """Call several times a second; `messages`: published and delivered until now."""
        self._collect_young()
        idle, self._messages = messages == self._messages, messages
        waited = now - self._last
        if waited >= LONGEST or (waited >= EVERY and (idle or self._took <= SHORT)):
            began = self._clock()
            self._collect()
            self._last = self._clock()
            self._took = self._last - began
