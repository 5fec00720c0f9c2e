"""The disk that keeps this broker's vote and in-sync set: whether the last write succeeded, and how long writes take.

    works ──a write fails──▶ fails ──a write succeeds──▶ works
                              │ ▲
                              └─┘ tried again: at most once a second, less often on a slow disk
    works ──two writes in a row are slow──▶ slow ──a write is not──▶ works
                                            │ ▲
                                            └─┘ tried again, for a hundredth of the time

While writes fail, no step that needs a new vote or set is taken (`environment.StateNotStored`); the process goes on.  A
write blocks the process.  One is slow if it takes so long that the links to other brokers end (`slow_after`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ha.environment import Environment, StateNotStored
from ha.model.membership import HaState

RETRY: Final = 1.0
"""The least time between two attempts, in seconds."""
SHARE: Final = 0.1
"""Share of the time that attempts may take: each one blocks the whole process until the disk answers."""
SLOW_SHARE: Final = 0.01
"""The same while the disk is slow: each attempt ends the links."""


class DiskWatch:
    """Stores the state of one broker, and retries after a failure."""

    def __init__(self, env: Environment, slow_after: float, changed: Callable[[], None]) -> None:
        """`slow_after`: seconds.  `changed` is called when writes begin to fail or to be slow, and when that ends."""
        self._env = env
        self._slow_after = slow_after
        self._changed = changed
        self._next = 0.0
        self._before = False
        self.error = ""
        """Why the last write failed; empty if it succeeded."""
        self.slow = ""
        """How long the last write took, if it was slow like the one before it."""

    def store(self, state: HaState) -> None:
        """Write `state`; it is on disk when this returns.  Raises StateNotStored."""
        began = self._env.now()
        error = ""
        try:
            self._env.persist(state)
        except StateNotStored as failure:
            error = str(failure)
            raise
        finally:
            self._ended(error, self._env.now() - began)

    @property
    def due(self) -> bool:
        """True if the last write failed or was slow, and it is time for the next attempt."""
        return bool(self.error or self.slow) and self._env.now() >= self._next

    def _ended(self, error: str, seconds: float) -> None:
        late, self._before = self._before, seconds > self._slow_after
        slow = f"its disk takes {seconds:.1f} s for a write" if late and self._before else ""
        share = SLOW_SHARE if slow else SHARE
        self._next = self._env.now() + max(RETRY, seconds / share)
        before, self.error, self.slow = (self.error, self.slow), error, slow
        self._say(before[0], error)
        self._say_slow(before[1], slow)
        if (bool(error), bool(slow)) != (bool(before[0]), bool(before[1])):
            self._changed()

    def _say(self, before: str, error: str) -> None:
        if error and not before:
            self._env.log("error", f"the vote and the in-sync set cannot be stored: {error}")
            self._env.event("state_file", result="failed", reason=error)
        elif before and not error:
            self._env.log("notice", "the vote and the in-sync set can be stored again")
            self._env.event("state_file", result="ended")

    def _say_slow(self, before: str, slow: str) -> None:
        if slow and not before:
            self._env.log("error", f"{slow}; this process stands still meanwhile")
            self._env.event("state_file", result="slow", reason=slow)
        elif before and not slow:
            self._env.log("notice", "its disk is fast enough again")
            self._env.event("state_file", result="fast")
