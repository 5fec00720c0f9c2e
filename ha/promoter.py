"""One attempt to promote this broker: ask, decide, claim, decide, become primary (the rules are in `promotion.py`).

    ASKING ──refused──▶ done, nothing was disturbed
      └──▶ CLAIMING: we follow nobody and have voted for ourselves ──denied──▶ done, a backup again
              └──▶ primary

Both steps run in parallel over all brokers and end as soon as everyone who can answer has answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ha.environment import Answer, Json, Outcome
from ha.membership import InSync
from ha.promotion import Claim, ClaimRequest, Refuse, Survey, View, decide, decide_claims, fell_silent
from ha.survey import Round
from qpidd_py.errors import LinkError

if TYPE_CHECKING:
    from ha.node import Node


class Promoter:
    """Lives for one attempt; every caller that asks meanwhile gets its result."""

    def __init__(self, node: Node, force: bool, known: InSync | None) -> None:
        self._node = node
        self._known = known
        self._force = force
        self.replies: list[Callable[[Json], None]] = []
        self._survey = Survey((), {})

    def start(self) -> None:
        node = self._node
        node.env.event("promote_request", attrs={"force": self._force})
        node.ask_all(node.settings.promote_timeout, self._asked, self._is_primary)

    @staticmethod
    def _is_primary(answer: Answer) -> bool:
        try:
            return answer.outcome is Outcome.ANSWERED and View.from_json(answer.result).state.is_primary
        except LinkError:
            return False

    def _asked(self, answers: dict[str, Answer]) -> None:
        self._survey = Survey.of(self._node.id, answers)
        if isinstance(verdict := self._decide(), Refuse):
            self._end(verdict.text)
            return
        # Our position must stand still before it is claimed, so leave the old primary first and look again.
        self._node.pause_backup()
        verdict = self._decide()
        if isinstance(verdict, Refuse):
            self._node.resume_backup()
            self._end(verdict.text)
            return
        self._claim(verdict)

    def _decide(self) -> Refuse | Claim:
        node = self._node
        safety = node.safety
        return decide(node.view(), self._survey, safety.mode, safety.majority, self._force, self._known)

    def _claim(self, claim: Claim) -> None:
        node = self._node
        node.persist(epoch=claim.epoch, leader=node.id)
        request = ClaimRequest(claim.epoch, node.member, node.view().position, claim.base, self._force)
        answered = [address for address, outcome in self._survey.outcomes.items() if outcome is Outcome.ANSWERED]
        # The claim also goes to those that did not answer: a paused primary finds it when it wakes up.
        Round(
            node.env,
            node.others(),
            "ha.claim",
            request.to_json(),
            node.settings.promote_timeout,
            lambda answers: self._claimed(claim, answers),
            enough=lambda answer: answer.outcome is Outcome.ANSWERED and not answer.result.get("granted"),
            wait_for=answered,
        )

    def _claimed(self, claim: Claim, answers: dict[str, Answer]) -> None:
        node = self._node
        reason = decide_claims(claim, answers, node.id, node.safety.mode, node.safety.majority)
        if not reason and node.safety.probes and not self._force:
            reason = fell_silent(self._survey, answers)
        if not reason and node.persisted.ballot != (claim.epoch, node.id):
            reason = f"epoch {node.persisted.epoch} was granted to another broker meanwhile"
        if reason:
            node.resume_backup()
            self._end(f"{node.member} cannot be promoted: {reason}")
            return
        node.become_primary(claim)
        self._end("")

    def _end(self, refusal: str) -> None:
        node = self._node
        node.promoter = None
        if refusal:
            node.env.log("warning", refusal)
            node.env.event("promote_request", result="refused", reason=refusal)
        for reply in self.replies:
            reply({"ok": False, "error": refusal} if refusal else {"ok": True, "result": {}})
