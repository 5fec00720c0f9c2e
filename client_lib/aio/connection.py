"""The connection that fails over, for the asyncio API (shell).

Theory.  Everything runs in the event loop in which the connection was made: the socket, the
life of the connection (`client_lib.link.link`), sessions and the application's tasks.  There is no thread
and no lock; calls from another loop or thread are refused.  The library starts no tasks: outside the application's
calls it runs only callbacks of the loop, so a blocked loop (time.sleep in a handler) stops everything until it runs
again.  The time it was blocked does not count as silence of the broker.

A connection ends in one of three ways:

* `close` waits at most its timeout for confirms, sends connection.close, and aborts if no close-ok comes soon.  A
  cancelled `close` stops waiting and closes at once; the remaining work runs in the loop.
* The loop ends (`asyncio.run` returns) while the connection is open: `_watch_the_end` is an asynchronous generator that
  the loop closes before it closes itself.  It warns (ResourceWarning), and closes the connection with EXIT_CLOSE.
* The loop was closed without shutting down asynchronous generators, or never ran again: at interpreter exit the log
  says how many messages are in doubt.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import warnings
from collections.abc import AsyncGenerator
from typing import Any

from client_lib.aio.loop import GuardedLoop
from client_lib.aio.monitor import LoopMonitor
from client_lib.aio.sender import refuse_coroutine_function
from client_lib.aio.session import Opener, Session
from client_lib.aio.waiting import Waiting
from client_lib.connecting import parameters
from client_lib.errors import ConnectionClosed, Timeout
from client_lib.link.link import POLITE_CLOSE, Link, LinkState
from client_lib.message import Message
from client_lib.options import connection_settings
from client_lib.unheard import Unheard, doubtful, raise_first
from client_lib.urls.url import Given

LOGGER = logging.getLogger("client_lib")
CLOSE_TIME = 5.0  # seconds for what is unsettled
EXIT_CLOSE = 2.0

_open_connections: set[Connection] = set()


class Connection(Opener):
    """`urls`: see `client_lib.urls.url`; options: see `client_lib.options.Options`.

        async with aio.Connection("node1,node2,node3", heartbeat=2) as connection:
            session = await connection.session()

    Create it in a coroutine: it belongs to the running event loop.  Raises UrlError, ValueError, TypeError, and
    RuntimeError without a loop."""

    def __init__(self, urls: Given, **options: Any) -> None:
        super().__init__()
        addresses, self.options = connection_settings(urls, options)
        parameters.check(addresses, self.options)
        refuse_coroutine_function("on_event", self.options.on_event)
        self._loop = _running_loop()
        self._changed = LoopMonitor()
        self.link = Link(addresses, self.options, GuardedLoop(self._loop, self._broken), self._changed)
        self._ended: asyncio.Future[None] | None = None
        """Set when closing begins; done when the connection is closed."""
        self._forked = False
        self._end_watch: AsyncGenerator[None, None] | None = None

    @classmethod
    async def establish(cls, urls: Given, **options: Any) -> Connection:
        """Returns an open connection.

        connection = await aio.Connection.establish("node1,node2")"""
        return await cls(urls, **options).__aenter__()

    # -- for the application

    async def open(self, timeout: float | None = None) -> Connection:
        """Connects; without `timeout` for as long as the reconnect options allow.

        Raises ConnectError, AuthenticationFailure, Timeout (it goes on trying; close() ends that)."""
        self.own_loop()
        if self.link.state is LinkState.IDLE:
            await self._start()
        if not await self._changed.wait_for(lambda: self.link.state is not LinkState.CONNECTING, timeout):
            raise Timeout(f"not connected within {timeout} s{self.link.trouble}")
        if self.link.error is not None:
            raise self.link.error.with_traceback(None)
        return self

    attach = open

    async def session(self, name: str | None = None, transactional: bool = False) -> Session:
        """A new session, or the open one of that name; opens the connection if it is not.

        Raises ValueError for an open one that is not as transactional as wanted, and what `open` raises."""
        self.own_loop()
        if self.link.state is LinkState.IDLE:
            await self.open()
        if self.link.error is not None:
            raise self.link.error.with_traceback(None)
        known = self._known(name, transactional)
        if known is not None:
            return known
        waiting = Waiting(self, self.link, name or self._next_name(), transactional)
        session = self._sessions[waiting.worker.name] = Session(self, waiting)
        self.link.post(lambda: self.link.adopt(waiting.worker))
        return session

    async def close(self, timeout: float = CLOSE_TIME) -> list[Message]:
        """Waits up to `timeout` seconds for confirms, then closes.  Returns the messages that were refused or are in
        doubt, unless a call has said so; they are also logged.  The end of `async with` raises instead.  Never hangs,
        may be called twice, and may be cancelled: then it closes without waiting."""
        return [message for message, _ in await self._end(timeout)]

    detach = close

    async def _end(self, timeout: float) -> Unheard:
        self.own_loop()
        if self._ended is not None:  # another task closes it, or has closed it
            await asyncio.wait((self._ended,), timeout=timeout)
            return []
        if self.link.state is LinkState.IDLE:
            self.link.state = LinkState.CLOSED
            self.link.error = ConnectionClosed("the connection is closed")
        if self.link.state is LinkState.CLOSED:
            return []
        deadline = self._loop.time() + timeout
        ended = self._ended = self._loop.create_future()
        left: Unheard = []
        try:
            await self._drain(deadline)
        finally:
            patience = max(0.1, deadline - self._loop.time())
            self._shut_down(ended, left, patience)
        await asyncio.wait((ended,), timeout=patience + 2 * POLITE_CLOSE)
        watch, self._end_watch = self._end_watch, None
        if watch is not None:
            await watch.aclose()
        return left

    async def __aenter__(self) -> Connection:
        if self.link.state is LinkState.IDLE:
            try:
                await self.open()
            except BaseException:  # __aexit__ will not be called, so close it here
                self._give_back()
                raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raises the first refusal, or that messages are in doubt, unless another error is on its way."""
        left = await self._end(CLOSE_TIME)
        if error is None:
            raise_first(left)

    # -- for sessions

    def own_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of this connection.  Raises RuntimeError in another one, and so in another thread; ConnectionClosed
        in the child after fork(2)."""
        if self._forked and self.link.error is not None:
            raise self.link.error
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # of a thread without one
            running = None
        if running is not self._loop:
            state = "is closed" if self._loop.is_closed() else "runs elsewhere"
            raise RuntimeError(f"{self.client_id} belongs to another event loop, which {state}; make one in each loop")
        return self._loop

    def close_session(self, session: Waiting) -> None:
        """The session's channel is closed; not waited for."""
        known = self._sessions.get(session.worker.name)
        if known is not None and known._waiting is session:
            del self._sessions[known.name]
        self.link.dismiss(session.worker)

    # -- start and end

    def forked(self) -> None:
        """In the child after fork(2), whose copy of the loop must not be touched: connection and loop are the
        parent's."""
        self._forked = True
        self.link.forked()
        for session in self.sessions:
            session._waiting.forked(self.link.error)

    async def _start(self) -> None:
        self.link.start()
        _open_connections.add(self)
        self._end_watch = self._watch_the_end()
        await anext(self._end_watch)

    def _broken(self) -> None:
        """After a defect: the connection's state is unknown, take a new one."""
        self.link.abandon("error in a callback")

    async def _watch_the_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if self in _open_connections:
                await self._closed_by_the_loop()

    async def _closed_by_the_loop(self) -> None:
        self._end_watch = None  # this generator, which cannot close itself
        if self._ended is None and self.link.state is not LinkState.FAILED:
            warnings.warn(f"connection {self.client_id} was not closed", ResourceWarning, source=self, stacklevel=2)
            LOGGER.warning("%s: not closed before the end of its event loop", self.client_id)
        await self.close(EXIT_CLOSE)

    async def _drain(self, deadline: float) -> None:
        sessions = [session._waiting for session in self.sessions]
        unsettled = [session.core.unsettled() for session in sessions if not session.core.idle()]
        if unsettled:
            self.link.events.fact("drain_begin", attrs={"unsettled": sum(unsettled)})
        try:
            for session in sessions:
                await session.drain(deadline)
        finally:
            if unsettled:
                left = sum(session.core.unsettled() for session in sessions)
                self.link.events.fact("drain_end", attrs={"unsettled": left})

    def _shut_down(self, ended: asyncio.Future[None], left: Unheard, patience: float) -> None:
        def closed() -> None:
            _open_connections.discard(self)
            self.link.events.close(attrs={"unsettled": doubtful(left)})
            if not ended.done():
                ended.set_result(None)

        self.link.shut_down(left, patience, closed)
        if count := doubtful(left):
            LOGGER.warning("%s: closed with %d messages in doubt", self.client_id, count)

    def _give_back(self) -> None:
        """Closes at once what was never handed to the application."""
        if self._ended is None and self.link.state is not LinkState.IDLE:
            self._ended = self._loop.create_future()
            self._shut_down(self._ended, [], 0.1)


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("an aio.Connection is made in a coroutine: no event loop is running") from None


def _say_what_is_left() -> None:
    """At interpreter exit: connections whose loop did not close them."""
    for connection in list(_open_connections):
        doubtful = sum(session.unsettled() for session in connection.sessions)
        LOGGER.error("%s: never closed; %d messages are in doubt", connection.client_id, doubtful)
        connection.link.events.close(attrs={"unsettled": doubtful})


def _after_fork() -> None:
    for connection in list(_open_connections):
        connection.forked()
    _open_connections.clear()


atexit.register(_say_what_is_left)
os.register_at_fork(after_in_child=_after_fork)
