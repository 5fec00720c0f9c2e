"""A backup finds the primary: from nothing, or from a hint, to an open link.

    SEARCHING ──a survey or a hint names one──▶ CONNECTING ──link open──▶ FOUND
        ▲                                           │                       │
        └── no, or no answer: after a delay ────────┘                       │
        └── the link is lost (after a delay), or a claim was granted ───────┘

A *hint* is where the primary is going to be: who has our grant, or whom we have handed over to.  It is tried before
anybody is asked, and forgotten when nobody answers there, when it has not become primary after HINT_ATTEMPTS, or when a
primary has welcomed or refused us.

Invariants: at most one round of questions or one attempt to connect is under way; what belongs to an earlier one, told
by its number (`_attempt`), is dropped, a link with it.  `found` is called only in CONNECTING, and never in a pause.
Who may call: the backup that owns it.  In FOUND it waits until it is told that the link is no more (`lost`, `follow`
or `pause`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

from ha.environment import Answer, Link, Outcome
from ha.model.local_member import LocalMember
from ha.model.survey import Round
from ha.model.view import Survey, View
from qpidd_py.errors import LinkError

FIRST_DELAY: Final = 0.004
"""Seconds before a second attempt; a claimant is primary some milliseconds after we have granted its claim."""
HINT_ATTEMPTS: Final = 6
"""A claimant that is no primary after that many attempts has failed: ask around instead."""


class Stage(Enum):
    """How far it has come."""

    SEARCHING = "searching"
    CONNECTING = "connecting"
    FOUND = "found"


class Finder:
    """The search of one backup; `found` gets each link that is opened."""

    def __init__(self, local: LocalMember, found: Callable[[Link], None], view: Callable[[], View]) -> None:
        """`view`: what the backup says of itself."""
        self._local = local
        self._env = local.env
        self._found = found
        self._view = view
        self.stage = Stage.SEARCHING
        self.hint = ""
        """Address."""
        self.survey: Survey | None = None
        """Of the last round, if it has found no primary: the answers of those whom a promotion would ask."""
        self.heard: list[View] = []
        """Who has answered so far in the round under way."""
        self._hint_attempts = 0
        self._attempt = 0
        self._delay = FIRST_DELAY
        self._round: Round | None = None
        self._paused = False
        self._complaint = ""
        """What was said last of why we are not let in."""

    # ---- what the backup tells ------------------------------------------------------------------------------------

    def search(self) -> None:
        """Look for a primary unless that is going on already."""
        if self._paused or self.stage is Stage.FOUND or self._round is not None:
            return
        if self.stage is Stage.CONNECTING and not self.hint:
            return
        if self.hint:
            self._connect(self.hint)
        else:
            self._ask()

    def pause(self) -> None:
        """Give up what is under way."""
        self._paused = True
        self._begin_again()
        if self._round:
            self._round.cancel()
            self._round = None

    def resume(self) -> None:
        self._paused = False
        self.search()

    def follow(self, address: str) -> None:
        """Go there at once."""
        self._begin_again()
        self.hint, self._hint_attempts, self._delay = address, 0, FIRST_DELAY
        self._forget()
        self.search()

    def expect(self, address: str) -> None:
        """Look there first."""
        self.hint = address

    def welcomed(self) -> None:
        """This primary takes us: what we were told before is out of date."""
        self.hint = ""

    def refused(self, reason: str) -> None:
        """This primary does not; it will say so at every attempt."""
        if self._is_news(reason):
            self._env.log("error", f"the primary refuses us: {reason}")
        self.hint = ""

    def admitted(self) -> None:
        """It sends us its log: when the link is lost now, a second attempt is made soon."""
        self._delay = FIRST_DELAY

    def lost(self) -> None:
        """The link is no more.  If it was a good one, ask at once: a manager wants to know who holds most."""
        self._attempt += 1
        self._again(at_once=self._delay == FIRST_DELAY)
        self._local.changed()

    # ---- asking around --------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        self._begin_again()
        self.heard = []
        attempt, settings = self._attempt, self._local.settings
        timeout = min(settings.heartbeat, settings.maintenance)
        enough = partial(self._answered, attempt)
        self._round = self._local.ask_all(timeout, self._surveyed, enough, self._local.everybody())

    def _answered(self, attempt: int, answer: Answer) -> bool:
        """One of them.  Is it the primary?"""
        local = self._local
        try:
            view = View.from_json(answer.result) if answer.outcome is Outcome.ANSWERED else None
        except LinkError:
            return False
        if view is None or attempt != self._attempt or (view.id, view.instance) == (local.id, local.instance):
            return False
        if view.id != local.id:
            self.heard.append(view)
        local.changed()
        return self._would_follow(view)

    def _would_follow(self, view: View) -> bool:
        local = self._local
        known = view.ballot >= local.persisted.ballot
        return view.state.is_primary and known and local.is_broker(local.settings.address, view.in_sync)

    def _surveyed(self, answers: dict[str, Answer]) -> None:
        """Never called in a pause, which cancels the round."""
        self._round = None
        survey = self._local.survey(answers)
        # A primary that is our twin, too: it has to tell us, and then this broker ends.
        primaries = [view for view in (*survey.views, *survey.twins) if self._would_follow(view)]
        self.survey = None if any(view.leads for view in primaries) else self._of_the_cluster(answers)
        if primaries:
            self._connect(max(primaries, key=lambda view: view.ballot).address)
        elif told := self._told(survey):
            self._connect(told)
        else:
            self._again()
        self._local.changed()

    def _of_the_cluster(self, answers: dict[str, Answer]) -> Survey | None:
        """None when somebody has just told of members who were not asked."""
        members = self._local.latest()
        if any(address not in answers for address in members):
            self._delay = FIRST_DELAY
            return None
        return self._local.survey({address: answers[address] for address in members})

    def _told(self, survey: Survey) -> str:
        """A primary that others follow and that we did not ask: it may have become a member after our list was made."""
        told = [view for view in survey.views if view.primary and view.primary not in survey.outcomes]
        best = max(told, key=lambda view: view.ballot, default=None)
        return best.primary if best is not None and best.primary != self._local.settings.address else ""

    # ---- an attempt to connect ------------------------------------------------------------------------------------

    def _connect(self, address: str) -> None:
        if self._local.disk.error:
            # It could not store what it is told.  If it came and went, the primary would wait for it for ever.
            self._again()
            return
        self._attempt += 1
        attempt = self._attempt
        self.stage = Stage.CONNECTING
        view = self._view()
        about: dict[str, object] = {**view.member.to_json(), "state": view.state.value, "epoch": view.epoch}
        timeout = self._local.settings.dead_after
        self._env.connect(address, {"qpid.ha-backup": about}, timeout, lambda end: self._connected(attempt, end))

    def _connected(self, attempt: int, end: Link | Answer) -> None:
        if attempt != self._attempt:
            if not isinstance(end, Answer):
                end.close()
            return
        if isinstance(end, Answer):
            self._not_connected(end)
            return
        self.stage = Stage.FOUND
        self._forget()
        self._found(end)
        self._local.changed()

    def _not_connected(self, answer: Answer) -> None:
        if self.hint:
            self._hint_attempts += 1
            if answer.outcome is not Outcome.ANSWERED or self._hint_attempts > HINT_ATTEMPTS:
                self.hint, self._delay = "", FIRST_DELAY
        if answer.error and self._is_news(answer.error):
            # Another backup that says so is the usual case; wrong credentials are not, and are said once.
            usual = answer.outcome is not Outcome.ANSWERED or "is a backup" in answer.error
            self._env.log("debug" if usual else "warning", f"not connected: {answer.error}")
        self._again()

    def _is_news(self, complaint: str) -> bool:
        news = complaint != self._complaint
        self._complaint = complaint
        return news

    # ---- the next attempt -----------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """What was answered is out of date."""
        self.survey, self.heard = None, []

    def _begin_again(self) -> None:
        """Whatever is under way is out of date."""
        self.stage = Stage.SEARCHING
        self._attempt += 1

    def _again(self, at_once: bool = False) -> None:
        """Try again after a delay that grows up to link-maintenance-interval."""
        attempt = self._attempt
        self.stage = Stage.SEARCHING
        delay = 0.0 if at_once else self._delay
        self._delay = min(self._delay * 1.5, self._local.settings.maintenance)
        self._env.after(delay, lambda: self._retry(attempt))

    def _retry(self, attempt: int) -> None:
        if attempt == self._attempt:
            self.search()
