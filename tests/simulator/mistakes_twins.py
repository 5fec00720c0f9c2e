"""Mistakes about two living brokers with one identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from ha import promoter
from ha.claims import Claim, ClaimRequest
from ha.environment import Answer, Json, Outcome
from ha.membership import HaState, InSync, Member
from ha.node import Node
from ha.primary import Primary
from ha.safety import Safety
from ha.view import Survey
from tests.simulator import process
from tests.simulator.mistakes_safety import patched


def take_second_link() -> AbstractContextManager[None]:
    """The second link of an id takes the place of the first one, whoever lives.  (It was so once.)"""
    return patched(Primary, elsewhere=lambda self, peer, member: None)


@contextmanager
def vote_by_answer() -> Iterator[None]:
    """Each answer is a vote, also the second one of an id; and a broker takes a claim under its id for its own."""

    def decide_claims(claim: Claim, answers: Mapping[str, Answer], me: Member, safety: Safety) -> str:
        """Counts what was granted, with the claimant."""
        denied = [each for each in answers.values() if each.outcome is Outcome.ANSWERED and not each.result["granted"]]
        granted = 1 + sum(bool(each.result.get("granted")) for each in answers.values())
        if denied:
            return str(denied[0].result.get("reason"))
        missing = safety.mode == "quorum" and granted < safety.majority(claim.base)
        return f"{granted} votes" if missing else ""

    with patched(promoter, decide_claims=decide_claims), trust_own_id():
        yield


@contextmanager
def trust_own_id() -> Iterator[None]:
    """Who has our id is taken for ourselves: its answer gives us its address, its claim is granted and not written
    down.  (It was so once.)"""

    def claimed(self: Node, claim: ClaimRequest) -> Json:
        if claim.claimant.id == self.id:
            return {"granted": True, "reason": "", "id": self.id, "epoch": self.epoch}
        return old_claimed(self, claim)

    def survey(self: Node, answers: Mapping[str, Answer]) -> Survey:
        for address, answer in answers.items():
            if answer.result.get("id") == self.id:
                self.set_address(address)
        others = {address: each for address, each in answers.items() if each.result.get("id") != self.id}
        return Survey.of(self.id, others, self.instance)

    old_claimed = Node.claimed
    with patched(Node, claimed=claimed, survey=survey):
        yield


def whole_by_id() -> AbstractContextManager[None]:
    """A broker is a whole member because its id is one.  (It was so once.)"""
    return patched(InSync, lists=lambda self, broker: broker.id in self.ids)


def new_identity_without_vote() -> AbstractContextManager[None]:
    """A new identity begins with an empty state."""
    return patched(process, with_new_identity=lambda state, id: HaState(id))
