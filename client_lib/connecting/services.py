"""The loops that connections live in: one of ours, which a thread runs, and asyncio's (shell).

Both watch sockets, keep timers and take calls from other threads, with the names of asyncio's loops where it has them.
An exception of a callback ends `run` of ours, which may be called again then; nothing else is lost.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import selectors
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol

Call = Callable[[], Any]
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Timer(Protocol):
    def cancel(self) -> None: ...


class Services(Protocol):
    """What streams and transports use of a loop."""

    threaded: bool
    """The application runs in other threads."""
    aside: Lock
    """Of threads that compute something for connections of this loop: one at a time, since the next may need the same
    thing."""

    def set_reader(self, descriptor: int, callback: Call) -> None: ...

    def remove_reader(self, descriptor: int) -> None: ...

    def set_writer(self, descriptor: int, callback: Call) -> None: ...

    def remove_writer(self, descriptor: int) -> None: ...

    def call_soon(self, callback: Call) -> None:
        """In the loop's thread; nothing happens if the loop is closed."""

    def add_callback_threadsafe(self, callback: Call) -> None:
        """From any thread.  Raises RuntimeError if the loop is closed."""

    def call_later(self, delay: float, callback: Call) -> Timer:
        """`delay` in seconds."""

    def run(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


class _Deadline:
    __slots__ = ("callback",)

    def __init__(self, callback: Call) -> None:
        self.callback: Call | None = callback

    def cancel(self) -> None:
        self.callback = None


class ThreadServices:
    """A loop of ours.  All but `add_callback_threadsafe`, `call_soon` and `stop` in the thread that runs it."""

    threaded = True

    def __init__(self) -> None:
        self.aside = Lock()
        self._selector = selectors.DefaultSelector()
        self._watched: dict[int, dict[int, Call]] = {}
        """Descriptor → READ or WRITE → callback."""
        self._calls: deque[Call] = deque()
        self._timers: list[tuple[float, int, _Deadline]] = []
        self._numbers = itertools.count()
        self._stopping = self._closed = False
        self._asleep = False
        """It may be waiting for events: who adds a call must wake it."""
        self._ear, self._bell = os.pipe()
        for end in (self._ear, self._bell):
            os.set_blocking(end, False)
        self.set_reader(self._ear, self._hear)

    # -- descriptors

    def set_reader(self, descriptor: int, callback: Call) -> None:
        self._watch(descriptor, READ, callback)

    def remove_reader(self, descriptor: int) -> None:
        self._watch(descriptor, READ, None)

    def set_writer(self, descriptor: int, callback: Call) -> None:
        self._watch(descriptor, WRITE, callback)

    def remove_writer(self, descriptor: int) -> None:
        self._watch(descriptor, WRITE, None)

    def _watch(self, descriptor: int, event: int, callback: Call | None) -> None:
        before = self._watched.get(descriptor, {})
        after = {key: value for key, value in before.items() if key != event}
        if callback is not None:
            after[event] = callback
        if set(before) != set(after):
            self._select(descriptor, sum(before), sum(after))
        if after:
            self._watched[descriptor] = after
        else:
            self._watched.pop(descriptor, None)

    def _select(self, descriptor: int, before: int, after: int) -> None:
        if not before:
            self._selector.register(descriptor, after)
        elif after:
            self._selector.modify(descriptor, after)
        else:
            self._selector.unregister(descriptor)

    # -- calls

    def call_soon(self, callback: Call) -> None:
        if not self._closed:
            self.add_callback_threadsafe(callback)

    def add_callback_threadsafe(self, callback: Call) -> None:
        if self._closed:
            raise RuntimeError("the loop is closed")
        self._calls.append(callback)
        if self._asleep:
            self._asleep = False  # one is enough
            self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._bell, b"x")
        except BlockingIOError:  # it has enough to wake up for
            pass
        except OSError:  # closed meanwhile
            pass

    def _hear(self) -> None:
        try:
            os.read(self._ear, 4096)
        except BlockingIOError:
            pass

    def call_later(self, delay: float, callback: Call) -> Timer:
        timer = _Deadline(callback)
        heapq.heappush(self._timers, (time.monotonic() + delay, next(self._numbers), timer))
        return timer

    # -- running

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopping:
            self._turn()
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._selector.close()
            os.close(self._ear)
            os.close(self._bell)

    def _turn(self) -> None:
        self._asleep = True
        ready = self._selector.select(0 if self._calls or self._stopping else self._pause())
        self._asleep = False
        for key, events in ready:
            for event in (READ, WRITE):
                if events & event:
                    callback = self._watched.get(key.fd, {}).get(event)
                    if callback is not None:
                        callback()
        self._run_timers()
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def _pause(self) -> float | None:
        """Seconds until the next timer."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _run_timers(self) -> None:
        now = time.monotonic() if self._timers else 0.0
        while self._timers and self._timers[0][0] <= now:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                callback()


class AsyncioServices:
    """The application's loop."""

    threaded = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.aside = Lock()
        self._loop = loop

    def set_reader(self, descriptor: int, callback: Call) -> None:
        self._loop.add_reader(descriptor, callback)

    def set_writer(self, descriptor: int, callback: Call) -> None:
        self._loop.add_writer(descriptor, callback)

    def add_callback_threadsafe(self, callback: Call) -> None:
        self._loop.call_soon_threadsafe(callback)

    def call_later(self, delay: float, callback: Call) -> Timer:
        return self._loop.call_later(delay, callback)

    def remove_reader(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)

    def remove_writer(self, descriptor: int) -> None:
        self._loop.remove_writer(descriptor)

    def call_soon(self, callback: Call) -> None:
        """Without the system call that wakes it from another thread."""
        if not self._loop.is_closed():
            self._loop.call_soon(callback)

    def run(self) -> None:
        raise RuntimeError("the application runs its loop")

    stop = close = run
