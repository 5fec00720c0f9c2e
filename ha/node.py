"""A broker as a member of a cluster: its state, its vote, its role, and the way from one to the next.

    node.state      one of `status.State`; every step is checked against the table there
    node.persisted  ballot and in-sync set, on disk before they are acted upon
    node.whole      we hold everything up to `role.position` (see `promotion.py`)
    node.lineage    under whose claim the content of each epoch was written, and what that leader held when it took over
    node.acknowledged   up to where we have told a primary that we hold everything
    node.led        the epochs in which we were primary, since this process began
    node.role       Primary or Backup

Invariants:  state is recovering or active  <=>  role is Primary;  ballot and in-sync key never go back;
             the role is Primary only while ballot == (epoch of the log, our id).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ha.backup.advice import advise
from ha.backup.backup import Backup
from ha.environment import Answer, Configuration, Environment, Json, Link, StateNotStored
from ha.model.difference import Lineage, Origin
from ha.model.disk import DiskWatch
from ha.model.membership import HaState, InSync, Member
from ha.model.operations import Membership
from ha.model.position import text
from ha.model.public_url import public_address
from ha.model.safety import Safety, fragile
from ha.model.status import State, check_transition
from ha.model.survey import Round
from ha.model.twins import REMEDY, Sightings, place
from ha.model.view import Survey, View
from ha.primary.primary import Primary
from ha.primary.relocation import Relocation, choose
from ha.promotion.candidacy import Candidacy
from ha.promotion.claims import Claim, ClaimRequest, grant
from ha.promotion.promoter import NO_WISH, Promoter, Wish
from ha.promotion.takeover import Takeover
from ha.requests import NodeRequests, Reply
from ha.role import Role
from ha.settings import NodeSettings
from qpidd_py.core import Batch, Engine
from qpidd_py.errors import InvariantError, LinkError, ReplyCode


class Node:
    """The HA core of one broker; `environment.py` says who calls what."""

    def __init__(
        self,
        settings: NodeSettings,
        engine: Engine,
        configuration: Configuration,
        env: Environment,
        state: HaState,
        instance: str = "",
    ) -> None:
        """`instance`: a name of this life of the process that no other life has, also not one under the same id."""
        self.settings = settings
        self.instance = instance
        self.engine = engine
        self.configuration = configuration
        self.env = env
        self.persisted = state
        self.state = State.STANDALONE
        self.whole = False
        self.lineage: Lineage = {}
        self.acknowledged = 0
        self.led: set[int] = set()
        self.safety = Safety(settings.safety, settings.brokers, settings.isolation_wait)
        self.promoter: Promoter | None = None
        self.takeover: Takeover | None = None
        self.relocation: Relocation | None = None
        self.stopped = False
        self._heard = InSync()  # the newest set that anybody has told us of; good for finding brokers, not for deciding
        self._sampled_at = -1.0
        self._sampled = (0, 0)
        self.sightings = Sightings(env)
        self.disk = DiskWatch(self)
        self.requests = NodeRequests(self)
        self.candidacy = Candidacy(self)
        self.role: Role = Backup(self)

    # ---- who we are -----------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.persisted.id

    @property
    def epoch(self) -> int:
        return self.persisted.epoch

    @property
    def member(self) -> Member:
        return Member(self.id, self.settings.name, self.settings.address, self.instance)

    @property
    def ever_whole(self) -> bool:
        """Has this process held everything at some time?  Then it may have what nobody else has."""
        return self.whole or bool(self.acknowledged or self.led)

    def view(self) -> View:
        """What we say of ourselves when we are asked."""
        return View(
            self.id,
            self.settings.name,
            self.settings.address,
            self.state,
            self.epoch,
            self.persisted.leader,
            self.role.position,
            self.whole,
            self.persisted.in_sync,
            self.role.primary_address,
            self.role.doubt,
            self.role.stood,
            self.safety.mode == "quorum" and bool(self.role.isolation),
            self.instance,
        )

    @property
    def brokers(self) -> tuple[str, ...]:
        """Addresses of the cluster's members, as in the newest in-sync set that we know, else as in ha-brokers-url."""
        return self.safety.voters(self.persisted.in_sync)

    def is_broker(self, address: str, in_sync: InSync | None = None) -> bool:
        """By this set, or by the newest that we know; by ha-brokers-url while the list was not changed at run time.
        Who does not know his address cannot be looked up, and counts for no majority."""
        brokers = self.safety.voters(in_sync or self.persisted.in_sync)
        return not brokers or not address or address in brokers

    def others(self, in_sync: InSync | None = None) -> list[str]:
        """Addresses of all other brokers of the cluster, as in this set or in the newest that we know."""
        in_sync = in_sync or self.persisted.in_sync
        members = [member.address for member in in_sync.members if member.id != self.id]
        addresses = dict.fromkeys([*self.safety.voters(in_sync), *members])
        return [address for address in addresses if address and address != self.settings.address]

    def everybody(self) -> list[str]:
        """`others`, those of ha-brokers-url, and those that we were told of: what we have on disk may be old."""
        addresses = dict.fromkeys([*self.others(), *self.settings.brokers, *self.others(self._heard)])
        return [address for address in addresses if address != self.settings.address]

    def latest(self) -> list[str]:
        """`others` by the newest set that we have or were told of."""
        return self.others(max(self.persisted.in_sync, self._heard, key=lambda in_sync: in_sync.key))

    def survey(self, answers: Mapping[str, Answer]) -> Survey:
        """What these answers say of the others."""
        return Survey.of(self.id, answers, self.instance)

    def persist(self, **changes: Any) -> None:
        """Change the vote or the set; it is on disk when this returns.  Raises StateNotStored: then nothing has
        changed, and what depends on it must not happen (README, "A disk that fails")."""
        state = self.persisted.advance(**changes)
        if state != self.persisted:
            self.disk.store(state)
            self.persisted = state

    def set_state(self, new: State) -> None:
        """Raises InvariantError for an illegal step."""
        old, reason = self.state, check_transition(self.state, new)
        self.state = new
        self.env.log("notice", f"{old.value} -> {new.value}: {reason}")
        self.env.event("state", old=old.value, new=new.value, reason=reason, last_pos=self.role.position)
        self.candidacy.look()

    def set_address(self, address: str) -> None:
        """Where other brokers reach us, once the ports are open."""
        self.settings = replace(self.settings, address=address or self.settings.address)

    # ---- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Become a member: joining, until a primary is found or we are promoted."""
        if warning := fragile(self.safety.mode, self.brokers):
            self.env.log("warning", warning)
        self.set_state(State.JOINING)
        self.role.start()
        self.env.after(self.settings.heartbeat / 4, self._tick)

    def stop(self) -> None:
        """A clean end of the process."""
        self.stopped = True
        self.role.stop()

    def end(self, reason: str) -> None:
        """This broker cannot be part of the cluster as it is: the process ends, and says why."""
        self.stop()
        self.env.end(reason)

    def _tick(self) -> None:
        if self.stopped:
            return
        self.disk.tick()
        self.role.tick()
        self.candidacy.tick()
        self._sample()
        self.env.after(self.settings.heartbeat / 4, self._tick)

    def _sample(self) -> None:
        """Positions once a second, so that reports can order what brokers and clients did."""
        now = self.env.now()
        sample = self.role.position, self.engine.safe
        if now - self._sampled_at < 1.0 or sample == self._sampled:
            return
        self._sampled_at, self._sampled = now, sample
        if self.state.is_primary:
            self.env.event("repl_send", last_pos=sample[0])
            self.env.event("confirm_sent", last_pos=sample[1])
        else:
            self.env.event("repl_recv", last_pos=sample[0])

    def ask_all(
        self,
        timeout: float,
        done: Callable[[dict[str, Answer]], None],
        enough: Callable[[Answer], bool] = lambda answer: False,
        addresses: Iterable[str] | None = None,
    ) -> Round:
        """Ask every other broker for its view.  Our ballot goes with the question: a primary below it is deposed."""
        asker = {"epoch": self.epoch, "leader": self.persisted.leader, **self.member.to_json()}

        def finish(answers: dict[str, Answer]) -> None:
            for address, answer in answers.items():
                if (answer.result.get("id"), answer.result.get("instance", "")) == (self.id, self.instance):
                    self.set_address(address)  # we have asked ourselves: so that is where others reach us
            survey = self.survey(answers)
            for twin in survey.twins:
                self.sightings.seen(twin.member, self.member, "it answers our questions")
            sets = [self._heard, *(view.in_sync for view in survey.views)]
            self._heard = max(sets, key=lambda in_sync: in_sync.key)
            done(answers)

        asked = self.others() if addresses is None else addresses
        return Round(self.env, asked, "ha.ask", asker, timeout, finish, enough)

    # ---- links ----------------------------------------------------------------------------------------------------

    def link_accepted(self, link: Link, properties: Json) -> None:
        self.role.accepted(link, properties)

    def link_frame(self, link: Link, kind: int, position: int, body: bytes) -> None:
        try:
            self.role.frame(link, kind, position, body)
        except LinkError as error:
            self.break_link(link, error)

    def link_batches(self, link: Link, position: int) -> None:
        try:
            self.role.batches(link, position)
        except LinkError as error:
            self.break_link(link, error)

    def link_closed(self, link: Link, reason: str) -> None:
        self.role.closed(link, reason)

    def break_link(self, link: Link, error: LinkError) -> None:
        """The peer's fault costs the link."""
        self.env.log("warning", f"replication link closed: {error}")
        link.close()
        self.role.closed(link, str(error))

    # ---- the engine's hooks ---------------------------------------------------------------------------------------

    def batch(self, batch: Batch) -> None:
        self.role.batch(batch)

    def membership(self, position: int, payload: bytes) -> None:
        """A MEMBERSHIP record in what a primary sends."""
        if isinstance(self.role, Backup):
            self.role.membership(position, Membership.decode(payload))

    # ---- promotion ------------------------------------------------------------------------------------------------

    def promote(self, reply: Reply, wish: Wish = NO_WISH) -> None:
        """Become primary if that is safe (`promotion.py`).  A primary says yes and changes nothing."""
        if self.state.is_primary or self.state is State.STANDALONE:
            reply({"ok": True, "result": {}})
        elif self.takeover is not None and wish.takeover:
            self.takeover.replies.append(reply)
        elif self.promoter is not None:
            self.promoter.replies.append(reply)
        else:
            self.promoter = Promoter(self, wish)
            self.promoter.replies.append(reply)
            self.promoter.start()

    def take_over(self, primary: View, wish: Wish, replies: list[Reply]) -> None:
        """The manager wants us, and this one is primary."""
        self.takeover = Takeover(self, primary, wish, replies)
        self.takeover.start()

    def pause_backup(self) -> None:
        if isinstance(self.role, Backup):
            self.role.pause()

    def resume_backup(self) -> None:
        if isinstance(self.role, Backup):
            self.role.resume()

    def search_again(self) -> None:
        """A promotion was refused: the score may be made of facts that are not true any more."""
        if isinstance(self.role, Backup):
            self.role.search_again()

    def become_primary(self, claim: Claim, forced: bool = False) -> None:
        """The claim stands: our log goes on in the new epoch, and clients are let in.  Raises StateNotStored: then
        nothing has changed."""
        if self.persisted.ballot != (claim.epoch, self.id):
            raise InvariantError(f"claimed epoch {claim.epoch}, voted {self.persisted.ballot}")
        self.persist(in_sync=claim.base.succeed(claim.epoch, self.id, claim.members))
        base = self.role.position if self.whole else 0
        self.role.stop()
        for queue, _ in self.configuration.replicated():
            # What had come of an unfinished difference is worth keeping, in its place.
            self.engine.merge(queue.number)
        self.engine.begin_epoch(claim.epoch)
        self.lineage = {**self.lineage, claim.epoch: Origin(self.id, base)}
        self.led.add(claim.epoch)
        self.whole = True
        role = Primary(self, claim)
        self.role = role
        self.set_state(State.RECOVERING)
        self.configuration.on_promoted()
        self.env.log("notice", f"promoted: primary of epoch {claim.epoch} at {text(self.engine.position)}")
        self._say_promoted(claim, forced, base)
        role.start()

    def _say_promoted(self, claim: Claim, forced: bool, base: int) -> None:
        """`base`: the end of the log that goes on, 0 if it is not whole."""
        attrs: Json = {"members": len(claim.members), **({"base": base} if base else {})}
        if forced:
            attrs["forced"] = "true"
            self.env.log("warning", "promoted by force: confirmed messages may be lost")
        elif not claim.whole and claim.base.version and self.safety.probes:
            attrs["total_failure"] = "true"
            what = "every member of the in-sync set has died or restarted; what was only in memory is lost"
            self.env.log("warning", f"promoted after a total failure: {what}")
        elif not claim.whole and claim.base.version:
            self.env.log("warning", "promoted without holding everything: confirmed messages may be lost")
        self.env.event("promoted", last_pos=self.engine.position, attrs=attrs)

    def claimed(self, claim: ClaimRequest) -> Json:
        """Another broker claims an epoch; what we answer is on disk before we answer it."""
        if claim.claimant.id == self.id and claim.claimant.instance == self.instance:
            return {"granted": True, "reason": "", "id": self.id, "epoch": self.epoch}
        if claim.claimant.id == self.id:
            # It has a copy of our vote.  Given twice, one vote would make two majorities that do not meet.
            self.sightings.seen(claim.claimant, self.member, "its claim is denied")
            reason = f"{place(self.member)} lives and has the claimant's identity; {REMEDY}"
        else:
            reason = grant(self.view(), claim)
        abstains = "" if reason else self._vote(claim)
        reason = reason or abstains
        if not reason:
            if isinstance(self.role, Primary):
                self.depose(claim.ballot, f"{claim.claimant} claims epoch {claim.epoch}", claim.claimant.address)
            if isinstance(self.role, Backup):
                self.role.follow(claim.claimant.address)
        self.env.event("claim", peer=str(claim.claimant), result="denied" if reason else "granted", reason=reason)
        answer: Json = {"granted": not reason, "reason": reason, "abstains": bool(abstains)}
        return answer | {"id": self.id, "epoch": self.epoch}

    def _vote(self, claim: ClaimRequest) -> str:
        """Why our vote cannot be given; empty: it is on disk."""
        try:
            self.persist(epoch=claim.epoch, leader=claim.claimant.id)
        except StateNotStored as error:
            return f"{self.member} cannot store its vote: {error}"
        return ""

    # ---- being deposed --------------------------------------------------------------------------------------------

    def learn(self, survey: Survey) -> bool:
        """Has a primary been overtaken?  True when that was news, and we have stepped down."""
        highest = max(survey.views, key=lambda view: view.ballot, default=None)
        if highest is None or highest.ballot <= self.persisted.ballot or not isinstance(self.role, Primary):
            return False
        address = highest.address if highest.state.is_primary else highest.primary
        self.depose(highest.ballot, f"{highest.member} has seen epoch {highest.epoch}", address)
        return True

    def depose(self, ballot: tuple[int, str], reason: str, address: str) -> None:
        """A higher ballot was seen: confirm nothing more, send the clients away, follow the new primary."""
        self.role.stop()
        with suppress(StateNotStored):
            # We confirm nothing more, whatever the disk does.  No one asked for this vote; it is stored when we join.
            self.persist(epoch=ballot[0], leader=ballot[1])
        self.env.log("warning", f"deposed: {reason}")
        self._step_down(Backup(self, doubt=True), reason, address)

    def demote(self, reason: str, address: str = "") -> None:
        """Step down of our own will.  We keep our vote and stay whole: until another broker claims an epoch we can be
        promoted again.  `address`: who is going to be primary."""
        if not isinstance(self.role, Primary):
            return
        self.engine.flush()
        self.role.stop()
        self.env.log("notice", f"stepping down: {reason}")
        role = Backup(self)
        role.expect(address)
        self._step_down(role, reason, "")

    def relocate(self, to: str, reply: Reply) -> None:
        """Hand over to the backup of that name, id or address (empty: to the best); see `relocation.py`."""
        if self.relocation is not None:
            raise LinkError(f"{self.member} is being relocated already: {self.relocation}")
        target = choose(self, to)
        if isinstance(target, str):
            raise LinkError(f"cannot relocate: {target}")
        self.relocation = Relocation(self, target, reply)
        self.relocation.start()

    def _step_down(self, role: Backup, reason: str, address: str) -> None:
        self.env.event("demote", reason=reason, last_pos=self.engine.position)
        self.configuration.on_deposed()
        self.role = role
        self.set_state(State.JOINING)
        # Clients first: their channels give back what they hold, and only then may the engine forget all of that.
        self.env.close_clients(ReplyCode.CONNECTION_FORCED, self.refusal_text(client=True))
        # What this turn has removed, or the clients' end, is not in the log yet, and what we hold must be what it says.
        role.holds_all(self.engine.flush())
        self.engine.demote()
        # Not from within this call: it may have come from a frame of a link that is just being closed.
        self.env.after(0.0, lambda: self._begin_again(role, address))

    def _begin_again(self, role: Backup, address: str) -> None:
        if role is not self.role or role.stopped or self.stopped:
            return
        if address and address != self.settings.address:
            role.follow(address)
        else:
            role.start()

    def unfreeze(self) -> None:
        self.role.unfreeze()

    # ---- what others see ------------------------------------------------------------------------------------------

    def stall(self) -> Json | None:
        """Why confirms wait: why, seconds, until; None while they do not."""
        return self.role.stall()

    def advice(self) -> str:
        """For an administrator, while there is no primary, or something else is in the way."""
        if self.disk.error:
            return f"its vote and in-sync set cannot be stored: {self.disk.error}"
        if self.role.trouble:
            return self.role.trouble
        return advise(self.view(), self.role.survey) if self.role.survey is not None else ""

    def isolation_text(self) -> str:
        """The reply text for clients of an isolated primary; empty when this is none."""
        reason = self.role.isolation
        return f"CONNECTION_FORCED - isolated: {self.member} is cut off ({reason})" if reason else ""

    def refusal_text(self, client: bool = False) -> str:
        """The reply text of a backup; names the primary when it is known, to a client as clients reach it."""
        address = self.role.primary_address
        if client:
            address = public_address(address, self.settings.brokers, self.settings.public_url)
        where = f"the primary is {address}" if address else "the primary is not known"
        return f"CONNECTION_FORCED - {self.member} is a backup ({self.state.value}); {where}"

    def request(self, method: str, arguments: Json, reply: Reply, user: str) -> bool:
        """Management methods; False for one that is not ours."""
        return self.requests.request(method, arguments, reply, user)
