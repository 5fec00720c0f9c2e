"""The primary's side of joining: the conversation with a backup from its hello until it holds everything.

    HELLO ──hello──▶ HELD ──held-end──▶ COPYING ──work list empty──▶ CLOSING ──complete──▶ COMPLETE

The frames are listed in `protocol.py`.  An error here costs at most the link.  Which backups count is decided by
`roster.py`, once the primary is told that one is complete.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from ha.model.difference import lineage_to_json
from ha.model.environment import Json, Link
from ha.model.hearing import ages
from ha.model.local_member import LocalMember
from ha.model.membership import Member
from ha.model.protocol import (
    VERSION,
    Kind,
    decode_control,
    decode_held,
    encode_control,
    encode_held,
    need,
    need_epoch,
    need_text,
    short_text,
)
from ha.model.twins import REMEDY, place
from ha.model.view import epochs_led
from ha.primary.catchup import Plan
from ha.primary.meetings import Meetings
from ha.primary.peer import Peer, Phase
from ha.primary.throttle import Throttle
from qpidd_py.core import Catchup
from qpidd_py.errors import LinkError


class Feeder(Protocol):
    """What the conversation needs from the primary."""

    local: LocalMember
    stopped: bool

    @property
    def position(self) -> int: ...

    throttle: Throttle

    def depose(self, ballot: tuple[int, str], reason: str, address: str) -> None:
        """A higher ballot was seen."""
        ...

    def break_link(self, link: Link, error: LinkError) -> None: ...

    def elsewhere(self, peer: Peer, member: Member) -> Peer | None:
        """A linked peer with the same id and another instance."""
        ...

    def refusal(self, peer: Peer) -> str:
        """Why this backup may not connect yet; empty if it may connect."""
        ...

    def send_away(self, peer: Peer) -> None: ...

    def take_place(self, peer: Peer, position: int) -> None: ...

    def heartbeat(self, link: Link, peer: Peer) -> None: ...

    def go_live(self, link: Link) -> int:
        """Returns the cut: everything after it in the log is sent to this link."""
        ...

    def seal(self) -> int:
        """Last position of the log that backups can acknowledge."""
        ...

    def complete_to(self, peer: Peer, position: int) -> None: ...


class Arrivals:
    """The primary's side of the conversation."""

    def __init__(self, primary: Feeder) -> None:
        self._primary = primary
        self._local = primary.local
        self._env = primary.local.env
        self._meetings = Meetings(lambda peer, number: self.control(peer, "alive", number=number), self._refuse_twin)

    def on_control(self, peer: Peer, position: int, body: bytes) -> None:
        """Raises LinkError when the backup broke the protocol, as all handlers here."""
        op, fields = decode_control(body)
        if op == "hello" and peer.phase is Phase.HELLO:
            self._hello(peer, fields)
        elif op == "held-end" and peer.phase is Phase.HELD:
            self.begin(peer)
        elif op == "complete" and peer.phase is Phase.CLOSING:
            self._completed(peer)
        elif op == "limited" and peer.phase is not Phase.HELLO:
            self._primary.throttle.set_limited(peer, need_text(fields, "reason"))
        elif op == "heard" and peer.phase is not Phase.HELLO:
            self._local.cluster.asked(peer.member, ages(fields))
        elif op == "alive":
            self._meetings.answered(peer, fields.get("number"))
        elif op == "still-there":
            self.control(peer, "still-there", number=fields.get("number"))
        elif op == "refused":
            raise LinkError(f"{peer.member} refuses us: {short_text(fields, 'reason')}")
        else:
            raise LinkError(f"control {op} in phase {peer.phase.value}")

    def _hello(self, peer: Peer, fields: Json) -> None:
        local = self._local
        member = Member.from_json(fields)
        ballot = need_epoch(fields), need_text(fields, "leader")
        local.cluster.check_epoch(ballot[0], member)
        if ballot > local.persisted.ballot:
            self._primary.depose(ballot, f"{member} has granted epoch {ballot[0]}", "")
        elif member.id == local.id and not member.same_life(local.member):
            self._refuse(peer, member, local.member)
        elif first := self._primary.elsewhere(peer, member):
            # Another process of this id has a link.  Both links stay until one is known dead, or both are known alive.
            self._meetings.begin(first, peer, fields)
        else:
            peer.member = member
            self._welcome(peer, fields)

    def left(self, peer: Peer) -> None:
        """This link has ended: process the hello of a peer that waited for its place."""
        for second, hello in self._meetings.left(peer):
            self._env.after(0.0, partial(self._hello_again, second, hello))

    def _hello_again(self, peer: Peer, fields: Json) -> None:
        link = peer.link
        if self._primary.stopped or link is None or peer.phase is not Phase.HELLO:
            return
        try:
            self._hello(peer, fields)
        except LinkError as error:
            self._primary.break_link(link, error)

    def _refuse_twin(self, first: Peer, second: Peer, fields: Json) -> None:
        self._refuse(second, Member.from_json(fields), first.member)

    def _refuse(self, peer: Peer, twin: Member, other: Member) -> None:
        """Refuse a twin, so that its process ends; without that it would reconnect for ever."""
        self._local.sightings.seen(twin, other, "it is refused")
        running = f"{place(other)}, which is running and has our identity {twin.id[:8]}"
        reason = f"{self._local.member} has a link to {running}"
        self.control(peer, "refused", reason=f"{reason}; {REMEDY}", twin=True)
        self._primary.send_away(peer)

    def _welcome(self, peer: Peer, fields: Json) -> None:
        local = self._local
        self._check_hello(peer, fields)
        peer.whole, peer.state = need(fields, "whole", bool), short_text(fields, "state")
        if epochs_led(fields).get(peer.id, 0) < local.epochs_led.get(peer.id, 0):
            peer.whole = False  # its data directory was put back from before it was primary
        peer.takes_logins = fields.get("logins") is True
        self._compare_journals(peer, "durable" in fields)
        self._primary.take_place(peer, need(fields, "position", int))
        peer.phase = Phase.HELD
        lineage = lineage_to_json(local.lineage)
        welcome = {**local.member.to_json(), "epoch": local.epoch, "version": VERSION, "lineage": lineage}
        if peer.member.before and not peer.whole:
            welcome["whole"] = False  # what its journal has brought back is less than we know of
        self.control(peer, "welcome", **welcome)
        if peer.link is not None:
            self._primary.heartbeat(peer.link, peer)
        self._env.event("backup_connected", peer=str(peer.member), old=peer.state, attrs={"whole": peer.whole})

    def _compare_journals(self, peer: Peer, keeps: bool) -> None:
        """A switch from one to the other goes broker by broker, so this is no reason to refuse it."""
        if keeps != self._local.keeps:
            one, other = (str(peer.member), "this broker") if keeps else ("this broker", str(peer.member))
            what = "a power cut may lose what was confirmed, until all members keep one or none does"
            self._env.log("warning", f"{one} keeps a journal and {other} does not: {what}")

    def _check_hello(self, peer: Peer, fields: Json) -> None:
        """Raises LinkError, after telling the backup why, when it does not belong to this cluster."""
        local, replicate = self._local, self._local.settings.replicate
        reason = ""
        if fields.get("version") != VERSION:
            reason = f"link protocol {fields.get('version')}, {local.member} has {VERSION}"
        elif fields.get("replicate") != replicate:
            reason = f"ha-replicate is {fields.get('replicate')}, at the primary {local.member} it is {replicate}"
        elif peer.id == local.id:
            reason = f"{local.member} has connected to itself"
        elif not local.cluster.is_broker(peer.member.address):
            # One that does not know its address could not be asked, nor told from a copy of a member's data directory.
            found = peer.member.address or "its address is not known"
            reason = f"no member of the cluster: {found}, expected one of {', '.join(local.cluster.brokers)}"
        else:
            reason = self._primary.refusal(peer)
        if reason:
            self.control(peer, "refused", reason=reason)
            raise LinkError(f"{peer.member}: {reason}")

    def on_held(self, peer: Peer, position: int, body: bytes) -> None:
        if peer.phase is not Phase.HELD:
            raise LinkError(f"held frame in phase {peer.phase.value}")
        number, uid, ids = decode_held(body)
        peer.held[number, uid] = ids

    def on_lack(self, peer: Peer, position: int, body: bytes) -> None:
        """Answer which of these messages we lack; the backup may have the only copies (`salvager.py`)."""
        if peer.phase is not Phase.HELD or peer.link is None:
            raise LinkError(f"question about messages in phase {peer.phase.value}")
        number, uid, ids = decode_held(body)
        queues = self._local.configuration.replicated()
        queue = next((q for q, u in queues if (q.number, u) == (number, uid)), None)
        end = self._primary.position
        lacking = ids if queue is None else Catchup(queue, ids, end).drops()
        peer.link.send_frame(Kind.LACK, end, encode_held(number, uid, lacking))

    # ---- the difference -------------------------------------------------------------------------------------------

    def begin(self, peer: Peer) -> None:
        """Fix the cut: everything after it is sent live, everything before it in slices."""
        link, configuration = peer.link, self._local.configuration
        assert link is not None
        cut = self._primary.go_live(link)
        peer.received = cut
        again = partial(self.pump, peer)
        peer.plan = Plan(configuration, peer.held, cut, self._local.settings.slice_size, again)
        peer.phase = Phase.COPYING
        self.control(peer, "cut", cut=cut, in_sync=self._local.persisted.in_sync.to_json())
        link.send_frame(Kind.SNAPSHOT, cut, configuration.snapshot())
        self._local.engine.repeat_delivered()
        self._env.event("catchup_begin", peer=str(peer.member), last_pos=cut, attrs={"queues": peer.plan.queues})
        self.pump(peer)

    def on_credit(self, peer: Peer, position: int, body: bytes) -> None:
        if peer.plan is None or peer.plan.under_way == 0:
            raise LinkError("credit for a slice that was not sent")
        peer.plan.under_way -= 1
        self.pump(peer)

    def pump(self, peer: Peer) -> None:
        """Send as much of the difference as may be sent now."""
        plan, link = peer.plan, peer.link
        if self._primary.stopped or plan is None or link is None or peer.phase is not Phase.COPYING:
            return
        hole = plan.hole
        if plan.step(link):
            self._env.after(0.0, lambda: self.pump(peer))
        elif plan.hole != hole and plan.hole:
            what = f"messages of queue {plan.hole} that it lacks cannot be read here"
            self._env.log("error", f"{peer.member} waits to become whole: {what}")
        elif plan.done and plan.under_way == 0:
            peer.phase = Phase.CLOSING
            self.control(peer, "caught-up", cut=plan.cut)

    def _completed(self, peer: Peer) -> None:
        plan = peer.plan
        assert plan is not None
        peer.phase, peer.plan = Phase.COMPLETE, None
        peer.target = self._primary.seal()
        peer.completed_at = self._env.now()
        seconds = peer.completed_at - peer.started
        attrs = {"slices": plan.slices, "octets": plan.octets, "seconds": round(seconds, 6)}
        self._env.event("catchup_end", peer=str(peer.member), last_pos=plan.cut, attrs=attrs)
        self._primary.complete_to(peer, peer.received)

    def control(self, peer: Peer, op: str, **fields: Any) -> None:
        assert peer.link is not None
        peer.link.send_frame(Kind.CONTROL, self._primary.position, encode_control(op, **fields))
