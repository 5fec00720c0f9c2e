"""Holds what a joining backup has received and not applied yet.

Theory.  A whole member of the in-sync set may be promoted at any moment, also while it joins a primary that then dies.
Had it applied half of the difference by then, an input could be dropped without its outputs, or a queue deleted whose
messages were moving to another queue.  So for a whole member **the difference takes effect as a whole or not at all**:
everything received from the welcome on, live batches too, is kept in order until the primary reports it as complete.
From then on it is always applied: in pieces while there is time (a broker that is silent for long counts as dead), the
rest at once when the link is lost or we are promoted.

    DIRECT     calls are made at once (a broker that is not whole has nothing to lose)
    SPREAD     the same, but one of them takes several turns: later ones are kept, and made by `some`
    KEPT       calls are kept; `forget` discards them
    COMPLETE   kept calls are made by `some` and `all`; new ones are appended

A call that is not done in one turn answers True and is made again.

Invariant: the engine and the configuration are those of one position of one log, or COMPLETE is being applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

from ha.model.content import Journal
from ha.model.environment import Environment
from qpidd_py.errors import LinkError

BITE: Final = 4 << 20
"""Octets applied in one turn, approximately."""
CALL: Final = 256
"""Least cost of a call, in octets."""
Call = Callable[[], bool | None]
"""True: there is more, call again in the next turn."""
UNWRITTEN: Final = 16 << 20
"""Octets that may wait for the disk while more of the difference is taken over."""
PAUSE: Final = 0.005
"""Seconds until what waits for the disk, or for earlier calls, is tried again."""


class Mode(Enum):
    DIRECT = "direct"
    SPREAD = "spread"
    KEPT = "kept"
    COMPLETE = "complete"


class Staging:
    """The received calls of one attempt to join."""

    def __init__(self, env: Environment, journal: Journal) -> None:
        self._env = env
        self._journal = journal
        self.mode = Mode.DIRECT
        self._calls: deque[tuple[int, Call]] = deque()

    def keep(self) -> None:
        """From here on keep calls instead of making them."""
        self.mode = Mode.KEPT

    def add(self, call: Call, octets: int = 0) -> None:
        """Make or keep `call`.  Raises what `call` raises, if it is made at once."""
        if self.mode is not Mode.DIRECT:
            self._calls.append((octets + CALL, call))
        elif call():
            self.mode = Mode.SPREAD
            self._calls.append((CALL, call))

    def stage(self, change: Call, kind: int, body: bytes) -> None:
        """`add` what came in one frame."""
        self.add(lambda: self.change(change, kind, body), len(body))

    def change(self, change: Call, kind: int, body: bytes) -> bool:
        """Apply what came in one frame, here and in the journal.  True: there is more of it."""
        try:
            if change():
                return True
            self._journal.part(kind, body)
            return False
        except (LinkError, MemoryError):
            self._journal.leave()  # the engine may have taken a part of it
            raise

    def disk_waits(self, again: Callable[[], None]) -> bool:
        """True if the disk has much to write; `again` is called a little later."""
        waits = self._journal.waiting > UNWRITTEN
        if waits:
            self._env.after(PAUSE, again)
        return waits

    def complete(self) -> None:
        """What is kept will be applied: call `some` until it returns True, or `all`."""
        self.mode = Mode.COMPLETE

    def some(self) -> bool:
        """Apply a bounded part.  True when nothing is left; later calls are then made at once."""
        budget = BITE
        while self._calls and budget > 0:
            octets, call = self._calls[0]
            if call():
                break
            self._calls.popleft()
            budget -= octets
        if not self._calls:
            self.mode = Mode.DIRECT
        return not self._calls

    def all(self) -> None:
        """Apply the rest."""
        while not self.some():
            pass

    def forget(self) -> None:
        """Discard what is kept."""
        self._calls.clear()
        self.mode = Mode.DIRECT
