"""Backups whose links break again and again before they are complete.

Some paths carry the first octets of each connection and then nothing (no route for large packets, a firewall that loses
its state).  A backup on such a path says hello, keeps its place in the in-sync set, and vanishes; it reconnects before
a survey has missed it.  Without this rule confirms would wait for it for ever, and the primary would count it as
linked.

    link breaks, not complete ──▶ failing ──complete──▶ forgotten
                                     │ for longer than ha-backup-timeout, and the smaller set is allowed
                                     ▼
    dropped by the shrink rule, even if it is back in time, and refused until the drop is done

A failing backup does not count as linked (`stall.Isolation`).
"""

from __future__ import annotations

from typing import Final

from ha.model.local_member import LocalMember
from ha.primary.peer import Peer, Phase

REFUSED: Final = 4.0
"""Heartbeat intervals for which a backup that is being dropped is refused; a survey takes one."""


class FailingLinks:
    """The failing backups of one primary."""

    def __init__(self, local: LocalMember) -> None:
        self._local = local
        self._since: dict[str, float] = {}
        self._refused_until: dict[str, float] = {}

    def broke(self, peer: Peer, now: float) -> None:
        """Its link has ended; call this before the peer's data is cleared."""
        if peer.phase in (Phase.HELD, Phase.COPYING, Phase.CLOSING):
            self._since.setdefault(peer.id, now)

    def completed(self, id: str) -> None:
        self._since.pop(id, None)

    def fails(self, id: str) -> bool:
        return id in self._since

    def is_due(self, peer: Peer, now: float) -> bool:
        """True if this member of the set has failed for too long; it is then refused for REFUSED intervals."""
        since, settings = self._since.get(peer.id), self._local.settings
        if since is None or now - since < settings.backup_timeout:
            return False
        if not self._local.safety.may_shrink(self._local.persisted.in_sync, [peer.id]):
            return False
        self._refused_until[peer.id] = now + REFUSED * settings.heartbeat
        return True

    def refusal(self, id: str, now: float) -> str:
        """Why this backup may not connect yet; empty if it may connect."""
        refused = now < self._refused_until.get(id, 0.0)
        return "its links break before it is complete, and it is being dropped" if refused else ""
