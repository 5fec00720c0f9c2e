"""Mistakes about journals: what is on disk, what it is worth after a restart, and who may stand for whom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any

from ha.backup.backup import Backup
from ha.backup.holdings import Holdings
from ha.backup.joining import Joining, JoinStep
from ha.model.content import Content
from ha.model.environment import Reply
from ha.model.local_member import LocalMember
from ha.model.membership import Member
from ha.model.protocol import Kind as LinkKind
from ha.model.view import View
from ha.node import Node
from ha.primary.giving_way import GivingWay
from ha.primary.primary import Primary
from ha.primary.roster import Roster
from ha.promotion import promotion
from ha.promotion.candidacy import Candidacy
from ha.promotion.case import Case
from ha.shell import recovering
from qpidd_py.store.journal import Journal
from qpidd_py.store.layout import Kind
from qpidd_py.store.recovery import Damaged, Found, scan
from tests.simulator import journal
from tests.simulator.mistakes_safety import patched
from tests.support.memory_disk import MemoryDisk


def reading_grants() -> AbstractContextManager[None]:
    """A broker that reads its journal grants each claim."""

    def unanswered(arguments: dict[str, Any], user: str, reply: Reply) -> None:
        reply({"ok": True, "result": {"granted": True, "reason": "", "id": "", "epoch": arguments["epoch"]}})

    return patched(recovering, _unanswered=unanswered)


def acknowledge_before_disk() -> AbstractContextManager[None]:
    """A backup acknowledges what it holds, before its journal has it."""

    def acknowledge(self: Joining) -> None:
        if self.step is JoinStep.STORING:
            self._stored()
        if self.step is not JoinStep.STORING and self.live > self._acked and not self._over:
            self._acked = self.live
            self.link.send_frame(LinkKind.ACK, self.live, b"")

    return patched(Joining, acknowledge=acknowledge)


def own_disk_forgotten() -> AbstractContextManager[None]:
    """A primary confirms what its backups have on disk, and its own journal has not."""

    def update_safe(self: Primary) -> None:
        if not self.frozen and self.roster.may_confirm:
            low = min((peer.acked for peer in self.roster.counting), default=self.engine.position)
            self.engine.advance_safe(max(low, self.engine.safe))

    return patched(Primary, update_safe=update_safe)


def removals_unwritten() -> AbstractContextManager[None]:
    """What the primary does not have goes from the memory of a backup that joins, and stays on its disk."""

    def part(self: Journal, kind: int, body: bytes) -> None:
        if kind != Kind.DROP:
            old(self, kind, body)

    old = Journal.part
    return patched(Journal, part=part)


def removed_before_the_difference_counts() -> AbstractContextManager[None]:
    """What the primary does not have goes from the disk at once."""

    def part(self: Journal, kind: int, body: bytes) -> None:
        apart = kind == Kind.DROP and self._difference
        if apart:
            self._add_frame(Kind.GIVEN_UP, b"")
        old(self, kind, body)
        if apart:
            self._add_frame(Kind.DIFFERENCE, b"")
            self._difference = self._number

    old = Journal.part
    return patched(Journal, part=part)


def restart_without_doubt() -> AbstractContextManager[None]:
    """A broker that was away is sure that it was not removed meanwhile."""

    def restore(self: Node, content: Content) -> None:
        self.local.restore(content)
        self.role = Backup(self.local, self.end)

    return patched(Node, restore=restore)


def dead_is_lost() -> AbstractContextManager[None]:
    """A member that is down is taken to have lost what it held."""

    def may_live(self: Any, member: Member) -> bool:
        return self.gone is not None and member.address not in self.gone

    return patched(Case, may_live=may_live)


def listed_before_it_is_noted() -> AbstractContextManager[None]:
    """A broker takes part before its disk has whose content it holds.  (It was so once.)"""
    return patched(journal.SimulatedJournal, when_settled=lambda self, call: call())


@contextmanager
def copy_stands_for_member() -> Iterator[None]:
    """A copy of a data directory counts as the member, wherever it is, and though others hold more."""

    def stands_for(self: Member, member: Member) -> bool:
        return self.same_life(member) or (self.id == member.id and member.instance in self.before)

    with patched(Member, stands_for=stands_for), patched(Case, restored=False):
        yield


def removal_below_majority() -> AbstractContextManager[None]:
    """Whether a set without the lost is large enough is asked when they are lost, and not again when it is made."""

    def smaller(self: Roster, in_sync: Any) -> Any:
        self._going = {peer.id for peer in self._leaving if peer.id in in_sync}
        self._leaving = []
        return in_sync.shrink(self._going) if self._going else None

    return patched(Roster, _smaller=smaller)


@contextmanager
def old_copy_is_whole() -> Iterator[None]:
    """What was put back from a backup is what it was, though the set on its disk is older and others hold more."""
    with (
        patched(promotion, _outdated=lambda case: ""),
        patched(Case, restored=False),
        patched(LocalMember, disown=lambda self: None),
        patched(Backup, not_listed=lambda self: None),
    ):
        yield


@contextmanager
def led_is_forgotten() -> Iterator[None]:
    """Which brokers have led an epoch is not compared with what they know of that, and a new primary lists a broker
    that was restarted at once.  (It was so once.)"""
    unknown = patched(LocalMember, epochs_led={}), patched(View, outdated=lambda self, claims: 0)
    with unknown[0], unknown[1], listed_before_it_has_caught_up():
        yield


def told_is_held() -> AbstractContextManager[None]:
    """A set that a broker was told of vouches for what it holds, though it did not get the log up to there.  (It was so
    once.)"""
    view = LocalMember.view
    held = {"view": lambda self, role: replace(view(self, role), vouched=self.persisted.in_sync.key)}
    return patched(LocalMember, **held)


def listed_before_it_has_caught_up() -> AbstractContextManager[None]:
    """The first set of a new primary lists whoever a restart has brought back as that run.  (It was so once.)"""
    return patched(promotion, _holds_as_much=lambda view, me, member: True)


def registry_names_no_broker() -> AbstractContextManager[None]:
    """A broker asks only those that it knows by itself or by others.  (It was so once.)"""
    return patched(Candidacy, _listen=lambda self, end: None)


def rot_is_cut_off() -> AbstractContextManager[None]:
    """What is damaged is taken for the end of the journal, also where it was acknowledged once."""

    def scan_quietly(disk: Any) -> Found:
        found = Found()
        with suppress(Damaged):
            return scan(disk, found=found)
        found.head = min([found.head, *(segment.generation for segment in found.segments)])
        return found

    return patched(journal, scan=scan_quietly)


def cache_is_believed() -> AbstractContextManager[None]:
    """After a sync that failed the cache shows what is not on the disk."""
    return patched(MemoryDisk, settle=MemoryDisk.sync)


def rot_stays_whole() -> AbstractContextManager[None]:
    """A broker that cannot read a message back takes itself for whole all the same: it did acknowledge it."""
    honest = Node.damaged

    def damaged(self: Node, reason: str) -> None:
        whole = self.local.whole
        honest(self, reason)
        self.local.whole = self.local.whole or whole

    return patched(Node, damaged=damaged)


def rot_is_reported_as_held() -> AbstractContextManager[None]:
    """It says that it holds what it cannot read, so nobody sends it again."""
    return patched(Holdings, _drop_rotten=lambda self: None)


def rot_goes_on_alone() -> AbstractContextManager[None]:
    """A primary gives up the last backup that has what it cannot read itself.  (It was so once.)"""
    return patched(LocalMember, needs=lambda self, lost: False)


def rot_stays_primary() -> AbstractContextManager[None]:
    """A primary waits for messages that only others can read."""
    return patched(GivingWay, look=lambda self: None)
