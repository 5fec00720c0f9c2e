"""The backup role: follows the primary, keeps and acknowledges what it sends.

    Finder                     ──link──▶  Joining                                           ──joined──▶  following
    SEARCHING ─▶ CONNECTING               GREETING ─▶ SYNCING ─▶ APPLYING ─▶ FOLLOWING
        ▲                                                                      │
        └── the link is lost, or a claim was granted ──────────────────────────┘

`finder.py` finds the primary and opens a link; `joining.py` is the conversation on one link.  This module holds what
outlives a link: up to where this broker is whole, whether it may have been removed without knowing, and when a link is
given up.

`position` is how far this broker is *whole*: it does not move from the loss of the link until we have joined again,
because with holes before the cut the live batches after it do not make the broker whole.

*Doubt* (`view.View.doubt`) begins when the link is closed, after this process did not run, and when we have granted a
claim.  It ends when we have joined; after a pause also when the primary answers that we still count.

Invariants: there is a `Joining` exactly while there is a link, and the finder is idle then; what is acknowledged was
applied (or kept as a whole, by a whole member that joins); frames of an earlier link are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ha.backup.finder import Finder, Stage
from ha.backup.joining import Joining, JoinStep
from ha.backup.salvager import Known
from ha.model.clock_readings import ClockReadings
from ha.model.environment import Json, Link, Outcome, StateNotStored
from ha.model.local_member import LocalMember
from ha.model.logins import decode_logins
from ha.model.membership import Member, Membership
from ha.model.position import text
from ha.model.protocol import Kind, decode_control, encode_control, short_text
from ha.model.pulse import Pulse
from ha.model.status import State
from ha.model.view import Survey
from ha.promotion.score import Outlook
from ha.role import Role
from qpidd_py.errors import LinkError


class Backup(Role):
    """The role of every broker that is not primary."""

    def __init__(
        self, local: LocalMember, end: Callable[[str], None], doubt: bool = False, stood: bool = False
    ) -> None:
        """`end` ends the process, with the reason.  `doubt`, `stood`: as in `View`."""
        super().__init__(local)
        self._end = end
        now = self.env.now()
        self.leader: Member | None = None
        """The primary that we follow or followed last."""
        self._finder = Finder(local, self._found, self.view)
        self._joining: Joining | None = None
        self._pulse = Pulse(now, now)
        self._readings = ClockReadings()
        self._position: int = self.engine.position
        self._aside: Known = {}
        self._doubt = doubt
        self._stood = stood
        """True if this process did not run since we were last complete."""
        self._checks = 0
        self._hushed = ""
        """Address of the primary whose link was closed for silence."""
        self._overheard = False
        """Another broker has asked us, and our primary does not know of it."""
        self._applied = 0
        """End of what the last link brought to a broker that had joined, until all sets in it are on disk."""
        self._last_tick = now

    # ---- begin and end --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._finder.search()

    def stop(self) -> None:
        self.stopped = True
        self.pause()

    def pause(self) -> None:
        """Stop following: a promotion is under way."""
        self._drop_link()
        self._finder.pause()

    def resume(self) -> None:
        """The promotion has failed."""
        if not self.stopped:
            self._finder.resume()

    def follow(self, address: str) -> None:
        """We have granted a claim: leave the old primary in this call and connect to the claimant.  Until we are
        complete there we are in doubt, since it may drop us."""
        self._doubt = True
        self._drop_link()
        self._finder.follow(address)

    def asked_by(self, id: str) -> None:
        """The asking broker is alive.  If it did not answer our last survey, survey again: our score may change.  Our
        primary, which the other one may not reach, hears of it (`model/hearing.py`)."""
        self._overheard |= self.leader is None or id != self.leader.id
        survey = self._finder.survey
        if survey is not None and survey.view(id) is None:
            self._finder.search()

    def search_again(self) -> None:
        """A promotion based on our last survey was refused: survey the others again."""
        self._finder.search()

    def refill(self, reason: str) -> None:
        """What we hold has a hole: join again as one that is not whole; `Joining` leaves out what is in the hole."""
        self.not_listed()
        if self._joining is not None:
            self._drop_link()
            self.lost(reason)

    def expect(self, address: str) -> None:
        """We stepped down so that the broker at `address` can be promoted: refusals name it, and we search there
        first."""
        self._finder.expect(address)

    # ---- what others see ------------------------------------------------------------------------------------------

    @property
    def link(self) -> Link | None:
        """The link to the primary; None if there is none."""
        return self._joining.link if self._joining is not None else None

    @property
    def step(self) -> JoinStep | None:
        """The step of joining; None while there is no link."""
        return self._joining.step if self._joining is not None else None

    @property
    def position(self) -> int:
        return self._applied if self._applied and self.local.knows_sets else self._position

    @property
    def primary_address(self) -> str:
        finder = self._finder
        if finder.hint:
            return finder.hint
        return self.leader.address if self.leader and finder.stage is not Stage.SEARCHING else ""

    @property
    def survey(self) -> Survey | None:
        return self._finder.survey

    @property
    def hushed(self) -> frozenset[str]:
        outcomes = self._finder.survey.outcomes if self._finder.survey is not None else {}
        silent = {address for address, outcome in outcomes.items() if outcome is Outcome.SILENT}
        return frozenset(silent | ({self._hushed} if self._hushed else set()))

    @property
    def outlook(self) -> Outlook:
        finder = self._finder
        return Outlook(finder.stage is not Stage.SEARCHING, finder.survey, tuple(finder.heard))

    @property
    def doubt(self) -> bool:
        return self._doubt or self.stood

    @property
    def stood(self) -> bool:
        return self._stood or self.env.now() - self._last_tick > self._noticeable

    @property
    def _noticeable(self) -> float:
        """Length of a pause, in seconds, after which the primary may have dropped us: it allows two intervals of
        silence, and our last frame may be up to three quarters of an interval old when the pause begins."""
        return 1.25 * self.settings.heartbeat

    def members(self) -> list[Json]:
        return [member.to_json() for member in self.local.persisted.in_sync.members]

    # ---- what comes over links ------------------------------------------------------------------------------------

    def accepted(self, link: Link, properties: Json) -> None:
        """Another broker has connected to us as if we were primary: refuse it."""
        link.send_frame(Kind.CONTROL, 0, encode_control("refused", reason=self.refusal_text()))
        link.close()

    def _found(self, link: Link) -> None:
        self._hold_applied()
        now = self.env.now()
        self._pulse, self._readings, self._hushed, self._applied = Pulse(now, now), ClockReadings(), "", 0
        self._joining = Joining(self.local, link, self, self._position, self._aside)
        self._joining.start()

    def frame(self, link: Link, kind: int, position: int, body: bytes) -> None:
        """Raises LinkError when the primary broke the protocol."""
        joining = self._joining
        if joining is None or link is not joining.link:
            return
        if kind == Kind.HEARTBEAT:
            self._on_heartbeat(joining, position, body)
        elif kind == Kind.CONTROL:
            self._on_control(joining, body)
        elif kind == Kind.LOGINS and self.local.logins is not None:
            digests = decode_logins(body)
            self.local.logins.learn(digests)
            self.env.log("debug", f"learned which passwords are right: of {len(digests)} users")
        else:
            joining.on_frame(kind, position, body)

    def _on_heartbeat(self, joining: Joining, position: int, body: bytes) -> None:
        """The primary reports up to where it has sent the log; frames keep their order, so we must be there."""
        if joining.step is JoinStep.FOLLOWING and position > joining.live:
            raise LinkError(f"the log has a gap: at {text(joining.live)}, the primary has sent {text(position)}")
        if joining.primary:
            self.note_clock(joining.primary, self._readings, body)

    def _on_control(self, joining: Joining, body: bytes) -> None:
        op, fields = decode_control(body)
        if op == "still-there":
            self._on_still_there(joining, fields)
        elif op == "alive":
            joining.control("alive", number=fields.get("number"))
        elif op == "refused":
            self._on_refused(short_text(fields, "reason"), bool(fields.get("twin")))
        else:
            joining.on_control(op, fields)

    def _on_refused(self, reason: str, twin: bool) -> None:
        """A fresh copy of a data directory holds nothing and ends its process.  A broker that once held everything may
        be the original whose place the copy took: it stays, and gets in when the copy is stopped."""
        if twin and not self.local.ever_whole:
            self._end(reason)
            return
        if twin:
            self.trouble = reason
        self._finder.refused(reason)
        raise LinkError(f"refused: {reason}")

    def batches(self, link: Link, position: int) -> None:
        """Live batches were applied; acknowledge all that came with one read at once, or when it is on disk.  Raises
        StateNotStored."""
        joining = self._joining
        if joining is None or link is not joining.link:
            return
        self._need_stored()
        joining.on_batches(position)
        if joining.step is JoinStep.FOLLOWING:
            self._hold_to(position)
        joining.acknowledge()

    def durable(self) -> None:
        if self._joining is not None and self.local.knows_sets:
            self._joining.acknowledge()

    def holds_all(self, position: int) -> None:
        """We hold everything up to `position`, from our own time as primary."""
        self._position = position

    def _hold_to(self, position: int) -> None:
        """We hold everything up to here and so take part in what is confirmed, even if we do not know that we count:
        the primary may have listed us and died before we received that."""
        self._position = self.local.acknowledged = position

    def membership(self, position: int, membership: Membership) -> None:
        """An in-sync set, at its position in the log: a new one, or the one in force if we kept our place in it."""
        ours, key = membership.added == self.local.id, self.local.persisted.in_sync.key
        if self._joining is None or membership.in_sync.key < key or (membership.in_sync.key == key and not ours):
            return
        with suppress(StateNotStored):
            # The link is closed as soon as the core has applied what came with this record: `batches`, `joined`.
            self.local.receive(membership.in_sync, self._joining.step is JoinStep.FOLLOWING)
        if ours:
            if self.local.knows_sets:
                self._listed()
        elif not membership.in_sync.lists(self.local.member):
            self.not_listed()

    def _listed(self) -> None:
        self.local.whole = True
        if self.local.state is not State.READY:
            self.local.set_state(State.READY, self.position)

    def _need_stored(self) -> None:
        """Raises StateNotStored.  A broker that acknowledges a position must know every set before it, also after a
        restart."""
        if not self.local.knows_sets:
            raise StateNotStored(f"an in-sync set that was received is not stored: {self.local.disk.error}")

    # ---- calls of Joining (`joining.Joiner`) ----------------------------------------------------------------------

    def welcomed(self, leader: Member) -> None:
        self.leader = leader
        self._finder.welcomed()
        if self.local.state is State.JOINING:
            self.local.set_state(State.CATCHUP, self.position)
        self.env.log("notice", f"connected to primary {leader}")
        if self._joining is not None:
            self._heartbeat(self._joining)
        if self.local.limited:
            self.limited()

    def limited(self) -> None:
        if self._joining is not None and self._joining.primary:
            self._joining.control("limited", reason=self.local.limited)

    def salvaged(self) -> None:
        self.trouble = ""

    def not_salvaged(self, error: LinkError) -> None:
        """Stay outside the cluster instead of dropping a message that may be the only copy; try again later."""
        trouble = f"it does not join {self.leader}: what only it may hold cannot be written to a salvage file ({error})"
        if trouble != self.trouble:
            self.trouble = trouble
            self.env.log("error", f"{trouble}; those messages are lost if this broker is stopped now")
            self.env.event("salvage", peer=str(self.leader), result="failed", reason=str(error))
        self._drop_link()
        self.lost(str(error))

    def admitted(self) -> None:
        self._finder.admitted()

    def not_listed(self) -> None:
        self.local.whole = False
        if self.local.state is State.READY:
            self.local.set_state(State.CATCHUP, self.position)

    def joined(self, position: int) -> None:
        """Raises StateNotStored."""
        self._need_stored()
        state = self.local.persisted
        self.local.persist(vouched=max(state.vouched, state.in_sync.key))
        self._doubt = self._stood = False
        self._hold_to(position)

    # ---- losing the link ------------------------------------------------------------------------------------------

    def closed(self, link: Link, reason: str) -> None:
        """The link to the primary is lost.  Content and state are kept: promotion decides by facts."""
        if link is self.link:
            self.lost(reason)

    def lost(self, reason: str, silent: bool = False) -> None:
        """`silent`: the primary did not close the link, but was silent for too long."""
        self._doubt = self._doubt or not silent
        self._hushed = self.leader.address if silent and self.leader is not None else ""
        if self._joining is not None and self._joining.primary:  # otherwise it never admitted us
            self.local.cluster.refusals.alive(self.leader.address if self.leader else "", self._pulse.heard)
            self.env.log("notice", f"the link to the primary {self.leader} is lost: {reason}")
            self.env.event("primary_lost", peer=str(self.leader), reason=reason, last_pos=self.position)
        self._leave()
        self._finder.lost()

    def _drop_link(self) -> None:
        """Close the link; the caller must restart the finder."""
        link = self.link
        self._leave()
        if link is not None:
            link.close()

    def _leave(self) -> None:
        joining = self._joining
        if joining is not None and (joining.end() or joining.holds_all):
            # More than was acknowledged if the link was lost after the core had applied a part of one read.
            self._applied = self.engine.position
        self._joining = None
        self._hold_applied()
        if self.engine.torn:
            self.engine.torn = False
            self.local.journal.leave()
            self.env.log("error", "a batch of the log was applied in part only: the difference is copied again")
            self.not_listed()

    def _hold_applied(self) -> None:
        """Our position must be the end of what we hold, or a log that we continue lacks what our queues have."""
        if self._applied and self.local.knows_sets:
            self._hold_to(self._applied)
            self._applied = 0

    # ---- silence and pauses ---------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Called four times in each heartbeat interval."""
        now = self.env.now()
        if now - self._last_tick > self._noticeable:
            self._stood_still(now - self._last_tick)
        self._last_tick = now
        self._hold_applied()
        joining = self._joining
        if joining is None:
            return
        if self._overheard and joining.primary:
            self._overheard = False
            joining.control("heard", heard=self.local.cluster.ages())
        silence = self._pulse.look(joining.link, now)
        if silence > self.settings.dead_after:
            joining.link.close()
            self.lost(f"silent for {silence:.3f} s", silent=True)
        elif self._pulse.must_speak(joining.link, now, self.settings.heartbeat / 2) or self._readings.due(now):
            self._heartbeat(joining)

    def _heartbeat(self, joining: Joining) -> None:
        joining.send(Kind.HEARTBEAT, self._readings.say(self.env.now(), self.env.wall()))

    def _stood_still(self, pause: float) -> None:
        """The primary may have dropped us during the pause.  Ask whether we still count: it closes a link before it
        removes a backup, so an answer cannot follow a removal."""
        self.env.log("info", f"this process did not run for {pause:.3f} s")
        self._doubt = self._stood = True
        self._checks += 1
        self._pulse.forgive(self.env.now())
        if self._joining is not None:
            self._joining.control("still-there", number=self._checks)

    def _on_still_there(self, joining: Joining, fields: Json) -> None:
        if joining.step is JoinStep.FOLLOWING and fields.get("number") == self._checks:
            self._doubt = self._stood = False
