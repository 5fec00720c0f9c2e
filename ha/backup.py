"""A backup: finds the primary, follows it, and keeps what it sends.

    SEARCHING ──asks all, or has a hint──▶ CONNECTING ──link open──▶ GREETING ──cut──▶ SYNCING ──caught-up──▶ FOLLOWING
        ▲                                                                                                        │
        └──────────────────────────── the link is lost, or a claim was granted ──────────────────────────────────┘

`position` is how far this broker is *whole*: it stands still from the loss of the link until it is caught up again,
because live batches from the cut on do not help while what lies before the cut has holes.

Invariants: nothing is acknowledged to a primary whose ballot is below ours; the in-sync set and the ballot are on disk
before anything that depends on them is sent; what is acknowledged was applied.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from ha.difference import foreign_epochs, normalise, of_epochs
from ha.environment import Answer, Json, Link, Outcome
from ha.membership import InSync, Member
from ha.operations import Membership
from ha.peer import Pulse
from ha.position import text
from ha.promotion import Survey, View
from ha.protocol import (
    VERSION,
    Kind,
    decode_control,
    decode_drop,
    decode_merge,
    decode_snapshot,
    encode_control,
    encode_held,
    need,
)
from ha.role import Role
from ha.status import State
from ha.survey import Round
from qpidd_py.core import decode_ids, encode_ids
from qpidd_py.errors import LinkError

FIRST_DELAY = 0.004
"""Seconds before a second attempt; a claimant is primary some milliseconds after we have granted its claim."""
HINT_ATTEMPTS = 6
"""A claimant that is no primary after that many attempts has failed: ask around instead."""


class Step(Enum):
    """How far this life of the role has come."""

    SEARCHING = "searching"
    CONNECTING = "connecting"
    GREETING = "greeting"
    SYNCING = "syncing"
    FOLLOWING = "following"


class Backup(Role):
    """The role of every broker that is not primary."""

    def __init__(self, node: Any, doubt: bool = False) -> None:
        super().__init__(node)
        now = self.env.now()
        self.step = Step.SEARCHING
        self.leader: Member | None = None
        """The primary that we follow or have followed last."""
        self._link: Link | None = None
        self._pulse = Pulse(now, now)
        self._position: int = self.engine.position
        self._live = 0
        self._cut = 0
        self._slices = 0
        self._hint = ""
        self._hint_attempts = 0
        self._attempt = 0
        self._delay = FIRST_DELAY
        self._round: Round | None = None
        self._paused = False
        self._doubt = doubt
        self._checks = 0
        self._complaint = ""
        self._started = now
        self._last_tick = now
        self._handlers: dict[int, Callable[[bytes], None]] = {
            Kind.CONTROL: self._on_control,
            Kind.SNAPSHOT: self._on_snapshot,
            Kind.SLICE: self._on_slice,
            Kind.DROP: self._on_drop,
            Kind.MERGE: self._on_merge,
        }

    # ---- begin and end --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.search()

    def stop(self) -> None:
        self.stopped = True
        self.pause()

    def pause(self) -> None:
        """Follow nobody: a promotion is under way."""
        self._paused = True
        self._drop_link()
        self._attempt += 1
        if self._round:
            self._round.cancel()
            self._round = None

    def resume(self) -> None:
        """The promotion has failed."""
        self._paused = False
        self.search()

    @property
    def position(self) -> int:
        return self._position

    @property
    def primary_address(self) -> str:
        if self._hint:
            return self._hint
        return self.leader.address if self.leader and self.step is not Step.SEARCHING else ""

    @property
    def doubt(self) -> bool:
        return self._doubt or self.env.now() - self._last_tick > self._noticeable

    @property
    def _noticeable(self) -> float:
        """Seconds after which the primary may have given us up: it allows two intervals of silence, and our last word
        may be up to three quarters of one old when we are stopped."""
        return 1.25 * self.settings.heartbeat

    # ---- finding the primary --------------------------------------------------------------------------------------

    def follow(self, address: str) -> None:
        """We have granted a claim: stop listening to the old primary in this instant, go to the new one.  Until we are
        complete there we are in doubt: it may get tired of waiting for us."""
        self._doubt = True
        self._drop_link()
        self._attempt += 1
        self._hint, self._hint_attempts, self._delay = address, 0, FIRST_DELAY
        self.search()

    def search(self) -> None:
        """Look for a primary unless that is going on already."""
        if self.stopped or self._paused or self._link is not None or self._round is not None:
            return
        if self.step is Step.CONNECTING and not self._hint:
            return
        if self._hint:
            self._connect(self._hint)
            return
        self.step = Step.SEARCHING
        self._attempt += 1
        timeout = min(self.settings.heartbeat, self.settings.maintenance)
        self._round = self.node.ask_all(timeout, self._surveyed, self._is_primary)

    def _is_primary(self, answer: Answer) -> bool:
        try:
            view = View.from_json(answer.result) if answer.outcome is Outcome.ANSWERED else None
        except LinkError:
            return False
        return view is not None and self._would_follow(view)

    def _would_follow(self, view: View) -> bool:
        return view.state.is_primary and view.ballot >= self.node.persisted.ballot and view.id != self.node.id

    def _surveyed(self, answers: dict[str, Answer]) -> None:
        self._round = None
        if self.stopped or self._paused:
            return
        survey = Survey.of(self.node.id, answers)
        followed = self.leader is not None and self.leader.id == self.node.persisted.leader
        if followed and self.leader is not None and survey.outcome(self.leader) is Outcome.REFUSED:
            self._doubt = False  # that process is gone: it does not go on without us
        primaries = [view for view in survey.views if self._would_follow(view)]
        if not primaries:
            self._again()
            return
        self._connect(max(primaries, key=lambda view: view.ballot).address)

    def _connect(self, address: str) -> None:
        self._attempt += 1
        attempt = self._attempt
        self.step = Step.CONNECTING
        view = self.node.view()
        about: dict[str, object] = {"id": view.id, "name": view.name, "address": view.address}
        about.update(state=view.state.value, epoch=view.epoch)
        timeout = self.settings.dead_after
        self.env.connect(address, {"qpid.ha-backup": about}, timeout, lambda end: self._connected(attempt, end))

    def _connected(self, attempt: int, end: Link | Answer) -> None:
        if attempt != self._attempt or self.stopped or self._paused:
            if not isinstance(end, Answer):
                end.close()
            return
        if isinstance(end, Answer):
            self._not_connected(end)
            return
        now = self.env.now()
        self._link, self.step = end, Step.GREETING
        self._pulse = Pulse(now, now)
        self._started = now
        view = self.node.view()
        hello = {**view.to_json(), "version": VERSION, "replicate": self.settings.replicate}
        del hello["in_sync"], hello["primary"]
        self._control("hello", **hello)

    def _not_connected(self, answer: Answer) -> None:
        self.step = Step.SEARCHING
        if self._hint:
            self._hint_attempts += 1
            if answer.outcome is not Outcome.ANSWERED or self._hint_attempts > HINT_ATTEMPTS:
                self._hint, self._delay = "", FIRST_DELAY
        if answer.error and answer.error != self._complaint:
            # Another backup that says so is the usual case; wrong credentials are not, and are said once.
            self._complaint = answer.error
            usual = answer.outcome is not Outcome.ANSWERED or "is a backup" in answer.error
            self.env.log("debug" if usual else "warning", f"not connected: {answer.error}")
        self._again()

    def _again(self) -> None:
        """Try again after a delay that grows up to link-maintenance-interval."""
        attempt = self._attempt
        self.step = Step.SEARCHING
        delay, self._delay = self._delay, min(self._delay * 1.5, self.settings.maintenance)
        self.env.after(delay, lambda: self._retry(attempt))

    def _retry(self, attempt: int) -> None:
        if attempt == self._attempt:
            self.search()

    # ---- the conversation -----------------------------------------------------------------------------------------

    def accepted(self, link: Link, properties: Json) -> None:
        """Somebody takes us for the primary."""
        link.send_frame(Kind.CONTROL, 0, encode_control("refused", reason=self.node.refusal_text()))
        link.close()

    def frame(self, link: Link, kind: int, position: int, body: bytes) -> None:
        """Raises LinkError when the primary broke the protocol."""
        if link is not self._link:
            return
        handler = self._handlers.get(kind)
        if kind == Kind.HEARTBEAT:
            self._on_heartbeat(position)
        elif handler is None:
            raise LinkError(f"frame of kind {kind} from a primary")
        else:
            handler(body)

    def _on_heartbeat(self, position: int) -> None:
        """The primary says up to where it has sent the log; frames keep their order, so we must be there."""
        if self.step is Step.FOLLOWING and position > self._live:
            raise LinkError(f"the log has a gap: at {text(self._live)}, the primary has sent {text(position)}")

    def _on_control(self, body: bytes) -> None:
        op, fields = decode_control(body)
        if op == "welcome" and self.step is Step.GREETING:
            self._welcome(fields)
        elif op == "cut" and self.step is Step.GREETING:
            self._on_cut(fields)
        elif op == "caught-up" and self.step is Step.SYNCING:
            self._caught_up()
        elif op == "still-there":
            self._on_still_there(fields)
        elif op == "refused":
            self.env.log("error", f"the primary refuses us: {fields.get('reason')}")
            self._hint = ""
            raise LinkError(f"refused: {fields.get('reason')}")
        else:
            raise LinkError(f"control {op} in step {self.step.value}")

    def _welcome(self, fields: Json) -> None:
        leader = Member.from_json(fields)
        ballot = need(fields, "epoch", int), leader.id
        if ballot < self.node.persisted.ballot:
            raise LinkError(f"{leader} has epoch {ballot[0]}, we have granted {self.node.epoch}")
        lineage = {int(epoch): str(id) for epoch, id in need(fields, "lineage", list)}
        self.node.persist(epoch=ballot[0], leader=ballot[1])
        self.leader, self._hint = leader, ""
        if self.node.state is State.JOINING:
            self.node.set_state(State.CATCHUP)
        self.env.log("notice", f"connected to primary {leader}")
        self._prune(foreign_epochs(self.node.lineage, lineage))
        self.node.lineage = lineage
        self._send_held()

    def _prune(self, epochs: set[int]) -> None:
        """Drop messages whose ids mean something else at the primary."""
        if not epochs:
            return
        for queue, _ in self.node.configuration.replicated():
            ids = of_epochs(normalise(decode_ids(queue.held())), epochs)
            if ids:
                self.engine.drop(queue.number, encode_ids(ids))

    def _send_held(self) -> None:
        for queue, uid in self.node.configuration.replicated():
            # What an unfinished difference has left, and the places of messages that are gone, must not be in the way
            # of the next one: a deposed primary may be sent again what it had dequeued on its own.
            self.engine.merge(queue.number)
            held = queue.held()
            if held:
                self._send(Kind.HELD, encode_held(queue.number, uid, held))
        self._control("held-end")

    def _on_cut(self, fields: Json) -> None:
        """From here on live batches arrive, while what lies before the cut is made complete."""
        self._cut = need(fields, "cut", int)
        in_sync = InSync.from_json(fields.get("in_sync"))
        if in_sync.key < self.node.persisted.in_sync.key:
            raise LinkError(f"in-sync set {in_sync.key} of the primary is older than ours")
        self.node.persist(in_sync=in_sync)
        self.engine.set_position(self._cut)
        self.step, self._live, self._slices = Step.SYNCING, self._cut, 0
        self._delay = FIRST_DELAY
        if self.node.id not in in_sync:
            self._not_listed()
        self.env.event("catchup_begin", peer=str(self.leader), last_pos=self._cut)

    def _not_listed(self) -> None:
        """The primary goes on without us: from now on what we hold has holes."""
        self.node.whole = False
        if self.node.state is State.READY:
            self.node.set_state(State.CATCHUP)

    def _on_snapshot(self, body: bytes) -> None:
        self._need_step(Step.SYNCING)
        self.node.configuration.adopt(decode_snapshot(body))

    def _on_slice(self, body: bytes) -> None:
        self._need_step(Step.SYNCING)
        self._slices += 1
        self.engine.apply_slice(body)
        self._send(Kind.CREDIT, b"")

    def _on_drop(self, body: bytes) -> None:
        self._need_step(Step.SYNCING)
        self.engine.drop(*decode_drop(body))

    def _on_merge(self, body: bytes) -> None:
        self._need_step(Step.SYNCING)
        self.engine.merge(decode_merge(body))

    def _caught_up(self) -> None:
        self.step = Step.FOLLOWING
        self._doubt = False
        self._position = self._live
        self._control("complete")
        attrs = {"slices": self._slices, "seconds": round(self.env.now() - self._started, 6)}
        self.env.event("catchup_end", peer=str(self.leader), last_pos=self._cut, attrs=attrs)

    def batches(self, link: Link, position: int) -> None:
        """Live batches were applied; say so, once for all that came with one read."""
        if link is not self._link:
            return
        if self.step not in (Step.SYNCING, Step.FOLLOWING):
            raise LinkError(f"batch in step {self.step.value}")
        self._live = position
        if self.step is Step.FOLLOWING:
            self._position = position
        link.send_frame(Kind.ACK, position, b"")

    def membership(self, position: int, membership: Membership) -> None:
        """A new in-sync set, in its place in the log."""
        if self._link is None or membership.in_sync.key <= self.node.persisted.in_sync.key:
            return
        self.node.persist(in_sync=membership.in_sync)
        if membership.added == self.node.id:
            self.node.whole = True
            if self.node.state is not State.READY:
                self.node.set_state(State.READY)
        elif self.node.id not in membership.in_sync:
            self._not_listed()

    # ---- losing it ------------------------------------------------------------------------------------------------

    def closed(self, link: Link, reason: str) -> None:
        """The primary, or the way to it, is gone.  What we hold stays; so does our state: promotion asks for facts."""
        if link is not self._link:
            return
        self._lost(reason)

    def _lost(self, reason: str, silent: bool = False) -> None:
        self._doubt = self._doubt or not silent
        self.env.log("notice", f"the link to the primary {self.leader} is lost: {reason}")
        self._link = None
        self._attempt += 1
        self.step = Step.SEARCHING
        self._again()

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        self.step = Step.SEARCHING
        if link is not None:
            link.close()

    def tick(self) -> None:
        """Four times in each heartbeat interval."""
        now = self.env.now()
        if now - self._last_tick > self._noticeable:
            self._stood_still(now - self._last_tick)
        self._last_tick = now
        link = self._link
        if link is None:
            return
        silence = self._pulse.look(link, now)
        if silence > self.settings.dead_after:
            link.close()
            self._lost(f"silent for {silence:.3f} s", silent=True)
        elif self._pulse.must_speak(link, now, self.settings.heartbeat / 2):
            self._send(Kind.HEARTBEAT, b"")

    def _stood_still(self, pause: float) -> None:
        """The primary may have given us up, and it may be we who did not hear it.  Ask whether we still count: it
        closes a link before it removes a backup, so no answer can follow a removal."""
        self.env.log("info", f"this process stood still for {pause:.3f} s")
        self._doubt = True
        self._checks += 1
        self._pulse.forgive(self.env.now())
        self._control("still-there", number=self._checks)

    def _on_still_there(self, fields: Json) -> None:
        if self.step is Step.FOLLOWING and fields.get("number") == self._checks:
            self._doubt = False

    def members(self) -> list[Json]:
        return [member.to_json() for member in self.node.persisted.in_sync.members]

    def _need_step(self, step: Step) -> None:
        if self.step is not step:
            raise LinkError(f"catch-up frame in step {self.step.value}")

    def _send(self, kind: int, body: bytes) -> None:
        if self._link is not None:
            self._link.send_frame(kind, self._live, body)

    def _control(self, op: str, **fields: Any) -> None:
        self._send(Kind.CONTROL, encode_control(op, **fields))
