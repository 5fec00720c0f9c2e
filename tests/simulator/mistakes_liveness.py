"""Mistakes that stop a healthy core, or take a refused connection for a death."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from ha.model.cluster import Cluster
from ha.model.environment import Answer
from ha.model.hearing import Hearing
from ha.model.protocol import decode_control
from ha.model.refusals import Refusals
from ha.model.view import View
from ha.primary.arrivals import Arrivals
from ha.primary.failing import FailingLinks
from ha.primary.losses import Losses
from ha.primary.peer import Phase
from ha.primary.roster import Roster
from ha.primary.stall import StallWatch
from ha.promotion import promotion
from ha.promotion.case import Case
from ha.promotion.claims import fell_silent
from ha.promotion.promoter import Promoter
from tests.simulator.mistakes_safety import patched


def respect_an_isolated_primary() -> AbstractContextManager[None]:
    """No broker is promoted over a primary that answers, whatever its links do."""
    return patched(View, leads=property(lambda self: self.state.is_primary))


def name_the_set_that_it_made_alone() -> AbstractContextManager[None]:
    """An isolated primary names a set without a backup that it has removed since, as if others could rely on that."""
    return patched(Roster, relied=property(lambda self: self._local.persisted.in_sync))


def wait_for_every_claim() -> AbstractContextManager[None]:
    """A promotion fails when a broker that answered the question does not answer the claim, whatever the mode."""

    def denied(self: Promoter, claim: Any, answers: dict[str, Answer], exchanged: Any) -> str:
        return old(self, claim, answers, exchanged) or fell_silent(self._survey, answers)

    old = Promoter._denied
    return patched(Promoter, _denied=denied)


def forgive_broken_links() -> AbstractContextManager[None]:
    """A link counts from its hello on, however often it breaks."""
    return patched(FailingLinks, broke=lambda self, peer, now: None)


def believe_complete_links() -> AbstractContextManager[None]:
    """A link that breaks again and again counts in between, from when its backup is complete.  (It was so once.)"""
    return patched(FailingLinks, _proved=lambda self, peer: peer.phase is Phase.COMPLETE)


def begin_surveys_anew() -> AbstractContextManager[None]:
    """Each loss cancels the survey that is under way for another one."""

    def look(self: Losses) -> None:
        self._cancel()
        old(self)

    old = Losses._look
    return patched(Losses, _look=look)


def bury_the_refusing() -> AbstractContextManager[None]:
    """A broker whose host refuses connections is dead."""

    def unheard(case: Any, what: str) -> str:
        return old(replace(case, safety=replace(case.safety, mode="manager")), what)

    old = promotion._unheard
    return patched(promotion, _unheard=unheard)


def see_only_links() -> AbstractContextManager[None]:
    """A primary that cannot store a set knows of no others than those that are linked to it.  (It was so once.)"""
    return patched(Cluster, apart=lambda self, since: 0)


def refused_is_dead() -> AbstractContextManager[None]:
    """A refused connection counts at once, also a moment after a sign of life."""
    return patched(Refusals, judge=lambda self, address, answer: answer)


def write_for_a_kept_place() -> AbstractContextManager[None]:
    """A backup that comes back to its place is written into the set as if it were new."""

    def larger(self: Roster, peer: Any, in_sync: Any) -> Any:
        return in_sync.grow(peer.member) if old(self, peer, in_sync) else None

    old = Roster._larger
    return patched(Roster, _larger=larger)


def lost_link_counts() -> AbstractContextManager[None]:
    """A backup that was lost while it was listed counts by that link, although it is back.  (It was so once.)"""
    return patched(Roster, _is_back=lambda self, peer: False)


def removed_for_good() -> AbstractContextManager[None]:
    """A broker whose removal is on record, and known to no other, never returns.  (It was so once.)"""
    return patched(Case, returns=False)


def followers_say_nothing() -> AbstractContextManager[None]:
    """A backup does not tell its primary that others have asked it.  (It was so once.)"""
    return patched(Arrivals, on_control=_without_heard(Arrivals.on_control))


def _without_heard(old: Any) -> Any:
    def on_control(self: Arrivals, peer: Any, position: int, body: bytes) -> None:
        if decode_control(body)[0] != "heard":
            old(self, peer, position, body)

    return on_control


def only_what_one_says() -> AbstractContextManager[None]:
    """Two that hear a third one do not make three, unless the third one says so.  (It was so once.)"""

    def apart(self: Hearing, brokers: Iterable[str], since: float) -> int:
        groups = ({other for other, when in said.items() if when >= since} for said in self._said.values())
        return max((len(group & set(brokers)) for group in groups), default=0)

    return patched(Hearing, apart=apart)


def only_changes_are_waited_for() -> AbstractContextManager[None]:
    """A set that cannot be stored counts only if confirms wait for that very change.  (It was so once.)"""
    return patched(StallWatch, why=property(lambda self: self._primary.roster.record.stalling))
