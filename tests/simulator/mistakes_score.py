"""Mistakes in the promotion score.  None can lose a message, since promotion decides for itself; each leaves a manager
that goes by scores without a primary."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from ha.model.status import State
from ha.model.view import View
from ha.promotion import candidacy
from ha.promotion.score import COPY, WHOLE, score
from tests.simulator.mistakes_safety import patched


def score_while_catching_up() -> AbstractContextManager[None]:
    """A broker that catches up is as good as a ready one: it is chosen again and again, and refused."""

    def blind(me: View, *facts: Any) -> int | None:
        return WHOLE if me.state is State.CATCHUP else score(me, *facts)

    return patched(candidacy, score=blind)


def score_never_dropped() -> AbstractContextManager[None]:
    """Who has had a score keeps it, also when it was dropped from the set or has lost its memory's worth."""

    def stubborn(me: View, *facts: Any) -> int | None:
        last: int | None = facts[-1]
        return last if last is not None and me.state.is_backup else score(me, *facts)

    return patched(candidacy, score=stubborn)


def no_score_for_copies() -> AbstractContextManager[None]:
    """Only a broker with every confirmed message may be promoted: none in a fresh cluster or after total failure."""

    def proud(me: View, *facts: Any) -> int | None:
        found = score(me, *facts)
        return None if found == COPY else found

    return patched(candidacy, score=proud)


def no_score_in_doubt() -> AbstractContextManager[None]:
    """A backup that has lost its primary has no score before it follows another one."""

    def timid(me: View, outlook: Any, *facts: Any) -> int | None:
        found = score(me, outlook, *facts)
        return None if me.doubt and not me.state.is_primary and not outlook.follows else found

    return patched(candidacy, score=timid)


def primary_that_is_sure() -> AbstractContextManager[None]:
    """A primary without a majority has the best score until it closes its clients; with no limit for that, for ever."""

    def sure(me: View, outlook: Any, *facts: Any) -> int | None:
        return score(me, replace(outlook, unable=False), *facts)

    return patched(candidacy, score=sure)
