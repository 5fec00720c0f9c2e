"""The rules, broken on purpose: each a small patch of the shipped code, with bounds within which it is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ha import node
from ha.model.membership import InSync
from ha.model.position import FARTHEST
from ha.model.safety import Safety
from ha.model.view import View
from ha.node import Node
from ha.primary.changes import Change
from ha.primary.peer import Peer, Phase
from ha.primary.roster import Roster
from ha.promotion.case import Case, ManagerRecord
from ha.promotion.claims import Claim, ClaimRequest, grant
from ha.promotion.promoter import Promoter
from ha.registry.recorder import Recorder
from tests.model import calls, host, leading, promoting, state, steps
from tests.model.bounds import Bounds
from tests.model.calls import Cluster, dead, put
from tests.model.spaces import LISTED
from tests.model.state import EMPTY, Exchange, Left, World, ha_state, in_sync, member, request_of
from tests.simulator.mistakes_safety import (
    confirm_at_once,
    forget_removed,
    grant_and_follow_on,
    list_without_counting,
    patched,
)
from tests.simulator.mistakes_twins import lost_identity_votes


@dataclass(frozen=True)
class Mistake:
    """One of them, and where it shows."""

    apply: Callable[[], AbstractContextManager[None]]
    bounds: Bounds


def grant_unwritten() -> AbstractContextManager[None]:
    """A claim is granted without being written to disk."""

    def claimed(self: Any, claim: ClaimRequest) -> Any:
        disk = self.local.env.disk
        answer = old(self, claim)
        self.local.env.disk = disk
        return answer

    old = Node.claimed
    return patched(Node, claimed=claimed)


def promoted_without_own_vote() -> AbstractContextManager[None]:
    """Promoted although its vote went to another meanwhile: neither of the two checks is made."""

    def claimed(self: Any, claim: Claim, *answers: Any) -> None:
        vote = self._local.persisted
        if vote.ballot > (claim.epoch, vote.id):
            self._local.persisted = replace(vote, epoch=claim.epoch, leader=vote.id)
        old(self, claim, *answers)
        if vote.ballot > (claim.epoch, vote.id):
            self._local.persisted = replace(self._local.persisted, epoch=vote.epoch, leader=vote.leader)
            self._local.env.disk = self._local.persisted

    old = Promoter._claimed
    return patched(Promoter, _claimed=claimed)


def replaced_ignored() -> AbstractContextManager[None]:
    """With a registry only the members of the set on record are asked whether they hold more.  (It was so once.)"""
    return patched(ManagerRecord, replaced=lambda self, newest: ())


def settled_at_once() -> AbstractContextManager[None]:
    """Registry: a claim is written without the holders that the set on record replaces."""

    def exchange(self: Any, state: Any, done: Any) -> None:
        old(self, state and replace(state, replaced=()), done)

    old = Promoter._exchange
    return patched(Promoter, _exchange=exchange)


def refusal_is_death() -> AbstractContextManager[None]:
    """A broker whose host refuses a connection is taken for dead.  (It was so once.)"""
    return patched(Case, may_live=lambda self, member: False)


def confirm_below_majority() -> AbstractContextManager[None]:
    """The set may shrink, and is confirmed under, below a majority."""
    return patched(Safety, may_shrink=lambda self, in_sync, lost: True, may_confirm=lambda self, in_sync: True)


def base_not_compared() -> AbstractContextManager[None]:
    """A claim is granted although a newer in-sync set is known; of a broker that the manager wants though it is behind
    (else the granter's position would deny it)."""

    def blind(me: View, claim: ClaimRequest) -> str:
        return grant(me, replace(claim, base=replace(claim.base, epoch=FARTHEST), behind=True))

    return patched(node, grant=blind)


def known_ballot_is_a_grant() -> AbstractContextManager[None]:
    """A claim is granted because its ballot is known already.  (It was so once.)"""

    def blind(me: View, claim: ClaimRequest) -> str:
        return "" if claim.ballot == me.ballot else grant(me, claim)

    return patched(node, grant=blind)


def confirm_before_record() -> AbstractContextManager[None]:
    """Registry: a smaller set is in force before the registry has it."""

    def exchange(self: Any) -> None:
        change, self._change = self._change, None
        self._local.env.exchange(replace(self._local.persisted, in_sync=self._in_sync), 1.0, lambda end: None)
        self._local.persist(in_sync=self._in_sync)
        self._owner.in_force(change, self._in_sync)
        self._busy = False
        self._next()

    return patched(Recorder, _exchange=exchange)


@contextmanager
def listed_unaware() -> Iterator[None]:
    """Registry: a backup is listed again before it knows of its removal.  (It was so once.)"""

    def larger(self: Any, peer: Peer, in_sync: InSync) -> InSync | None:
        gone = peer.link is None or peer.phase is not Phase.COMPLETE
        return None if gone else in_sync.grow(peer.member)

    with patched(Roster, _larger=larger):
        yield


def read_before_write() -> AbstractContextManager[None]:
    """Registry: the entries are read, and then ours is written."""

    def turned(world: World, i: int, name: str, exchange: Exchange) -> Any:
        if exchange.step == "asked":
            yield ("the registry is read for", name), world, exchange._replace(step="written", states=world.registry)
        elif exchange.step == "written":
            registry = (*world.registry[:i], exchange.entry, *world.registry[i + 1 :])
            yield (
                ("the registry takes the entry of", name),
                world._replace(registry=registry),
                exchange._replace(step="read"),
            )

    @contextmanager
    def both() -> Iterator[None]:
        with patched(leading, registry_steps=turned), patched(promoting, registry_steps=turned):
            yield

    return both()


def changes_unwaited() -> AbstractContextManager[None]:
    """The members are changed again though the change before is not safe: majorities of the lists need not meet."""

    def in_force(self: Any, change: Change, in_sync: InSync) -> None:
        old(self, change, in_sync)
        self.steady = 0

    old = Roster.in_force
    return patched(Roster, in_force=in_force)


def half_is_a_majority() -> AbstractContextManager[None]:
    """Of four brokers two are a majority.  Of three all is right, until another one enters."""
    return patched(Safety, majority=lambda self, in_sync: (len(self.voters(in_sync)) + 1) // 2)


def votes_on() -> AbstractContextManager[None]:
    """A broker whose disk is lost votes on under its old identity."""

    def replaced(cluster: Cluster, world: World, i: int) -> World:
        return put(world, i, dead(world.brokers[i]._replace(disk=EMPTY)))

    return patched(steps, replaced=replaced)


@contextmanager
def at_the_old_address() -> Iterator[None]:
    """A broker whose disk is lost comes back with another identity at the old address, which stays on the list: it is
    not removed.  It abstains until a primary has listed it, and that is not enough (README, section 8)."""

    def replaced(cluster: Cluster, world: World, i: int) -> World | None:
        return old(cluster, world, i) if cluster.names[i] == "c" else None

    old = steps.replaced
    with _one_address("cd"), patched(steps, replaced=replaced):
        yield


@contextmanager
def lost_votes() -> Iterator[None]:
    """The same, and it votes at once.  (It was so once.)"""
    with at_the_old_address(), lost_identity_votes():
        yield


@contextmanager
def _one_address(ids: str) -> Iterator[None]:
    """These two brokers have the address of the first."""

    def one(id: str) -> str:
        return ids[0].upper() if id in ids else id.upper()

    known = member, in_sync, ha_state, request_of
    with ExitStack() as stack:
        for module in (state, calls, host, promoting):
            stack.enter_context(patched(module, address_of=one))
        for remembered in known:
            remembered.cache_clear()
            stack.callback(remembered.cache_clear)
        yield


def relied_for_ever() -> AbstractContextManager[None]:
    """A primary that is cut off names the set before a removal, although it may have confirmed without that backup."""

    def release(self: Any) -> None:
        former = self._former
        old(self)
        self._former = former

    old = Roster.release
    return patched(Roster, release=release)


SMALL = Left(publishes=1, claims=1)
SHRINK = Left(publishes=1, claims=1, losses=1)
TWO = Left(publishes=1, claims=2)
CRASH = Left(publishes=1, claims=1, crashes=1, losses=1)
TWICE = Left(publishes=1, claims=2, crashes=1, losses=1)
VOTED = (
    "claims epoch 2 c having heard b",
    "grants b c's claim",
    "ends its claim c",
    "crash b",
    "restart b",
    "connects to b a",
)
DROPPED = ("publish at a", "applies b message", "hears a b", "gives up a b", "the registry takes the entry of a")
DROPPED_ONE = ("publish at a", "gives up a b")
FORGOTTEN = ("claims epoch 2 b having heard c", "grants c b's claim", "ends its claim b", "loses its disk c")
REMOVED = ("publish at a", "applies c message", "hears a c", "gives up a b")
ENTERED = (*LISTED, "gives up a b", "applies d set", "applies d set")
"""`d` is a member and in sync, with all that there is; `b` and `c` have heard nothing of that."""
AGAIN = Left(publishes=1, claims=1, members=2, losses=1)
ALONE = Left(publishes=1, claims=1, members=1, losses=2)
LOST = Left(publishes=1, claims=1, losses=2, disks=1)

MISTAKES: Mapping[str, Mistake] = {
    "confirm-at-once": Mistake(confirm_at_once, Bounds(SMALL)),
    "grant-and-follow-on": Mistake(grant_and_follow_on, Bounds(SHRINK)),
    "known-ballot-is-a-grant": Mistake(known_ballot_is_a_grant, Bounds(TWO)),
    "promoted-without-own-vote": Mistake(promoted_without_own_vote, Bounds(TWO)),
    "grant-unwritten": Mistake(grant_unwritten, Bounds(CRASH, prefix=VOTED)),
    "confirm-below-majority": Mistake(confirm_below_majority, Bounds(Left(publishes=1, claims=1, losses=2))),
    "base-not-compared": Mistake(base_not_compared, Bounds(SHRINK)),
    "list-without-counting": Mistake(list_without_counting, Bounds(SHRINK)),
    "forget-removed": Mistake(forget_removed, Bounds(CRASH, prefix=REMOVED)),
    "confirm-before-record": Mistake(confirm_before_record, Bounds(SHRINK, 2, "registry")),
    "listed-unaware": Mistake(listed_unaware, Bounds(SHRINK, 2, "registry")),
    "replaced-ignored": Mistake(replaced_ignored, Bounds(CRASH, 2, "registry")),
    "settled-at-once": Mistake(settled_at_once, Bounds(TWICE, 2, "registry", prefix=DROPPED)),
    "refusal-is-death": Mistake(refusal_is_death, Bounds(CRASH, 2, "registry")),
    "read-before-write": Mistake(read_before_write, Bounds(SHRINK, 2, "registry")),
    "changes-unwaited": Mistake(changes_unwaited, Bounds(AGAIN, 4, listed=3, prefix=ENTERED)),
    "votes-on": Mistake(votes_on, Bounds(LOST, 4, listed=3, spare=True, prefix=DROPPED_ONE)),
    "at-the-old-address": Mistake(at_the_old_address, Bounds(LOST, 4, listed=3, spare=True, prefix=FORGOTTEN)),
    "lost-votes": Mistake(lost_votes, Bounds(LOST, 4, listed=3, spare=True, prefix=DROPPED_ONE)),
    "relied-for-ever": Mistake(relied_for_ever, Bounds(SHRINK, isolated=True)),
    "half-is-a-majority": Mistake(half_is_a_majority, Bounds(ALONE, 4, listed=3, prefix=ENTERED)),
}
