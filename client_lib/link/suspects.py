"""Whose request makes the broker close the connection (pure).

Theory.  connection.close names no channel.  A *request* is what a session has sent and the broker has not answered: a
message, a command, what is restored after a fail-over, a commit.  After a close that a request may have caused, all
sessions with one are suspects.  While one of them has something to send again, only the first such session sends
requests, one at a time, and only when no other session waits for an answer.  So each further close is held against one
request; after CLOSES of them its session ends, and the others go on.

A session is cleared when all that it had sent before is answered.  A transactional one sends nothing again by itself:
it stays a suspect until it commits, and holds up the others only while it has something to send.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from client_lib.message import Message

UNCAUSED = (0, 200, 320)
"""Reply codes of closes that no request caused: none, success, forced."""
INTERNAL_ERROR = 541
CLOSES = 3


class Request(NamedTuple):
    """`key` is the same object when the request is sent again, in a transaction for all of them."""

    key: object
    what: str
    message: Message | None = None
    patience: float = 0.0
    """Seconds for which an internal error of the broker is tolerated: it may be busy with a fail-over of its own."""


class Suspect(Protocol):
    """The part of a session that this module uses."""

    @property
    def request(self) -> Request | None:
        """The oldest that is not answered."""

    @property
    def due(self) -> bool:
        """It has something to send, or waits for an answer."""

    @property
    def cleared(self) -> bool: ...


S = TypeVar("S", bound=Suspect)


class Suspects:
    """One per connection."""

    def __init__(self) -> None:
        self._sessions: list[Suspect] = []
        self._blamed: tuple[Suspect, object] | None = None
        self._closes = 0
        self._since = 0.0

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def closed(self, reply_code: int, sessions: Iterable[Suspect], now: float) -> tuple[Suspect | None, bool]:
        """The broker closed the connection; not called for other losses.  `sessions` still know their requests.  `now`
        in seconds of a monotonic clock.

        Returns the only session that had one, None if there is no such one, and whether it must end."""
        busy = [session for session in sessions if session.request is not None]
        if reply_code in UNCAUSED:
            return None, False
        self._sessions += [session for session in busy if session not in self._sessions]
        request = busy[0].request if len(busy) == 1 else None
        if request is None:
            return None, False
        blamed = self._blamed
        again = blamed is not None and blamed[0] is busy[0] and blamed[1] is request.key
        if not again:
            self._closes, self._since = 0, now
        self._closes += 1
        self._blamed = busy[0], request.key
        tolerated = reply_code == INTERNAL_ERROR and now - self._since < request.patience
        return busy[0], self._closes >= CLOSES and not tolerated

    def limit(self, session: Suspect, sessions: Sequence[Suspect]) -> int | None:
        """How many requests this session may have unanswered now; None: any number."""
        self._clear()
        turn = next((suspect for suspect in self._sessions if suspect.due), None)
        if turn is None:
            return None
        return int(session is turn and all(other.request is None for other in sessions if other is not session))

    def in_order(self, sessions: Iterable[S]) -> list[S]:
        """The suspects among them first."""
        return sorted(sessions, key=lambda session: session not in self._sessions)

    def _clear(self) -> None:
        if any(session.cleared for session in self._sessions):
            self._sessions = [session for session in self._sessions if not session.cleared]
            if self._blamed is not None and self._blamed[0] not in self._sessions:
                self._blamed = None
