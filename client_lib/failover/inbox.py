"""Events wait here for the application's thread, so that callbacks run only there.

Theory.  Any thread posts events; a thread that calls `process` runs them.  `Timers` is pure, `Inbox` adds the waiting.

* At most one thread runs events (the dispatcher).  Calling `process` from inside a callback runs nothing, it only
  waits: callbacks never nest, as with pika.  Another thread that calls `process` meanwhile waits for its turn, and
  returns when the dispatcher has finished.
* `process` runs the events that were there when it began, timers first, the rest in the order of posting; events that
  arrive meanwhile are for the next call, so a busy queue cannot keep `process` from returning.
* An exception of a callback leaves `process` at once; later events stay for the next call.
* Lock: the condition is innermost; nothing is called with it held.  Events are appended and taken without it, since a
  message has one: only the dispatcher takes, and a thread that waits counts itself before it looks.
* A thread that waits reads the connection meanwhile, if `reading` allows it: what it posts then needs no notice.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable

import pika.exceptions

from client_lib.waiting import Reading

Callback = Callable[[], object]
LOOKS = 4  # a second


class Timers:
    """Single-shot timers; times are arguments, in seconds (pure)."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._callbacks: dict[int, Callback] = {}
        self._ids = itertools.count(1)

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, when: float, callback: Callback) -> int:
        number = next(self._ids)
        self._callbacks[number] = callback
        heapq.heappush(self._heap, (when, number))
        return number

    def remove(self, number: int) -> None:
        """Unknown and expired timers are ignored."""
        self._callbacks.pop(number, None)

    def next_at(self) -> float | None:
        """The time at which the next one is due."""
        while self._heap and self._heap[0][1] not in self._callbacks:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[int]:
        """The timers that are due, oldest first; they stay until `pop`, so that one callback can still remove
        another."""
        found = []
        while (when := self.next_at()) is not None and when <= now:
            found.append(heapq.heappop(self._heap)[1])
        return found

    def pop(self, number: int) -> Callback | None:
        """The callback of a due timer, once; None if it was removed."""
        return self._callbacks.pop(number, None)


class Inbox:
    def __init__(self) -> None:
        self.reading: Reading | None = None
        self._reader: int | None = None
        self._condition = threading.Condition()
        self._events: deque[Callback] = deque()
        self._timers = Timers()
        self._due: deque[int] = deque()
        self._dispatcher: int | None = None
        self._waiting = 0
        self._turns = 0

    def forked(self) -> None:
        """In the child after fork(2): the events are the parent's, and another thread may have held the lock."""
        self._condition = threading.Condition()
        self._events.clear()
        self._dispatcher = None

    # -- from any thread

    def post(self, event: Callback) -> None:
        self._events.append(event)
        if self._waiting and self._reader != threading.get_ident():
            with self._condition:
                self._notify()

    def poke(self) -> None:
        """Makes `process` return, so that its caller sees the change."""
        self.post(_nothing)

    def call_later(self, delay: float, callback: Callback) -> int:
        """`delay` in seconds; the number is for `remove`."""
        with self._condition:
            number = self._timers.add(time.monotonic() + delay, callback)
            if self._waiting:
                self._notify()
            return number

    def remove(self, number: int) -> None:
        with self._condition:
            self._timers.remove(number)

    @property
    def dispatching_here(self) -> bool:
        """True if this thread is inside a callback."""
        return self._dispatcher == threading.get_ident()

    def process(self, time_limit: float | None, ended: Callable[[], bool] = lambda: False) -> None:
        """Runs what is ready; waits at most `time_limit` seconds (None: for ever) for the first event, or until
        `ended`, which is polled LOOKS times a second because a connection that gives up posts no event.

        Raises what a callback raises, and pika's ReentrancyError from inside a callback if it would wait for ever."""
        deadline = None if time_limit is None else time.monotonic() + time_limit
        if self.dispatching_here:
            self._rest(deadline)
            return
        try:
            count = self._begin(deadline, ended)
            if count is not None:
                self._run(count)
        finally:
            self._end()

    # -- inside

    def _rest(self, deadline: float | None) -> None:
        if deadline is None:
            raise pika.exceptions.ReentrancyError("waiting for events from inside a callback would wait for ever")
        time.sleep(max(0.0, deadline - time.monotonic()))

    def _begin(self, deadline: float | None, ended: Callable[[], bool]) -> int | None:
        """Becomes the dispatcher once something is ready; returns how many events to run.  None at the deadline, and
        when another thread has run some, since the caller may have waited for those."""
        with self._condition:
            turns = self._turns
            self._waiting += 1
            try:
                while True:
                    now = time.monotonic()
                    self._due.extend(self._timers.due(now))
                    if self._dispatcher is None and (self._events or self._due):
                        self._dispatcher = threading.get_ident()
                        return len(self._events)
                    if self._turns != turns or ended() or (deadline is not None and now >= deadline):
                        return None
                    self._wait(self._patience(deadline, now))
            finally:
                self._waiting -= 1

    def _wait(self, seconds: float) -> None:
        if self.reading is None:
            self._condition.wait(seconds)
            return
        with self.reading.pausing(self._condition) as pause:
            self._reader = threading.get_ident()
            try:
                pause.wait(seconds)
            finally:
                self._reader = None

    def _notify(self) -> None:
        self._condition.notify_all()
        if self.reading is not None:
            self.reading.nudge()

    def _end(self) -> None:
        with self._condition:
            if self.dispatching_here:
                self._dispatcher = None
                self._turns += 1
                self._condition.notify_all()

    def _patience(self, deadline: float | None, now: float) -> float:
        ends = [when for when in (deadline, self._timers.next_at()) if when is not None]
        return max(0.0, min([now + 1 / LOOKS, *ends]) - now)

    def _run(self, count: int) -> None:
        while True:
            with self._condition:
                callback = self._timers.pop(self._due.popleft()) if self._due else None
                if callback is None and not self._due:
                    break
            if callback is not None:
                callback()
        take = self._events.popleft
        for _ in range(count):
            take()()


def _nothing() -> None:
    """The event of `poke`."""
