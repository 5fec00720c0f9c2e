"""The event loop of a broker: it waits in the core, which serves the data path without asyncio.

Between two waits of asyncio the core has many turns.  It comes back when asyncio has something to do: a descriptor of
its own is ready, a timer is due, or a turn has called `call_soon` or `call_at`, which set `leave`.
"""

import asyncio
import selectors
import time
from collections.abc import Callable
from contextvars import Context
from typing import Final, TypeVarTuple, Unpack

from qpidd_py.core.reactor import Reactor

Ts = TypeVarTuple("Ts")
Guard = Callable[[Callable[[], None]], None]
"""Calls its argument; what that raises ends the broker."""
LIMIT: Final = 0.1
"""Seconds; a turn that takes longer is late."""


class TurnSelector(selectors.DefaultSelector):
    """Knows since when a turn goes on; `began` is 0 while the loop waits.  Times in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began = self._seconds = 0.0
        self._reactor: Reactor | None = None
        self._guard: Guard = lambda work: work()
        self.late: list[tuple[float, float]] = []
        """(begin, seconds) of turns that were late and have ended; the watchdog takes them."""

    @property
    def began(self) -> float:
        return self._began or (self._reactor.began / 1e9 if self._reactor is not None else 0.0)

    def serve(self, reactor: Reactor, guard: Guard) -> None:
        """From now on the wait is the reactor's."""
        reactor.watch(self.fileno())
        reactor.on_late, reactor.late = self._note, LIMIT
        self._reactor, self._guard = reactor, guard

    def leave(self) -> None:
        """There is something to do before the next wait."""
        if self._reactor is not None:
            self._reactor.leave = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began, self._began = self._began, 0.0
        if began:
            self._ended(began, self._clock() - began)
        try:
            if self._reactor is None:
                return super().select(timeout)
            self._seconds = -1.0 if timeout is None else max(timeout, 0.0)
            self._guard(self._wait)
            return super().select(0) if self._reactor.others else []
        finally:
            self._began = self._clock()

    def _wait(self) -> None:
        assert self._reactor is not None
        self._reactor.wait(self._seconds)

    def _ended(self, began: float, took: float) -> None:
        """A turn of asyncio."""
        if self._reactor is not None:
            self._reactor.count(int(took * 1e9))
        self._note(began, took)

    def _note(self, began: float, took: float) -> None:
        if took > LIMIT and len(self.late) < 1000:
            self.late.append((began, took))


class BrokerLoop(asyncio.SelectorEventLoop):
    """Ends the wait of the core when something is called in a turn of it."""

    def __init__(self, turns: TurnSelector) -> None:
        super().__init__(turns)
        self.turns = turns

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self.turns.leave()
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.turns.leave()
        return super().call_at(when, callback, *args, context=context)
