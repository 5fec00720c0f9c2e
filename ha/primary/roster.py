"""Who counts: the backups without whose acknowledgement nothing is confirmed, and how that changes.

    listed    it holds everything that we hold: it is asked for from the moment on in which the larger set is in force
    removed   it is asked for until the smaller set is in force (`recorder.py`), and from there on until every remaining
              member has acknowledged the operation that says so

Invariants:  members of the in-sync set - self  is a subset of  counting;   `may_confirm` => the set in force is on
record, and large enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ha.environment import Json
from ha.model.local_member import LocalMember
from ha.model.membership import InSync, Member
from ha.model.operations import Membership
from ha.model.position import epoch_of
from ha.model.pulse import Pulse
from ha.primary.lag import Lags
from ha.primary.peer import Peer, Phase
from ha.promotion.claims import Claim
from ha.registry.recorder import Change, Recorder


class Leader(Protocol):
    """Who is told how the counting backups change: the primary."""

    local: LocalMember

    def depose(self, ballot: tuple[int, str], reason: str, address: str) -> None: ...

    def update_safe(self) -> None: ...

    def check_active(self) -> None:
        """A backup has come back or was given up."""
        ...

    def listed(self, peer: Peer) -> None:
        """It has been made a member of the set."""
        ...

    def dismiss_strangers(self, counting: set[str]) -> None:
        """The removal of those that neither count nor are members is safe."""
        ...


class Roster:
    """The counting backups of one primary."""

    def __init__(self, primary: Leader, expected: Iterable[Member]) -> None:
        self._primary = primary
        self._local = primary.local
        self._leaving: list[Peer] = []
        self._going: set[str] = set()
        self._begun = False
        self.record = Recorder(self._local, primary.depose)
        self.counting: list[Peer] = []
        self.expected: dict[str, Member] = {member.id: member for member in expected}
        """Who was whole in the set before, and has not come back to us yet."""
        self.may_confirm = False
        self.removing = False
        """Does somebody count who is not a member any more?"""
        self.changing: Callable[[], None] | None = None
        """Called when the change of the brokers that is under way has come to an end."""
        self.steady = 0
        """Position of the last operation that has to be safe before the brokers may be changed."""

    @property
    def recovered(self) -> bool:
        """Is our first set in force, and nobody expected any more?"""
        return self._begun and not self.expected

    def stop(self) -> None:
        """The role has ended, and says so already (`Role.stopped`)."""
        self.record.stop()
        self._done_changing()

    # ---- the first set of our epoch -------------------------------------------------------------------------------

    def begin(self, claim: Claim, base: int) -> None:
        """`base`: our own position."""
        now = self._local.env.now()
        for member in self.expected.values():
            # Not our own position: what we hold beyond theirs was never safe, and is not before they have it.  And a
            # position of an epoch that is not in our log is higher than the end of what we have in common.
            position = claim.positions.get(member.id, 0)
            acked = min(position, base) if epoch_of(position) in self._local.lineage else 0
            self.counting.append(Peer(member, Pulse(now, now), phase=Phase.AWAY, acked=acked, lost_at=now))
        self.record.holders = claim.holders
        # It is persisted already, and others may hear of it: it holds nobody who was not whole in the set before.
        self.record.want(Change("the first set of a new primary", lambda in_sync: in_sync, self._first))

    def _first(self, in_sync: InSync) -> None:
        self._begun = True
        self.steady = self._enforce(in_sync)
        self._settle()

    def _enforce(self, in_sync: InSync, added: str = "") -> int:
        """From the position that is returned on this set counts; it is stored already."""
        self.may_confirm = self._begun and self._local.safety.may_confirm(in_sync)
        position = self._local.engine.log_membership(Membership(in_sync, added).encode())
        self._local.engine.flush()
        return position

    def _settle(self) -> None:
        self.release()
        self._primary.update_safe()
        self._primary.check_active()

    # ---- a backup returns or arrives ------------------------------------------------------------------------------

    def find(self, id: str) -> Peer | None:
        """The place of a broker that is not being removed."""
        return next((peer for peer in self.counting if peer.id == id and not peer.removal), None)

    def keep_place(self, peer: Peer, old: Peer) -> None:
        """It has come back with everything that it had acknowledged: it goes on counting in the place of `old`."""
        peer.acked, peer.reported = old.acked, old.reported
        self.counting[self.counting.index(old)] = peer
        self._leaving = [other for other in self._leaving if other.id != peer.id]

    def enlist(self, peer: Peer) -> None:
        """It holds everything that we hold."""
        peer.target, peer.whole = 0, True
        change = Change(
            f"backup {peer.member} is listed",
            lambda in_sync: self._larger(peer, in_sync),
            lambda in_sync: self._listed(peer, in_sync),
            stalls=False,
        )
        self.record.want(change)

    def _larger(self, peer: Peer, in_sync: InSync) -> InSync | None:
        gone = peer.link is None or peer.phase is not Phase.COMPLETE
        # Until it knows of its removal it takes itself for whole: on record as a member again it could be promoted,
        # without what was confirmed since.  It is listed when it has acknowledged the removal (`target`).
        gone = gone or peer.acked < peer.removal
        return None if gone or not self._local.is_broker(peer.member.address) else in_sync.grow(peer.member)

    def _listed(self, peer: Peer, in_sync: InSync) -> None:
        peer.removal = 0
        if not any(other is peer for other in self.counting):
            self.counting = [other for other in self.counting if other.id != peer.id or other.removal]
            self.counting.append(peer)
        self._enforce(in_sync, peer.id)
        self._local.env.log("notice", f"backup {peer.member} is ready")
        attrs = {"version": in_sync.version}
        self._local.env.event("membership", peer=str(peer.member), result="ready", attrs=attrs)
        self.expected.pop(peer.id, None)
        self._primary.listed(peer)
        self._settle()

    # ---- a backup is lost -----------------------------------------------------------------------------------------

    def remove(self, peers: Iterable[Peer]) -> None:
        """Go on without them, as soon as the smaller set is in force."""
        begun = bool(self._leaving)
        self._leaving += peers
        if not begun:
            names = ", ".join(str(peer.member) for peer in self._leaving)
            self.record.want(Change(f"{names} is dropped", self._smaller, self._removed))

    def _smaller(self, in_sync: InSync) -> InSync | None:
        """Whoever has come back before it began stays."""
        self._going = {peer.id for peer in self._leaving if peer.id in in_sync}
        self._leaving = []
        return in_sync.shrink(self._going) if self._going else None

    def _removed(self, in_sync: InSync) -> int:
        """A change that was begun is completed even if the backup is back: it is listed anew when it is complete."""
        position = self._enforce(in_sync)
        for peer in [peer for peer in self.counting if peer.id in self._going and not peer.removal]:
            peer.removal = position
            self.expected.pop(peer.id, None)
            self._local.env.log("notice", f"{peer.member} is no longer in-sync; set version {in_sync.version}")
            attrs = {"version": in_sync.version}
            self._local.env.event(
                "membership", peer=str(peer.member), result="removed", last_pos=position, attrs=attrs
            )
            if peer.phase is Phase.COMPLETE:
                peer.target = position
        self._settle()
        return position

    def release(self) -> None:
        """Forget removed peers whose removal every remaining member has acknowledged.

        Under `availability` the loss is simply forgotten; else a removal that was not seen by a remaining member could
        let the removed one win a promotion against confirms that it never saw.
        """
        low = min((peer.acked for peer in self.counting if not peer.removal), default=self._local.engine.position)
        if not self._local.safety.probes:
            low = self._local.engine.position
        self.counting = [peer for peer in self.counting if not peer.removal or peer.removal > low]
        self.removing = any(peer.removal for peer in self.counting)
        if self._local.persisted.in_sync.brokers:
            self._primary.dismiss_strangers({peer.id for peer in self.counting})

    # ---- the cluster's brokers ------------------------------------------------------------------------------------

    def change_brokers(self, brokers: tuple[str, ...], removed: str, done: Callable[[], None]) -> None:
        """`done` is called when the new list is in force, or when our role ends before that."""
        self.changing = done
        change = Change(
            f"{removed} leaves the cluster" if removed else f"{brokers[-1]} enters the cluster",
            lambda in_sync: self._renamed(in_sync, brokers, removed),
            self._changed,
        )
        self.record.want(change)

    def _renamed(self, in_sync: InSync, brokers: tuple[str, ...], removed: str) -> InSync:
        changed = in_sync.change_brokers(brokers, removed)
        self._going = set(in_sync.ids - changed.ids)
        return changed

    def _changed(self, in_sync: InSync) -> None:
        self.steady = self._removed(in_sync)
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
        """Everybody who counts or is linked."""
        peers = {peer.id: peer for peer in [*self.counting, *linked] if peer.id}
        return [self._shown(peer, lags) for peer in peers.values()]

    def _shown(self, peer: Peer, lags: Lags) -> Json:
        position = peer.received if peer.link else peer.acked
        counts = any(other.id == peer.id for other in self.counting)
        # Complete, but the larger set is not on record yet: nobody waits for it.
        state = "catchup" if peer.shown == "ready" and not counts else peer.shown
        shown: Json = {**peer.member.to_json(), "state": state, "acked": position, "counts": counts}
        shown.update(lags.shown(peer, position))
        shown["expected"] = peer.id in self.expected
        return shown
