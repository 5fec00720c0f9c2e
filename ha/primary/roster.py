"""The backups that count (without whose acknowledgement nothing is confirmed), and how that changes.

    listed    it holds everything that we hold: it counts from the moment in which the larger set is in force
    removed   it counts until the smaller set is in force (`recorder.py`), and then until every remaining member has
              acknowledged the operation that carries the smaller set

A change of the set is data (`changes.py`).  When its turn comes `next_set` computes its set.  When that set is on
record and on our own disk, `in_force` carries it out, from the log to the state of the role.

Invariants:  members of the in-sync set - self  is a subset of  counting;   `may_confirm` => the set in force is on
record, and large enough;   what is confirmed is held by every member of `relied`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ha.model.environment import Json
from ha.model.local_member import LocalMember
from ha.model.membership import InSync, Member, Membership
from ha.model.position import epoch_of
from ha.model.pulse import Pulse
from ha.primary.changes import Change, Drop, Enlist, First, Rename
from ha.primary.lag import Lags
from ha.primary.peer import Peer, Phase
from ha.promotion.claims import Claim
from ha.registry.recorder import Recorder


class Leader(Protocol):
    """Receives changes of the counting backups: the primary."""

    local: LocalMember

    def depose(self, ballot: tuple[int, str], reason: str, address: str) -> None: ...

    def update_safe(self) -> None: ...

    def check_active(self) -> None:
        """A backup is back or was given up."""
        ...

    def listed(self, peer: Peer) -> None:
        """The peer has become a member of the set."""
        ...

    def kept(self, peer: Peer) -> None:
        """The peer was to be removed, but the set would be too small without it."""
        ...

    def dismiss_strangers(self, counting: set[str]) -> None:
        """Refuse linked peers that neither count nor are members; their removal is safe."""
        ...


class Roster:
    """The counting backups of one primary."""

    def __init__(self, primary: Leader, expected: Iterable[Member]) -> None:
        self._primary = primary
        self._local = primary.local
        self._leaving: list[Peer] = []
        self._going: set[str] = set()
        self._from = InSync()
        """The set that the change under way makes smaller."""
        self._former: InSync | None = None
        """The set before the first removal that is not complete."""
        self._begun = False
        self.record: Recorder[Change] = Recorder(self._local, primary.depose, self)
        self.counting: list[Peer] = []
        self.expected: dict[str, Member] = {member.id: member for member in expected}
        """Whole members of the previous set that have not come back yet."""
        self.may_confirm = False
        self.removing = False
        """True while a removed backup still counts."""
        self.changing: Callable[[], None] | None = None
        """Called when the change of the brokers under way ends."""
        self.steady = 0
        """Position that must be safe before the brokers may be changed again."""

    @property
    def recovered(self) -> bool:
        """True if our first set is in force and no backup is expected any more."""
        return self._begun and not self.expected

    @property
    def relied(self) -> InSync:
        """The newest set under which something may have been confirmed: while a removed backup still counts, the set
        that has it."""
        former, in_sync = self._former, self._local.persisted.in_sync
        return former if former is not None and former.brokers == in_sync.brokers else in_sync

    def stop(self) -> None:
        """The role has ended; `Role.stopped` is already set."""
        self.record.stop()
        self._done_changing()

    # ---- the first set of our epoch -------------------------------------------------------------------------------

    def begin(self, claim: Claim, base: int) -> None:
        """`base`: our own position."""
        now = self._local.env.now()
        for member in self.expected.values():
            # Not our own position: what we hold beyond theirs was never safe, and becomes safe when they have it.  A
            # position in an epoch that our log lacks, or has from another leader, is beyond the common history.
            position, writer = claim.positions.get(member.id, (0, ""))
            origin = self._local.lineage.get(epoch_of(position))
            acked = min(position, base) if origin is not None and origin.leader == writer else 0
            self.counting.append(Peer(member, Pulse(now, now), phase=Phase.AWAY, acked=acked, lost_at=now))
        self.record.holders = claim.holders
        # It is persisted already, and others may hear of it: every member was whole in the previous set.
        self.record.want(First())

    # ---- one change, from what is wanted to what is in force ------------------------------------------------------

    def next_set(self, change: Change, in_sync: InSync) -> InSync | None:
        """The set that the change makes of the one in force; None: it is no longer wanted."""
        match change:
            case First():
                return in_sync
            case Enlist(peer):
                return self._larger(peer, in_sync)
            case Drop():
                return self._smaller(in_sync)
            case Rename(brokers, removed):
                return self._other(in_sync, brokers, removed)

    def in_force(self, change: Change, in_sync: InSync) -> None:
        """The set is on record and stored: log it, count by it, then see what is safe and what our state is."""
        self._begun = self._begun or isinstance(change, First)
        placed = isinstance(change, Enlist) and self._place(change.peer)  # before the larger set confirms anything
        self.may_confirm = self._begun and self._local.safety.may_confirm(in_sync)
        position = self._log(in_sync, change)
        match change:
            case First():
                self.steady = position
            case Enlist(peer) if placed:
                self._listed(peer, in_sync)
            case Drop():
                self._removed(position, in_sync)
            case Rename():
                self.steady = position
                self._removed(position, in_sync)
        self.release()
        self._primary.update_safe()
        self._primary.check_active()
        if isinstance(change, Rename):
            self._renamed(in_sync)

    def _log(self, in_sync: InSync, change: Change) -> int:
        """Returns the position from which on the set counts."""
        added = change.peer.id if isinstance(change, Enlist) else ""
        position = self._local.engine.log_membership(Membership(in_sync, added).encode())
        self._local.engine.flush()
        return position

    # ---- a backup returns or arrives ------------------------------------------------------------------------------

    def find(self, id: str) -> Peer | None:
        """The place of a broker that is not being removed."""
        return next((peer for peer in self.counting if peer.id == id and not peer.removal), None)

    def keep_place(self, peer: Peer, old: Peer) -> None:
        """It is back with everything that it had acknowledged: it counts in the place of `old`."""
        peer.acked, peer.reported = old.acked, old.reported
        self.counting[self.counting.index(old)] = peer
        self._leaving = [other for other in self._leaving if other.id != peer.id]

    def enlist(self, peer: Peer) -> None:
        """Make a peer that holds everything we hold a member of the set."""
        peer.target, peer.whole = 0, True
        if self._kept_meanwhile(peer):
            self.in_force(Enlist(peer), self._local.persisted.in_sync)
        else:
            self.record.want(Enlist(peer))

    def _kept_meanwhile(self, peer: Peer) -> bool:
        """It has its place in the set in force, and in the one under way, which may wait for a full disk for ever."""
        in_force, under_way = self._local.persisted.in_sync, self.record.under_way
        kept = self._begun and under_way is not None and under_way.shows(peer.member) and self.find(peer.id) is peer
        return kept and self._larger(peer, in_force) is in_force

    def _larger(self, peer: Peer, in_sync: InSync) -> InSync | None:
        gone = peer.link is None or peer.phase is not Phase.COMPLETE
        # Until it knows of its removal it counts itself as whole: as a member on record it could be promoted without
        # what was confirmed since.  It is listed when it has acknowledged the removal (`target`).
        gone = gone or peer.acked < peer.removal
        if gone or not self._local.cluster.is_broker(peer.member.address):
            return None
        # The place that it has kept needs no write: on a slow disk its link would be lost again meanwhile, for ever.
        return in_sync if in_sync.shows(peer.member) else in_sync.grow(peer.member)

    def _place(self, peer: Peer) -> bool:
        """False: it was lost while it was listed, and is back with its place; that link counts, not the lost one."""
        if self._is_back(peer):
            return False
        peer.removal = 0
        if not any(other is peer for other in self.counting):
            self.counting = [other for other in self.counting if other.id != peer.id or other.removal]
            self.counting.append(peer)
        return True

    def _is_back(self, peer: Peer) -> bool:
        there = self.find(peer.id)
        return peer.link is None and there is not None and there.link is not None

    def _listed(self, peer: Peer, in_sync: InSync) -> None:
        self._local.env.log("notice", f"backup {peer.member} is ready")
        attrs = {"version": in_sync.version}
        self._local.env.event("membership", peer=str(peer.member), result="ready", attrs=attrs)
        self.expected.pop(peer.id, None)
        self._local.spent.discard(peer.id)
        self._primary.listed(peer)

    # ---- a backup is lost -----------------------------------------------------------------------------------------

    def remove(self, peers: Iterable[Peer]) -> None:
        """Stop waiting for these peers as soon as the smaller set is in force."""
        begun = bool(self._leaving)
        self._leaving += peers
        if not begun:
            names = ", ".join(str(peer.member) for peer in self._leaving)
            self.record.want(Drop(names))

    def _smaller(self, in_sync: InSync) -> InSync | None:
        """The set without the lost peers.  Those that are back before the change begins stay, and those without which
        it would be too small: other peers, or other brokers, may have changed the set since they were lost."""
        leaving, self._leaving, self._going, self._from = self._leaving, [], set(), in_sync
        for peer in leaving:
            if peer.id not in in_sync:
                continue
            if self._local.may_shrink({*self._going, peer.id}):
                self._going.add(peer.id)
            else:
                self._primary.kept(peer)
        return in_sync.shrink(self._going) if self._going else None

    def _removed(self, position: int, in_sync: InSync) -> None:
        """A change under way is completed even if the backup is back: it is listed again when it is complete."""
        for peer in [peer for peer in self.counting if peer.id in self._going and not peer.removal]:
            peer.removal = position
            self._former = self._former or self._from
            self.expected.pop(peer.id, None)
            self._local.env.log("notice", f"{peer.member} is no longer in-sync; set version {in_sync.version}")
            attrs = {"version": in_sync.version}
            self._local.env.event("membership", peer=str(peer.member), result="removed", last_pos=position, attrs=attrs)
            if peer.phase is Phase.COMPLETE:
                peer.target = position

    def release(self) -> None:
        """Forget removed peers whose removal every remaining member has acknowledged.

        Under `availability` they are forgotten at once.  In the other modes a remaining member that does not know of
        the removal could help the removed backup to be promoted, without messages confirmed since.
        """
        low = min((peer.acked for peer in self.counting if not peer.removal), default=self._local.engine.position)
        if not self._local.safety.probes:
            low = self._local.engine.position
        self.counting = [peer for peer in self.counting if not peer.removal or peer.removal > low]
        self.removing = any(peer.removal for peer in self.counting)
        self._former = self._former if self.removing else None
        if self._local.persisted.in_sync.brokers:
            self._primary.dismiss_strangers({peer.id for peer in self.counting})

    # ---- the cluster's brokers ------------------------------------------------------------------------------------

    def change_brokers(self, brokers: tuple[str, ...], removed: str, done: Callable[[], None]) -> None:
        """`done` is called when the new list is safe, or when our role ends before that."""
        self.changing = done
        self.record.want(Rename(brokers, removed))

    def _other(self, in_sync: InSync, brokers: tuple[str, ...], removed: str) -> InSync:
        changed = in_sync.change_brokers(brokers, removed)
        self._going, self._from = set(in_sync.ids - changed.ids), in_sync
        return changed

    def _renamed(self, in_sync: InSync) -> None:
        attrs = {"version": in_sync.version, "brokers": ",".join(in_sync.brokers)}
        self._local.env.event("membership", result="brokers", last_pos=self.steady, attrs=attrs)
        self._done_changing()

    def _done_changing(self) -> None:
        done, self.changing = self.changing, None
        if done is not None:
            done()

    # ---- what others see ------------------------------------------------------------------------------------------

    def ready(self) -> list[Peer]:
        """Members of the set that are linked and hold everything that they have acknowledged."""
        ids = self._local.persisted.in_sync.ids
        return [peer for peer in self.counting if peer.link and peer.phase is Phase.COMPLETE and peer.id in ids]

    def shown(self, linked: Iterable[Peer], lags: Lags) -> list[Json]:
        """Every peer that counts or is linked."""
        peers = {peer.id: peer for peer in [*self.counting, *linked] if peer.id}
        return [self._shown(peer, lags) for peer in peers.values()]

    def _shown(self, peer: Peer, lags: Lags) -> Json:
        position = peer.received if peer.link else peer.acked
        counts = any(other.id == peer.id for other in self.counting)
        # Complete, but the larger set is not on record yet: confirms do not wait for it.
        state = "catchup" if peer.shown == "ready" and not counts else peer.shown
        shown: Json = {**peer.member.to_json(), "state": state, "acked": position, "counts": counts}
        shown.update(lags.shown(peer, position))
        shown["expected"] = peer.id in self.expected
        return shown
