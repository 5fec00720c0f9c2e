"""The application's event loop, as the library uses it (shell).

An exception in a callback of the library is a defect, that leaves the connection in an unknown state.
asyncio would only log it, and the connection might hang for ever.  Here it is logged and the connection is replaced, as
in the threaded API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from client_lib.connecting.transport import Listener, Loop, Target, Timer, Transport, asyncio_loop

LOGGER = logging.getLogger("client_lib")


class GuardedLoop(Loop):
    """`broken` is called after an exception in a callback; its own exceptions are logged."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broken: Callable[[], None]) -> None:
        self._inner = asyncio_loop(loop)
        self._broken = broken

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._inner.call_soon(lambda: self._guarded(callback))

    def call_threadsafe(self, callback: Callable[[], None]) -> None:
        self._inner.call_threadsafe(lambda: self._guarded(callback))

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        return self._inner.call_later(delay, lambda: self._guarded(callback))

    def connect(self, target: Target, listener: Listener) -> Transport:
        return self._inner.connect(target, listener)

    def _guarded(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            LOGGER.exception("error in a callback of the library")
            self._broken()
