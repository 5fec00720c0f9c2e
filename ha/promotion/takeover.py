"""The manager wants this broker to be primary, and another one is, which it does not see any more (Pacemaker has died
there, not the broker): ask that one for a planned hand-over (`relocation.py`).

    promotion refused by R1 ──▶ ha.relocate at the primary ──▶ it asks us to be promoted ──▶ answered
        ▲                            │
        └── we do not follow it any more, and have not been asked: it may be dead

Nothing is claimed over a primary that lives; it hands over by its own rules, or says why not.  There is no other rule,
and so nothing new that could be unsafe.
"""

from __future__ import annotations

from typing import Final, Protocol

from ha.environment import Answer, Outcome, Reply
from ha.model.local_member import LocalMember
from ha.model.view import View
from ha.promotion.promoter import Wish

RETURN_LIMIT: Final = 5.0
"""Seconds in which a primary that has handed over in vain tries to be promoted again."""


class Successor(Protocol):
    """Of which broker."""

    @property
    def may_follow(self) -> bool:
        """Does it follow a primary, or is it being promoted?"""
        ...

    def promote(self, reply: Reply, wish: Wish) -> None: ...

    def takeover_ended(self) -> None: ...


class Takeover:
    """One attempt.  Every caller that asks meanwhile gets its result."""

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
        local.env.log("notice", f"the manager wants {local.member} as primary; {self._primary.member} is to hand over")
        step = max(settings.promote_timeout, settings.registry_timeout if settings.registry else 0.0)
        limit = settings.relocate_timeout + 2 * step + settings.dead_after + RETURN_LIMIT
        local.env.request(self._primary.address, "ha.relocate", {"to": local.id}, limit, self._answered)
        local.env.after(settings.heartbeat / 4, self._look)

    def _look(self) -> None:
        """A primary that dies before it has handed over does not answer for long."""
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
