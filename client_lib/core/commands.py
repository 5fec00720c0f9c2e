"""Commands to the broker, executed once and in order: declarations, subscriptions, queries.

A command without an answer runs again on the next channel, unless the broker closed the connection and it was the only
request (`client_lib.link.suspects`).
"""

from __future__ import annotations

import reprlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from pika.exceptions import ConnectionWrongStateError

from client_lib.errors import MessagingError
from client_lib.monitor import Monitor
from client_lib.steps import answer, refuse

_SHOWN = reprlib.Repr()
_SHOWN.maxdict = _SHOWN.maxlist = 20
_SHOWN.maxstring = _SHOWN.maxother = 200
shown: Callable[[Any], str] = _SHOWN.repr
"""An argument for errors: a huge or a deep one is cut, not written out."""
Run = Callable[[Any, Callable[[Any], None]], None]
"""Called with the channel and with `done`, which takes the answer."""


@dataclass(eq=False)
class Command:
    run: Run
    what: str
    """For errors."""
    future: Future[Any] = field(default_factory=Future)
    repeats: bool = False
    """It has run on a lost connection."""


class Commands:
    """`monitor` guards it; only the I/O thread runs commands."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._waiting: deque[Command] = deque()
        self._outstanding: list[Command] = []

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def quiet(self) -> bool:
        """True if no command waits and no answer is outstanding."""
        return not self._waiting and not self._outstanding

    @property
    def oldest(self) -> Command | None:
        """The oldest without an answer."""
        return self._outstanding[0] if self._outstanding else None

    @property
    def single(self) -> Command | None:
        """The only one without an answer."""
        return self._outstanding[0] if len(self._outstanding) == 1 else None

    @property
    def repeats(self) -> bool:
        """A command that has run on a lost connection is not answered yet."""
        return any(command.repeats for command in (*self._outstanding, *self._waiting))

    def add(self, run: Run, what: str, first: bool = False) -> Future[Any]:
        """Lock held.  `first`: before those that wait."""
        command = Command(run, what)
        (self._waiting.appendleft if first else self._waiting.append)(command)
        return command.future

    def start(self, channel: Any, answered: Callable[[], None]) -> None:
        """Runs the next one; `answered` is called after its answer."""
        with self._monitor:
            command = self._waiting.popleft()
            if command.future.cancelled():
                return
            self._outstanding.append(command)

        def done(result: Any) -> None:
            self._drop(command)
            answer(command.future, result)
            answered()

        try:
            command.run(channel, done)
        except ConnectionWrongStateError:
            """The connection is gone, and the session will hear of it: then the command waits for the next one."""
        except Exception as error:  # the arguments were wrong: an error for the caller
            self._drop(command)
            refuse(command.future, error)

    def _drop(self, command: Command) -> None:
        if command in self._outstanding:
            self._outstanding.remove(command)

    def connection_lost(self, error: MessagingError | None) -> list[Future[Any]]:
        """Commands without an answer will run again; with an `error` they are given up and returned (lock held)."""
        unanswered, self._outstanding = self._outstanding, []
        if error is not None:
            return [command.future for command in unanswered]
        for command in unanswered:
            command.repeats = True
        self._waiting.extendleft(command for command in reversed(unanswered) if not command.future.done())
        return []

    def end(self) -> list[Future[Any]]:
        """All that were not answered (lock held)."""
        futures = [command.future for command in (*self._outstanding, *self._waiting)]
        self._waiting.clear()
        self._outstanding.clear()
        return futures
