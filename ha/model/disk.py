"""The disk that keeps this broker's vote and in-sync set: whether the last write succeeded, and since when writes fail.

    works ──a write fails──▶ fails ──a write succeeds──▶ works
                              │ ▲
                              └─┘ tried again: at most once a second, less often on a slow disk

While writes fail, no step that needs a new vote or set is taken (`environment.StateNotStored`); the process goes on.
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


class DiskWatch:
    """Stores the state of one broker, and retries after a failure."""

    def __init__(self, env: Environment, changed: Callable[[], None]) -> None:
        """`changed` is called when writes begin to fail, and when they work again."""
        self._env = env
        self._changed = changed
        self._next = 0.0
        self.error = ""
        """Why the last write failed; empty if it succeeded."""

    def store(self, state: HaState) -> None:
        """Write `state`; it is on disk when this returns.  Raises StateNotStored."""
        began = self._env.now()
        try:
            self._env.persist(state)
        except StateNotStored as error:
            now = self._env.now()
            self._next = now + max(RETRY, (now - began) / SHARE)
            self._note(str(error))
            raise
        self._note("")

    @property
    def due(self) -> bool:
        """True if the last write failed and it is time for the next attempt."""
        return bool(self.error) and self._env.now() >= self._next

    def _note(self, error: str) -> None:
        before, self.error = self.error, error
        if error and not before:
            self._env.log("error", f"the vote and the in-sync set cannot be stored: {error}")
            self._env.event("state_file", result="failed", reason=error)
        elif before and not error:
            self._env.log("notice", "the vote and the in-sync set can be stored again")
            self._env.event("state_file", result="ended")
        if bool(error) != bool(before):
            self._changed()
