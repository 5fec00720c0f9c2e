"""`ha-safety`: what must be known and recorded before a lost backup stops counting.

manager       survey the others first (one of them may have been promoted); the record is the manager's registry
              (`recorder.py`), or, without one, the log of the remaining members; a primary that cannot account for a
              majority waits `ha-isolation-wait` for its manager to stop it
availability  drop it at once and go on, as Apache Qpid does
quorum        as manager, but the set never shrinks below a majority of the brokers: confirms wait instead
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ha.model.environment import Outcome
from ha.model.membership import InSync, Member
from ha.model.view import Survey

FEWEST_VOTERS: Final = 2
"""Brokers that `quorum` needs.  From a list of one no second broker could be added: of two brokers one in sync is not a
majority.  Two must be possible: when one of three brokers is lost for good, it has to be removed before another one is
added, since two in sync are not a majority of four."""
USEFUL_VOTERS: Final = 3
"""Brokers with which `quorum` survives the loss of one.  Two are as safe, but confirm nothing when either is lost."""


def too_few(mode: str, brokers: Collection[object]) -> str:
    """Why a cluster of that mode cannot have these brokers; empty if it can.  Checked at start and at each change."""
    count = len(set(brokers))
    if mode != "quorum" or count >= FEWEST_VOTERS:
        return ""
    return f"found quorum with {count} broker{'s'[count == 1 :]}, wanted {FEWEST_VOTERS} or more"


def fragile(mode: str, brokers: Collection[object]) -> str:
    """A warning about that list of brokers for the administrator; empty if there is none."""
    count = len(set(brokers))
    if mode != "quorum" or count >= USEFUL_VOTERS:
        return ""
    return (
        f"quorum with {count} brokers, wanted {USEFUL_VOTERS} or more: nothing is confirmed while one of them is lost; "
        "add another one"
    )


@dataclass(frozen=True)
class Safety:
    """One mode with the sizes that it needs."""

    mode: str
    brokers: tuple[str, ...]
    """ha-brokers-url; the newest in-sync set may have another list."""
    isolation_wait: float
    """Seconds."""
    journals: bool = False
    """Members keep journals: a broker that is down may come back with all that it has acknowledged."""

    def voters(self, in_sync: InSync) -> tuple[str, ...]:
        """Addresses of the brokers whose majority counts."""
        return in_sync.brokers or self.brokers

    def majority(self, in_sync: InSync) -> int:
        return len(self.voters(in_sync)) // 2 + 1

    def votes(self, in_sync: InSync, without: Iterable[str] = ()) -> int:
        """Number of listed brokers in the set.  A member that is not listed does not count: the listed brokers can form
        a majority without it."""
        gone, voters = frozenset(without), self.voters(in_sync)
        return len({member.address for member in in_sync.members if member.id not in gone} & set(voters))

    @property
    def probes(self) -> bool:
        """True if the others are asked before a lost backup is dropped."""
        return self.mode != "availability"

    def may_shrink(self, in_sync: InSync, lost: Iterable[str]) -> bool:
        """True if the set without `lost` is allowed."""
        return self.mode != "quorum" or self.votes(in_sync, lost) >= self.majority(in_sync)

    def may_confirm(self, in_sync: InSync) -> bool:
        """True if the set is large enough to confirm.  A new primary may start with a smaller one."""
        return self.mode != "quorum" or self.votes(in_sync) >= self.majority(in_sync)

    def patience(self, survey: Survey, lost: Collection[Member], in_sync: InSync) -> float:
        """Seconds to wait before `lost` is removed from our set after this survey.

        A broker that answers, or whose host refuses the connection, is accounted for.  A primary that cannot account
        for a majority (of two: for the other one) is probably cut off itself.  A host that refuses cannot report a
        promotion, so while one broker is silent another one must have answered.  A broker that need not acknowledge
        the smaller set, and knows of none without the silent ones, accounts for nothing: it answers the other side,
        too, and would agree to a promotion there.
        """
        if self.mode == "availability":
            return 0.0
        outcomes = survey.outcomes or {member.address: survey.outcome(member) for member in lost}
        silent = {address for address, outcome in outcomes.items() if outcome is Outcome.SILENT}
        heard = {address for address, outcome in outcomes.items() if outcome is Outcome.ANSWERED}
        others = survey.ids.items() if silent else ()
        remaining = in_sync.ids - {member.id for member in lost}
        unaware = {at for at, id in others if id not in remaining and _unaware(survey, id, in_sync, silent)}
        accounted = 1 + len(outcomes) - len(silent | unaware)
        majority = accounted > (1 + len(outcomes)) // 2
        isolated = bool(silent) and not (majority and heard > unaware)
        return self.isolation_wait if isolated else 0.0


def _unaware(survey: Survey, id: str, in_sync: InSync, silent: Collection[str]) -> bool:
    """True if this broker knows of no set without the brokers at `silent`."""
    known = [view.in_sync for view in survey.views if view.id == id]
    return any(found.key < in_sync.key or any(each.address in silent for each in found.members) for found in known)
