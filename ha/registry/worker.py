"""Runs exchanges with the manager's registry in a separate thread: a file may be locked, a command slow.        Shell.

One thread makes the exchanges in the order of the calls, so what this broker writes takes effect in that order.  An
exchange that times out is answered with an error; it is then not made, or its result is ignored.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from ha.model.environment import Exchanged
from ha.model.membership import HaState
from qpidd_py.errors import QpiddError

log = logging.getLogger("ha")


class RegistryError(QpiddError):
    """The registry was not written or not read."""


class Store(Protocol):
    """One kind of registry; blocks.  All calls come from one thread."""

    def start(self) -> None:
        """Called once, at the start, while the process is small.  Raises OSError."""
        return

    def close(self) -> None:
        """No exchange follows."""
        return

    def exchange(self, state: HaState | None, timeout: float) -> Exchanged:
        """Write, then read all; `timeout` in seconds.  Raises RegistryError or OSError."""
        ...


def merged(old: HaState | None, new: HaState) -> HaState:
    """The entry to write; it never goes back to an older set, or to one that is not known to be in force."""
    if old is None:
        return new
    epoch, leader = max(old.ballot, new.ballot)
    newer = max(old, new, key=lambda each: (each.in_sync.key, not each.replaced))
    return replace(new, epoch=epoch, leader=leader, in_sync=newer.in_sync, replaced=newer.replaced)


def newest(states: Iterable[HaState]) -> tuple[HaState, ...]:
    """The newest entry of each broker, from several copies of the registry."""
    found: dict[str, HaState] = {}
    for state in states:
        found[state.id] = merged(found.get(state.id), state)
    return tuple(found.values())


class Job:
    """One exchange; `done` is called once, in the loop."""

    def __init__(self, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        self.state = state
        self.timeout = timeout
        self.over = False
        self._done = done

    def finish(self, exchanged: Exchanged) -> None:
        if not self.over:
            self.over = True
            self._done(exchanged)


class RegistryWorker:
    """`Environment.exchange` over a store."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        self._loop = loop
        self._store = store
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="ha registry", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """An exchange under way may still be written; its result is ignored."""
        self._jobs.put(None)

    def exchange(self, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        job = Job(state, timeout, done)
        self._jobs.put(job)
        self._loop.call_later(timeout, job.finish, Exchanged(error=f"no answer in {timeout:g} s"))

    def _work(self) -> None:
        try:
            self._store.start()
        except OSError as error:
            log.error("the registry cannot be started: %s", error)  # each exchange tries again and logs the error
        while (job := self._jobs.get()) is not None:
            if not job.over:
                self._tell(job, self._made(job))
        self._store.close()

    def _made(self, job: Job) -> Exchanged:
        try:
            return self._store.exchange(job.state, job.timeout)
        except (RegistryError, OSError) as error:
            return Exchanged(error=str(error))

    def _tell(self, job: Job, exchanged: Exchanged) -> None:
        try:
            self._loop.call_soon_threadsafe(job.finish, exchanged)
        except RuntimeError:
            return  # the loop was closed: the process ends
