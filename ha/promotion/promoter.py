"""One attempt to promote this broker: ask, decide, claim, decide, become primary (the rules are in `promotion.py`).

    ASKING ──refused──▶ done, nothing was disturbed
      └──▶ CLAIMING: we follow no primary and have voted for ourselves ──denied──▶ done, a backup again
              └──▶ primary

Both steps ask all brokers in parallel, and end when every broker that can answer has answered.  A broker that was
silent recently gets less time if a majority or the registry confirms the newest set and we are a whole member of it:
then its answer cannot change the decision.  (The safety of a promotion does not depend on these times.)

A registry is read *before* the brokers are asked.  Read later, it could hold the set of a broker that answered just
before that it is not primary, and we would take that broker for one that has lost its memory.  A backup that has lost
its primary has usually read the registry already, for its score, which saves the first reading.  In the second step our
ballot is written into the registry, which is then read again (the order matters: `recorder.py`): a change since the
first reading shows there, and the claim fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from ha.model.environment import Answer, Exchanged, Json, Outcome, StateNotStored
from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync
from ha.model.survey import Both, Round
from ha.model.view import Survey, View
from ha.promotion.case import ManagerRecord
from ha.promotion.claims import Claim, ClaimRequest, contradicted, decide_claims, denial, fell_silent, has_the_end
from ha.promotion.promotion import Refuse, decide
from qpidd_py.errors import LinkError


@dataclass(frozen=True)
class Wish:
    """Options of a promotion, as the manager asked for it."""

    force: bool = False
    """Promote even if confirmed messages may be lost."""
    behind: bool = False
    """Promote even if another broker holds more that was not confirmed."""
    takeover: bool = False
    """If another broker is primary, ask it to hand over."""
    known: InSync = field(default_factory=InSync)
    """The in-sync set that the manager has on record."""


NO_WISH: Final = Wish()
GRACE: Final = 0.2
"""Share of `ha-promote-timeout` for brokers that were silent recently."""


class Candidate(Protocol):
    """The broker to promote, as an attempt uses it."""

    @property
    def hushed(self) -> frozenset[str]:
        """Addresses that gave no answer recently."""
        ...

    def view(self) -> View: ...

    def recent_record(self) -> ManagerRecord | None:
        """A recent reading of the registry, if it was made since the primary was lost."""
        ...

    def pause_backup(self) -> None: ...

    def resume_backup(self) -> None: ...

    def become_primary(self, claim: Claim, forced: bool) -> str:
        """The claim stands.  Returns what may be lost; empty: nothing.  Raises StateNotStored: then nothing has
        changed."""
        ...

    def promotion_ended(self) -> None:
        """This attempt is over; another one may begin."""
        ...

    def search_again(self) -> None:
        """The score may be based on outdated facts."""
        ...

    def take_over(self, primary: View, wish: Wish, replies: list[Callable[[Json], None]]) -> None:
        """Ask this primary to hand over."""
        ...


class Promoter:
    """One attempt; callers that ask meanwhile get its result, too."""

    def __init__(self, local: LocalMember, candidate: Candidate, wish: Wish) -> None:
        self._local = local
        self._candidate = candidate
        self._wish = wish
        self._known = wish.known
        self._force = wish.force
        self._behind = wish.behind
        self.replies: list[Callable[[Json], None]] = []
        self._survey = Survey((), {})
        self._record = ManagerRecord(known=self._known)
        self._waited = False
        """We have waited for refused connections to count."""

    def start(self) -> None:
        local = self._local
        local.env.event("promote_request", attrs={"force": self._force})
        if not local.can_store():
            self._end(self._disk_fails())
        elif record := self._candidate.recent_record():
            self._record = replace(record, known=self._known)
            self._ask(local.cluster.latest(), {})
        else:
            self._exchange(None, self._looked_up)

    def _looked_up(self, exchanged: Exchanged | None) -> None:
        local = self._local
        if exchanged is not None and not exchanged.error:
            self._record = ManagerRecord.read(exchanged, self._known)
        elif exchanged is not None and not self._force:
            self._end(f"{local.member} cannot be promoted: the registry does not answer: {exchanged.error}")
            return
        self._ask(local.cluster.latest(), {})

    def _ask(self, addresses: list[str], before: dict[str, Answer]) -> None:
        local = self._local
        timeout, ask_all = local.settings.promote_timeout, local.cluster.ask_all
        asked = ask_all(timeout, lambda answers: self._asked({**before, **answers}), self._is_primary, addresses)
        local.env.after(GRACE * timeout, lambda: self._hurry(asked, before))

    def _hurry(self, asked: Round, before: dict[str, Answer]) -> None:
        """Do not wait again for brokers that were silent recently, if their answers cannot change the decision."""
        local = self._local
        answers = {**before, **asked.answers}
        silent = {address for address, answer in answers.items() if answer.outcome is Outcome.SILENT}
        if asked.over or not silent <= self._candidate.hushed:
            return
        survey = local.cluster.survey(_of_the_cluster(answers, local.cluster.latest()))
        verdict = self._decide(survey)
        proven = local.safety.mode == "quorum" or (isinstance(verdict, Claim) and self._record.covers(verdict.base))
        if isinstance(verdict, Claim) and verdict.whole and proven:
            asked.end()

    def _exchange(self, state: HaState | None, done: Callable[[Exchanged | None], None]) -> None:
        """`done` gets None if the manager has no registry."""
        settings = self._local.settings
        if settings.registry:
            self._local.env.exchange(state, settings.registry_timeout, done)
        else:
            done(None)

    @staticmethod
    def _is_primary(answer: Answer) -> bool:
        try:
            return answer.outcome is Outcome.ANSWERED and View.from_json(answer.result).leads
        except LinkError:
            return False

    def _asked(self, answers: dict[str, Answer]) -> None:
        local = self._local
        if untold := [address for address in local.cluster.latest() if address not in answers]:
            # Another broker knows a newer list: members added since ours may hold more, and they vote.
            self._ask(untold, answers)
            return
        self._survey = local.cluster.survey(_of_the_cluster(answers, local.cluster.latest()))
        if isinstance(verdict := self._decide(self._survey), Refuse):
            if wait := self._settling(answers):
                self._waited = True
                local.env.after(wait, lambda: self._ask(local.cluster.latest(), {}))
            else:
                self._end(verdict.text)
            return
        # Our position must not move once it is claimed, so leave the old primary first and decide again.
        self._candidate.pause_backup()
        # With all sets in what the link has brought: without them our position is not the end of what we hold.
        verdict = self._decide(self._survey) if local.can_store() else Refuse(self._disk_fails())
        if isinstance(verdict, Refuse):
            self._candidate.resume_backup()
            self._end(verdict.text)
            return
        self._claim(verdict)

    def _settling(self, answers: dict[str, Answer]) -> float:
        """Seconds to wait, once, if only hosts whose refusal does not count yet stand in the way (`refusals.py`)."""
        local = self._local
        wait = 0.0 if self._waited else local.cluster.refusals.settling(answers)
        if not wait:
            return 0.0
        survey = local.cluster.survey(_of_the_cluster(local.cluster.refusals.as_dead(answers), local.cluster.latest()))
        return wait if isinstance(self._decide(survey), Claim) else 0.0

    def _disk_fails(self) -> str:
        local = self._local
        return f"{local.member} cannot be promoted: its vote cannot be stored: {local.disk.error}"

    def _decide(self, survey: Survey) -> Refuse | Claim:
        local = self._local
        return decide(self._candidate.view(), survey, local.safety, self._force, self._record, self._behind)

    def _claim(self, claim: Claim) -> None:
        local = self._local
        try:
            vouched = {} if claim.old_copy else {"vouched": (claim.epoch, local.id, 0)}
            local.persist(epoch=claim.epoch, leader=local.id, **vouched)
        except StateNotStored as error:
            self._give_up(f"its vote cannot be stored: {error}")
            return
        position, flags = self._candidate.view().position, (self._force, claim.whole, self._behind)
        request = ClaimRequest(claim.epoch, local.member, position, claim.base, *flags)
        answered = [address for address, outcome in self._survey.outcomes.items() if outcome is Outcome.ANSWERED]
        both: Both[dict[str, Answer], Exchanged | None]
        both = Both(lambda answers, exchanged: self._claimed(claim, answers, exchanged))
        # Also claim from brokers that did not answer: a paused primary receives the claim when it resumes.
        Round(
            local.env,
            local.cluster.others(claim.base),
            "ha.claim",
            request.to_json(),
            local.settings.promote_timeout,
            both.first,
            enough=lambda answer: bool(denial(answer, claim, local.safety)),
            wait_for=answered,
            judge=local.cluster.judge,
        )
        # With the set that the claim is based on, so that our entry is never older than what we have read there.
        replaced = self._record.replaced(claim.base)
        self._exchange(local.persisted.entry(claim.base, replaced), both.second)

    def _claimed(self, claim: Claim, answers: dict[str, Answer], exchanged: Exchanged | None) -> None:
        local = self._local
        reason = decide_claims(claim, answers, local.member, local.safety)
        if not reason and local.safety.probes and not self._force:
            reason = self._denied(claim, answers, exchanged)
        if not reason and local.persisted.ballot != (claim.epoch, local.id):
            reason = f"epoch {local.persisted.epoch} was granted to another broker meanwhile"
        if not reason and claim.whole and local.hole:
            reason = "messages that it holds cannot be read back"
        if reason:
            self._give_up(reason)
            return
        try:
            complete = has_the_end(claim, answers.values(), local.member, self._candidate.view().position)
            warning = self._candidate.become_primary(replace(claim, complete=complete), self._force)
        except StateNotStored as error:
            self._give_up(f"its in-sync set cannot be stored: {error}")
            return
        self._end("", warning)

    def _give_up(self, reason: str) -> None:
        """The claim has failed after we left the primary, and others may have granted: search for a primary again."""
        self._candidate.resume_backup()
        self._end(f"{self._local.member} cannot be promoted: {reason}")

    def _denied(self, claim: Claim, answers: dict[str, Answer], exchanged: Exchanged | None) -> str:
        """Why the claim fails; empty if it stands.

        Checks that no set without us came into force between the two steps.  The registry shows that for certain;
        without one, every broker that may have acknowledged a newer set must answer.  With `quorum` the granting
        majority shows it: a set that it does not know cannot confirm any more.  (So a broker that answers questions but
        no claims, because its disk hangs, does not stop every promotion.)  A claimant that is not whole needs every
        answer: a broker that was not primary when it was asked may have become primary."""
        reason = "" if exchanged is None else contradicted(claim, self._local.id, exchanged)
        known = exchanged is not None or self._local.safety.mode == "quorum"
        if not reason and not (known and claim.whole):
            reason = fell_silent(self._survey, answers)
        return reason

    def _end(self, refusal: str, warning: str = "") -> None:
        local = self._local
        self._candidate.promotion_ended()
        primary = next((view for view in self._survey.views if view.leads), None)
        if refusal and primary is not None and self._wish.takeover and not local.stopped:
            self._candidate.take_over(primary, self._wish, self.replies)
            return
        if refusal:
            local.env.log("warning", refusal)
            local.env.event("promote_request", result="refused", reason=refusal)
            self._candidate.search_again()
        result = {"warning": warning} if warning else {}
        for reply in self.replies:
            reply({"ok": False, "error": refusal} if refusal else {"ok": True, "result": result})


def _of_the_cluster(answers: dict[str, Answer], members: list[str]) -> dict[str, Answer]:
    """The answers without silent addresses that are no longer members'."""
    return {
        address: answer
        for address, answer in answers.items()
        if address in members or answer.outcome is Outcome.ANSWERED
    }
