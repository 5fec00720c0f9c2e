"""How a session of the threaded API waits: for the answers to its commands, and for a state.

`client_lib.aio.waiting` has the same methods for asyncio; the sessions of both APIs are written over them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from client_lib.core.session_core import SessionCore
from client_lib.core.subscription import Subscription
from client_lib.errors import Empty, MessagingError, Timeout
from client_lib.link.link import Link
from client_lib.monitor import ThreadMonitor
from client_lib.steps import Steps
from client_lib.unheard import raise_first

LOGGER = logging.getLogger("client_lib")
T = TypeVar("T")


class Owner(Protocol):
    """The part of a connection that its sessions use."""

    def in_io_thread(self) -> bool: ...

    def close_session(self, session: Waiting, deadline: float | None) -> None: ...


class Pausing:
    """As long as a thread waits."""

    __slots__ = ("_lending", "_monitor", "_reads")

    def __init__(self, monitor: threading.Condition, link: Link, reads: bool) -> None:
        self._monitor, self._lending = monitor, link.lending
        self._reads = reads and link.quiet

    def __enter__(self) -> Pausing:
        if self._lending is not None:
            self._lending.enter(self._reads)
        return self

    def wait(self, timeout: float | None) -> None:
        """Returns when something may have changed."""
        if not self._reads or self._lending is None or not self._lending.read(self._monitor, timeout):
            self._monitor.wait(timeout)

    def __exit__(self, *_error: object) -> None:
        if self._lending is not None:
            self._lending.leave(self._reads)


class Reading:
    """Lets a thread read that waits at a monitor which is no session's, for more than the broker's messages."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def pausing(self, monitor: threading.Condition) -> Pausing:
        lending = self._link.lending
        return Pausing(monitor, self._link, lending is None or lending.listen())

    def nudge(self) -> None:
        """The thread that waits has to look: from any other thread, after a notice at the monitor."""
        lending = self._link.lending
        if lending is not None:
            lending.nudge()


class Waiting:
    """One per session."""

    def __init__(self, owner: Owner, link: Link, name: str, transactional: bool) -> None:
        self.monitor = ThreadMonitor()
        self.lock = self.monitor.lock
        self.core = SessionCore(link, name, self.monitor, transactional)
        self.worker = self.core.worker
        self.settle, self.settle_all = self.core.settle, self.core.settle_all
        self.in_io_thread = owner.in_io_thread
        self._owner, self._link = owner, link

    def calls_back(self) -> None:
        """A sender has a callback, which must be called in the I/O thread only."""
        self._link.calls_back = True

    def refuse_io_thread(self, what: str) -> None:
        if self.in_io_thread():
            raise RuntimeError(f"{what} would block the I/O thread; callbacks must not wait")

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Waits with the lock held; False at the timeout.  Raises what ends the session meanwhile."""
        self.refuse_io_thread("waiting")
        if predicate():
            return True
        with self.pausing(False) as pause:
            return self._wait_for(predicate, timeout, pause)

    def wait_for_broker(self, predicate: Callable[[], bool], timeout: float | None, what: str) -> bool:
        """As `wait_for`, for what a confirm or a delivery brings about; the lock is held once.  This thread may read
        meanwhile.  `what`: the call, for errors."""
        self.refuse_io_thread(what)
        if predicate():
            return True
        with self.pausing(True) as pause:
            return self._wait_for(predicate, timeout, pause)

    def pausing(self, reads: bool) -> Pausing:
        """Waiting for something of the broker.  `reads`: that is a confirm or a delivery, so this thread may read
        meanwhile; the lock is held once."""
        return Pausing(self.monitor, self._link, reads)

    def _wait_for(self, predicate: Callable[[], bool], timeout: float | None, pause: Pausing) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not predicate():
            self.worker.check()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            pause.wait(left)
        return True

    def next_receiver(self, timeout: float | None) -> Subscription:
        """The receiver that has the oldest message.  Raises Empty, when the broker has none either; Timeout."""
        self.refuse_io_thread("next_receiver")
        receiver = self._first_receiver(timeout)
        if receiver is None:
            self.run(self.core.receivers.asking(self.core.receivers.all()), self.worker.patience(timeout))
            receiver = self._first_receiver(0)
        if receiver is None:
            raise Empty(f"no message for any receiver within {timeout} s")
        return receiver

    def _first_receiver(self, timeout: float | None) -> Subscription | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.monitor, self.pausing(True) as pause:
            while True:
                self.worker.check()
                receiver = self.core.receivers.ready()
                if receiver is not None:
                    return receiver
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self.worker.subscribing.waiting_for_any += 1
                try:
                    pause.wait(left)
                finally:
                    self.worker.subscribing.waiting_for_any -= 1

    # -- answers

    def answer(self, future: Future[Any], timeout: float | None) -> Any:
        """Waits for the answer to a command.  Raises Timeout: then it is not asked again."""
        self.refuse_io_thread("a command")
        try:
            with self.pausing(False):
                return future.result(timeout)
        except TimeoutError:
            # Not if the command itself failed with a timeout, or was answered at this moment
            if future.done() or (not future.cancel() and future.done()):
                return future.result()
            raise Timeout(f"no answer within {timeout} s{self.worker.trouble}") from None

    def run(self, steps: Steps[T], timeout: float | None) -> T:
        """Runs all steps, waiting for each; at the timeout Timeout is thrown into them, so that they undo what they
        must."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            future = next(steps)
            while True:
                try:
                    result = self.answer(future, _left(deadline))
                except BaseException as error:
                    future = steps.throw(error)
                else:
                    future = steps.send(result)
        except StopIteration as stop:
            found: T = stop.value
            return found

    def finish(self, steps: Steps[None], deadline: float | None) -> None:
        """As `run`, for closing: what ended the session before is no error, and in a callback nothing is waited for."""
        if self.in_io_thread():
            for _ in steps:
                pass
            return
        try:
            self.run(steps, _left(deadline))
        except Timeout:
            raise
        except MessagingError:
            pass

    # -- the end

    def sync(self, timeout: float | None) -> None:
        """Waits until all is confirmed and all acknowledgements are written.  Raises Timeout, the first refusal."""
        with self.monitor:
            self._settled(timeout)
            self.core.raise_failure()

    def _settled(self, timeout: float | None) -> None:
        with self.monitor:
            if not self.wait_for(self.core.idle, timeout):
                count = self.worker.publishing.outbox.unsettled
                raise Timeout(f"{count} messages unsettled after {timeout} s{self.worker.trouble}")
            self.worker.check()

    def drain(self, deadline: float | None) -> None:
        """Waits for unsettled messages and does what the addresses ask for at close, as far as possible."""
        told = self.worker.ending.told
        try:
            self._settled(_left(deadline))
            self.run(self.core.ending(), _left(deadline))
        except MessagingError as error:
            self.worker.ending.told = told
            LOGGER.debug("%s: %s", self.worker.name, error)

    def close(self, timeout: float | None) -> None:
        """Drains, but not in a callback, then closes the channel.  Harmless when repeated.  Raises, but not in a
        callback, what was refused or is in doubt."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            if not self.in_io_thread():
                self.drain(deadline)
        finally:
            self._owner.close_session(self, deadline)
        if not self.in_io_thread():
            raise_first(self.worker.take_unheard())

    def forked(self, error: MessagingError | None) -> None:
        """In the child after fork(2).  Locks may be held by threads that are not there any more."""
        self.monitor = self.worker.monitor = ThreadMonitor()
        self.lock = self.monitor.lock
        self.core.forked(error)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
