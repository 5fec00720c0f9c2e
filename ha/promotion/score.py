"""The promotion score: a number that tells a resource manager which broker to promote; higher is better.  Pure.

    100          primary; or ready, while a primary lives; or may be promoted, and no broker holds more
    90, 80 …     may be promoted and holds every confirmed message, but others hold more, or were not deposed
    20           at least, for such a broker.  Also a primary that has lacked a majority, its registry or processor time
                 for DOUBT seconds, or whose confirms wait for so long while it cannot store a set (quorum) or cannot
                 read messages that wait: a broker that could confirm has more; without one nothing changes
    15           may be promoted and is whole, but its disk is slow (`disk.py`): any other whole copy is better.  Also a
                 primary whose journal has not written for `ha-slow-backup-timeout`, while a ready backup's has
                 (`journal_watch.py`); or that cannot read messages which wait, and has a ready backup (`Node.damaged`)
    10           may be promoted, but no broker is known to hold everything: a fresh cluster, or a total failure
    none         must not be promoted now; or an isolated primary, so that the manager promotes another broker

While a primary lives the score follows from the state, without a survey, and does not change in normal operation: every
change makes a manager compute a new plan.  For the same reason a primary has the score of a ready backup.  Without a
primary the score is the verdict of `promotion.decide` on the last survey: a number if and only if `decide` would claim
an epoch.  So every broker that could be promoted has a score, and a promotion by score is rarely refused.

*Equal copies have equal scores.*  Any of them may be promoted, so the manager's own preference decides; and when the
primary dies and all backups hold the same, no score changes.  All brokers rank by the same facts, each for itself; no
score depends on another score.

Between the loss of the primary and the answers, a ready backup keeps its score, unless an answer shows that another
broker holds more: that takes effect at once.  If the manager's registry does not answer, a ready backup gets the lowest
score of its kind but keeps one: the registry is silent while the manager fences a node, and the score must be there
when fencing is done.

Only `qpid-ha promote --force` overrides `decide`; the score never does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ha.model.membership import InSync
from ha.model.safety import Safety
from ha.model.status import State
from ha.model.view import Survey, View
from ha.promotion.case import ManagerRecord, newest_set
from ha.promotion.promotion import Refuse, decide

PRIMARY: Final = 100
WHOLE: Final = 100
"""Score of the newest whole copy."""
WHOLE_STEP: Final = 10
LEAST_WHOLE: Final = 20
"""The lowest score of a whole copy, however many brokers hold more."""
DOUBT: Final = 2.0
"""Seconds for which a primary must have been cut off before its score falls."""
SLOW: Final = 15
"""The highest score of a broker whose disk is slow."""
COPY: Final = 10


@dataclass(frozen=True)
class Outlook:
    """What a backup knows of the other brokers."""

    follows: bool = False
    """True if a primary feeds us, or we are connecting to one."""
    survey: Survey | None = None
    """The last complete survey; None: no survey yet since the primary was lost."""
    heard: tuple[View, ...] = ()
    """Answers so far, while the survey is not complete."""
    replaceable: bool = False
    """We are primary, our disk hangs, and a ready backup has on its disk what ours lacks; or what waits here cannot be
    read, and there is a ready backup."""
    unable: bool = False
    """We are primary, and have been cut off for DOUBT seconds: we can confirm nothing."""


@dataclass(frozen=True)
class Registry:
    """The manager's registry as read since the primary was lost."""

    record: ManagerRecord | None = None
    """None: not read yet, or it cannot be read (`failed`)."""
    failed: bool = False


NO_REGISTRY: Final = Registry(ManagerRecord())


def score(
    me: View, outlook: Outlook, safety: Safety, registry: Registry = NO_REGISTRY, last: int | None = None
) -> int | None:
    """Compute the score.  `last`: the score until now."""
    if me.state.is_primary:
        return None if me.isolated else SLOW if outlook.replaceable else LEAST_WHOLE if outlook.unable else PRIMARY
    if not me.state.is_backup:
        return None
    survey = outlook.survey
    if outlook.follows or (survey is not None and any(view.leads for view in survey.views)):
        return WHOLE if me.state is State.READY else None
    if survey is not None and registry.record is not None:
        return dry_run(me, survey, safety, registry.record)
    kept = _kept(me, survey.views if survey is not None else outlook.heard, last)
    return min(kept, LEAST_WHOLE) if kept is not None and registry.failed else kept


def dry_run(me: View, survey: Survey, safety: Safety, record: ManagerRecord) -> int | None:
    """The result of a promotion at this moment, as a score; None if it would be refused."""
    verdict = decide(me, survey, safety, record=record, behind=True)
    if isinstance(verdict, Refuse):
        return None
    return _rank(me, survey.views, verdict.base) if verdict.whole else COPY


def _rank(me: View, views: Iterable[View], newest: InSync) -> int:
    """Rank among brokers that hold every confirmed message: ready ones first, then by how much they hold."""
    whole = [view for view in views if view.whole and newest.lists(view.member)]
    better = {_worth(view) for view in whole if _worth(view) > _worth(me)}
    return max(LEAST_WHOLE, WHOLE - WHOLE_STEP * len(better))


def _worth(view: View) -> tuple[bool, int]:
    return view.state is State.READY, view.position


def _kept(me: View, heard: Iterable[View], last: int | None) -> int | None:
    """The score while the survey is not complete."""
    if me.state is not State.READY or last is None:
        return None
    views = list(heard)
    newest = newest_set(me, views)
    return min(last, _rank(me, views, newest)) if newest.lists(me.member) else None
