"""The disk that keeps this broker's vote and in-sync set: whether the last write succeeded, and how long writes take.

    works ──a write fails──▶ fails ──a write succeeds──▶ works
                              │ ▲
                              └─┘ tried again: at most once a second, less and less often on a slow disk
    works ──two writes in a row are slow──▶ slow ──a write is not──▶ works
                                            │ ▲
                                            └─┘ tried again, after twice the time before

While writes fail, no step that needs a new vote or set is taken (`environment.StateNotStored`); the process goes on.  A
write blocks the process.  One is slow if it takes so long that the links to other brokers end (`slow_after`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ha.model.environment import Environment, StateNotStored
from ha.model.membership import HaState

WHAT: Final = "the vote and the in-sync set"
RETRY: Final = 1.0
"""The least time between two attempts, in seconds."""
SHARE: Final = 0.1
"""Share of the time that attempts may take in the end: each one blocks the whole process until the disk answers.  The
first ones come sooner, so that the wait is no longer than the fault has lasted."""
SLOW_SHARE: Final = 0.01
"""The same while the disk is slow and works: each attempt ends the links.  A hiccup is over before anything is done
about it."""
DOUBLINGS: Final = 10
"""More of them are longer than SLOW_SHARE allows."""


class DiskWatch:
    """Stores the state of one broker, and retries after a failure."""

    def __init__(self, env: Environment, slow_after: float, changed: Callable[[], None]) -> None:
        """`slow_after`: seconds.  `changed` is called when writes begin to fail or to be slow, and when that ends."""
        self._env = env
        self._slow_after = slow_after
        self._changed = changed
        self._next = 0.0
        self._failed = self._late = 0  # failed, and slow, writes in a row
        self.error = ""
        """Why the last write failed; empty if it succeeded."""
        self.slow = ""
        """How long the last write took, if it was slow like the one before it."""

    def store(self, state: HaState) -> None:
        """Write `state`; it is on disk when this returns.  Raises StateNotStored."""
        began = self._env.now()
        try:
            self._env.persist(state)
        except StateNotStored as error:
            self._ended(began, str(error))
            raise
        self._ended(began, "")

    @property
    def due(self) -> bool:
        """True if the last write failed or was slow, and it is time for the next attempt."""
        return bool(self.error or self.slow) and self._env.now() >= self._next

    def _ended(self, began: float, error: str) -> None:
        now = self._env.now()
        seconds = now - began
        self._failed = self._failed + 1 if error else 0
        self._late = self._late + 1 if seconds > self._slow_after else 0
        slow = f"its disk takes {seconds:.1f} s for a write" if self._late > 1 else ""
        self._next = now + max(RETRY, self._patience(seconds, error))
        before, self.error, self.slow = (self.error, self.slow), error, slow
        cannot = f"{WHAT} cannot be stored: {error}"
        still = f"{slow}; this process stands still meanwhile"
        fails = self._say(before[0], error, ("failed", cannot), ("ended", f"{WHAT} can be stored again"))
        waits = self._say(before[1], slow, ("slow", still), ("fast", "its disk is fast enough again"))
        if fails or waits:
            self._changed()

    def _patience(self, seconds: float, error: str) -> float:
        """Until the next attempt."""
        before, share = (self._failed - 1, SHARE) if error else (self._late - 2, SLOW_SHARE)
        return seconds * min(2.0 ** min(before, DOUBLINGS), 1 / share)

    def _say(self, before: str, reason: str, begun: tuple[str, str], ended: tuple[str, str]) -> bool:
        """Log what has `begun` or `ended` (result of the event, line of the log); False if nothing has."""
        if bool(before) == bool(reason):
            return False
        result, line = begun if reason else ended
        self._env.log("error" if reason else "notice", line)
        self._env.event("state_file", result=result, reason=reason)
        return True
