"""Planned switch-over: the primary hands its role to a backup, with no message in doubt for any client.

    PREPARING ──▶ PAUSING ──▶ DRAINING ──▶ HANDING_OVER ──promoted──▶ DONE
        │            │            │              └────────refused───▶ RETURNING ──▶ FAILED
        └────────────┴────────────┴── time is up, or the target is lost ──────────────▲

PREPARING     the set in force is logged once more, and every counting backup must acknowledge it; the target must
              show that its disk takes a vote.  So clients are not disturbed for a backup that hangs, or that cannot be
              promoted.
PAUSING       publishers were asked to pause, consumers get nothing new; what is under way is taken and confirmed.
              It ends when no client has anything under way, or after `CALM` seconds without traffic, or after
              `PAUSE_LIMIT` seconds: not every client obeys.
DRAINING      publishers are not read.  What was published becomes safe, confirms and acknowledgements are sent.
              (If the disk of our journal hangs, nothing becomes safe: the backups have it, and clients lack confirms.)
HANDING_OVER  we have stepped down in place: whole, with the same vote.  Clients were closed with the target's address.
              The target was asked to become primary, under the usual rules of promotion.
RETURNING     the target was not promoted; we ask for our own promotion, under the same rules.

Invariants:  every step before HANDING_OVER can be undone, and a failure there lets the clients go on;
             we step down only when the backups that count hold the log to its end, the target among them; it is safe
             and no confirm waits, unless our own disk hangs.
Promotion itself ensures that the new primary holds every confirmed message, whether the switch-over succeeds or not.
If we are deposed meanwhile, the switch-over ends.

The node calls `start` once; all later steps are called by `env.after` or by the answers to requests.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from ha.model.environment import Answer, Json, Outcome
from ha.model.membership import Member, Membership
from ha.model.status import State
from ha.primary.primary import Primary
from ha.promotion.takeover import RETURN_LIMIT
from ha.role import Role

CAUSE: Final = "relocation"
LOOK: Final = 0.002
"""Seconds between two checks of the condition that the step waits for."""
CALM: Final = 0.01
"""Seconds without a publish or an acknowledgement after which clients that cannot report it count as paused."""
PAUSE_LIMIT: Final = 0.05
"""Longest wait, in seconds, for clients that continue although they were asked to pause."""
ANSWER_LIMIT: Final = 1.0
"""Longest wait, in seconds, for clients that report when they have paused; they need not resend anything."""


class RelocationStep(Enum):
    PREPARING = "waiting for the backups"
    PAUSING = "pausing the clients"
    DRAINING = "draining"
    HANDING_OVER = "handing over"
    RETURNING = "returning"
    DONE = "done"
    FAILED = "failed"


class Predecessor(Protocol):
    """The broker that hands over."""

    @property
    def role(self) -> Role: ...

    def demote(self, reason: str, address: str) -> None: ...

    def promote(self, reply: Callable[[Json], None]) -> None: ...

    def relocation_ended(self) -> None: ...


class Relocation:
    """One switch-over."""

    def __init__(self, role: Primary, predecessor: Predecessor, target: Member, reply: Callable[[Json], None]) -> None:
        """`role` is active.  `reply` gets the result, as for any management request."""
        local = role.local
        self._local = local
        self._role = role
        self._predecessor = predecessor
        self._target = target
        self._reply = reply
        self._began = self._changed = local.env.now()
        self._seen: tuple[int, ...] = ()
        self._paused = self._stepped_down = 0.0
        self._mark = 0
        self._tried = False
        self._unable = ""
        self.step = RelocationStep.PREPARING

    def __str__(self) -> str:
        return f"to {self._target}, {self.step.value}"

    def start(self) -> None:
        local = self._local
        local.env.log("notice", f"relocation to {self._target} begins")
        local.env.event("relocate", peer=str(self._target), result="begin", last_pos=local.engine.position)
        self._mark = local.engine.log_membership(Membership(local.persisted.in_sync).encode())
        local.engine.flush()
        timeout = local.settings.promote_timeout
        local.env.request(self._target.address, "ha.ask", {"store": True}, timeout, self._has_tried)
        local.env.after(LOOK, self._look)

    # ---- as primary -----------------------------------------------------------------------------------------------

    def _has_tried(self, answer: Answer) -> None:
        self._tried = True
        if answer.outcome is not Outcome.ANSWERED or answer.error:
            self._unable = f"{self._target} does not answer"
        elif not answer.result.get("stores", True):
            self._unable = f"the disk of {self._target} does not take a vote"

    def _look(self) -> None:
        obstacle = self._obstacle()
        if obstacle:
            self._end(obstacle)
            return
        if self.step is RelocationStep.PREPARING and self._tried and self._holds(self._mark):
            self._pause()
        elif self.step is RelocationStep.PAUSING and self._quiet():
            self.step = RelocationStep.DRAINING
            self._local.engine.throttle(True, CAUSE)
        if self.step is RelocationStep.DRAINING and self._drained():
            self._hand_over()
            return
        self._local.env.after(LOOK, self._look)

    def _obstacle(self) -> str:
        """Why the switch-over must end; empty if it can continue."""
        local, settings = self._local, self._local.settings
        if local.stopped or self._predecessor.role is not self._role:
            return f"{local.member} is no longer primary ({local.state.value})"
        if self._peer() is None:
            return f"{self._target} was lost while {self.step.value}"
        if self._unable:
            return self._unable
        waited = local.env.now() - self._began
        if waited > settings.relocate_timeout:
            return f"not done within {settings.relocate_timeout:g} s, given up while {self.step.value}{self._lacks()}"
        return ""

    def _peer(self) -> int | None:
        """Position that the target has acknowledged; None if it is no longer in sync."""
        return next((peer.acked for peer in self._role.ready() if peer.id == self._target.id), None)

    def _lacks(self) -> str:
        engine = self._local.engine
        missing = self._role.sealed - min(engine.safe, self._peer() or 0)
        return (
            f": {missing} operations are not safe yet" if self.step is RelocationStep.DRAINING and missing > 0 else ""
        )

    def _pause(self) -> None:
        local = self._local
        self.step, self._paused = RelocationStep.PAUSING, local.env.now()
        local.configuration.pause_clients(f"the primary moves to {self._target}")

    def _quiet(self) -> bool:
        local = self._local
        now = local.env.now()
        unanswered, unacknowledged = local.configuration.still_busy()
        seen = (local.engine.position, local.engine.published, unanswered, unacknowledged)
        if seen != self._seen:
            self._seen, self._changed = seen, now
        if unanswered:
            return now - self._paused >= ANSWER_LIMIT
        return now - self._changed >= CALM or now - self._paused >= PAUSE_LIMIT

    def _drained(self) -> bool:
        """True if everything is safe, confirmed to clients, and held by the target."""
        engine = self._local.engine
        engine.flush()
        self._role.update_safe()
        # Confirms of what has just become safe are written at the end of the turn, so check once more.
        return self._holds(self._role.sealed) and (self._disk_hangs or not engine.waiting_confirms)

    @property
    def _disk_hangs(self) -> bool:
        return bool(self._local.journal_watch.hangs)

    def _holds(self, position: int) -> bool:
        """True if every counting backup and the target have acknowledged `position`."""
        role = self._role
        safe = min((peer.acked for peer in role.roster.counting), default=0) if self._disk_hangs else role.engine.safe
        return min(safe, self._peer() or 0) >= position

    # ---- not primary any more -------------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        local, target = self._local, self._target
        self.step = RelocationStep.HANDING_OVER
        self._stepped_down = local.env.now()
        self._predecessor.demote(f"relocation to {target}", target.address)
        self._release()
        local.env.request(target.address, "ha.promote", {}, local.settings.promotion_limit, self._answered)

    def _answered(self, answer: Answer) -> None:
        if answer.outcome is Outcome.ANSWERED and not answer.error:
            self._end("")
            return
        self.step = RelocationStep.RETURNING
        reason = answer.error or f"{self._target} does not answer"
        self._local.env.log("warning", f"relocation: not promoted: {reason}")
        self._return(reason)

    def _return(self, reason: str) -> None:
        if self._local.stopped or self._followed():
            self._end(reason)
        else:
            self._predecessor.promote(lambda result: self._returned(reason, result))

    def _followed(self) -> bool:
        """True if another broker has become primary nevertheless."""
        local = self._local
        return (
            local.state.is_backup
            and self._predecessor.role.primary_address != ""
            and local.persisted.leader != local.id
        )

    def _returned(self, reason: str, result: Json) -> None:
        if result["ok"] or self._local.env.now() - self._stepped_down > RETURN_LIMIT:
            self._end(reason)
        else:
            self._local.env.after(self._local.settings.heartbeat / 2, lambda: self._return(reason))

    # ---- the end --------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Let clients go on; publishers are read again unless there is another cause not to."""
        self._local.configuration.resume_clients()
        self._local.engine.throttle(False, CAUSE)

    def _end(self, failure: str) -> None:
        local = self._local
        if self.step in (RelocationStep.PREPARING, RelocationStep.PAUSING, RelocationStep.DRAINING):
            self._release()
        self.step = RelocationStep.FAILED if failure else RelocationStep.DONE
        self._predecessor.relocation_ended()
        now = local.env.now()
        took = {"seconds": round(now - self._began, 6)}
        if self._stepped_down:
            took["without_primary"] = round(now - self._stepped_down, 6)
        text = f"relocation to {self._target} failed: {failure}{self._outcome()}" if failure else ""
        local.env.log("warning" if failure else "notice", text or f"relocated to {self._target}")
        result = "failed" if failure else "done"
        local.env.event("relocate", peer=str(self._target), result=result, reason=failure, attrs=took)
        primary = {"primary": str(self._target), "address": self._target.address}
        self._reply({"ok": False, "error": text} if failure else {"ok": True, "result": {**primary, **took}})

    def _outcome(self) -> str:
        """The present primary, for the answer to the caller."""
        local = self._local
        if local.state.is_primary:
            return f"; {local.member} is primary"
        address = self._predecessor.role.primary_address
        return f"; the primary is {address}" if address else "; there is no primary"


def choose(role: Role, wanted: str) -> Member | str:
    """The backup to relocate to, by name, id or address (empty: the one that has acknowledged most); or the reason
    why there is none."""
    local = role.local
    if not isinstance(role, Primary):
        where = f"; the primary is {role.primary_address}" if role.primary_address else ""
        return f"{local.member} is not primary ({local.state.value}){where}"
    if local.state is not State.ACTIVE:
        return f"{local.member} is {local.state.value}, wanted active: its backups are not all back"
    ready = role.ready()
    if not wanted:
        best = max(ready, key=lambda peer: peer.acked, default=None)
        return best.member if best is not None else f"no backup is in sync; {_known(role)}"
    fits = [peer.member for peer in ready if wanted in (peer.member.name, peer.id, peer.member.address)]
    if len(fits) == 1:
        return fits[0]
    if len(fits) > 1:
        return f"{wanted!r} may be {' or '.join(member.address for member in fits)}; an address is wanted"
    if wanted in (local.member.name, local.id, local.member.address):
        return f"{local.member} is primary already"
    known = [member for member in role.members() if wanted in (member["name"], member["id"], member["address"])]
    if known:
        return f"{wanted} is {known[0]['state']}, wanted a backup in sync"
    return f"no member {wanted!r}; {_known(role)}"


def _known(role: Role) -> str:
    shown = [f"{member['name']} ({member['address']}, {member['state']})" for member in role.members()]
    return f"known are {', '.join(shown)}" if shown else "no backup is known"
