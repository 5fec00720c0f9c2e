"""Mistakes about two living brokers with one identity, and about one that has lost its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from ha.model.cluster import Cluster
from ha.model.environment import Answer, Json, Outcome
from ha.model.local_member import LocalMember
from ha.model.membership import InSync, Member
from ha.model.safety import Safety
from ha.model.view import Survey, View
from ha.node import Node
from ha.primary.primary import Primary
from ha.promotion import claims, promotion
from ha.promotion.case import Case
from ha.promotion.claims import Claim, ClaimRequest
from tests.simulator.mistakes_journal import led_is_forgotten
from tests.simulator.mistakes_safety import patched


def take_second_link() -> AbstractContextManager[None]:
    """The second link of an id takes the place of the first one, whichever lives.  (It was so once.)"""
    return patched(Primary, elsewhere=lambda self, peer, member: None)


def list_without_address() -> AbstractContextManager[None]:
    """A broker that does not know its address may be a member, though it cannot be asked.  (It was so once.)"""

    def is_broker(self: Cluster, address: str, in_sync: InSync | None = None) -> bool:
        return not address or old(self, address, in_sync)

    old = Cluster.is_broker
    return patched(Cluster, is_broker=is_broker)


@contextmanager
def trust_own_id() -> Iterator[None]:
    """Who has our id is taken for ourselves: its answer gives us its address, its claim is granted and not written
    down.  (It was so once.)"""

    def claimed(self: Node, claim: ClaimRequest) -> Json:
        if claim.claimant.id == self.local.id:
            return {"granted": True, "reason": "", "id": self.local.id, "epoch": self.local.epoch}
        return old_claimed(self, claim)

    def survey(self: Cluster, answers: Mapping[str, Answer]) -> Survey:
        local = self._local
        for address, answer in answers.items():
            if answer.result.get("id") == local.id:
                local.set_address(address)
        others = {address: each for address, each in answers.items() if each.result.get("id") != local.id}
        return Survey.of(local.id, others, local.instance)

    old_claimed = Node.claimed
    with patched(Node, claimed=claimed), patched(Cluster, survey=survey):
        yield


@contextmanager
def whole_by_id() -> Iterator[None]:
    """A broker is a whole member because its id is one, and no other run of it.  (It was so once.)"""
    mine = property(lambda self: False)
    with patched(InSync, lists=lambda self, broker: broker.id in self.ids), patched(Case, restored=mine):
        yield


@contextmanager
def expect_by_id() -> Iterator[None]:
    """A new primary expects every whole broker that has a member's id.  (It was so once.)  That a copy does not know
    which epochs it has led would show it, too."""

    def expected(me: View, survey: Survey, newest: InSync) -> tuple[Member, ...]:
        members = tuple(replace(member, instance="") for member in newest.members)
        return old_expected(me, survey, replace(newest, members=members))

    old_expected = promotion._expected
    with patched(promotion, _expected=expected), led_is_forgotten():
        yield


def lost_identity_votes() -> AbstractContextManager[None]:
    """A broker that has lost its disk votes at once under its new identity.  (It was so once.)"""
    return patched(LocalMember, look_for_namesake=lambda self, in_sync: None)


def lost_is_heard() -> AbstractContextManager[None]:
    """A broker that has forgotten what it knew counts as one that has answered (R2)."""
    silent = property(lambda self: [each for each, said in self.survey.outcomes.items() if said is Outcome.SILENT])
    return patched(Case, silent=silent)


def lost_denies() -> AbstractContextManager[None]:
    """A broker that has forgotten its vote refuses every promotion where no majority votes.  (It was so once.)"""

    def denial(answer: Answer, claim: Claim, safety: Safety) -> str:
        return old(answer, replace(claim, lost=frozenset()), safety)

    old = claims.denial
    return patched(claims, denial=denial)
