"""The HA core, broken on purpose in ways that have lost messages elsewhere: the invariants must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ha import promoter
from ha.backup import Backup
from ha.losses import Losses
from ha.node import Node
from ha.peer import Peer
from ha.primary import Primary
from ha.promotion import Claim, Survey, View
from tests.simulator.process import BrokerProcess


@contextmanager
def _patched(owner: Any, **replacements: Any) -> Iterator[None]:
    old = {name: getattr(owner, name) for name in replacements}
    for name, value in replacements.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in old.items():
            setattr(owner, name, value)


def confirm_at_once() -> AbstractContextManager[None]:
    """Confirm before the backups have acknowledged."""

    def update_safe(self: Primary) -> None:
        self.engine.advance_safe(self.engine.position)

    return _patched(Primary, update_safe=update_safe)


def shrink_at_once() -> AbstractContextManager[None]:
    """Drop a lost backup without a look around, and without waiting for the record."""

    def lost(self: Losses, peer: Peer, silent: bool = False) -> None:
        self._remove([peer])

    def release(self: Primary) -> None:
        self._counting = [peer for peer in self._counting if not peer.removal]

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(Losses, lost=lost), _patched(Primary, _release_removed=release):
            yield

    return both()


def promote_unasked() -> AbstractContextManager[None]:
    """Promotion decides without asking anybody, and everybody grants."""

    def alone(me: View, survey: Survey, *arguments: Any, **options: Any) -> Claim:
        epoch = 1 + max([me.epoch, me.in_sync.epoch, *(view.epoch for view in survey.views)])
        return Claim(epoch, me.in_sync, (me.member,))

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(promoter, decide=alone), _patched(Node, claimed=_claimed_blindly):
            yield

    return both()


def _claimed_blindly(self: Node, claim: Any) -> Any:
    if claim.ballot > self.persisted.ballot:
        if isinstance(self.role, Primary):
            self.depose(claim.ballot, "a claim", claim.claimant.address)
        else:
            self.persist(epoch=claim.epoch, leader=claim.claimant.id)
            if isinstance(self.role, Backup) and self.promoter is None:
                self.role.follow(claim.claimant.address)
    return {"granted": True, "reason": "", "id": self.id, "epoch": self.epoch}


def union_on_rejoin() -> AbstractContextManager[None]:
    """A joining backup keeps what the primary does not have."""

    def keep(self: Backup, body: bytes) -> None:
        pass

    return _patched(Backup, _on_drop=keep)


def forget_votes() -> AbstractContextManager[None]:
    """A restart forgets epoch and in-sync set."""

    def persist(self: BrokerProcess, state: Any) -> None:
        pass

    return _patched(BrokerProcess, persist=persist)


def grant_and_follow_on() -> AbstractContextManager[None]:
    """Whoever grants a claim goes on acknowledging to the old primary."""

    def follow(self: Backup, address: str) -> None:
        self._hint = address

    return _patched(Backup, follow=follow)


def acknowledge_holes() -> AbstractContextManager[None]:
    """A backup counts as complete before the difference has arrived."""

    def begin(self: Primary, peer: Peer) -> None:
        _begin(self, peer)
        if peer.plan is not None:
            peer.plan._queues.clear()
            peer.plan._work = None

    _begin = Primary._begin
    return _patched(Primary, _begin=begin)


def demote_before_closing() -> AbstractContextManager[None]:
    """Clients are sent away only after the engine has given back what they held.  (It was so once.)"""

    def close_clients(self: BrokerProcess, code: int, text: str) -> None:
        self.after(0.0, lambda: _close_clients(self, code, text))

    _close_clients = BrokerProcess.close_clients
    return _patched(BrokerProcess, close_clients=close_clients)


def ignore_silence() -> AbstractContextManager[None]:
    """Who has answered the question need not answer the claim.  (It was so once.)"""
    return _patched(promoter, fell_silent=lambda survey, answers: "")


def expect_everything() -> AbstractContextManager[None]:
    """A new primary takes it that the expected backups hold all that it holds.  (It was so once.)"""

    def init(self: Primary, node: Any, expected: Any, positions: Any = None) -> None:
        old(self, node, expected := list(expected), {member.id: node.engine.position for member in expected})

    old = Primary.__init__
    return _patched(Primary, __init__=init)


MUTANTS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "confirm-at-once": confirm_at_once,
    "shrink-at-once": shrink_at_once,
    "promote-unasked": promote_unasked,
    "union-on-rejoin": union_on_rejoin,
    "forget-votes": forget_votes,
    "grant-and-follow-on": grant_and_follow_on,
    "acknowledge-holes": acknowledge_holes,
    "demote-before-closing": demote_before_closing,
    "ignore-silence": ignore_silence,
    "expect-everything": expect_everything,
}
