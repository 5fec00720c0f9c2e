"""The shrink rule: how a lost backup stops counting.

    suspect ──silence──▶ lost ──survey──▶ judged ──record──▶ removed ──record acknowledged──▶ forgotten
                          │ ▲───────────────┘ alive, or we are alone: look again
                          └──▶ back (it reconnected whole: it stays in the set)

Nothing is confirmed past what a lost backup has acknowledged until the smaller set is recorded, and it is recorded
only after a survey that *began after the loss* has found no broker with a higher ballot.  The survey starts at the
first suspicion (one interval of silence), so it has usually ended when the loss is certain (two intervals).

Some losses are certain at once: its host refuses the connection, or it has come back with empty memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ha.model.environment import Answer, Outcome
from ha.model.local_member import LocalMember
from ha.model.survey import Round
from ha.model.view import Survey
from ha.primary.peer import Peer


class Looker(Protocol):
    """Receives the results of surveys: the primary."""

    def learn(self, survey: Survey) -> bool:
        """True if another broker has a higher ballot and this role has ended."""
        ...

    def unfreeze(self) -> None:
        """No broker has a higher ballot."""
        ...


class Losses:
    """Backups that count and are not connected, and the surveys about them.

    Surveys overlap: one that is under way continues when another backup is lost.  If it were restarted, a broker that
    dies at each start would restart it again and again, and a silent backup would never be dropped.
    """

    def __init__(self, local: LocalMember, remove: Callable[[list[Peer]], None], looker: Looker) -> None:
        self._local = local
        self._remove = remove
        self._looker = looker
        self._lost: dict[str, Peer] = {}
        self._needed: dict[str, int] = {}
        """Id of a lost backup -> number of the first survey that may judge it."""
        self._rounds: dict[int, Round] = {}
        """Surveys under way, by number."""
        self._number = 0
        """Number of the survey that was begun last."""
        self._began = 0.0
        self._survey: Survey | None = None
        """The newest survey that has ended, and its number."""
        self._judged = 0
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        self._cancel()

    def suspect(self, peer: Peer) -> None:
        """A whole interval of silence: start a survey early, so that it has ended when the loss is certain."""
        self.expect(peer.pulse.heard + self._interval / 2)

    def expect(self, since: float) -> None:
        """A loss may be certain soon: have a survey that was begun at `since` or later."""
        if self._local.safety.probes and not self._rounds and self._began < since:
            self._look()

    def lost(self, peer: Peer, silent: bool = False, since: float = math.inf) -> None:
        """A counting backup is lost.  A loss by silence may use a survey that was begun before this call, and one for
        which that was expected: one begun at `since` or later."""
        if not self._local.safety.probes:
            self._remove([peer])
            return
        self._lost[peer.id] = peer
        self._local.cluster.refusals.alive(peer.member.address, peer.pulse.heard)
        fresh = self._began >= (peer.pulse.heard + self._interval / 2 if silent else since)
        self._needed[peer.id] = self._number if fresh else self._number + 1
        if not fresh:
            self._look()
        elif self._judged == self._number:
            self._judge()

    def back(self, id: str) -> None:
        """It reconnected whole before it was removed."""
        self._lost.pop(id, None)

    def watch(self) -> None:
        """Survey the others for a rival even if no backup is lost."""
        if not self._rounds:
            self._look()

    def resumed(self) -> None:
        """After a pause: discard old survey answers and restart the loss timers."""
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
        asked = self._local.cluster.ask_all(self._interval, partial(self._looked, self._number))
        self._rounds[self._number], self._began = asked, asked.started

    def _looked(self, number: int, answers: dict[str, Answer]) -> None:
        self._rounds.pop(number, None)
        if self._stopped:
            return
        survey = self._local.cluster.survey(answers)
        if self._looker.learn(survey) or number < self._judged:
            return
        self._survey, self._judged = survey, number
        self._looker.unfreeze()
        self._judge()

    def _judge(self) -> None:
        survey = self._survey
        lost = [peer for peer in self._lost.values() if self._needed[peer.id] <= self._judged]
        if not lost or survey is None:
            return
        self._note_spent(lost, survey)
        patience = self._local.safety.patience(survey, [peer.member for peer in lost], self._local.persisted.in_sync)
        gone = [peer for peer in lost if self._is_gone(peer, survey, patience)]
        if gone and self._local.may_shrink(peer.id for peer in gone):
            for peer in gone:
                del self._lost[peer.id]
            self._remove(gone)
        if self._lost:
            self._local.env.after(self._interval / 2, self._look_again)

    def _look_again(self) -> None:
        if not self._stopped and self._lost and not self._rounds:
            self._look()

    def _note_spent(self, lost: list[Peer], survey: Survey) -> None:
        """Those that say that they are not whole, and those that have ended without a journal, have nothing of what we
        cannot read."""
        for peer in lost:
            view, refused = survey.of_member(peer.member), survey.outcome(peer.member) is Outcome.REFUSED
            if (refused and not self._local.keeps) or (view is not None and not view.whole):
                self._local.spent.add(peer.id)

    def _is_gone(self, peer: Peer, survey: Survey, patience: float) -> bool:
        away = self._local.env.now() - peer.lost_at
        if survey.outcome(peer.member) is Outcome.REFUSED:
            return True
        if (view := survey.of_member(peer.member)) is not None:
            # It lives: give it time to reconnect, unless its memory is empty or it was dropped.
            late = peer.dropped or not view.whole or away > self._local.settings.dead_after
            return late and away >= patience
        return away >= patience
