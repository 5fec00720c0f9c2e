"""The disk that keeps this broker's vote and in-sync set: did it take the last write, and since when does it not?

    works ──a write fails──▶ fails ──a write succeeds──▶ works
                              │ ▲
                              └─┘ tried again with the state in force: at most once a second, and rarely when it is slow

While it fails, nothing that depends on a new vote or set happens (`environment.StateNotStored`), and the broker lives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ha.environment import Environment, StateNotStored
from ha.model.membership import HaState

RETRY: Final = 1.0
"""Seconds between two attempts at least."""
SHARE: Final = 0.1
"""Of the time may go by in attempts: a disk that fails slowly stops the whole process meanwhile."""


class DiskWatch:
    """Of one broker."""

    def __init__(self, env: Environment, changed: Callable[[], None]) -> None:
        """`changed` is called when it begins to fail, and when it works again."""
        self._env = env
        self._changed = changed
        self._next = 0.0
        self.error = ""
        """Why the last write failed; empty: it did not."""

    def store(self, state: HaState) -> None:
        """On disk when this returns.  Raises StateNotStored."""
        began = self._env.now()
        try:
            self._env.persist(state)
        except StateNotStored as error:
            now = self._env.now()
            self._next = now + max(RETRY, (now - began) / SHARE)
            self._note(str(error))
            raise
        self._note("")

    def works(self, in_force: HaState) -> bool:
        """Tries, if the last write has failed."""
        if self.error:
            try:
                self.store(in_force)
            except StateNotStored:
                return False
        return True

    def tick(self, in_force: HaState) -> None:
        """Four times in each heartbeat interval."""
        if self.error and self._env.now() >= self._next:
            self.works(in_force)

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
