"""The primary role: feeds the backups, decides which are ready, and computes how far the log is safe.

    recovering   promoted; the expected backups (whole members of the previous set) are not all back
    active       every expected backup is complete again or was removed by the shrink rule

`safe` is the lowest position acknowledged by the backups that count (see `peer.py`) and by our own journal (without
one: our end of the log).  Invariants:

    safe <= acked of every counting backup, and what our own disk has
    members of the in-sync set - self  is a subset of  counting        (so nothing is confirmed without a member)
    frozen => safe does not move                                    (after a pause: survey the others before confirming)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from ha.model.environment import Depose, Json, Link
from ha.model.local_member import LocalMember
from ha.model.logins import MOST, encode_logins
from ha.model.membership import Member
from ha.model.position import epoch_of, text
from ha.model.protocol import Kind
from ha.model.pulse import Pulse
from ha.model.status import State
from ha.model.view import Survey, View
from ha.primary.arrivals import Arrivals
from ha.primary.failing import FailingLinks
from ha.primary.lag import Lags
from ha.primary.late import LateBackups
from ha.primary.losses import Losses
from ha.primary.peer import Peer, Phase
from ha.primary.removals import Removals
from ha.primary.roster import Roster
from ha.primary.slow import SlowBackups
from ha.primary.stall import Observer
from ha.primary.throttle import Throttle
from ha.promotion.claims import Claim
from ha.promotion.score import Outlook
from ha.role import Role
from qpidd_py.core import Batch
from qpidd_py.errors import InvariantError, LinkError


class Primary(Role):
    """The role of a broker that has been promoted."""

    def __init__(self, local: LocalMember, claim: Claim, depose: Depose) -> None:
        """`claim`: the claim that was granted."""
        super().__init__(local)
        self.depose = depose
        self._claim = claim
        now = self.env.now()
        self.frozen = False
        self.throttle = Throttle(local)
        self.roster = Roster(self, (member for member in claim.members if member.id != local.id))
        self._arrivals = Arrivals(self)
        self._links: dict[Link, Peer] = {}
        self._live: list[Link] = []
        self._losses = Losses(local, self.roster.remove, self)
        self._lags = Lags(self.env, self.engine)
        self._observer = Observer(self)
        self._removals = Removals(self.env, self.engine)
        self._failing = FailingLinks(local)
        self._late = LateBackups(local, self)
        self._slow = SlowBackups(local, self._late, self._drop_slow)
        self._looked = now
        self._last_tick = now
        self._base = self._sealed = self.engine.position
        """Last position sent; messages of local queues have positions, too, but are never sent."""
        self._handlers: dict[int, Callable[[Peer, int, bytes], None]] = {
            Kind.CONTROL: self._arrivals.on_control,
            Kind.ACK: self._on_ack,
            Kind.CREDIT: self._arrivals.on_credit,
            Kind.HELD: self._arrivals.on_held,
            Kind.LACK: self._arrivals.on_lack,
            Kind.HEARTBEAT: self._on_heartbeat,
        }

    # ---- begin and end --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Put the first in-sync set of our epoch into the log and wait for the expected backups."""
        expected = dict(self.roster.expected)
        self.roster.begin(self._claim, self._base)
        self._hold_inherited()
        if expected:
            self.env.after(self.settings.backup_timeout, self._backup_timeout)
            names = ", ".join(str(member) for member in expected.values())
            self.env.log("notice", f"recovering backups: {names}")

    def _hold_inherited(self) -> None:
        """Nothing is known of a member of the set before that is not expected: its host refuses, and it may live.  Its
        leader alone has all that it sent."""
        acked = {peer.id: peer.acked for peer in self.roster.counting}
        unknown = self._claim.base.ids - acked.keys() - {self.local.id, self._claim.base.leader}
        self.engine.hold_inherited(0 if unknown else min(acked.values(), default=0))

    def stop(self) -> None:
        self.frozen = self.stopped = True
        self.roster.stop()
        self._losses.stop()
        self._removals.stop()
        self.throttle.stop()
        for link in list(self._links):
            link.close()
        self._links.clear()
        self._live.clear()

    @property
    def position(self) -> int:
        return self.engine.position

    def view(self) -> View:
        """Cut off from a majority, it names the set that others may rely on: a set that it has made smaller alone, for
        ever, would hinder those whom it removed.  If it grants a claim that is based on the set before, it is deposed,
        and confirms nothing under the smaller one."""
        view = super().view()
        return replace(view, in_sync=self.roster.relied) if view.isolated else view

    # ---- the hot part: once for each turn -------------------------------------------------------------------------

    def batch(self, batch: Batch) -> None:
        """The core has sealed a batch: send it to every backup, live."""
        now, settings = self.env.now(), self.settings
        if now - self._last_tick > settings.dead_after:
            self._resumed()
        self._sealed = batch.last
        self._lags.sealed(now, batch)
        for link in self._live:
            link.send_batch(batch)
            if link.backlog > settings.backlog_high and not self.throttle.slow:
                self._slow_down(self._links[link], link.backlog)
        self.update_safe()

    def _slow_down(self, peer: Peer, backlog: int) -> None:
        if not self._late.out(peer.id):
            self.throttle.set_slow(f"backup {peer.member} is slow: {backlog >> 20} MiB wait for it")

    def update_safe(self) -> None:
        """Recompute how far the log is safe and tell the core."""
        if self.throttle.slow and not any(map(self._holds_up, self._live)):
            self.throttle.set_slow("")
        roster = self.roster
        journal = self.local.journal
        if self.frozen or not roster.may_confirm or not journal.complete:
            return
        low = journal.position
        for peer in roster.counting:
            if peer.acked < low:
                low = peer.acked
        if low > self.engine.safe:
            self.engine.advance_safe(low)

    @property
    def patience(self) -> float:
        return 2.0 if self.roster.ready() else math.inf

    @property
    def outlook(self) -> Outlook:
        return self._observer.outlook

    @property
    def starved(self) -> Member | None:
        """A backup that counts, and lacks what we cannot read: it is never complete here, and all confirms wait for it.
        It holds everything that was confirmed."""
        counting = {peer.id for peer in self.roster.counting}
        stuck = (peer for peer in self._links.values() if peer.whole and peer.plan is not None and peer.plan.hole)
        return next((peer.member for peer in stuck if peer.id in counting), None)

    def durable(self) -> None:
        if not self.stopped:
            self.update_safe()

    def _on_ack(self, peer: Peer, position: int, body: bytes) -> None:
        if position > self.engine.position or position < peer.received:
            known = f"{text(peer.received)} to {text(self.engine.position)}"
            raise LinkError(f"{peer.member} acknowledges {text(position)}, expected {known}")
        peer.received = position
        if peer.phase is Phase.COMPLETE:
            self.complete_to(peer, position)

    def _on_heartbeat(self, peer: Peer, position: int, body: bytes) -> None:
        if peer.phase is not Phase.HELLO:
            self.note_clock(str(peer.member), peer.readings, body)

    def complete_to(self, peer: Peer, position: int) -> None:
        peer.acked = max(peer.acked, position)
        peer.reported = True
        if peer.target and position >= peer.target and not self._late.out(peer.id):
            self.roster.enlist(peer)
        if self.roster.removing:
            self.roster.release()
        self.update_safe()

    # ---- a backup arrives -----------------------------------------------------------------------------------------

    def accepted(self, link: Link, properties: Json) -> None:
        """A backup has opened a link; the conversation begins with its hello."""
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

    def refusal(self, peer: Peer) -> str:
        """Why this backup may not connect yet; empty if it may connect."""
        now = self.env.now()
        return self._slow.refusal(peer.id, now) or self._failing.refusal(peer.id, now)

    def elsewhere(self, peer: Peer, member: Member) -> Peer | None:
        """A linked peer with the same id and another instance."""
        linked = (other for other in self._links.values() if other is not peer and other.id == member.id)
        return next((other for other in linked if not other.member.same_life(member)), None)

    def send_away(self, peer: Peer) -> None:
        """Close the link of a peer that has been told why."""
        if peer.link is not None:
            peer.link.close()
        self._forget_link(peer)

    def take_place(self, peer: Peer, position: int) -> None:
        """Take over what is known of this broker: an old link, a place in the set."""
        for link, other in list(self._links.items()):
            if other is not peer and other.id == peer.id:
                link.close()
                self._forget_link(other)
        old = self.roster.find(peer.id)
        if old is None:
            return
        self._losses.back(peer.id)
        if not peer.member.stands_for(old.member) or (old.reported and position < old.acked):
            peer.whole = False
        if not peer.whole:
            self.local.spent.add(peer.id)
        if peer.whole and peer.member.same_life(old.member):
            self.roster.keep_place(peer, old)
        elif peer.whole and peer.id in self.roster.expected:
            """Its place is kept, see below.  (`content.py` says why that does not make it count.)"""
        elif self.local.may_shrink([peer.id]):
            self.roster.remove([old])
        # Otherwise its place, with `acked`, is kept until it is complete: the set must not get smaller.

    def go_live(self, link: Link) -> int:
        """Returns the cut: everything after it in the log is sent to this link."""
        cut = self.engine.flush()
        self._live.append(link)
        return cut

    def seal(self) -> int:
        """Send the rest of the log.  Returns the last position that backups can acknowledge."""
        self.engine.flush()
        return self._sealed

    def listed(self, peer: Peer) -> None:
        """It has been made a member of the set; it may have been lost while that was recorded."""
        if peer.link is None:
            self._losses.lost(peer)

    # ---- a backup is lost -----------------------------------------------------------------------------------------

    def kept(self, peer: Peer) -> None:
        """It is lost still, unless it is on its way back."""
        if any(other.id == peer.id for other in self._links.values()):
            peer.dropped = False
        else:
            self._losses.lost(peer)

    def closed(self, link: Link, reason: str, silent: bool = False) -> None:
        """The peer of a link went away, or was silent for too long."""
        peer = self._links.get(link)
        if peer is None:
            return
        now = self.env.now()
        self._failing.broke(peer, now)
        self._forget_link(peer)
        if peer.id:
            self.env.log("warning", f"backup {peer.member} is lost: {reason}")
            self.env.event("backup_lost", peer=str(peer.member), reason=reason, last_pos=peer.acked)
        held = self.roster.find(peer.id)
        if held is not None and held.link is None:
            held.dropped = held.dropped or self._failing.is_due(held, now)
            self._losses.lost(held, silent)

    def _drop_slow(self, peer: Peer, reason: str) -> None:
        """See `slow.py`."""
        link = peer.link
        assert link is not None
        link.close()
        self.closed(link, reason)

    def _holds_up(self, link: Link) -> bool:
        """True if the publishers must go on waiting for it."""
        return link.backlog >= self.settings.backlog_low and not self._late.out(self._links[link].id)

    def delay(self, peer: Peer) -> float:
        return self._lags.delay(peer.received)

    def suspect_late(self, since: float) -> None:
        self._losses.expect(since)

    def leave(self, peer: Peer, since: float) -> None:
        peer.dropped, peer.lost_at = True, self.env.now()
        self._losses.lost(peer, since=since)

    def come_back(self, peer: Peer) -> None:
        peer.dropped = False
        self._losses.back(peer.id)
        if peer.id not in self.local.persisted.in_sync:
            peer.target = self.seal()
            self.complete_to(peer, peer.received)

    def dismiss_strangers(self, counting: set[str]) -> None:
        """Refuse linked peers that have left the cluster and whose removal is safe."""
        for peer in list(self._links.values()):
            if peer.id and peer.id not in counting and not self.local.cluster.is_broker(peer.member.address):
                self._arrivals.control(peer, "refused", reason="it is no longer a member of the cluster")
                self.send_away(peer)

    def _forget_link(self, peer: Peer) -> None:
        link = peer.link
        if link is not None:
            self._links.pop(link, None)
            if link in self._live:
                self._live.remove(link)
        peer.link, peer.plan, peer.phase = None, None, Phase.AWAY
        self.throttle.set_limited(peer, "")
        peer.lost_at = self.env.now()
        self._arrivals.left(peer)

    def _backup_timeout(self) -> None:
        """Expected backups that have not even connected are treated as lost."""
        if self.stopped:
            return
        expected = [peer for peer in self.roster.counting if peer.id in self.roster.expected]
        for peer in expected:
            if peer.link is None:
                self.env.log("error", f"expected backup {peer.member} has not come back in time")
                self._losses.lost(peer)
            else:
                self._failing.has_waited(peer.id)

    def check_active(self) -> None:
        """Become active if no backup is expected any more; call this when one is back or was given up."""
        if self.roster.recovered and self.local.state is State.RECOVERING:
            self.local.set_state(State.ACTIVE, self.position)

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Four times in each heartbeat interval."""
        now = self.env.now()
        if now - self._last_tick > self.settings.dead_after:
            self._resumed()
        self._last_tick = now
        self._lags.tick(now, self._links.values())
        live = [self._links[link] for link in self._live]
        complete = [peer for peer in live if peer.phase is Phase.COMPLETE]
        self._late.look(self.roster.ready(), complete, self._lags.delay(self.local.journal.position), now)
        self._slow.look(live, now)
        self._check_invariants()
        for link, peer in list(self._links.items()):
            self._tick_link(link, peer, now)
        if now - self._looked >= self.settings.maintenance:
            # A rival may have been promoted without telling us: survey the others regularly.
            self._looked = now
            self._losses.watch()
            self.roster.record.watch()
        self.update_safe()
        self._observer.look(now)
        self._removals.tick(now)

    def _tick_link(self, link: Link, peer: Peer, now: float) -> None:
        silence = peer.pulse.look(link, now)
        interval = self.settings.heartbeat
        if silence > self.settings.dead_after:
            link.close()
            self.closed(link, f"silent for {silence:.3f} s", silent=True)
            return
        if silence > interval and peer in self.roster.counting:
            self._losses.suspect(peer)
        if peer.pulse.must_speak(link, now, interval / 2) or peer.readings.due(now):
            self.heartbeat(link, peer)
        self._failing.look(peer)
        self._arrivals.pump(peer)
        self._tell_logins(link, peer)

    def _tell_logins(self, link: Link, peer: Peer) -> None:
        if peer.takes_logins and self.local.logins is not None:
            peer.told, digests = self.local.logins.news(peer.told, MOST)
            if digests:
                link.send_frame(Kind.LOGINS, 0, encode_logins(digests))

    def heartbeat(self, link: Link, peer: Peer) -> None:
        body = peer.readings.say(self.env.now(), self.env.wall())
        link.send_frame(Kind.HEARTBEAT, self._sealed if link in self._live else 0, body)

    def _resumed(self) -> None:
        """This process was paused for longer than a link may be silent: another broker may have been promoted.  Confirm
        nothing until a survey has found no rival."""
        now = self.env.now()
        pause, self._last_tick = now - self._last_tick, now
        self.env.log("warning", f"this process did not run for {pause:.3f} s")
        attrs = {"ms": str(round(pause * 1000))}
        self.env.event("resumed", result="begun", last_pos=self.engine.safe, attrs=attrs)
        self.frozen = True
        for peer in self._links.values():
            peer.pulse.forgive(now)
        self._losses.resumed()

    def learn(self, survey: Survey) -> bool:
        """True if another broker has a higher ballot; then this role has ended."""
        highest = max(survey.views, key=lambda view: view.ballot, default=None)
        if highest is None or highest.ballot <= self.local.persisted.ballot:
            return False
        address = highest.address if highest.state.is_primary else highest.primary
        self.depose(highest.ballot, f"{highest.member} has seen epoch {highest.epoch}", address)
        return True

    def unfreeze(self) -> None:
        """A survey has found no rival."""
        if self.frozen and not self.stopped:
            self.frozen = False
            self.env.event("resumed", result="ended", last_pos=self.engine.safe)
            self.update_safe()

    def _check_invariants(self) -> None:
        if not self.local.state.is_primary:
            raise InvariantError(f"primary role in state {self.local.state.value}")
        if epoch_of(self.engine.position) != self.local.epoch:
            raise InvariantError(f"log in epoch {epoch_of(self.engine.position)}, voted for {self.local.epoch}")
        missing = self.local.persisted.in_sync.ids - {self.local.id} - {peer.id for peer in self.roster.counting}
        if missing:
            raise InvariantError(f"in-sync but not counted: {sorted(missing)}")

    # ---- what others see ------------------------------------------------------------------------------------------

    def ready(self) -> list[Peer]:
        """The backups in sync."""
        return self.roster.ready()

    @property
    def sealed(self) -> int:
        """Last position of the log that backups can acknowledge."""
        return self._sealed

    def linked(self, brokers: Iterable[str]) -> int:
        """How many of these brokers are connected and have said hello, without failing ones (`failing.py`)."""
        found = [peer for peer in self._links.values() if peer.phase is not Phase.HELLO]
        return sum(peer.member.address in brokers and not self._failing.fails(peer.id) for peer in found)

    @property
    def isolation(self) -> str:
        return self._observer.isolation.reason

    def stall(self) -> Json | None:
        return self._observer.stall.shown()

    def members(self) -> list[Json]:
        """For `qpid-ha query` and the management pages."""
        shown = self.roster.shown(self._links.values(), self._lags)
        return [{**member, "late": self._late.remaining(member["id"])} for member in shown]

    @property
    def primary_address(self) -> str:
        return self.settings.address
