"""What other threads ask of a session's channel: once, or after each fail-over, too."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from client_lib.core.commands import Commands, Run
from client_lib.core.declarations import Declarations
from client_lib.monitor import Monitor


class Timers(Protocol):
    """The part of the link that this module uses."""

    def wake(self) -> None: ...

    def post(self, job: Callable[[], None]) -> None: ...

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any: ...


class Requests:
    """`check` raises the error that ended the session."""

    def __init__(self, monitor: Monitor, check: Callable[[], None], timers: Timers) -> None:
        self.monitor = monitor
        self.declarations = Declarations()
        self.restores = self.declarations.restores
        self.commands = Commands(monitor)
        self._check, self._timers = check, timers

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """A call in the I/O thread."""
        self._timers.post(lambda: self._call_later(seconds, callback))

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.call_later(seconds, callback)

    def start_command(self, run: Run, what: str) -> Future[Any]:
        """`run(channel, done)` in the I/O thread, once there is a channel; again if it is lost before `done`.  `what`
        names it in errors."""
        with self.monitor:
            self._check()
            return self.add_command(run, what)

    def add_command(self, run: Run, what: str) -> Future[Any]:
        """Lock held; the session has not ended."""
        future = self.commands.add(run, what)
        self._timers.wake()
        return future

    def start_pause(self, seconds: float) -> Future[Any]:
        """Done after so many seconds with a channel."""
        return self.start_command(lambda _channel, done: self._call_later(seconds, lambda: done(None)), "a pause")

    def start_fence(self) -> Future[Any]:
        """A round trip, after which the broker has read everything written before."""
        return self.start_command(lambda channel, done: channel.basic_qos(callback=done), "basic.qos")
