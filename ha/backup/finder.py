"""Finds the primary for a backup, from a survey or from a hint, and opens a link to it.

    SEARCHING ──a survey or a hint names one──▶ CONNECTING ──link open──▶ FOUND
        ▲                                           │                       │
        └── no, or no answer: after a delay ────────┘                       │
        └── the link is lost (after a delay), or a claim was granted ───────┘

A *hint* is the address of the next primary: a claimant that has our grant, or the target of our hand-over.  It is tried
instead of a survey, also of one that is under way, which would wait for brokers that are dead; and forgotten when there
is no answer, when it has not become primary within `ha-promote-timeout`, when our disk fails, or when a primary has
welcomed or refused us.

Invariants: at most one survey or one attempt to connect is under way; results of an earlier one, known by its number
(`_attempt`), are dropped, and a link of it is closed.  `found` is called only in CONNECTING, and never in a pause.
Who may call: the backup that owns it.  In FOUND it is idle until the link has ended (`lost`, `follow` or `pause`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

from ha.model.environment import Answer, Link, Outcome
from ha.model.local_member import LocalMember
from ha.model.status import RECOVERING_JOURNAL
from ha.model.survey import Round
from ha.model.view import Survey, View
from qpidd_py.errors import LinkError

FIRST_DELAY: Final = 0.004
"""Seconds before a second attempt; a claimant becomes primary some milliseconds after our grant."""
HINT_DELAY: Final = 0.025
"""Most seconds between two attempts at the address of a hint: clients wait for us meanwhile."""

USUAL: Final = ("is a backup", RECOVERING_JOURNAL)
"""In refusals that are worth no warning."""


class Stage(Enum):
    """Stage of the search."""

    SEARCHING = "searching"
    CONNECTING = "connecting"
    FOUND = "found"


class Finder:
    """The search of one backup; `found` gets each link that is opened."""

    def __init__(self, local: LocalMember, found: Callable[[Link], None], view: Callable[[], View]) -> None:
        """`view` returns the backup's own view."""
        self._local = local
        self._env = local.env
        self._found = found
        self._view = view
        self.stage = Stage.SEARCHING
        self.hint = ""
        """Address that is tried first; empty if there is none."""
        self.survey: Survey | None = None
        """The last survey, if it found no primary: answers of the brokers that a promotion would ask."""
        self.heard: list[View] = []
        """Ids of the brokers that have answered in the survey under way."""
        self._hint_ends = 0.0
        """When it is forgotten.  A claim waits that long for the grants of others."""
        self._attempt = 0
        self._delay = FIRST_DELAY
        self._round: Round | None = None
        self._paused = False
        self._complaint = ""
        """The last logged reason why we were not admitted."""

    # ---- calls of the backup --------------------------------------------------------------------------------------

    def search(self) -> None:
        """Start the search unless it is under way."""
        if self._paused or self.stage is Stage.FOUND or self._round is not None:
            return
        if self.stage is Stage.CONNECTING and not self.hint:
            return
        if self.hint:
            self._connect(self.hint)
        else:
            self._ask()

    def pause(self) -> None:
        """Cancel what is under way."""
        self._paused = True
        self._begin_again()
        self._drop_survey()

    def resume(self) -> None:
        self._paused = False
        self.search()

    def follow(self, address: str) -> None:
        """Connect to `address` at once."""
        self._begin_again()
        self._drop_survey()
        self.expect(address)
        self._delay = FIRST_DELAY
        self._forget()
        self.search()

    def expect(self, address: str) -> None:
        """Try `address` first."""
        self.hint = address
        self._hint_ends = self._env.now() + self._local.settings.promote_timeout

    def welcomed(self) -> None:
        """The primary welcomed us: earlier complaints are out of date."""
        self.hint = ""

    def refused(self, reason: str) -> None:
        """The primary refused us, as it will at every attempt: log the reason once."""
        if self._is_news(reason):
            self._env.log("error", f"the primary refuses us: {reason}")
        self.hint = ""

    def admitted(self) -> None:
        """The primary sends its log: reset the delay, so that a lost link is replaced soon."""
        self._delay = FIRST_DELAY

    def lost(self) -> None:
        """The link has ended.  If it had been admitted, survey at once: a manager needs the scores soon."""
        self._attempt += 1
        self._again(at_once=self._delay == FIRST_DELAY)
        self._local.changed()

    # ---- the survey -----------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        self._begin_again()
        self.heard = []
        attempt, settings = self._attempt, self._local.settings
        timeout = min(settings.heartbeat, settings.maintenance)
        enough = partial(self._answered, attempt)
        self._round = self._local.cluster.ask_all(timeout, self._surveyed, enough, self._local.cluster.everybody())

    def _answered(self, attempt: int, answer: Answer) -> bool:
        """One answer.  True if it comes from the primary."""
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
        # The answer that tells us our address may still come: without it the primary refuses us.
        return bool(local.settings.address) and self._would_follow(view)

    def _would_follow(self, view: View) -> bool:
        local = self._local
        known, address = view.ballot >= local.persisted.ballot, local.settings.address
        # Without an address also to be refused: a copy of a member's data directory then ends, with the reason.
        return view.state.is_primary and known and (not address or local.cluster.is_broker(address, view.in_sync))

    def _surveyed(self, answers: dict[str, Answer]) -> None:
        """Never called in a pause, which cancels the survey."""
        self._round = None
        survey = self._local.cluster.survey(answers)
        # Also to a primary that is our twin: it refuses us, and then this broker ends.
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
        """None if an answer names members that were not asked."""
        cluster = self._local.cluster
        members = cluster.latest()
        if any(address not in answers for address in members):
            self._delay = FIRST_DELAY
            return None
        # A promotion waits until the refusals of hosts count (`refusals.py`), so the score and the advice need not.
        return cluster.survey(cluster.refusals.as_dead({address: answers[address] for address in members}))

    def _told(self, survey: Survey) -> str:
        """Address of a primary that others follow and that we did not ask: it may have joined after our list was
        made."""
        told = [view for view in survey.views if view.primary and view.primary not in survey.outcomes]
        best = max(told, key=lambda view: view.ballot, default=None)
        return best.primary if best is not None and best.primary != self._local.settings.address else ""

    # ---- an attempt to connect ------------------------------------------------------------------------------------

    def _connect(self, address: str) -> None:
        if self._local.disk.error:
            # A broker that cannot store its state must not connect: repeated links would make the primary wait for it.
            self.hint = ""  # it is of the moment: kept until the disk is mended, it would be tried first, slowly
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
        if self.hint and (answer.outcome is not Outcome.ANSWERED or self._env.now() >= self._hint_ends):
            self.hint, self._delay = "", FIRST_DELAY
        if answer.error and self._is_news(answer.error):
            # A refusal by a backup, or by a broker that has just started, is normal.  Wrong credentials are not.
            usual = answer.outcome is not Outcome.ANSWERED or any(word in answer.error for word in USUAL)
            self._env.log("debug" if usual else "warning", f"not connected: {answer.error}")
        self._again()

    def _is_news(self, complaint: str) -> bool:
        news = complaint != self._complaint
        self._complaint = complaint
        return news

    # ---- the next attempt -----------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Discard the answers: they are out of date."""
        self.survey, self.heard = None, []

    def _begin_again(self) -> None:
        """Discard what is under way."""
        self.stage = Stage.SEARCHING
        self._attempt += 1

    def _drop_survey(self) -> None:
        if self._round:
            self._round.cancel()
            self._round = None

    def _again(self, at_once: bool = False) -> None:
        """Try again after a delay that grows up to link-maintenance-interval."""
        attempt = self._attempt
        self.stage = Stage.SEARCHING
        delay = 0.0 if at_once else self._delay
        self._delay = min(self._delay * 1.5, HINT_DELAY if self.hint else self._local.settings.maintenance)
        self._env.after(delay, lambda: self._retry(attempt))

    def _retry(self, attempt: int) -> None:
        if attempt == self._attempt:
            self.search()
