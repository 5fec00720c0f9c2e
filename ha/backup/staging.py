"""What a joining backup was sent and has not taken over yet.

Theory.  A whole member of the in-sync set may be promoted at any moment, also while it joins a primary that then dies.
What it holds of the difference at that moment would be half of it: an input dropped whose outputs have not come, a
queue deleted whose messages were on their way to another.  So for a whole member **the difference takes effect as a
whole or not at all**: everything that it is sent from the welcome on, live batches too, is kept in order until the
primary has said that it is complete.  From then on it will be applied, whatever happens: bit by bit while there is time
(a broker that does not answer for long is taken for dead), the rest at once when the link is lost or we are promoted.

    DIRECT     what is added happens at once (a broker that is not whole has nothing to lose)
    KEPT       it waits; `forget` makes it undone
    COMPLETE   it is applied by `some` and `all`; what is added meanwhile goes to the end

Invariant: the engine and the configuration are those of one position of one log, or COMPLETE is being applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

BITE: Final = 4 << 20
"""Octets that are applied in one turn, about."""
CALL: Final = 256
"""What a call costs at least, in octets."""


class Mode(Enum):
    DIRECT = "direct"
    KEPT = "kept"
    COMPLETE = "complete"


class Staging:
    """Of one attempt to join."""

    def __init__(self) -> None:
        self.mode = Mode.DIRECT
        self._calls: deque[tuple[int, Callable[[], None]]] = deque()

    def keep(self) -> None:
        """From here on nothing takes effect."""
        self.mode = Mode.KEPT

    def add(self, call: Callable[[], None], octets: int = 0) -> None:
        """Raises what `call` raises, when it happens at once."""
        if self.mode is Mode.DIRECT:
            call()
        else:
            self._calls.append((octets + CALL, call))

    def complete(self) -> None:
        """It will take effect; call `some` until it says True, or `all`."""
        self.mode = Mode.COMPLETE

    def some(self) -> bool:
        """Apply a bounded part.  True when nothing is left; then everything that follows happens at once."""
        budget = BITE
        while self._calls and budget > 0:
            octets, call = self._calls.popleft()
            budget -= octets
            call()
        if not self._calls:
            self.mode = Mode.DIRECT
        return not self._calls

    def all(self) -> None:
        """Apply the rest."""
        while not self.some():
            pass

    def forget(self) -> None:
        """Nothing of it has happened."""
        self._calls.clear()
        self.mode = Mode.DIRECT
