"""A broker as a member of a cluster: its role, and the changes of role.

    node.local      what every part may use: ports, vote, state, the other brokers (`local_member.py`)
    node.role       Primary or Backup

Invariants:  state is recovering or active  <=>  role is Primary;
             the role is Primary only while ballot == (epoch of the log, our id).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ha.backup.advice import advise
from ha.backup.backup import Backup
from ha.model.content import Content
from ha.model.difference import Origin
from ha.model.environment import EXIT_TWIN, ElsewherePrimary, Json, Link, Reply, StateNotStored
from ha.model.local_member import LocalMember
from ha.model.membership import Membership
from ha.model.position import text
from ha.model.safety import fragile
from ha.model.status import State
from ha.model.twins import REMEDY, place
from ha.model.view import View
from ha.primary.giving_way import UNREADABLE, GivingWay
from ha.primary.primary import Primary
from ha.primary.relocation import Relocation, choose
from ha.promotion.candidacy import Candidacy
from ha.promotion.case import ManagerRecord
from ha.promotion.claims import Claim, ClaimRequest, end_of_log, grant
from ha.promotion.promoter import NO_WISH, Promoter, Wish
from ha.promotion.score import Outlook
from ha.promotion.takeover import Takeover
from ha.role import Role
from qpidd_py.core import Batch, reading
from qpidd_py.errors import EXIT_DISK, InvariantError, LinkError, ReplyCode


class Node:
    """The HA core of one broker; `model/environment.py` lists the calls on it."""

    def __init__(self, local: LocalMember) -> None:
        self.local = local
        self.promoter: Promoter | None = None
        self.takeover: Takeover | None = None
        self.relocation: Relocation | None = None
        self._sampled_at = -1.0
        self._sampled = (0, 0)
        self.giving_way = GivingWay(local, self)
        self.role: Role = Backup(self.local, self.end)
        self.candidacy = Candidacy(self.local, self._standing)
        self.local.changed = self._changed
        self.noticed: Callable[[], None] = lambda: None
        """Called after every change of the state, or of what we know of the primary."""

    def _changed(self) -> None:
        self.candidacy.look()
        self.noticed()

    def view(self) -> View:
        """Our answer to `ha.ask`."""
        return self.role.view()

    def _standing(self) -> tuple[View, Outlook]:
        return self.role.view(), self.role.outlook

    # ---- life -----------------------------------------------------------------------------------------------------

    def restore(self, content: Content, mark: int = 0) -> None:
        """Before `start`: our journal has brought back what we held; it had come to `mark`.  Raises StateNotStored."""
        self.local.restore(content, mark)
        # We may have been removed from the set while we were away.
        self.role = Backup(self.local, self.end, doubt=self.local.whole, stood=self.local.whole)

    def start(self) -> None:
        """Become a member in state joining, until a primary is found or we are promoted."""
        local = self.local
        if warning := fragile(local.safety.mode, local.cluster.brokers):
            local.env.log("warning", warning)
        local.set_state(State.JOINING, self.role.position)
        self.role.start()
        local.env.after(local.settings.heartbeat / 4, self._tick)

    def stop(self) -> None:
        """A clean end of the process."""
        self.local.stopped = True
        self.role.stop()

    def end(self, reason: str, code: int = EXIT_TWIN) -> None:
        """This broker cannot be part of the cluster as it is: log `reason` and end the process."""
        self.stop()
        self.local.env.end(reason, code)

    def _tick(self) -> None:
        local = self.local
        if local.stopped:
            return
        if local.disk.due:
            local.can_store()
        if local.journal_watch.look() > self.role.patience:
            self.end(f"{local.journal_watch.hangs}; others can do without this broker", EXIT_DISK)
            return
        self.role.tick()
        self.giving_way.look()
        self.candidacy.tick()
        self._sample()
        local.env.after(local.settings.heartbeat / 4, self._tick)

    def _sample(self) -> None:
        """Write positions to the event log once a second, so that reports can order events of brokers and clients."""
        local = self.local
        now = local.env.now()
        sample = self.role.position, local.engine.safe
        if now - self._sampled_at < 1.0 or sample == self._sampled:
            return
        self._sampled_at, self._sampled = now, sample
        if local.state.is_primary:
            local.env.event("repl_send", last_pos=sample[0])
            local.env.event("confirm_sent", last_pos=sample[1])
        else:
            local.env.event("repl_recv", last_pos=sample[0])

    # ---- links ----------------------------------------------------------------------------------------------------

    def link_accepted(self, link: Link, properties: Json) -> None:
        self.role.accepted(link, properties)

    def link_frame(self, link: Link, kind: int, position: int, body: bytes) -> None:
        try:
            self.role.frame(link, kind, position, body)
        except LinkError as error:
            self.role.break_link(link, error)

    def link_batches(self, link: Link, position: int) -> None:
        try:
            self.role.batches(link, position)
        except LinkError as error:
            self.role.break_link(link, error)

    def link_closed(self, link: Link, reason: str) -> None:
        self.role.closed(link, reason)

    # ---- the engine's hooks ---------------------------------------------------------------------------------------

    def batch(self, batch: Batch) -> None:
        self.local.journal.batch(batch)
        self.role.batch(batch)

    def durable(self, position: int) -> None:
        """Our journal has everything up to here."""
        self.role.durable()

    def membership(self, position: int, payload: bytes) -> None:
        """A MEMBERSHIP record received from a primary."""
        if isinstance(self.role, Backup):
            self.role.membership(position, Membership.decode(payload))

    def limited(self, reason: str) -> None:
        """This broker is at a limit of its own, and reads no publisher; empty: not any more."""
        self.local.limited = reason
        self.role.limited()

    def alarm(self, name: str, reason: str) -> None:
        """An alarm has begun, or (an empty reason) is over."""
        local = self.local
        if reason:
            local.alarms[name] = reason
        else:
            local.alarms.pop(name, None)
        result = "begun" if reason else "ended"
        attrs = {"alarm": name}
        local.env.event("limit", result=result, reason=reason, last_pos=self.role.position, attrs=attrs)

    # ---- messages that cannot be read -----------------------------------------------------------------------------

    def damaged(self, reason: str) -> None:
        """Messages that wait here cannot be read any more, others than before; empty: none are left that cannot.  From
        this call on nobody takes us for whole; as primary we go on with the others, and hand over.  A backup is whole
        again when it has joined again."""
        local = self.local
        hole = bool(reason) and any(queue.replicated for queue, _ in reading.rotten_queues(local.engine))
        local.hole = reason if hole else ""
        if isinstance(self.role, Primary):
            if local.whole and hole:
                self.giving_way.wait()
            local.whole = not hole
        elif hole and isinstance(self.role, Backup):
            self.role.refill(reason)
        local.changed()

    # ---- promotion ------------------------------------------------------------------------------------------------

    def promote(self, reply: Reply, wish: Wish = NO_WISH) -> None:
        """Become primary if that is safe (`promotion.py`).  A primary answers ok and changes nothing."""
        if self.local.state.is_primary or self.local.state is State.STANDALONE:
            reply({"ok": True, "result": {}})
        elif self.takeover is not None and wish.takeover:
            self.takeover.replies.append(reply)
        elif self.promoter is not None:
            self.promoter.replies.append(reply)
        else:
            self.promoter = Promoter(self.local, self, wish)
            self.promoter.replies.append(reply)
            self.promoter.start()

    def take_over(self, primary: View, wish: Wish, replies: list[Reply]) -> None:
        """The manager promotes us while `primary` is primary: ask that one to hand over."""
        self.takeover = Takeover(self.local, self, primary, wish, replies)
        self.takeover.start()

    @property
    def hushed(self) -> frozenset[str]:
        return self.role.hushed

    def recent_record(self) -> ManagerRecord | None:
        return self.candidacy.recent()

    def promotion_ended(self) -> None:
        self.promoter = None
        self.noticed()

    @property
    def may_follow(self) -> bool:
        return self.promoter is not None or self.role.outlook.follows

    def takeover_ended(self) -> None:
        self.takeover = None
        self.noticed()

    def pause_backup(self) -> None:
        if isinstance(self.role, Backup):
            self.role.pause()

    def resume_backup(self) -> None:
        if isinstance(self.role, Backup):
            self.role.resume()

    def search_again(self) -> None:
        """A promotion was refused: the score may be based on outdated facts."""
        if isinstance(self.role, Backup):
            self.role.search_again()

    def become_primary(self, claim: Claim, forced: bool = False) -> str:
        """The claim stands: our log continues in the new epoch, and clients are admitted.  After StateNotStored nothing
        has changed.  Returns what may be lost; empty: nothing."""
        local = self.local
        if local.persisted.ballot != (claim.epoch, local.id):
            raise InvariantError(f"claimed epoch {claim.epoch}, voted {local.persisted.ballot}")
        first = claim.base.succeed(claim.epoch, local.id, claim.members, claim.complete)
        local.persist(in_sync=first, vouched=first.key)
        base = self.role.position if local.whole else 0
        self.role.stop()
        # Messages of an unfinished difference are kept, in their order.
        local.engine.begin_epoch(claim.epoch, first.unsure)
        local.trace({**local.lineage, claim.epoch: Origin(local.id, base)})
        if not local.journal.complete:
            local.journal.begin_again()
        local.led.add(claim.epoch)
        local.spent.clear()
        local.whole = not local.hole
        self.giving_way.wait()
        role = Primary(self.local, claim, self.depose)
        self.role = role
        local.set_state(State.RECOVERING, self.role.position)
        local.configuration.on_promoted()
        local.env.log("notice", f"promoted: primary of epoch {claim.epoch} at {text(local.engine.position)}")
        warning = self._say_promoted(claim, forced, base)
        role.start()
        return warning

    def _say_promoted(self, claim: Claim, forced: bool, base: int) -> str:
        """`base`: the end of the log that is continued, 0 if it is not whole.  Returns the warning, if any."""
        local, warning = self.local, ""
        attrs: Json = {"members": len(claim.members), **({"base": base} if base else {})}
        if forced:
            attrs["forced"] = "true"
            warning = "promoted by force: confirmed messages may be lost"
        elif not claim.whole and claim.base.version and local.safety.probes:
            attrs["total_failure"] = "true"
            what = "every member of the in-sync set has died or restarted; what was only in memory is lost"
            warning = f"promoted after a total failure: {what}"
        elif not claim.whole and claim.base.version:
            warning = "promoted without holding everything: confirmed messages may be lost"
        if warning:
            local.env.log("warning", warning)
        local.env.event("promoted", last_pos=local.engine.position, attrs=attrs)
        return warning

    def claimed(self, claim: ClaimRequest) -> Json:
        """Another broker claims an epoch.  Our vote is on disk before we answer."""
        local = self.local
        if claim.claimant.id == local.id and claim.claimant.instance == local.instance:
            return {"granted": True, "reason": "", "id": local.id, "epoch": local.epoch}
        if claim.claimant.id == local.id:
            # The claimant has a copy of our vote.  Counted twice, it could make two majorities that do not meet.
            local.sightings.seen(claim.claimant, local.member, "its claim is denied")
            reason = f"{place(local.member)} is running and has the claimant's identity; {REMEDY}"
        else:
            reason = grant(self.view(), claim)
        self.local.look_for_namesake(claim.base)
        abstains = "" if reason else (not claim.force and self.local.lost) or self._vote(claim)
        reason = reason or abstains
        if not reason:
            if isinstance(self.role, Primary):
                self.depose(claim.ballot, f"{claim.claimant} claims epoch {claim.epoch}", claim.claimant.address)
            if isinstance(self.role, Backup):
                self.role.follow(claim.claimant.address)
        local.env.event("claim", peer=str(claim.claimant), result="denied" if reason else "granted", reason=reason)
        answer: Json = {"granted": not reason, "reason": reason, "abstains": bool(abstains)}
        lost: Json = {"lost": True} if local.lost else {}
        end: Json = {} if reason else end_of_log(local.member, local.engine.position, claim.base)
        return answer | {"id": local.id, "epoch": local.epoch} | lost | end

    def _vote(self, claim: ClaimRequest) -> str:
        """Why our vote cannot be given; empty if it is on disk."""
        try:
            self.local.persist(epoch=claim.epoch, leader=claim.claimant.id)
        except StateNotStored as error:
            return f"{self.local.member} cannot store its vote: {error}"
        return ""

    # ---- being deposed --------------------------------------------------------------------------------------------

    def depose(self, ballot: tuple[int, str], reason: str, address: str) -> None:
        """A higher ballot was seen: stop confirming, close the clients, follow the new primary."""
        self.role.stop()
        self.local.engine.flush()  # what clients got in this turn is in our log before they have it
        with suppress(StateNotStored):
            # Step down even if the disk fails.  No broker asked for this vote; it is stored when we join.
            self.local.persist(epoch=ballot[0], leader=ballot[1])
        self.local.env.log("warning", f"deposed: {reason}")
        self._step_down(Backup(self.local, self.end, doubt=True), reason, address)

    def demote(self, reason: str, address: str = "") -> None:
        """Step down voluntarily.  We keep our vote and stay whole: until another broker claims an epoch we can be
        promoted again.  `address`: the next primary's, if known."""
        if not isinstance(self.role, Primary):
            return
        self.local.engine.flush()
        self.role.stop()
        self.local.env.log("notice", f"stepping down: {reason}")
        role = Backup(self.local, self.end)
        role.expect(address)
        self._step_down(role, reason, "")

    def relocate(self, to: str, reply: Reply) -> None:
        """Hand over to the backup of that name, id or address (empty: the best one); see `relocation.py`."""
        if self.relocation is not None:
            raise LinkError(f"{self.local.member} is being relocated already: {self.relocation}")
        target = choose(self.role, to)
        if isinstance(target, str):
            failed = LinkError if isinstance(self.role, Primary) else ElsewherePrimary
            raise failed(f"cannot relocate: {target}")
        assert isinstance(self.role, Primary)
        self.relocation = Relocation(self.role, self, target, reply)
        self.relocation.start()

    def relocation_ended(self) -> None:
        self.relocation = None

    def _step_down(self, role: Backup, reason: str, address: str) -> None:
        local = self.local
        # what has been confirmed, for ever: of an epoch that has ended
        confirmed = {"confirmed": str(local.engine.safe)}
        local.env.event("demote", reason=reason, last_pos=local.engine.position, attrs=confirmed)
        local.configuration.on_deposed()
        self.role = role
        local.set_state(State.JOINING, self.role.position)
        # Clients first: their channels must return what they hold before the engine forgets it.
        local.env.close_clients(ReplyCode.CONNECTION_FORCED, role.refusal_text(client=True))
        # Removals of this turn, or by closing clients, are not in the log yet, and our content must match the log.
        role.holds_all(local.engine.flush())
        local.engine.demote()
        # Not from within this call: it may come from a frame of a link that is being closed.
        local.env.after(0.0, lambda: self._begin_again(role, address))

    def _begin_again(self, role: Backup, address: str) -> None:
        if role is not self.role or role.stopped or self.local.stopped:
            return
        if address and address != self.local.settings.address:
            role.follow(address)
        else:
            role.start()

    # ---- what others see ------------------------------------------------------------------------------------------

    def stall(self) -> Json | None:
        """Why confirms wait: why, seconds, until; None if they do not wait."""
        return self.role.stall()

    def alarms(self) -> dict[str, str]:
        """What an administrator has to know, and why: of the broker, and of the disk with the vote."""
        error, slow = self.local.disk.error, self.local.slow_disk
        vote = f"vote: it cannot be stored: {error}" if error else f"vote: {slow}" if slow else ""
        found = {**self.local.alarms, "vote": vote, "journal disk": self.local.journal_watch.hangs}
        return {name: reason for name, reason in found.items() if reason}

    def advice(self) -> str:
        """Advice for the administrator while there is no primary, or while the disk fails; empty if there is none."""
        disk = self.local.disk
        if disk.error:
            return f"its vote and in-sync set cannot be stored: {disk.error}"
        local = self.local
        if trouble := local.slow_disk or local.limited or self.role.trouble or local.closed():
            return trouble
        if local.hole and isinstance(self.role, Primary) and isinstance(why := choose(self.role, ""), str):
            return f"{UNREADABLE}, and nobody can take over: {why}"
        if local.lost or local.copied:
            return local.lost or local.copied
        survey = self.role.survey
        return advise(self.view(), survey, self.local.keeps) if survey is not None else ""
