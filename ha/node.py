"""A broker as a member of a cluster: its state, its vote, its role, and the way from one to the next.

    node.state      one of `status.State`; every step is checked against the table there
    node.persisted  ballot and in-sync set, on disk before they are acted upon
    node.whole      we hold everything up to `role.position` (see `promotion.py`)
    node.lineage    under whose claim the content of each epoch was written
    node.role       Primary or Backup

Invariants:  state is recovering or active  <=>  role is Primary;  ballot and in-sync key never go back;
             the role is Primary only while ballot == (epoch of the log, our id).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ha.backup import Backup
from ha.environment import Answer, Configuration, Environment, Json, Link
from ha.membership import HaState, InSync, Member
from ha.operations import Membership
from ha.position import text
from ha.primary import Primary
from ha.promoter import Promoter
from ha.promotion import Claim, ClaimRequest, Survey, View, grant
from ha.protocol import need
from ha.role import Role
from ha.safety import Safety
from ha.settings import NodeSettings
from ha.status import State, check_transition
from ha.survey import Round
from qpidd_py.core import Batch, Engine
from qpidd_py.errors import InvariantError, LinkError, ReplyCode

Reply = Callable[[Json], None]


class Node:
    """The HA core of one broker; `environment.py` says who calls what."""

    def __init__(
        self, settings: NodeSettings, engine: Engine, configuration: Configuration, env: Environment, state: HaState
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.configuration = configuration
        self.env = env
        self.persisted = state
        self.state = State.STANDALONE
        self.whole = False
        self.lineage: dict[int, str] = {}
        self.safety = Safety(settings.safety, settings.majority, settings.isolation_wait)
        self.promoter: Promoter | None = None
        self.stopped = False
        self._sampled_at = -1.0
        self._sampled = (0, 0)
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
        return Member(self.id, self.settings.name, self.settings.address)

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
        )

    def others(self) -> list[str]:
        """Addresses of all other brokers that we know of."""
        members = [member.address for member in self.persisted.in_sync.members if member.id != self.id]
        addresses = dict.fromkeys([*self.settings.brokers, *members])
        return [address for address in addresses if address and address != self.settings.address]

    def persist(self, **changes: Any) -> None:
        """Change the vote or the set; it is on disk when this returns."""
        state = self.persisted.advance(**changes)
        if state != self.persisted:
            self.env.persist(state)
            self.persisted = state

    def set_state(self, new: State) -> None:
        """Raises InvariantError for an illegal step."""
        old, reason = self.state, check_transition(self.state, new)
        self.state = new
        self.env.log("notice", f"{old.value} -> {new.value}: {reason}")
        self.env.event("state", old=old.value, new=new.value, reason=reason, last_pos=self.role.position)

    def set_address(self, address: str) -> None:
        """Where other brokers reach us, once the ports are open."""
        self.settings = replace(self.settings, address=address or self.settings.address)

    # ---- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Become a member: joining, until a primary is found or we are promoted."""
        self.set_state(State.JOINING)
        self.role.start()
        self.env.after(self.settings.heartbeat / 4, self._tick)

    def stop(self) -> None:
        """A clean end of the process."""
        self.stopped = True
        self.role.stop()

    def _tick(self) -> None:
        if self.stopped:
            return
        self.role.tick()
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
    ) -> Round:
        """Ask every other broker for its view.  Our ballot goes with the question: a primary below it is deposed."""
        asker = {"id": self.id, "epoch": self.epoch, "leader": self.persisted.leader}

        def finish(answers: dict[str, Answer]) -> None:
            for address, answer in answers.items():
                if answer.result.get("id") == self.id:
                    self.set_address(address)  # we have asked ourselves: so that is where others reach us
            done(answers)

        return Round(self.env, self.others(), "ha.ask", asker, timeout, finish, enough)

    # ---- links ----------------------------------------------------------------------------------------------------

    def link_accepted(self, link: Link, properties: Json) -> None:
        self.role.accepted(link, properties)

    def link_frame(self, link: Link, kind: int, position: int, body: bytes) -> None:
        try:
            self.role.frame(link, kind, position, body)
        except LinkError as error:
            self._break(link, error)

    def link_batches(self, link: Link, position: int) -> None:
        try:
            self.role.batches(link, position)
        except LinkError as error:
            self._break(link, error)

    def link_closed(self, link: Link, reason: str) -> None:
        self.role.closed(link, reason)

    def _break(self, link: Link, error: LinkError) -> None:
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

    def promote(self, reply: Reply, force: bool = False, known: InSync | None = None) -> None:
        """Become primary if that is safe.  A primary says yes and changes nothing."""
        if self.state.is_primary or self.state is State.STANDALONE:
            reply({"ok": True, "result": {}})
            return
        fresh = self.promoter is None
        if self.promoter is None:
            self.promoter = Promoter(self, force, known)
        self.promoter.replies.append(reply)
        if fresh:
            self.promoter.start()

    def pause_backup(self) -> None:
        if isinstance(self.role, Backup):
            self.role.pause()

    def resume_backup(self) -> None:
        if isinstance(self.role, Backup):
            self.role.resume()

    def become_primary(self, claim: Claim) -> None:
        """The claim stands: our log goes on in the new epoch, and clients are let in."""
        if self.persisted.ballot != (claim.epoch, self.id):
            raise InvariantError(f"claimed epoch {claim.epoch}, voted {self.persisted.ballot}")
        self.role.stop()
        for queue, _ in self.configuration.replicated():
            # What had come of an unfinished difference is worth keeping, in its place.
            self.engine.merge(queue.number)
        self.persist(in_sync=claim.base.succeed(claim.epoch, self.id, claim.members))
        self.engine.begin_epoch(claim.epoch)
        self.lineage = {**self.lineage, claim.epoch: self.id}
        self.whole = True
        role = Primary(self, [member for member in claim.members if member.id != self.id], claim.positions)
        self.role = role
        self.set_state(State.RECOVERING)
        self.configuration.on_promoted()
        self.env.log("notice", f"promoted: primary of epoch {claim.epoch} at {text(self.engine.position)}")
        self.env.event("promoted", last_pos=self.engine.position, attrs={"members": len(claim.members)})
        role.start()

    def claimed(self, claim: ClaimRequest) -> Json:
        """Another broker claims an epoch; what we answer is on disk before we answer it."""
        if claim.claimant.id == self.id:
            return {"granted": True, "reason": "", "id": self.id, "epoch": self.epoch}
        reason = grant(self.view(), claim)
        if not reason:
            if isinstance(self.role, Primary):
                self.depose(claim.ballot, f"{claim.claimant} claims epoch {claim.epoch}", claim.claimant.address)
            else:
                self.persist(epoch=claim.epoch, leader=claim.claimant.id)
            if isinstance(self.role, Backup):
                self.role.follow(claim.claimant.address)
        self.env.event("claim", peer=str(claim.claimant), result="denied" if reason else "granted", reason=reason)
        return {"granted": not reason, "reason": reason, "id": self.id, "epoch": self.epoch}

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
        self.persist(epoch=ballot[0], leader=ballot[1])
        self.env.log("warning", f"deposed: {reason}")
        self.env.event("demote", reason=reason, last_pos=self.engine.position)
        self.configuration.on_deposed()
        role = Backup(self, doubt=True)
        self.role = role
        self.set_state(State.JOINING)
        # Clients first: their channels give back what they hold, and only then may the engine forget all of that.
        self.env.close_clients(ReplyCode.CONNECTION_FORCED, self.refusal_text())
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

    def refusal_text(self) -> str:
        """The reply text for clients of a backup; names the primary when it is known."""
        address = self.role.primary_address
        where = f"the primary is {address}" if address else "the primary is not known"
        return f"CONNECTION_FORCED - {self.member} is a backup ({self.state.value}); {where}"

    def request(self, method: str, arguments: Json, reply: Reply) -> bool:
        """Management methods; False for one that is not ours."""
        if method == "ha.promote":
            self._promote(arguments, reply)
            return True
        handler = {"ha.status": self._status, "ha.query": self._query, "ha.ask": self._ask, "ha.claim": self._claim}
        if method not in handler:
            return False
        try:
            reply({"ok": True, "result": handler[method](arguments)})
        except LinkError as error:
            reply({"ok": False, "error": str(error)})
        return True

    def _promote(self, arguments: Json, reply: Reply) -> None:
        """`ha.promote`: force, and in_sync, the set that the manager has on record."""
        known = None
        try:
            if arguments.get("in_sync"):
                known = InSync.from_json(arguments["in_sync"])
        except LinkError as error:
            reply({"ok": False, "error": str(error)})
            return
        self.promote(reply, bool(arguments.get("force")), known)

    def _ask(self, arguments: Json) -> Json:
        """`ha.ask`: our view.  Whoever asks says its ballot; a primary below it is deposed."""
        if arguments.get("id"):
            ballot = need(arguments, "epoch", int), need(arguments, "leader", str)
            if isinstance(self.role, Primary) and ballot > self.persisted.ballot:
                self.depose(ballot, f"{arguments['id'][:8]} has granted epoch {ballot[0]}", "")
        return self.view().to_json()

    def _claim(self, arguments: Json) -> Json:
        return self.claimed(ClaimRequest.from_json(arguments))

    def _status(self, arguments: Json) -> Json:
        return {"state": self.state.value, "name": self.settings.name, "id": self.id, "epoch": self.epoch}

    def _query(self, arguments: Json) -> Json:
        in_sync: InSync = self.persisted.in_sync
        return {
            "status": self.state.value,
            "name": self.settings.name,
            "broker_id": self.id,
            "brokers_url": ",".join(self.settings.brokers),
            "public_url": self.settings.public_url,
            "replicate": self.settings.replicate,
            "safety": self.settings.safety,
            "epoch": self.epoch,
            "position": self.role.position,
            "safe": self.engine.safe,
            "whole": self.whole,
            "in_sync": in_sync.to_json(),
            "members": self.role.members(),
            "primary": self.role.primary_address,
        }
