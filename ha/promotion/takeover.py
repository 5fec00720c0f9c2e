"""Takeover: the manager promotes this broker while another one is still primary, on a node that the manager has lost
(Pacemaker died there, the broker lives).  That primary is asked for a planned hand-over (`relocation.py`).

    promotion refused by R1 ──▶ ha.relocate at the primary ──▶ it asks us to be promoted ──▶ answered
        ▲                            │
        └── we do not follow it any more, and were not asked: it may be dead

Nothing is claimed over a living primary; it hands over by its own rules, or answers why it does not.  So a takeover
adds no rule to promotion.
"""

from __future__ import annotations

from typing import Final, Protocol

from ha.model.environment import Answer, Outcome, Reply
from ha.model.local_member import LocalMember
from ha.model.view import View
from ha.promotion.promoter import Wish

RETURN_LIMIT: Final = 5.0
"""Seconds for a primary whose hand-over failed to be promoted again."""


class Successor(Protocol):
    """The broker that takes over."""

    @property
    def may_follow(self) -> bool:
        """True if it follows a primary or is being promoted."""
        ...

    def promote(self, reply: Reply, wish: Wish) -> None: ...

    def takeover_ended(self) -> None: ...


class Takeover:
    """One attempt; callers that ask meanwhile get its result, too."""

    def __init__(
        self, local: LocalMember, successor: Successor, primary: View, wish: Wish, replies: list[Reply]
    ) -> None:
        self._local = local
        self._successor = successor
        self._primary = primary
        self._wish = wish
        self._over = False
        self.replies = replies

    def start(self) -> None:
        local, settings = self._local, self._local.settings
        local.env.log("notice", f"the manager promotes {local.member}; {self._primary.member} is asked to hand over")
        limit = settings.relocate_timeout + settings.promotion_limit + RETURN_LIMIT
        local.env.request(self._primary.address, "ha.relocate", {"to": local.id}, limit, self._answered)
        local.env.after(settings.heartbeat / 4, self._look)

    def _look(self) -> None:
        """Detect a primary that dies before it has handed over."""
        local = self._local
        if self._over or local.stopped:
            return
        if local.state.is_backup and self._successor.may_follow:
            local.env.after(local.settings.heartbeat / 4, self._look)
            return
        self._promote_again()

    def _promote_again(self) -> None:
        self._end()
        for reply in self.replies:
            self._successor.promote(reply, self._wish)

    def _answered(self, answer: Answer) -> None:
        local = self._local
        if self._over or local.stopped:
            return
        if answer.outcome is Outcome.REFUSED:
            self._promote_again()
            return
        self._end()
        refusal = ""
        if not local.state.is_primary:
            silent = "" if answer.outcome is Outcome.ANSWERED else "it does not answer"
            why = answer.error or silent or f"it has handed over, but this broker is {local.state.value}"
            refusal = f"{local.member} cannot be promoted: {self._primary.member} is primary, and {why}"
            local.env.log("warning", refusal)
        for reply in self.replies:
            reply({"ok": False, "error": refusal} if refusal else {"ok": True, "result": {}})

    def _end(self) -> None:
        self._over = True
        self._successor.takeover_ended()
