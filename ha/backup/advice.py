"""Advice to the administrator of a cluster without a primary, in one sentence.  Pure.

A broker that looks for a primary keeps asking the others; the advice is made from the last answers.  It is not binding:
a promotion surveys the brokers itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from ha.model.environment import Outcome
from ha.model.membership import newest_of
from ha.model.view import Survey, View


def advise(me: View, survey: Survey, journals: bool = False) -> str:
    """Empty when a primary answers.  `journals`: what a member held outlives it."""
    views = [me, *survey.views]
    newest = newest_of(*(view.in_sync for view in views))
    if newest.brokers and me.address not in newest.brokers:
        return f"it is no longer a member of the cluster ({', '.join(newest.brokers)})"
    if any(view.state.is_primary for view in views):
        return ""
    silent = [address for address, outcome in survey.outcomes.items() if outcome is Outcome.SILENT]
    if not newest.version and not any(view.epoch for view in views):
        return f"the cluster is new: promote one broker{_unheard(silent)}"
    whole = [view for view in views if view.whole and newest.lists(view.member)]
    if whole:
        best = min(whole, key=_rank)
        return f"no primary answers: promote {best.member}, which holds every confirmed message{_unheard(silent)}"
    others = [member for member in newest.members if member.id != me.id]
    away = {Outcome.SILENT, Outcome.REFUSED} if journals else {Outcome.SILENT}
    missing = [str(member) for member in others if survey.outcome(member) in away]
    restarted = "every member that answers has restarted, and has lost what it held in memory"
    if journals:
        restarted = "no member that answers holds every confirmed message"
    if missing:
        held = f"{', '.join(missing)} does not answer and may hold what was confirmed"
        return f"{restarted}; {held}: bring it back, or promote one by force without it"
    best = min(views, key=_rank)
    return f"{restarted}; promoting one starts the cluster again with what survived (most at {best.member})"


def _rank(view: View) -> tuple[int, str]:
    """A total order, so that all brokers name the same one."""
    return -view.position, view.name


def _unheard(silent: Iterable[str]) -> str:
    names = ", ".join(silent)
    return f" ({names} does not answer)" if names else ""
