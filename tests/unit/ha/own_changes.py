"""Changes of the in-sync set that bring their own rules, for tests of the recorder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ha.model.membership import InSync


@dataclass
class Change:
    """One with its own rules."""

    what: str
    make: Callable[[InSync], InSync | None]
    done: Callable[[InSync], object]
    stalls: bool = True


class Owner:
    """Asks the change itself."""

    def next_set(self, change: Change, in_sync: InSync) -> InSync | None:
        return change.make(in_sync)

    def in_force(self, change: Change, in_sync: InSync) -> None:
        change.done(in_sync)
