"""Planned switch-over: the primary hands its role to a backup, and no client has to send anything twice.

    PREPARING ──▶ PAUSING ──▶ DRAINING ──▶ HANDING_OVER ──promoted──▶ DONE
        │            │            │              └────────refused───▶ RETURNING ──▶ FAILED
        └────────────┴────────────┴── time is up, or the target is lost ──────────────▲

PREPARING     the set in force is put into the log once more; everybody who counts must acknowledge it.  So no client is
              disturbed for a backup that hangs.
PAUSING       publishers were asked to pause, consumers get nothing new; what is on its way is taken and confirmed.
              It ends when nobody has anything under way, at the latest after `CALM` seconds in which nothing came, or
              `PAUSE_LIMIT` seconds: not every client listens.
DRAINING      publishers are not read.  What was published becomes safe, confirms and acknowledgements go out.
HANDING_OVER  we have stepped down in place: whole, with the same vote.  Clients were closed with the target's address.
              The target was asked to become primary, under the rules for every promotion.
RETURNING     the target did not; we are asked, under the same rules.

Invariants:  until HANDING_OVER nothing was given up that could not be taken back, and any end lets the clients go on;
             we step down only when the log is safe to its end, the target holds it to its end, and no confirm waits.
Whoever is promoted holds every confirmed message, whether this works or not: that is what promotion checks; this
module only adds that no message is in doubt.  When we are deposed meanwhile, there is nothing left to do.

`start` is called once, by the node; everything after that comes from `env.after` and the answers to its requests.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from ha.environment import Answer, Json, Outcome
from ha.model.membership import Member
from ha.model.operations import Membership
from ha.model.status import State
from ha.primary.primary import Primary

if TYPE_CHECKING:
    from ha.node import Node

LOOK: Final = 0.002
"""Seconds between two looks at what we wait for."""
CALM: Final = 0.01
"""Seconds without a publish or an acknowledgement after which clients that cannot say so are taken to have paused."""
PAUSE_LIMIT: Final = 0.05
"""Seconds for clients that go on although they were asked to pause."""
ANSWER_LIMIT: Final = 1.0
"""Seconds for clients that say when they have paused; what they have sent before that needs not be sent again."""
RETURN_LIMIT: Final = 5.0
"""Seconds in which we try to be promoted again."""


class Step(Enum):
    PREPARING = "waiting for the backups"
    PAUSING = "pausing the clients"
    DRAINING = "draining"
    HANDING_OVER = "handing over"
    RETURNING = "returning"
    DONE = "done"
    FAILED = "failed"


class Relocation:
    """One switch-over; `node.relocation` while it is under way."""

    def __init__(self, node: Node, target: Member, reply: Callable[[Json], None]) -> None:
        """`node` is an active primary.  `reply` is told the end, as for any management request."""
        assert isinstance(node.role, Primary)
        self._node = node
        self._role: Primary = node.role
        self._target = target
        self._reply = reply
        self._began = self._changed = node.env.now()
        self._seen: tuple[int, ...] = ()
        self._paused = self._stepped_down = 0.0
        self._mark = 0
        self.step = Step.PREPARING

    def __str__(self) -> str:
        return f"to {self._target}, {self.step.value}"

    def start(self) -> None:
        node = self._node
        node.env.log("notice", f"relocation to {self._target} begins")
        node.env.event("relocate", peer=str(self._target), result="begin", last_pos=node.engine.position)
        self._mark = node.engine.log_membership(Membership(node.persisted.in_sync).encode())
        node.engine.flush()
        node.env.after(LOOK, self._look)

    # ---- as primary -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        obstacle = self._obstacle()
        if obstacle:
            self._end(obstacle)
            return
        if self.step is Step.PREPARING and self._holds(self._mark):
            self._pause()
        elif self.step is Step.PAUSING and self._quiet():
            self.step = Step.DRAINING
            self._node.engine.throttle(True)
        if self.step is Step.DRAINING and self._drained():
            self._hand_over()
            return
        self._node.env.after(LOOK, self._look)

    def _obstacle(self) -> str:
        """Why this cannot go on; empty while it can."""
        node, settings = self._node, self._node.settings
        if node.stopped or node.role is not self._role:
            return f"{node.member} is no longer primary ({node.state.value})"
        if self._peer() is None:
            return f"{self._target} was lost while {self.step.value}"
        waited = node.env.now() - self._began
        if waited > settings.relocate_timeout:
            return f"not done within {settings.relocate_timeout:g} s, given up while {self.step.value}{self._lacks()}"
        return ""

    def _peer(self) -> int | None:
        """What the target has acknowledged; None when it is no backup in sync any more."""
        return next((peer.acked for peer in self._role.ready() if peer.id == self._target.id), None)

    def _lacks(self) -> str:
        engine = self._node.engine
        missing = self._role.sealed - min(engine.safe, self._peer() or 0)
        return f": {missing} operations are not safe yet" if self.step is Step.DRAINING and missing > 0 else ""

    def _pause(self) -> None:
        node = self._node
        self.step, self._paused = Step.PAUSING, node.env.now()
        node.configuration.pause_clients(f"the primary moves to {self._target}")

    def _quiet(self) -> bool:
        node = self._node
        now = node.env.now()
        unanswered, unacknowledged = node.configuration.still_busy()
        seen = (node.engine.position, node.engine.published, unanswered, unacknowledged)
        if seen != self._seen:
            self._seen, self._changed = seen, now
        if unanswered:
            return now - self._paused >= ANSWER_LIMIT
        return now - self._changed >= CALM or now - self._paused >= PAUSE_LIMIT

    def _drained(self) -> bool:
        """Everything is safe, said, and at the target."""
        engine = self._node.engine
        engine.flush()
        self._role.update_safe()
        # Confirms of what has just become safe are written at the end of a turn, so there is one more look.
        return self._holds(self._role.sealed) and not engine.waiting_confirms

    def _holds(self, position: int) -> bool:
        """Has everybody who counts acknowledged it, and the target among them?"""
        return min(self._node.engine.safe, self._peer() or 0) >= position

    # ---- not primary any more -------------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        node, target = self._node, self._target
        self.step = Step.HANDING_OVER
        self._stepped_down = node.env.now()
        node.demote(f"relocation to {target}", target.address)
        self._release()
        # It asks every broker and the registry twice, and waits for the silent ones each time.
        settings = node.settings
        step = max(settings.promote_timeout, settings.registry_timeout if settings.registry else 0.0)
        node.env.request(target.address, "ha.promote", {}, 2 * step + settings.dead_after, self._answered)

    def _answered(self, answer: Answer) -> None:
        if answer.outcome is Outcome.ANSWERED and not answer.error:
            self._end("")
            return
        self.step = Step.RETURNING
        reason = answer.error or f"{self._target} does not answer"
        self._node.env.log("warning", f"relocation: not promoted: {reason}")
        self._return(reason)

    def _return(self, reason: str) -> None:
        if self._node.stopped or self._followed():
            self._end(reason)
        else:
            self._node.promote(lambda result: self._returned(reason, result))

    def _followed(self) -> bool:
        """Has another broker become primary after all?"""
        node = self._node
        return node.state.is_backup and node.role.primary_address != "" and node.persisted.leader != node.id

    def _returned(self, reason: str, result: Json) -> None:
        if result["ok"] or self._node.env.now() - self._stepped_down > RETURN_LIMIT:
            self._end(reason)
        else:
            self._node.env.after(self._node.settings.heartbeat / 2, lambda: self._return(reason))

    # ---- the end --------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Clients may go on, and are read again unless a backup is slow."""
        self._node.configuration.resume_clients()
        self._node.engine.throttle(self._role.throttled)

    def _end(self, failure: str) -> None:
        node = self._node
        if self.step in (Step.PREPARING, Step.PAUSING, Step.DRAINING):
            self._release()
        self.step = Step.FAILED if failure else Step.DONE
        node.relocation = None
        now = node.env.now()
        took = {"seconds": round(now - self._began, 6)}
        if self._stepped_down:
            took["without_primary"] = round(now - self._stepped_down, 6)
        text = f"relocation to {self._target} failed: {failure}{self._outcome()}" if failure else ""
        node.env.log("warning" if failure else "notice", text or f"relocated to {self._target}")
        result = "failed" if failure else "done"
        node.env.event("relocate", peer=str(self._target), result=result, reason=failure, attrs=took)
        primary = {"primary": str(self._target), "address": self._target.address}
        self._reply({"ok": False, "error": text} if failure else {"ok": True, "result": {**primary, **took}})

    def _outcome(self) -> str:
        """Who is primary now, for the one who asked for the switch-over."""
        node = self._node
        if node.state.is_primary:
            return f"; {node.member} is primary"
        address = node.role.primary_address
        return f"; the primary is {address}" if address else "; there is no primary"


def choose(node: Node, wanted: str) -> Member | str:
    """The backup to relocate to, by name, id or address (empty: the one that has acknowledged most); or why not."""
    role = node.role
    if not isinstance(role, Primary):
        where = f"; the primary is {role.primary_address}" if role.primary_address else ""
        return f"{node.member} is not primary ({node.state.value}){where}"
    if node.state is not State.ACTIVE:
        return f"{node.member} is {node.state.value}, wanted active: its backups are not all back"
    ready = role.ready()
    if not wanted:
        best = max(ready, key=lambda peer: peer.acked, default=None)
        return best.member if best is not None else f"no backup is in sync; {_known(node)}"
    fits = [peer.member for peer in ready if wanted in (peer.member.name, peer.id, peer.member.address)]
    if len(fits) == 1:
        return fits[0]
    if len(fits) > 1:
        return f"{wanted!r} may be {' or '.join(member.address for member in fits)}; an address is wanted"
    known = [member for member in role.members() if wanted in (member["name"], member["id"], member["address"])]
    if known:
        return f"{wanted} is {known[0]['state']}, wanted a backup in sync"
    return f"no member {wanted!r}; {_known(node)}"


def _known(node: Node) -> str:
    shown = [f"{member['name']} ({member['address']}, {member['state']})" for member in node.role.members()]
    return f"known are {', '.join(shown)}" if shown else "no backup is known"
