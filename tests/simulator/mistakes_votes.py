"""Mistakes about votes, claims and sets: what is asked, granted, written and remembered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from ha.backup.backup import Backup
from ha.backup.joining import Joining
from ha.model import safety
from ha.model.environment import Answer
from ha.model.membership import Member, Membership
from ha.model.protocol import Kind
from ha.model.safety import Safety
from ha.node import Node
from ha.primary.arrivals import Arrivals
from ha.primary.peer import Peer
from ha.primary.primary import Primary
from ha.promotion import promoter
from ha.promotion.claims import Claim, ClaimRequest, decide_claims
from ha.promotion.promoter import Promoter
from ha.registry import recorder as registry
from tests.simulator.mistakes_safety import patched
from tests.simulator.mistakes_twins import whole_by_id

# ---- what is written ---------------------------------------------------------------------------------------------


def grant_unwritten() -> AbstractContextManager[None]:
    """A claim is granted without being written to the disk: who is restarted grants an older one, or follows on."""

    def claimed(self: Node, claim: ClaimRequest) -> Any:
        with patched(type(self.local.env), persist=lambda self, state: None):
            return old(self, claim)

    old = Node.claimed
    return patched(Node, claimed=claimed)


def set_unwritten() -> AbstractContextManager[None]:
    """A backup keeps the set that it is told in memory only: a restart brings back an old one."""

    def membership(self: Backup, position: int, membership: Membership) -> None:
        with patched(type(self.local.env), persist=lambda self, state: None):
            old(self, position, membership)

    old = Backup.membership
    return patched(Backup, membership=membership)


def set_unheard() -> AbstractContextManager[None]:
    """A backup takes note of a set only if that concerns itself."""

    def membership(self: Backup, position: int, membership: Membership) -> None:
        known = self.local.persisted.in_sync
        if membership.added == self.local.id or (self.local.id in known) != (self.local.id in membership.in_sync):
            old(self, position, membership)

    old = Backup.membership
    return patched(Backup, membership=membership)


# ---- what is granted ---------------------------------------------------------------------------------------------


def vote_taken_back() -> AbstractContextManager[None]:
    """Promoted although its vote went to another broker meanwhile."""

    def claimed(self: Promoter, claim: Claim, answers: Mapping[str, Answer], exchanged: Any) -> None:
        local = self._local
        if not decide_claims(claim, answers, local.member, local.safety):
            local.persisted = replace(local.persisted, epoch=claim.epoch, leader=local.id)
            local.env.persist(local.persisted)
        old(self, claim, answers, exchanged)  # type: ignore[arg-type]

    old = Promoter._claimed
    return patched(Promoter, _claimed=claimed)


@contextmanager
def claim_unanswered() -> Iterator[None]:
    """A claim stands when no broker has denied it: few have granted it, and those that were heard before are silent."""

    def few(claim: Claim, answers: Mapping[str, Answer], me: Member, safety: Safety) -> str:
        return decide_claims(claim, answers, me, replace(safety, mode="manager"))

    with patched(promoter, decide_claims=few, fell_silent=lambda survey, answers: ""):
        yield


def registry_ignored() -> AbstractContextManager[None]:
    """A primary puts its set into force although the registry knows of a higher ballot."""
    return patched(registry, overtaken=lambda states, ballot: None)


def registry_unread() -> AbstractContextManager[None]:
    """What came into the registry while a claim was made is not looked at."""
    return patched(promoter, contradicted=lambda claim, own_id, exchanged: "")


# ---- majorities --------------------------------------------------------------------------------------------------


def confirm_below_majority() -> AbstractContextManager[None]:
    """A set that is no majority confirms, and may shrink to one."""
    yes = {"may_confirm": lambda self, in_sync: True, "may_shrink": lambda self, in_sync, lost: True}
    return patched(Safety, **yes)


def impatient_alone() -> AbstractContextManager[None]:
    """A primary that hears no other broker goes on at once."""
    return patched(Safety, patience=lambda self, survey, lost, in_sync: 0.0)


def unaware_accounts() -> AbstractContextManager[None]:
    """A broker that answers is accounted for, whatever it has heard of.  (It was so once.)"""
    return patched(safety, _unaware=lambda survey, id, in_sync, silent: False)


# ---- a higher ballot ---------------------------------------------------------------------------------------------


@contextmanager
def ignore_higher_ballots() -> Iterator[None]:
    """A primary that learns of a higher ballot goes on: from a survey, from a backup's hello, from the registry."""

    def hello(self: Arrivals, peer: Peer, fields: Any) -> None:
        mine = self._local.persisted
        above = (fields["epoch"], fields["leader"]) > mine.ballot
        old(self, peer, {**fields, "epoch": mine.epoch, "leader": mine.leader} if above else fields)

    old = Arrivals._hello
    with patched(Primary, learn=lambda self, survey: False), patched(Arrivals, _hello=hello):
        yield


# ---- who holds what ----------------------------------------------------------------------------------------------


@contextmanager
def whole_from_disk() -> Iterator[None]:
    """A broker that was restarted takes itself for whole, because its set says that it counts: of which run the set
    says so is not asked."""

    def start(self: Node) -> None:
        old(self)
        self.local.whole = self.local.id in self.local.persisted.in_sync

    old = Node.start
    with whole_by_id(), patched(Node, start=start):
        yield


@contextmanager
def trust_former_acks() -> Iterator[None]:
    """What a backup has acknowledged over an earlier link is not compared again when it comes back."""

    def take_place(self: Primary, peer: Peer, position: int) -> None:
        known = self.roster.find(peer.id)
        former[peer] = known.acked if known is not None and known.reported else 0
        old_place(self, peer, position)

    def begin(self: Arrivals, peer: Peer) -> None:
        old_begin(self, peer)
        if peer.plan is not None and former.pop(peer, 0):
            peer.plan._queues.clear()
            peer.plan._work = None

    former: dict[Peer, int] = {}
    old_place, old_begin = Primary.take_place, Arrivals.begin
    with patched(Primary, take_place=take_place), patched(Arrivals, begin=begin):
        yield


def wait_for_one() -> AbstractContextManager[None]:
    """A confirm waits for one of the backups that count, not for all of them."""

    def update_safe(self: Primary) -> None:
        acked = [peer.acked for peer in self.roster.counting]
        if self.roster.may_confirm and not self.frozen:
            self.engine.advance_safe(max(acked, default=self.engine.position))

    return patched(Primary, update_safe=update_safe)


@contextmanager
def count_while_linked() -> Iterator[None]:
    """A backup counts while it has a link, whatever the set says."""

    def closed(self: Primary, link: Any, reason: str, silent: bool = False) -> None:
        old(self, link, reason, silent)
        self.roster.counting = [peer for peer in self.roster.counting if peer.link is not None]
        self.update_safe()

    old = Primary.closed
    with patched(Primary, closed=closed, _check_invariants=lambda self: None):
        yield


def configuration_kept() -> AbstractContextManager[None]:
    """A backup that joins takes over messages, and not what was declared and deleted meanwhile."""

    def snapshot(self: Joining, body: bytes) -> None:
        if not self._local.configuration.replicated():
            old(self, body)

    old = Joining._on_snapshot
    return patched(Joining, _on_snapshot=snapshot)


def slices_skipped() -> AbstractContextManager[None]:
    """Every second slice of a difference is answered and not applied."""

    def on_slice(self: Joining, body: bytes) -> None:
        if self._slices % 2:
            self._slices += 1
            self.send(Kind.CREDIT, b"")
        else:
            old(self, body)

    old = Joining._on_slice
    return patched(Joining, _on_slice=on_slice)
