"""Whose message makes the broker close the connection (pure).

Theory.  connection.close names no channel.  After a close that a message may have caused, all sessions with unconfirmed
messages are suspects.  While there are any, only the first of them publishes, one message at a time, until everything
that it had sent before is confirmed; then it is cleared, and it is the turn of the next.  So each further close is held
against one message; after CLOSES of them its session ends, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from client_lib.core.outbox import Entry

CAUSED = frozenset({501, 502, 503, 504, 505, 541})
"""Reply codes of closes that a message may have caused."""
CLOSES = 3


class Suspect(Protocol):
    """The part of a session that this module uses."""

    @property
    def oldest_sent(self) -> Entry | None: ...

    @property
    def resends(self) -> bool: ...


class Suspects:
    """One per connection."""

    def __init__(self) -> None:
        self._sessions: list[Suspect] = []
        self._blamed: Entry | None = None
        self._closes = 0

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def closed(self, reply_code: int, sessions: Iterable[Suspect]) -> Entry | None:
        """The broker closed the connection; not called for other losses.  Returns a message that its session must end
        for.  `sessions` still know what they had sent."""
        if reply_code not in CAUSED:
            return None
        if not self._sessions:
            self._sessions = [session for session in sessions if session.oldest_sent is not None]
        oldest = self._sessions[0].oldest_sent if self._sessions else None
        if oldest is None:
            return None
        self._closes = self._closes + 1 if oldest is self._blamed else 1
        self._blamed = oldest
        return oldest if self._closes >= CLOSES else None

    def limit(self, session: Suspect) -> int | None:
        """How many messages of this session may be unconfirmed now; None: any number."""
        while self._sessions and not self._sessions[0].resends:
            del self._sessions[0]
        if not self._sessions:
            return None
        return int(session is self._sessions[0])
