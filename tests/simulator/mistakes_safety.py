"""Mistakes about who counts and who may be promoted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from ha.backup.backup import Backup
from ha.model import settings
from ha.model.difference import Origin
from ha.model.environment import Exchanged
from ha.model.membership import HaState
from ha.model.position import epoch_of
from ha.model.safety import Safety
from ha.model.view import Survey, View
from ha.node import Node
from ha.primary.losses import Losses
from ha.primary.peer import Peer
from ha.primary.primary import Primary
from ha.primary.relocation import Relocation
from ha.primary.roster import Roster
from ha.promotion import promoter
from ha.promotion.claims import Claim
from ha.registry.recorder import Again, Recorder
from tests.simulator.registry import Registry


@contextmanager
def patched(owner: Any, **replacements: Any) -> Iterator[None]:
    """These attributes are others meanwhile."""
    old = {name: getattr(owner, name) for name in replacements}
    for name, value in replacements.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in old.items():
            setattr(owner, name, value)


def start_with_three() -> AbstractContextManager[None]:
    """Two members of `quorum` are what a removal leaves, but no broker starts with them."""

    def too_few(mode: str, brokers: Collection[object]) -> str:
        return "expected three or more" if mode == "quorum" and len(brokers) < 3 else ""

    return patched(settings, too_few=too_few)


def confirm_at_once() -> AbstractContextManager[None]:
    """Confirm before the backups have acknowledged."""

    def update_safe(self: Primary) -> None:
        self.engine.advance_safe(self.engine.position)

    return patched(Primary, update_safe=update_safe)


@contextmanager
def shrink_at_once() -> Iterator[None]:
    """Drop a lost backup without a look around, and without waiting for the record."""

    def lost(self: Losses, peer: Peer, silent: bool = False) -> None:
        self._remove([peer])

    with patched(Losses, lost=lost), forget_removed():
        yield


def forget_removed() -> AbstractContextManager[None]:
    """A removed backup stops to count before the remaining ones have acknowledged its removal."""

    def release(self: Roster) -> None:
        self.counting = [peer for peer in self.counting if not peer.removal]

    return patched(Roster, release=release)


@contextmanager
def list_without_counting() -> Iterator[None]:
    """The set grows, and confirms do not wait for the new member."""

    def place(self: Roster, peer: Peer) -> None:
        peer.removal = 0
        self.counting = [other for other in self.counting if other.id != peer.id or other.removal]

    with patched(Roster, _place=place), patched(Primary, _check_invariants=lambda self: None):
        yield


@contextmanager
def promote_unasked() -> Iterator[None]:
    """Promotion decides without asking anybody, and everybody grants."""

    def alone(me: View, survey: Survey, *arguments: Any, **options: Any) -> Claim:
        epoch = 1 + max([me.epoch, me.in_sync.epoch, *(view.epoch for view in survey.views)])
        return Claim(epoch, me.in_sync, (me.member,))

    with patched(promoter, decide=alone), patched(Node, claimed=_claimed_blindly):
        yield


def _claimed_blindly(self: Node, claim: Any) -> Any:
    if claim.ballot > self.local.persisted.ballot:
        if isinstance(self.role, Primary):
            self.depose(claim.ballot, "a claim", claim.claimant.address)
        else:
            self.local.persist(epoch=claim.epoch, leader=claim.claimant.id)
            if isinstance(self.role, Backup) and self.promoter is None:
                self.role.follow(claim.claimant.address)
    return {"granted": True, "reason": "", "id": self.local.id, "epoch": self.local.epoch}


def grant_and_follow_on() -> AbstractContextManager[None]:
    """A broker that grants a claim goes on acknowledging to the old primary."""

    def follow(self: Backup, address: str) -> None:
        self.expect(address)

    return patched(Backup, follow=follow)


def ignore_silence() -> AbstractContextManager[None]:
    """Who has answered the question need not answer the claim.  (It was so once.)"""
    return patched(promoter, fell_silent=lambda survey, answers: "")


def expect_everything() -> AbstractContextManager[None]:
    """A new primary takes it that the expected backups hold all that it holds.  (It was so once.)"""

    def begin(self: Roster, claim: Claim, base: int) -> None:
        origin = self._local.lineage.get(epoch_of(base), Origin(""))
        old(self, replace(claim, positions=dict.fromkeys(self.expected, (base, origin.leader))), base)

    old = Roster.begin
    return patched(Roster, begin=begin)


def confirm_before_record() -> AbstractContextManager[None]:
    """A smaller set is in force before the registry has it."""

    def exchange(self: Recorder) -> None:
        change, self._change = self._change, None
        if change is None or self._stopped:
            return
        state = HaState(self._local.id, *self._local.persisted.ballot, self._in_sync)
        self._local.env.exchange(state, self._local.settings.registry_timeout, self._watched)
        self._local.persist(in_sync=self._in_sync)
        if not isinstance(change, Again):
            self._owner.in_force(change, self._in_sync)
        self._busy = False
        self._next()

    return patched(Recorder, _exchange=exchange)


def read_before_write() -> AbstractContextManager[None]:
    """The registry's entries are read, and then ours is written."""

    def exchange(
        self: Registry, process: Any, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]
    ) -> None:
        def was_read(end: Exchanged) -> None:
            if state is None or end.error:
                done(end)
            else:
                old(self, process, state, timeout, lambda written: done(Exchanged(end.states, written.error)))

        old(self, process, None, timeout, was_read)

    old = Registry.exchange
    return patched(Registry, exchange=exchange)


@contextmanager
def relocate_unprepared() -> Iterator[None]:
    """The primary steps down without waiting for its clients, or for the target."""
    with patched(Relocation, _quiet=lambda self: True), patched(Relocation, _drained=lambda self: True):
        yield


def count_by_old_list() -> AbstractContextManager[None]:
    """After a change of the members the majority is that of the list in the configuration."""
    return patched(Safety, voters=lambda self, in_sync: self.brokers)
