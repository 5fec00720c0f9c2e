"""The sessions of one connection: whose turn it is to open and to ask, and whether they take what arrives (pure).

Sessions open their channels all at once or, while there are suspects (`client_lib.link.suspects`), each when the one
before is ready.
"""

from __future__ import annotations

from collections.abc import Hashable, Sized
from typing import Protocol

from client_lib.connecting.transport import Transport
from client_lib.errors import FatalCommand, MessagingError, Unsendable
from client_lib.link.recovery import Recovery
from client_lib.link.suspects import Request, Suspect, Suspects
from client_lib.unheard import Unheard


class LinkUser(Suspect, Hashable, Protocol):
    """The part of a session that the link uses; all is called in the I/O thread."""

    @property
    def ended(self) -> bool: ...

    @property
    def opening(self) -> bool:
        """It opens its channel, and is not ready yet."""

    def open_on(self, transport: Transport) -> None:
        """The connection is open; without effect on a session that has a channel, or has ended."""

    def connection_lost(self, refusal: tuple[int, str] | None = None) -> int:
        """Returns the number of messages sent and not confirmed.  `refusal`: of a close for a request of this one."""

    def fail(self, error: MessagingError, closed: bool = False) -> Sized:
        """Ends the session; returns the messages whose outcome is unknown."""

    def take_unheard(self) -> Unheard:
        """The session has ended: what was refused or is in doubt, once."""

    def close_channel(self) -> None: ...

    @property
    def overfull(self) -> bool:
        """A receiver without a limit has too much in its buffer."""

    @property
    def hungry(self) -> bool:
        """A call waits for a message."""

    def flush(self, limit: int | None = None) -> bool:
        """Writes what waits.  True if there is more to do at once.  `limit` is that of unanswered requests."""


class Sessions:
    def __init__(self) -> None:
        self.all: list[LinkUser] = []
        self.recovery = Recovery()
        self.overfull = False
        """Some receiver has too much in its buffer."""
        self._suspects = Suspects()
        self._in_order = False

    @property
    def careful(self) -> bool:
        """Some session waits for its turn."""
        return self._in_order or self.overfull or bool(self._suspects)

    def limit(self, session: LinkUser) -> int | None:
        """How many requests this session may have unanswered now; None: any number."""
        if self._in_order:
            return 0
        return self._suspects.limit(session, self.all) if self._suspects else None

    # -- the connection

    def opened(self, transport: Transport) -> None:
        self._in_order = bool(self._suspects)
        self.open_on(transport)

    def open_on(self, transport: Transport) -> None:
        for session in self._suspects.in_order(self.all):
            session.open_on(transport)
            if self._in_order and session.opening:
                return
        self._in_order = False

    def lost(self, now: float, refusal: tuple[int, str] | None) -> int:
        """Returns the number of messages without an answer.  `refusal`: code and text of the broker's
        connection.close, which may end one session."""
        alone, over = (None, False) if refusal is None else self._suspects.closed(refusal[0], self.all, now)
        fatal = _fatal(alone.request, *refusal) if over and alone and alone.request and refusal else None
        in_doubt = 0
        for session in list(self.all):
            mine = session is alone
            if mine and fatal is not None:
                in_doubt += len(session.fail(fatal))
            else:
                in_doubt += session.connection_lost(refusal if mine else None)
        self.recovery.lost(now, [session for session in self.all if not session.ended], in_doubt)
        return in_doubt

    def fail(self, error: MessagingError) -> None:
        for session in self.all:
            session.fail(error)

    def close(self, error: MessagingError) -> Unheard:
        """Returns what was refused or is in doubt."""
        left: Unheard = []
        for session in self.all:
            session.fail(error, closed=True)
            left += session.take_unheard()
        return left

    # -- work

    def work(self, transport: Transport | None) -> bool:
        """Writes what waits.  True if there is more to do at once."""
        if self._in_order and transport is not None:
            self.open_on(transport)
        more = False
        for session in list(self.all):
            more = session.flush(self.limit(session)) or more
        self.regulate(transport)
        return more

    def regulate(self, transport: Transport | None) -> None:
        """While there is too much in a buffer nothing is read, except when an answer or a message is waited for."""
        if self.overfull and transport is not None:
            self.overfull = any(session.overfull for session in self.all)
            wanted = any(session.hungry or session.request is not None for session in self.all)
            transport.read_on(wanted or not self.overfull)


def _fatal(request: Request, reply_code: int, reply_text: str) -> MessagingError:
    if request.message is not None:
        return Unsendable(reply_code, reply_text, request.message)
    return FatalCommand(reply_code, reply_text, request.what)
