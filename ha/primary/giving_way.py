"""A primary that cannot read back all messages which wait (`Node.damaged`) gives way to a backup that has them.

    a hole ──for GIVE_WAY seconds a manager may move the role──▶ switch-over (`relocation.py`) ──failed──▶ again
        │
        │ none can be prepared, since nothing becomes safe any more
        ▼
    it steps down and asks a backup to be promoted: a ready one, or the one that confirms wait for

The broker that is promoted holds all that was confirmed.  Who may call: the node.
"""

from __future__ import annotations

from typing import Final, Protocol

from ha.model.environment import Reply
from ha.model.local_member import LocalMember
from ha.model.membership import Member
from ha.primary.primary import Primary
from ha.primary.relocation import Relocation, choose
from ha.role import Role

GIVE_WAY: Final = 3.0
"""Seconds for a manager to move the role by the scores, once a primary cannot read all of its messages; then it hands
over by itself, which Pacemaker takes for a failure.  Also the least seconds between two attempts."""
UNREADABLE: Final = "messages that wait here cannot be read back"


class Holder(Protocol):
    """The broker with the role."""

    relocation: Relocation | None

    @property
    def role(self) -> Role: ...

    def relocate(self, to: str, reply: Reply) -> None: ...

    def demote(self, reason: str, address: str) -> None: ...


class GivingWay:
    """The attempts of one broker."""

    def __init__(self, local: LocalMember, holder: Holder) -> None:
        self._local = local
        self._holder = holder
        self._due = 0.0
        self._safe_then = -1
        """How far the log was safe at the last attempt."""

    def wait(self) -> None:
        """A hole was found, or this broker was promoted with one: a manager may act first."""
        self._due = self._local.env.now() + GIVE_WAY

    def look(self) -> None:
        """Four times in each heartbeat interval."""
        local, role = self._local, self._holder.role
        due = local.hole and self._holder.relocation is None and local.env.now() >= self._due
        if due and isinstance(role, Primary):
            self._give_way_to(choose(role, ""), role.starved)

    def _give_way_to(self, target: Member | str, starved: Member | None) -> None:
        """`target`: or why there is none."""
        local = self._local
        stuck = local.engine.safe == self._safe_then < local.engine.position
        if starved is not None:
            why = f"{starved}, which confirms wait for, lacks some of them"
            self._step_aside(target if isinstance(target, Member) else starved, why)
        elif isinstance(target, Member) and stuck:
            self._step_aside(target, "confirms wait, so that no switch-over can be prepared")
        elif isinstance(target, Member):
            self.wait()
            self._safe_then = local.engine.safe
            local.env.log("warning", f"{UNREADABLE}: the role goes to a backup that holds them")
            self._holder.relocate("", lambda result: None)

    def _step_aside(self, target: Member, why: str) -> None:
        local = self._local
        self._holder.demote(f"{UNREADABLE}, and {why}", target.address)
        local.env.request(target.address, "ha.promote", {}, local.settings.promotion_limit, lambda answer: None)
