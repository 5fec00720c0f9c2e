"""What may be changed in the in-sync set, as data (pure).

`Roster` says what it wants and `Recorder` has it recorded.  One place computes the set of each change and carries it
out when that set is in force: `Roster.next_set` and `Roster.in_force`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ha.primary.peer import Peer


@dataclass(frozen=True)
class First:
    """The set that the claim was granted with, in the epoch of the new primary."""

    stalls: ClassVar = True
    what: ClassVar = "the first set of a new primary"


@dataclass(frozen=True)
class Enlist:
    """A backup that holds everything that we hold becomes a member."""

    peer: Peer
    stalls: ClassVar = False

    @property
    def what(self) -> str:
        return f"backup {self.peer.member} is listed"


@dataclass(frozen=True)
class Drop:
    """The backups that are leaving when this change begins are members no more."""

    names: str
    stalls: ClassVar = True

    @property
    def what(self) -> str:
        return f"{self.names} is dropped"


@dataclass(frozen=True)
class Rename:
    """Another list of the cluster's brokers; `removed`: the address that leaves it, or empty."""

    brokers: tuple[str, ...]
    removed: str
    stalls: ClassVar = True

    @property
    def what(self) -> str:
        return f"{self.removed} leaves the cluster" if self.removed else f"{self.brokers[-1]} enters the cluster"


Change = First | Enlist | Drop | Rename
