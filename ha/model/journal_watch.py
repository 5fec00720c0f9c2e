"""The disk of a member's journal: whether it answers.

    writes ──something waits, and nothing is written for `slow_after`──▶ hangs ──something is written──▶ writes
                                                                          │
                                                                          ▼ for `patience`, and others can go on
                                                                         the process ends

After `patience` the score of a primary falls, so that its manager moves the role, if a ready backup has on its disk
what this one lacks (`Primary.outlook`).  Nothing that depends on this disk is confirmed meanwhile.  A backup can be
done without, and so can a primary with a ready backup: the shrink rule drops the one, the manager replaces the other.
The primary waits for twice as long until it ends: if all are on one disk, its backups have ended by then, and it
stays.  A full disk is none that hangs: it says so, and publishers wait.
"""

from __future__ import annotations

from ha.model.content import Journal
from ha.model.environment import Environment


class JournalWatch:
    """Looks at the journal of one broker."""

    def __init__(self, env: Environment, journal: Journal, slow_after: float, patience: float) -> None:
        """In seconds; `patience` 0: for ever."""
        self._env = env
        self._journal = journal
        self._slow_after = slow_after
        self.patience = patience
        self._durable = -1
        self._since = self._looked = float("-inf")
        self.hangs = ""
        """For how long the disk has not answered; empty while it does."""
        self.overdue = False
        """True if that is longer than `patience`: a broker with a better disk should be primary."""

    def look(self) -> float:
        """Several times in each `slow_after`.  How many times `patience` it hangs.  A pause of the process says nothing
        of the disk."""
        now, journal = self._env.now(), self._journal
        paused, self._looked = now - self._looked > self._slow_after, now
        if journal.full or paused or not journal.waiting or journal.durable != self._durable:
            self._durable, self._since = journal.durable, now
        silent = now - self._since
        text = f"the disk of its journal has written nothing for {silent:.1f} s"
        self._say(text if silent > self._slow_after else "")
        times = silent / max(self.patience, self._slow_after) if self.patience else 0.0
        self.overdue = times > 1.0
        return times

    def _say(self, hangs: str) -> None:
        if bool(hangs) != bool(self.hangs):
            self._env.log("error" if hangs else "notice", hangs or "the disk of its journal writes again")
            self._env.event("state_file", result="slow" if hangs else "fast", reason=hangs)
        self.hangs = hangs
