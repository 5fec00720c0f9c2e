"""The shrink rule: how a backup that was lost stops to count.

    suspect ──silence──▶ lost ──survey──▶ judged ──record──▶ removed ──record acknowledged──▶ forgotten
                          │ ▲───────────────┘ alive, or we are alone: look again
                          └──▶ back (it reconnected whole: it stays in the set)

Nothing is confirmed past what a lost backup has acknowledged until the smaller set is recorded, and it is recorded
only after a survey that *began after the loss* has found no broker with a higher ballot.  The survey starts at the
first suspicion (one interval of silence), so it is mostly over when the loss is certain (two intervals).

Certain losses need no second look: its host says that nobody listens, or it has come back empty-handed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ha.environment import Answer, Outcome
from ha.model.local_member import LocalMember
from ha.model.survey import Round
from ha.model.view import Survey
from ha.primary.peer import Peer


class Looker(Protocol):
    """Who is told what a survey has found: the primary."""

    def learn(self, survey: Survey) -> bool:
        """True: we have been overtaken, and the role has ended."""
        ...

    def unfreeze(self) -> None:
        """There is no rival."""
        ...


class Losses:
    """Backups that count and are not connected, and what is being done about each.

    Surveys overlap: one that is under way goes on when another backup is lost.  If it were begun anew, a backup that
    is lost again and again (a broker that dies at each start) would keep the set from ever losing a silent one.
    """

    def __init__(self, local: LocalMember, remove: Callable[[list[Peer]], None], looker: Looker) -> None:
        self._local = local
        self._remove = remove
        self._looker = looker
        self._lost: dict[str, Peer] = {}
        self._needed: dict[str, int] = {}
        """By id of a lost backup: the first survey that says something about it, by its number."""
        self._rounds: dict[int, Round] = {}
        """Under way, by number."""
        self._number = 0
        """Of the survey that was begun last."""
        self._began = 0.0
        self._survey: Survey | None = None
        """The newest that has ended, and its number."""
        self._judged = 0
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        self._cancel()

    def suspect(self, peer: Peer) -> None:
        """A whole interval of silence: begin to look around, so as to be ready if it becomes certain."""
        if self._local.safety.probes and not self._rounds and self._began < peer.pulse.heard + self._interval / 2:
            self._look()

    def lost(self, peer: Peer, silent: bool = False) -> None:
        """It counts, and it is gone.  Only a loss by silence can be older than a survey that is at hand."""
        if not self._local.safety.probes:
            self._remove([peer])
            return
        self._lost[peer.id] = peer
        fresh = silent and self._began >= peer.pulse.heard + self._interval / 2
        self._needed[peer.id] = self._number if fresh else self._number + 1
        if not fresh:
            self._look()
        elif self._judged == self._number:
            self._judge()

    def back(self, id: str) -> None:
        """It has reconnected whole before it was removed."""
        self._lost.pop(id, None)

    def watch(self) -> None:
        """Look for a rival even when nobody is lost."""
        if not self._rounds:
            self._look()

    def resumed(self) -> None:
        """We were paused: what a survey said before that is worth nothing, and nor is the time that has passed."""
        for peer in self._lost.values():
            peer.lost_at = self._local.env.now()
            self._needed[peer.id] = self._number + 1
        self._cancel()
        self._look()

    @property
    def _interval(self) -> float:
        return self._local.settings.heartbeat

    def _cancel(self) -> None:
        for asked in self._rounds.values():
            asked.cancel()
        self._rounds.clear()

    def _look(self) -> None:
        self._number += 1
        asked = self._local.ask_all(self._interval, partial(self._looked, self._number))
        self._rounds[self._number], self._began = asked, asked.started

    def _looked(self, number: int, answers: dict[str, Answer]) -> None:
        self._rounds.pop(number, None)
        if self._stopped:
            return
        survey = self._local.survey(answers)
        if self._looker.learn(survey) or number < self._judged:
            return
        self._survey, self._judged = survey, number
        self._looker.unfreeze()
        self._judge()

    def _judge(self) -> None:
        survey, safety = self._survey, self._local.safety
        lost = [peer for peer in self._lost.values() if self._needed[peer.id] <= self._judged]
        if not lost or survey is None:
            return
        patience = safety.patience(survey, [peer.member for peer in lost])
        gone = [peer for peer in lost if self._is_gone(peer, survey, patience)]
        if gone and safety.may_shrink(self._local.persisted.in_sync, [peer.id for peer in gone]):
            for peer in gone:
                del self._lost[peer.id]
            self._remove(gone)
        if self._lost:
            self._local.env.after(self._interval / 2, self._look_again)

    def _look_again(self) -> None:
        if not self._stopped and self._lost and not self._rounds:
            self._look()

    def _is_gone(self, peer: Peer, survey: Survey, patience: float) -> bool:
        away = self._local.env.now() - peer.lost_at
        if survey.outcome(peer.member) is Outcome.REFUSED:
            return True
        view = survey.of_member(peer.member)
        if view is not None:
            # It lives: give it the time to come back by itself, unless it has nothing to come back with or was dropped.
            return peer.dropped or not view.whole or away > self._local.settings.dead_after
        return away >= patience
