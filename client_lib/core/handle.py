"""The state that connections of both APIs show, and their sessions by name."""

from __future__ import annotations

import itertools
from typing import Generic, Protocol, TypeVar

from client_lib.core.notifying import Handler, notifier
from client_lib.errors import MessagingError
from client_lib.link.link import Link, LinkState
from client_lib.options import Options
from client_lib.urls.url import Endpoint


class Named(Protocol):
    """The part of a session that this module uses."""

    name: str

    @property
    def transactional(self) -> bool: ...


S = TypeVar("S", bound=Named)


class Handle(Generic[S]):
    """`link` is set by the connection that contains this object."""

    link: Link
    options: Options

    def __init__(self) -> None:
        self._sessions: dict[str, S] = {}
        self._numbers = itertools.count(1)

    def opened(self) -> bool:
        """The connection was opened and has not ended, connected or not."""
        return self.link.state in (LinkState.CONNECTING, LinkState.CONNECTED)

    def attached(self) -> bool:
        """There is an open connection to a broker now."""
        return self.link.state is LinkState.CONNECTED

    @property
    def is_connected(self) -> bool:
        return self.attached()

    @property
    def client_id(self) -> str:
        return self.link.client_id

    @property
    def address(self) -> Endpoint | None:
        """The address of the present or last connection."""
        return self.link.address

    @property
    def failovers(self) -> int:
        """The number of open connections lost so far."""
        return self.link.failovers

    @property
    def error(self) -> MessagingError | None:
        """The error that ended the connection permanently."""
        return self.link.error

    def check_error(self) -> None:
        """Raises the error that ended the connection, if there is one."""
        if self.link.error is not None:
            raise self.link.error.with_traceback(None)

    def get_error(self) -> MessagingError | None:
        """The error that `check_error` raises."""
        return self.link.error

    def set_async_exception_notify_handler(self, handler: Handler | None) -> None:
        """`handler(connection, error)` is called when the connection ends and the application has not closed it.  Those
        of a session, sender and receiver are called for errors of theirs that no call has asked for.

        Calls raise the error as well.  The handler runs in the I/O thread (asyncio: in the loop), must be quick and may
        not call this library; what it raises is logged.  None: no handler.  Raises TypeError."""
        self.link.failed = notifier(self, handler)

    @property
    def sessions(self) -> list[S]:
        """The open sessions."""
        with self.link.monitor:
            return list(self._sessions.values())

    def _known(self, name: str | None, transactional: bool) -> S | None:
        """The open session of that name.  Raises ValueError if it is not as transactional as wanted."""
        session = None if name is None else self._sessions.get(name)
        if session is not None and session.transactional is not transactional:
            kind = "transactional" if session.transactional else "not transactional"
            raise ValueError(f"there is a session {session.name!r}, and it is {kind}")
        return session

    def _next_name(self) -> str:
        return next(name for n in self._numbers if (name := f"{self.client_id}-{n}") not in self._sessions)
