"""The promotion score: whom a resource manager should promote, as a number; the higher the better.  Pure.

    100          primary; or ready, while a primary lives; or may be promoted, and nobody holds more
    90, 80 …     may be promoted and holds every confirmed message, but others hold more, or were not deposed
    10           may be promoted, but nobody is known to hold everything: a fresh cluster, or a total failure
    none         must not be promoted now; or a primary that is isolated, so that the manager promotes another one

While a primary lives the state decides; nobody is asked, and nothing changes while all is well: a manager has to think
again after every change.  For the same reason a primary has what a ready backup has.  Without a primary the score is
the verdict of `promotion.decide` on the answers of the last round of questions: a number if and only if that would
claim an epoch.  So the manager never waits for ever for a broker that could be promoted, and hardly ever promotes one
in vain.

*Equal copies have equal scores.*  It makes no difference which of them is promoted, so the manager's own preference
decides, and when the primary dies and all hold the same, no score changes.  All brokers rank by the same facts, and
each by itself; no score depends on another score.

Between the loss of the primary and the answers a ready backup keeps the score that it has; unless one answer says that
somebody holds more: that is not waited with until the last one is in.  If the manager's registry does not answer it
comes behind all others, and keeps a score all the same: that registry is silent while the manager decides who is to be
fenced, and nobody should have to wait for a score when that is done.

Only `qpid-ha promote --force` goes past `decide`; the score never does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ha.model.membership import InSync
from ha.model.safety import Safety
from ha.model.status import State
from ha.model.view import Survey, View
from ha.promotion.promotion import Record, Refuse, decide, newest_set

PRIMARY: Final = 100
WHOLE: Final = 100
"""Of the newest."""
WHOLE_STEP: Final = 10
LEAST_WHOLE: Final = 20
"""However many hold more."""
COPY: Final = 10


@dataclass(frozen=True)
class Outlook:
    """What a backup knows of the others."""

    follows: bool = False
    """Does a primary feed us, or are we on our way to one?"""
    survey: Survey | None = None
    """The last answers of all; None: nobody was asked yet since the primary was lost."""
    heard: tuple[View, ...] = ()
    """Who has answered so far, while not all have."""


@dataclass(frozen=True)
class Registry:
    """What was read from the manager's registry since the primary was lost."""

    record: Record | None = None
    """None: nothing yet, or it cannot be read (`failed`)."""
    failed: bool = False


NO_REGISTRY: Final = Registry(Record())


def score(
    me: View, outlook: Outlook, safety: Safety, registry: Registry = NO_REGISTRY, last: int | None = None
) -> int | None:
    """`last`: the score until now."""
    if me.state.is_primary:
        return None if me.isolated else PRIMARY
    if not me.state.is_backup:
        return None
    survey = outlook.survey
    if outlook.follows or (survey is not None and any(view.leads for view in survey.views)):
        return WHOLE if me.state is State.READY else None
    if survey is not None and registry.record is not None:
        return dry_run(me, survey, safety, registry.record)
    kept = _kept(me, survey.views if survey is not None else outlook.heard, last)
    return min(kept, LEAST_WHOLE) if kept is not None and registry.failed else kept


def dry_run(me: View, survey: Survey, safety: Safety, record: Record) -> int | None:
    """What a promotion would say now, as a number."""
    verdict = decide(me, survey, safety, record=record, behind=True)
    if isinstance(verdict, Refuse):
        return None
    return _rank(me, survey.views, verdict.base) if verdict.whole else COPY


def _rank(me: View, views: Iterable[View], newest: InSync) -> int:
    """Of those that hold every confirmed message: the ready ones first, each by how much more it holds."""
    whole = [view for view in views if view.whole and newest.lists(view.member)]
    better = {_worth(view) for view in whole if _worth(view) > _worth(me)}
    return max(LEAST_WHOLE, WHOLE - WHOLE_STEP * len(better))


def _worth(view: View) -> tuple[bool, int]:
    return view.state is State.READY, view.position


def _kept(me: View, heard: Iterable[View], last: int | None) -> int | None:
    """Not everybody has answered yet."""
    if me.state is not State.READY or last is None:
        return None
    views = list(heard)
    newest = newest_set(me, views)
    return min(last, _rank(me, views, newest)) if newest.lists(me.member) else None
