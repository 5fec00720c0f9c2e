"""Backups whose links break again and again before they are *proved*: complete, and heard for PROVED intervals more.

Some paths carry the first octets of each connection and then nothing (no route for large packets, a firewall that loses
its state).  A backup on such a path says hello, keeps its place in the in-sync set, may even be complete, and vanishes;
it reconnects before a survey has missed it.  Without this rule confirms would wait for it for ever, or for its next
hello each time, and the primary would count it as linked.

    link breaks, not proved ──▶ failing ──proved──▶ forgotten
                                     │ for longer than ha-backup-timeout, or still when a new primary has waited
                                     │ so long for it, and the smaller set is allowed
                                     ▼
    dropped by the shrink rule, even if it is back in time, and refused until the drop is done

A failing backup does not count as linked (`stall.Isolation`).
"""

from __future__ import annotations

import math
from typing import Final

from ha.model.local_member import LocalMember
from ha.primary.peer import Peer, Phase

PROVED: Final = 2.0
"""Heartbeat intervals for which a complete backup has to be heard; each says something at least once in one."""
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
        if peer.phase not in (Phase.AWAY, Phase.HELLO) and not self._proved(peer):
            self._since.setdefault(peer.id, now)

    def look(self, peer: Peer) -> None:
        """At each tick of its link."""
        if peer.id in self._since and self._proved(peer):
            del self._since[peer.id]

    def _proved(self, peer: Peer) -> bool:
        seconds = peer.pulse.heard - peer.completed_at
        return peer.phase is Phase.COMPLETE and seconds >= PROVED * self._local.settings.heartbeat

    def fails(self, id: str) -> bool:
        return id in self._since

    def has_waited(self, id: str) -> None:
        """If it fails: a new primary has waited for it as long as for any other, so its next break is the last."""
        if id in self._since:
            self._since[id] = -math.inf

    def is_due(self, peer: Peer, now: float) -> bool:
        """True if this member of the set has failed for too long; it is then refused for REFUSED intervals."""
        since, settings = self._since.get(peer.id), self._local.settings
        if since is None or now - since < settings.backup_timeout:
            return False
        if not self._local.may_shrink([peer.id]):
            return False
        self._refused_until[peer.id] = now + REFUSED * settings.heartbeat
        return True

    def refusal(self, id: str, now: float) -> str:
        """Why this backup may not connect yet; empty if it may connect."""
        refused = now < self._refused_until.get(id, 0.0)
        return "its links break again and again, and it is being dropped" if refused else ""
