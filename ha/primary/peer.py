"""A backup as the primary sees it.

    HELLO ──hello──▶ HELD ──held-end──▶ COPYING ──work list empty──▶ CLOSING ──complete──▶ COMPLETE

Only the ACK of a COMPLETE backup means "I hold everything up to here".  Before that an ACK means only that the live
batches from the cut on were applied; what lies before the cut may have holes.

A backup *counts* while it is in the in-sync set, and after its removal from the set until every remaining member has
acknowledged the removal.  `acked` is the position up to which it is known to hold everything; while a counting backup
is disconnected or catches up, `acked` does not move, and confirms wait.

Formulas: safe <= acked of every counting peer;  COMPLETE implies cut <= received.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ha.model.clock_readings import ClockReadings
from ha.model.environment import Link
from ha.model.logins import Told
from ha.model.membership import Member
from ha.model.pulse import Pulse
from ha.primary.catchup import Plan, Progress


class Phase(Enum):
    """Phase of the conversation with a backup."""

    AWAY = "away"
    HELLO = "hello"
    HELD = "held"
    COPYING = "copying"
    CLOSING = "closing"
    COMPLETE = "complete"


@dataclass(eq=False)
class Peer:
    """One backup, connected or counting."""

    member: Member
    pulse: Pulse
    readings: ClockReadings = field(default_factory=ClockReadings)
    link: Link | None = None
    phase: Phase = Phase.HELLO
    state: str = ""
    """As it reported at hello."""
    whole: bool = False
    acked: int = 0
    received: int = 0
    """Cumulative position of its ACK frames."""
    target: int = 0
    """End of the log when it became COMPLETE; it is listed when it has acknowledged that."""
    reported: bool = False
    """True if `acked` came from the peer itself, not from the claim of a new primary."""
    held: dict[tuple[int, int], bytes] = field(default_factory=dict)
    plan: Plan | None = None
    progress: Progress | None = None
    """Rate of the catch-up."""
    slow_since: float | None = None
    """Time since which its backlog has been too large (`slow.py`)."""
    takes_logins: bool = False
    """It wants digests of passwords that are right (`logins.py`)."""
    told: Told = (0, 0)
    """How far it was told of these."""
    dropped: bool = False
    """It was too slow and must leave the set, even if it is whole when it reconnects."""
    completed_at: float = 0.0
    """Time when it became COMPLETE."""
    lost_at: float = 0.0
    started: float = 0.0
    removal: int = 0
    """Position of the operation that removes it; 0 while it is a member."""

    @property
    def id(self) -> str:
        return self.member.id

    @property
    def shown(self) -> str:
        """Its state as shown in the members list of a query."""
        if self.link is None:
            return "away"
        return "ready" if self.phase is Phase.COMPLETE else "catchup"
