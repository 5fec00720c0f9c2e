"""As much of an asyncio event loop as `ha.shell.asker.Asker` needs, in a simulated process: so the real one runs in it.

It connects as asyncio does: the protocol hears of its connection first, and what waits for it in a later turn.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulator.network import QUESTIONS, End

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess


class SimLoop:
    """Of one life of a process."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._tasks: set[Task] = set()

    def die(self) -> None:
        """The process has ended, and with it what was under way or had not begun."""
        for task in self._tasks:
            task.drop()
        self._tasks.clear()

    def call_later(self, delay: float, call: Callable[..., None], *arguments: object) -> None:
        self._process.after(delay, partial(call, *arguments))

    def create_task(self, work: Coroutine[Any, Any, None]) -> Task:
        task = Task(self, work, self._tasks.discard)
        self._tasks.add(task)
        self.call_later(0.0, task.step)
        return task

    def create_connection(self, make: Callable[[], asyncio.Protocol], host: str, port: int) -> Connecting:
        return Connecting(self, self._process, make, f"{host}:{port}")


class Task:
    """Runs until it waits for a connection, and goes on when there is one or none can be had."""

    def __init__(self, loop: SimLoop, work: Coroutine[Any, Any, None], ended: Callable[[Task], None]) -> None:
        self._loop, self._work, self._ended = loop, work, ended
        self._waits_for: Connecting | None = None
        self._over = False

    def step(self, error: OSError | None = None) -> None:
        if self._over:
            return
        try:
            self._waits_for = self._work.throw(error) if error is not None else self._work.send(None)
        except StopIteration:
            self._over = True
            self._ended(self)
            return
        self._waits_for.done = lambda failed: self._loop.call_later(0.0, self.step, failed)
        self._waits_for.begin()

    def drop(self) -> None:
        self._over = True
        if not self._work.cr_running:  # type: ignore[attr-defined]
            self._work.close()

    def cancel(self) -> None:
        self._ended(self)
        self.drop()
        if self._waits_for is not None:
            self._waits_for.give_up()


class Connecting(asyncio.Transport):
    """What `await loop.create_connection(...)` waits for; also the transport that comes of it."""

    def __init__(self, loop: SimLoop, process: BrokerProcess, make: Callable[[], asyncio.Protocol], to: str) -> None:
        super().__init__()
        self._loop, self._process, self._to = loop, process, to
        self._make = make
        self._protocol: asyncio.Protocol | None = None
        self._end: End | None = None
        self.done: Callable[[OSError | None], None]

    def __await__(self) -> Generator[Connecting, None, None]:
        yield self

    def begin(self) -> None:
        target = self._process.simulation.by_address.get(self._to)
        if target is None:
            return  # nothing has that address: no answer comes
        self._end = end = self._process.network.connect(self._process, target, self._made, QUESTIONS)
        self._process.keep(end)
        end.on_closed = self._failed

    def give_up(self) -> None:
        if self._protocol is None and self._end is not None:
            self._end.close()

    def _failed(self, reason: str) -> None:
        refused = reason == "refused"
        self.done(OSError(errno.ECONNREFUSED if refused else errno.ECONNRESET, reason))

    def _made(self) -> None:
        end = self._end
        assert end is not None
        self._protocol = protocol = self._make()
        end.on_data = protocol.data_received
        end.on_closed = lambda reason: protocol.connection_lost(None)
        protocol.connection_made(self)
        self.done(None)

    # ---- as a transport -------------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._end is not None:
            self._end.send(bytes(data))

    def abort(self) -> None:
        end, protocol = self._end, self._protocol
        if end is not None and end.open and protocol is not None:
            end.close()
            self._loop.call_later(0.0, protocol.connection_lost, None)
