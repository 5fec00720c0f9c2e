"""Detects when a fail-over is over for the application (pure).

Theory.  A loss begins an outage or prolongs the present one.  The outage is over when every session that existed can
work again and the last message that was sent again is confirmed.  Sessions that end meanwhile do not count.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Recovery:
    """One per connection.  Times in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._waiting: set[Hashable] = set()
        self._resent = 0

    @property
    def active(self) -> bool:
        return self._began is not None

    def lost(self, now: float, sessions: Iterable[Hashable], resent: int) -> None:
        """The connection is lost; `resent` messages will be sent again."""
        self._waiting = set(sessions)
        if not self._waiting:
            self._began = None
            return
        if self._began is None:
            self._began, self._resent = now, 0
        self._resent += resent

    def done(self, session: Hashable, now: float) -> dict[str, int] | None:
        """This session has recovered.  If it was the last one: returns the outage, times in microseconds."""
        self._waiting.discard(session)
        if self._began is None or self._waiting:
            return None
        outage, self._began = now - self._began, None
        return {"resent": self._resent, "outage_us": int(outage * 1e6)}

    def gone(self, session: Hashable) -> None:
        """The session has ended."""
        self._waiting.discard(session)
        if not self._waiting:
            self._began = None
