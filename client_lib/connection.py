"""The connection that fails over, for the threaded API: one I/O thread that owns the socket (shell).

The I/O thread runs the loop and is the only one that reads.  Other threads change a session's state under its
lock and call `wake`, which posts one callback into the loop however many messages were added since.
`client_lib.link.link` explains the states.

close() waits at most its timeout for confirms, sends connection.close, and aborts if no close-ok comes soon.  In a
callback, that is in the I/O thread, it does not wait.

A process made by fork(2) has no I/O thread and must not write to the parent's socket: there the connection has ended.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from client_lib.connecting import parameters
from client_lib.connecting.transport import thread_loop
from client_lib.core.states import State
from client_lib.errors import ConnectionClosed, Timeout
from client_lib.link.link import POLITE_CLOSE, Link, LinkState
from client_lib.message import Message
from client_lib.monitor import ThreadMonitor
from client_lib.options import connection_settings
from client_lib.session import Opener, Session
from client_lib.unheard import Unheard, doubtful, raise_first
from client_lib.urls.url import Given
from client_lib.waiting import Waiting

LOGGER = logging.getLogger("client_lib")
CLOSE_TIME = 5.0  # seconds for what is unsettled
EXIT_CLOSE = 2.0  # seconds for all connections together
LOOK = 0.1  # seconds

_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection(Opener):
    """`urls`: see `client_lib.urls.url`; options: see `client_lib.options.Options`.

    Raises UrlError, TypeError (unknown option), ValueError."""

    def __init__(self, urls: Given, **options: Any) -> None:
        super().__init__()
        addresses, self.options = connection_settings(urls, options)
        parameters.check(addresses, self.options)
        self._addresses = addresses
        self._loop = thread_loop()
        self._changed = ThreadMonitor()
        self.link = Link(addresses, self.options, self._loop, self._changed)
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.on_fork: Callable[[], None] = lambda: None
        """Called in the child after fork(2)."""

    @classmethod
    def establish(cls, urls: Given, **options: Any) -> Connection:
        """Returns an open connection."""
        return cls(urls, **options).open()

    # -- for the application

    def open(self, timeout: float | None = None) -> Connection:
        """Connects; without `timeout` for as long as the reconnect options allow.

        Raises ConnectError, AuthenticationFailure, ConnectionClosed, Timeout (it goes on trying; close() ends that)."""
        with self._changed:
            if self.link.state is LinkState.IDLE:
                self._start()
            done = self._changed.wait_for(lambda: self.link.state is not LinkState.CONNECTING, timeout)
        if not done:
            raise Timeout(f"not connected within {timeout:g} s{self.link.trouble}")
        if self.link.error is not None:
            raise self.link.error
        return self

    attach = open

    def session(self, name: str | None = None, transactional: bool = False) -> Session:
        """A new session, or the open one of that name; opens the connection if it is not.

        Raises ValueError for an open one that is not as transactional as wanted, and what `open` raises."""
        if self.link.state is LinkState.IDLE:
            self.open()
        with self._changed:
            if self.link.error is not None:
                raise self.link.error
            known = self._known(name, transactional)
            if known is not None:
                return known
            waiting = Waiting(self, self.link, name or self._next_name(), transactional)
            session = self._sessions[waiting.worker.name] = Session(self, waiting)
        self.link.post(lambda: self.link.adopt(waiting.worker))
        return session

    def close(self, timeout: float = CLOSE_TIME) -> list[Message]:
        """Waits up to `timeout` seconds for confirms, then closes.  Returns the messages that were refused or are in
        doubt, unless a call has said so; they are also logged.  The end of `with` raises instead.  Never hangs, may be
        called twice and from many threads; in a callback it waits for nothing."""
        return [message for message, _ in self._end(timeout)]

    detach = close

    def _end(self, timeout: float = CLOSE_TIME) -> Unheard:
        """As `close`, with the errors."""
        with self._changed:
            thread = self._thread
            if thread is None or self.link.state is LinkState.IDLE:
                self.link.state = LinkState.CLOSED
                self.link.error = self.link.error or ConnectionClosed("the connection is closed")
                return []
        if self.in_io_thread():
            return self._close_here()
        deadline = time.monotonic() + timeout
        self._drain(deadline)
        left: Unheard = []
        patience = max(0.1, deadline - time.monotonic())
        self.link.post(lambda: self.link.shut_down(left, patience, self._stop))
        thread.join(patience + 2 * POLITE_CLOSE)
        if thread.is_alive():
            LOGGER.error("%s: the I/O thread did not end", self.client_id)
            for session in self._waiting():
                session.worker.fail(ConnectionClosed("the connection is closed"), True)
                left += session.worker.take_unheard()
        self._say(left)
        return left

    def _close_here(self) -> Unheard:
        left: Unheard = []
        self.link.shut_down(left, POLITE_CLOSE, self._stop)
        self._say(left)
        return left

    def _say(self, left: Unheard) -> None:
        count = doubtful(left)
        if count:
            LOGGER.warning("%s: closed with %d messages in doubt", self.client_id, count)
        self.link.events.close(attrs={"unsettled": count})

    def __enter__(self) -> Connection:
        return self.open() if self.link.state is LinkState.IDLE else self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raises the first refusal, or that messages are in doubt, unless another error is on its way."""
        left = self._end()
        if error is None:
            raise_first(left)

    # -- for sessions, from any thread

    def in_io_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def close_session(self, session: Waiting, deadline: float | None) -> None:
        worker = session.worker
        with self._changed:
            known = self._sessions.get(worker.name)
            if known is not None and known._waiting is session:
                del self._sessions[worker.name]
        thread = self._thread
        if self.in_io_thread():
            self.link.dismiss(worker)
        elif thread is not None and thread.is_alive() and worker.state is not State.CLOSED:
            done = threading.Event()

            def dismiss() -> None:
                self.link.dismiss(worker)
                done.set()

            self.link.post(dismiss)
            # The thread may end, or have ended, without handling this
            while not done.wait(LOOK) and thread.is_alive():
                if deadline is not None and time.monotonic() >= deadline:
                    return

    # -- start and end

    def _start(self) -> None:
        self.link.start()
        self._thread = threading.Thread(target=self._run, name=f"{self.client_id} I/O", daemon=True)
        self._thread.start()
        _open_connections.add(self)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._loop.run()
            except Exception:
                # A defect.  The connection's state is unknown: take a new one.
                LOGGER.exception("%s: error in the I/O thread", self.client_id)
                self.link.abandon("error in the I/O thread")
        self._loop.close()
        _open_connections.discard(self)

    def _stop(self) -> None:
        self._stopping = True
        self._loop.stop()

    def _drain(self, deadline: float) -> None:
        sessions, events = self._waiting(), self.link.events
        busy = [session.core for session in sessions if not session.core.idle()]
        if busy:
            events.fact("drain_begin", attrs={"unsettled": sum(core.unsettled() for core in busy)})
        for session in sessions:
            session.drain(deadline)
        if busy:
            events.fact("drain_end", attrs={"unsettled": sum(core.unsettled() for core in busy)})

    def _waiting(self) -> list[Waiting]:
        return [session._waiting for session in self.sessions]

    def forked(self) -> None:
        """In the child after fork(2).  Locks may be held by threads that are not there any more."""
        self._changed = self.link.monitor = ThreadMonitor()
        self.link.forked()
        self._thread = None
        for session in self._sessions.values():
            session._waiting.forked(self.link.error)
        self.on_fork()


def _close_all() -> None:
    """At interpreter exit: waits a moment for confirms, then logs the messages in doubt."""
    deadline = time.monotonic() + EXIT_CLOSE
    for connection in list(_open_connections):
        try:
            connection.close(max(0.0, deadline - time.monotonic()))
        except Exception:
            LOGGER.exception("%s: error in close at exit", connection.client_id)


def _after_fork() -> None:
    for connection in list(_open_connections):
        connection.forked()
    _open_connections.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
