"""The manager wants this broker to be primary, and another one is, which it does not see any more (Pacemaker has died
there, not the broker): ask that one for a planned hand-over (`relocation.py`).

    promotion refused by R1 ──▶ ha.relocate at the primary ──▶ it asks us to be promoted ──▶ answered
        ▲                            │
        └── we do not follow it any more, and have not been asked: it may be dead

Nothing is claimed over a primary that lives; it hands over by its own rules, or says why not.  There is no other rule,
and so nothing new that could be unsafe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.environment import Answer, Outcome
from ha.primary.relocation import RETURN_LIMIT

if TYPE_CHECKING:
    from ha.model.view import View
    from ha.node import Node
    from ha.promotion.promoter import Wish
    from ha.requests import Reply


class Takeover:
    """One attempt; `node.takeover` while it is under way.  Every caller that asks meanwhile gets its result."""

    def __init__(self, node: Node, primary: View, wish: Wish, replies: list[Reply]) -> None:
        self._node = node
        self._primary = primary
        self._wish = wish
        self._over = False
        self.replies = replies

    def start(self) -> None:
        node, settings = self._node, self._node.settings
        node.env.log("notice", f"the manager wants {node.member} as primary; {self._primary.member} is to hand over")
        step = max(settings.promote_timeout, settings.registry_timeout if settings.registry else 0.0)
        limit = settings.relocate_timeout + 2 * step + settings.dead_after + RETURN_LIMIT
        node.env.request(self._primary.address, "ha.relocate", {"to": node.id}, limit, self._answered)
        node.env.after(settings.heartbeat / 4, self._look)

    def _look(self) -> None:
        """A primary that dies before it has handed over does not answer for long."""
        node = self._node
        if self._over or node.stopped:
            return
        if node.state.is_backup and (node.promoter is not None or node.role.outlook.follows):
            node.env.after(node.settings.heartbeat / 4, self._look)
            return
        self._promote_again()

    def _promote_again(self) -> None:
        self._end()
        for reply in self.replies:
            self._node.promote(reply, self._wish)

    def _answered(self, answer: Answer) -> None:
        node = self._node
        if self._over or node.stopped:
            return
        if answer.outcome is Outcome.REFUSED:
            self._promote_again()
            return
        self._end()
        refusal = ""
        if not node.state.is_primary:
            silent = "" if answer.outcome is Outcome.ANSWERED else "it does not answer"
            why = answer.error or silent or f"it has handed over, but this broker is {node.state.value}"
            refusal = f"{node.member} cannot be promoted: {self._primary.member} is primary, and {why}"
            node.env.log("warning", refusal)
        for reply in self.replies:
            reply({"ok": False, "error": refusal} if refusal else {"ok": True, "result": {}})

    def _end(self) -> None:
        self._over, self._node.takeover = True, None
