"""The primary: feeds the backups, decides who is ready, and says how far the log is safe.

    recovering   promoted; the expected backups (whole members of the set before) are not all back
    active       every expected backup is complete again or has been removed by the shrink rule

`safe` is the lowest position acknowledged by the backups that count (`peer.py` says which), our own end of the log
when there is none.  Invariants:

    safe <= acked of every counting backup
    members of the in-sync set - self  is a subset of  counting        (so nothing is confirmed without a member)
    frozen => safe does not move                                        (paused or deposed: learn first, confirm later)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ha.catchup import Plan
from ha.environment import Json, Link
from ha.losses import Losses
from ha.membership import InSync, Member
from ha.operations import Membership
from ha.peer import Peer, Phase, Pulse
from ha.position import epoch_of, text
from ha.protocol import VERSION, Kind, decode_control, decode_held, encode_control, encode_snapshot, need
from ha.role import Role
from ha.status import State
from qpidd_py.core import Batch
from qpidd_py.errors import InvariantError, LinkError

BACKLOG_HIGH: Final = 64 << 20
BACKLOG_LOW: Final = 16 << 20
"""Octets that wait for one backup: above the first, publishers are not read; below the second, they are again."""


class Primary(Role):
    """The role of a broker that has been promoted."""

    def __init__(self, node: Any, expected: Iterable[Member], positions: Mapping[str, int] | None = None) -> None:
        """`positions`: how far the expected ones hold everything, as they have said when they were asked."""
        super().__init__(node)
        self._positions = positions or {}
        now = self.env.now()
        self.frozen = False
        self._enough = self.node.safety.may_confirm(self.node.persisted.in_sync)
        self._throttled = False
        self.expected: dict[str, Member] = {member.id: member for member in expected}
        self._links: dict[Link, Peer] = {}
        self._live: list[Link] = []
        self._counting: list[Peer] = []
        self._losses = Losses(node, self._remove)
        self._looked = now
        self._last_tick = now
        self._base = self._sealed = self.engine.position
        """Last position in the log that was sent; messages of local queues take positions, too, but are never sent."""
        self._handlers: dict[int, Callable[[Peer, int, bytes], None]] = {
            Kind.CONTROL: self._on_control,
            Kind.ACK: self._on_ack,
            Kind.CREDIT: self._on_credit,
            Kind.HELD: self._on_held,
            Kind.HEARTBEAT: lambda peer, position, body: None,
        }

    # ---- begin and end --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Put the first in-sync set of our epoch into the log and wait for the expected backups."""
        now = self.env.now()
        for member in self.expected.values():
            # Not our own position: what we hold beyond theirs was never safe, and is not before they have it.
            acked = min(self._positions.get(member.id, 0), self._base)
            self._counting.append(Peer(member, Pulse(now, now), phase=Phase.AWAY, acked=acked, lost_at=now))
        self.engine.log_membership(Membership(self.node.persisted.in_sync).encode())
        self.engine.flush()
        if self.expected:
            self.env.after(self.settings.backup_timeout, self._backup_timeout)
            names = ", ".join(str(member) for member in self.expected.values())
            self.env.log("notice", f"recovering backups: {names}")
        self._check_active()
        self.update_safe()

    def stop(self) -> None:
        self.frozen = self.stopped = True
        self._losses.stop()
        if self._throttled:
            self._throttle(False)
        for link in list(self._links):
            link.close()
        self._links.clear()
        self._live.clear()

    @property
    def position(self) -> int:
        return self.engine.position

    # ---- the hot part: once for each turn -------------------------------------------------------------------------

    def batch(self, batch: Batch) -> None:
        """The core has sealed a batch: send it to every backup, live."""
        if self.env.now() - self._last_tick > self.settings.dead_after:
            self._resumed()
        self._sealed = batch.last
        for link in self._live:
            link.send_batch(batch)
            if not self._throttled and link.backlog > BACKLOG_HIGH:
                self._throttle(True)
        self.update_safe()

    def update_safe(self) -> None:
        """Recompute how far the log is safe and tell the core."""
        if self._throttled and all(link.backlog < BACKLOG_LOW for link in self._live):
            self._throttle(False)
        if self.frozen or not self._enough:
            return
        low = self.engine.position
        for peer in self._counting:
            if peer.acked < low:
                low = peer.acked
        if low > self.engine.safe:
            self.engine.advance_safe(low)

    def _throttle(self, on: bool) -> None:
        self._throttled = on
        self.engine.throttle(on)
        self.env.log("info", "a backup is slow: publishers wait" if on else "publishers go on")

    def _on_ack(self, peer: Peer, position: int, body: bytes) -> None:
        if position > self.engine.position or position < peer.received:
            known = f"{text(peer.received)} to {text(self.engine.position)}"
            raise LinkError(f"{peer.member} acknowledges {text(position)}, expected {known}")
        peer.received = position
        if peer.phase is Phase.COMPLETE:
            self._complete_to(peer, position)

    def _complete_to(self, peer: Peer, position: int) -> None:
        peer.acked = max(peer.acked, position)
        peer.reported = True
        if peer.target and position >= peer.target:
            self._list(peer)
        if any(other.removal for other in self._counting):
            self._release_removed()
        self.update_safe()

    # ---- a backup arrives -----------------------------------------------------------------------------------------

    def accepted(self, link: Link, properties: Json) -> None:
        """A link has been opened by a backup; the conversation begins with its hello."""
        now = self.env.now()
        peer = Peer(Member(""), Pulse(now, now), link=link, started=now)
        self._links[link] = peer

    def frame(self, link: Link, kind: int, position: int, body: bytes) -> None:
        """Raises LinkError when the peer broke the protocol."""
        peer = self._links.get(link)
        if peer is None:
            return
        handler = self._handlers.get(kind)
        if handler is None:
            raise LinkError(f"frame of kind {kind} from a backup")
        handler(peer, position, body)

    def _on_control(self, peer: Peer, position: int, body: bytes) -> None:
        op, fields = decode_control(body)
        if op == "hello" and peer.phase is Phase.HELLO:
            self._hello(peer, fields)
        elif op == "held-end" and peer.phase is Phase.HELD:
            self._begin(peer)
        elif op == "complete" and peer.phase is Phase.CLOSING:
            self._completed(peer)
        elif op == "still-there":
            self._control(peer, "still-there", number=fields.get("number"))
        elif op == "refused":
            raise LinkError(f"{peer.member} refuses us: {fields.get('reason')}")
        else:
            raise LinkError(f"control {op} in phase {peer.phase.value}")

    def _hello(self, peer: Peer, fields: Json) -> None:
        peer.member = Member.from_json(fields)
        ballot = need(fields, "epoch", int), need(fields, "leader", str)
        if ballot > self.node.persisted.ballot:
            self.node.depose(ballot, f"{peer.member} has granted epoch {ballot[0]}", "")
            return
        self._check_hello(peer, fields)
        peer.whole, peer.state = need(fields, "whole", bool), str(fields.get("state", ""))
        self._replace(peer, need(fields, "position", int))
        peer.phase = Phase.HELD
        node = self.node
        lineage = [[epoch, leader] for epoch, leader in node.lineage.items()]
        welcome = {**node.member.to_json(), "epoch": node.epoch, "version": VERSION, "lineage": lineage}
        self._control(peer, "welcome", **welcome)
        self.env.event("backup_connected", peer=str(peer.member), old=peer.state, attrs={"whole": peer.whole})

    def _check_hello(self, peer: Peer, fields: Json) -> None:
        """Raises LinkError after telling the backup why, when it is not one of us."""
        reason = ""
        if fields.get("version") != VERSION:
            reason = f"link protocol {fields.get('version')}, {self.node.member} has {VERSION}"
        elif fields.get("replicate") != self.settings.replicate:
            ours = self.settings.replicate
            reason = f"ha-replicate is {fields.get('replicate')}, at the primary {self.node.member} it is {ours}"
        elif peer.id == self.node.id:
            reason = f"{self.node.member} has connected to itself"
        if reason:
            self._control(peer, "refused", reason=reason)
            raise LinkError(f"{peer.member}: {reason}")

    def _replace(self, peer: Peer, position: int) -> None:
        """What we knew of this broker from before: an old link, a place in the set."""
        for link, other in list(self._links.items()):
            if other is not peer and other.id == peer.id:
                link.close()
                self._forget_link(other)
        old = next((other for other in self._counting if other.id == peer.id and not other.removal), None)
        if old is None:
            return
        self._losses.back(peer.id)
        if old.reported and position < old.acked:
            peer.whole = False
        if peer.whole:
            # Its place is kept: what it had acknowledged it still holds.
            peer.acked, peer.reported = old.acked, old.reported
            self._counting[self._counting.index(old)] = peer
        elif self.node.safety.may_shrink(self.node.persisted.in_sync, [peer.id]):
            self._remove([old])
        # Else its place stays as it is, `acked` included, until it is complete: the set must not get smaller.

    def _on_held(self, peer: Peer, position: int, body: bytes) -> None:
        if peer.phase is not Phase.HELD:
            raise LinkError(f"held frame in phase {peer.phase.value}")
        number, uid, ids = decode_held(body)
        peer.held[number, uid] = ids

    # ---- the difference -------------------------------------------------------------------------------------------

    def _begin(self, peer: Peer) -> None:
        """Fix the cut: everything after it goes live, what lies before it goes in slices."""
        link = peer.link
        assert link is not None
        cut = self.engine.flush()
        self._live.append(link)
        peer.received = cut
        peer.plan = Plan(self.node.configuration, peer.held, cut, self.settings.slice_size)
        peer.phase = Phase.COPYING
        self._control(peer, "cut", cut=cut, in_sync=self.node.persisted.in_sync.to_json())
        link.send_frame(Kind.SNAPSHOT, cut, encode_snapshot(self.node.configuration.snapshot()))
        self.env.event("catchup_begin", peer=str(peer.member), last_pos=cut, attrs={"queues": peer.plan.queues})
        self._pump(peer)

    def _on_credit(self, peer: Peer, position: int, body: bytes) -> None:
        if peer.plan is None or peer.plan.under_way == 0:
            raise LinkError("credit for a slice that was not sent")
        peer.plan.under_way -= 1
        self._pump(peer)

    def _pump(self, peer: Peer) -> None:
        plan, link = peer.plan, peer.link
        if self.stopped or plan is None or link is None or peer.phase is not Phase.COPYING:
            return
        if plan.step(link):
            self.env.after(0.0, lambda: self._pump(peer))
        elif plan.done and plan.under_way == 0:
            peer.phase = Phase.CLOSING
            self._control(peer, "caught-up", cut=plan.cut)

    def _completed(self, peer: Peer) -> None:
        plan = peer.plan
        assert plan is not None
        peer.phase = Phase.COMPLETE
        self.engine.flush()
        peer.target = self._sealed
        peer.plan = None
        seconds = self.env.now() - peer.started
        attrs = {"slices": plan.slices, "octets": plan.octets, "seconds": round(seconds, 6)}
        self.env.event("catchup_end", peer=str(peer.member), last_pos=plan.cut, attrs=attrs)
        self._complete_to(peer, peer.received)

    def _list(self, peer: Peer) -> None:
        """It holds everything that we hold: from this operation on nothing is confirmed without it."""
        peer.target, peer.whole = 0, True
        in_sync = self.node.persisted.in_sync.grow(peer.member)
        self._record(in_sync)
        if not any(other is peer for other in self._counting):
            self._counting = [other for other in self._counting if other.id != peer.id or other.removal]
            self._counting.append(peer)
        self.engine.log_membership(Membership(in_sync, peer.id).encode())
        self.engine.flush()
        self.env.log("notice", f"backup {peer.member} is ready")
        self.env.event("membership", peer=str(peer.member), result="ready", attrs={"version": in_sync.version})
        self.expected.pop(peer.id, None)
        self._check_active()

    def _record(self, in_sync: InSync) -> None:
        self.node.persist(in_sync=in_sync)
        self._enough = self.node.safety.may_confirm(in_sync)

    # ---- a backup is lost -----------------------------------------------------------------------------------------

    def closed(self, link: Link, reason: str, silent: bool = False) -> None:
        """The peer of a link went away, or was silent for too long."""
        peer = self._links.get(link)
        if peer is None:
            return
        self._forget_link(peer)
        if peer.id:
            self.env.log("warning", f"backup {peer.member} is lost: {reason}")
            self.env.event("backup_lost", peer=str(peer.member), reason=reason, last_pos=peer.acked)
        held = next((other for other in self._counting if other.id == peer.id and not other.removal), None)
        if held is not None and held.link is None:
            self._losses.lost(held, silent)

    def _forget_link(self, peer: Peer) -> None:
        link = peer.link
        if link is not None:
            self._links.pop(link, None)
            if link in self._live:
                self._live.remove(link)
        peer.link, peer.plan, peer.phase = None, None, Phase.AWAY
        peer.lost_at = self.env.now()

    def _remove(self, peers: list[Peer]) -> None:
        """Record the smaller set; the removed ones go on counting until the record is where promotion must see it."""
        if self.stopped:
            return
        in_sync = self.node.persisted.in_sync.shrink(peer.id for peer in peers)
        self._record(in_sync)
        position = self.engine.log_membership(Membership(in_sync).encode())
        for peer in peers:
            peer.removal = position
            self.expected.pop(peer.id, None)
            self.env.log("notice", f"{peer.member} is no longer in-sync; set version {in_sync.version}")
            attrs = {"version": in_sync.version}
            self.env.event("membership", peer=str(peer.member), result="removed", last_pos=position, attrs=attrs)
        self.engine.flush()
        self._release_removed()
        self.update_safe()
        self._check_active()

    def _release_removed(self) -> None:
        """Forget removed peers whose removal every remaining member has acknowledged.

        Under `availability` the loss is simply forgotten; else a removal that was not seen by a remaining member could
        let the removed one win a promotion against confirms that it never saw.
        """
        low = min((peer.acked for peer in self._counting if not peer.removal), default=self.engine.position)
        if not self.node.safety.probes:
            low = self.engine.position
        self._counting = [peer for peer in self._counting if not peer.removal or peer.removal > low]

    def _backup_timeout(self) -> None:
        """Expected backups that have not even connected are treated as lost."""
        if self.stopped:
            return
        missing = [peer for peer in self._counting if peer.id in self.expected and peer.link is None]
        for peer in missing:
            self.env.log("error", f"expected backup {peer.member} has not come back in time")
            self._losses.lost(peer)

    def _check_active(self) -> None:
        if not self.expected and self.node.state is State.RECOVERING:
            self.node.set_state(State.ACTIVE)

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Four times in each heartbeat interval."""
        now = self.env.now()
        if now - self._last_tick > self.settings.dead_after:
            self._resumed()
        self._last_tick = now
        self._check_invariants()
        for link, peer in list(self._links.items()):
            self._tick_link(link, peer, now)
        if now - self._looked >= self.settings.maintenance:
            # A rival may have been promoted without telling us: look for it even when nothing is amiss.
            self._looked = now
            self._losses.watch()
        self.update_safe()

    def _tick_link(self, link: Link, peer: Peer, now: float) -> None:
        silence = peer.pulse.look(link, now)
        interval = self.settings.heartbeat
        if silence > self.settings.dead_after:
            link.close()
            self.closed(link, f"silent for {silence:.3f} s", silent=True)
            return
        if silence > interval and peer in self._counting:
            self._losses.suspect(peer)
        if peer.pulse.must_speak(link, now, interval / 2):
            link.send_frame(Kind.HEARTBEAT, self._sealed if link in self._live else 0, b"")
        self._pump(peer)

    def _resumed(self) -> None:
        """We did not run for longer than a link may be silent: others may have gone on without us.  Confirm nothing
        before a survey has shown that nobody was promoted meanwhile."""
        now = self.env.now()
        pause, self._last_tick = now - self._last_tick, now
        self.env.log("warning", f"this process stood still for {pause:.3f} s")
        self.frozen = True
        for peer in self._links.values():
            peer.pulse.forgive(now)
        self._losses.resumed()

    def unfreeze(self) -> None:
        """A survey has found no rival."""
        if self.frozen and not self.stopped:
            self.frozen = False
            self.update_safe()

    def _check_invariants(self) -> None:
        if not self.node.state.is_primary:
            raise InvariantError(f"primary role in state {self.node.state.value}")
        if epoch_of(self.engine.position) != self.node.epoch:
            raise InvariantError(f"log in epoch {epoch_of(self.engine.position)}, voted for {self.node.epoch}")
        missing = self.node.persisted.in_sync.ids - {self.node.id} - {peer.id for peer in self._counting}
        if missing:
            raise InvariantError(f"in-sync but not counted: {sorted(missing)}")

    # ---- what others see ------------------------------------------------------------------------------------------

    def members(self) -> list[Json]:
        """For `qpid-ha query` and the management pages."""
        peers = {peer.id: peer for peer in [*self._counting, *self._links.values()] if peer.id}
        return [self._shown(peer) for peer in peers.values()]

    def _shown(self, peer: Peer) -> Json:
        position = peer.received if peer.link else peer.acked
        shown: Json = {**peer.member.to_json(), "state": peer.shown, "acked": position}
        shown["lag"] = max(0, self.engine.position - position) if epoch_of(position) == self.node.epoch else None
        shown["backlog"] = peer.link.backlog if peer.link else 0
        shown["counts"] = any(other.id == peer.id for other in self._counting)
        shown["expected"] = peer.id in self.expected
        if peer.plan is not None:
            shown["catchup"] = {"queues": peer.plan.queues, "left": peer.plan.queues_left, "octets": peer.plan.octets}
        return shown

    @property
    def primary_address(self) -> str:
        return self.settings.address

    def _control(self, peer: Peer, op: str, **fields: Any) -> None:
        assert peer.link is not None
        peer.link.send_frame(Kind.CONTROL, self.engine.position, encode_control(op, **fields))
