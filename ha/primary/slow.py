"""Backups that cannot keep up: bounded in memory first, then dropped by rule.

    more than backlog_high waits for it ──▶ slow: publishers are not read (`throttle.py`) ──backlog_low──▶ fast
                                       │ for longer than ha-slow-backup-timeout
                                       ▼
    its link is closed, and the shrink rule drops it, even if it would come back whole
                                       │
                                       ▼
    refused for ha-slow-backup-timeout, for twice as long after each further drop; then it joins by difference

A member is dropped only if the smaller set is allowed (`LocalMember.may_shrink`): in quorum mode a slow member needed
for the majority is kept, and publishers wait for it.  A backup that is not a member and joins too slowly is dropped as
well: its copy must not stop the publishers for ever.  One that is kept out because it is late (`late.py`) stops no
publishers: it is dropped at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ha.model.local_member import LocalMember
from ha.primary.late import LateBackups
from ha.primary.peer import Peer

LONGEST_FACTOR: Final = 16
"""Longest refusal after repeated drops, as a multiple of ha-slow-backup-timeout; after the same time without a drop the
doubling starts over."""


def patience(local: LocalMember, peer: Peer, now: float) -> float | None:
    """Seconds until a slow backup is dropped; None if it is fast enough, or would never be dropped."""
    timeout, in_sync = local.settings.slow_backup_timeout, local.persisted.in_sync
    if not timeout or peer.slow_since is None:
        return None
    if peer.id in in_sync and not local.may_shrink([peer.id]):
        return None
    return peer.slow_since + timeout - now


class SlowBackups:
    """Watches the backlog of each live backup."""

    def __init__(self, local: LocalMember, late: LateBackups, drop: Callable[[Peer, str], None]) -> None:
        """`drop` closes the link of a peer with a reason and reports it lost."""
        self._local = local
        self._late = late
        self._drop = drop
        self._refused: dict[str, tuple[float, float]] = {}

    def look(self, live: Iterable[Peer], now: float) -> None:
        """Four times in each heartbeat interval."""
        settings = self._local.settings
        for peer in list(live):
            backlog = peer.link.backlog if peer.link else 0
            if backlog > settings.backlog_high and peer.slow_since is None:
                peer.slow_since = now
            elif backlog < settings.backlog_low:
                peer.slow_since = None
            if self._is_due(peer, now):
                self._give_up(peer, backlog, now)

    def refusal(self, id: str, now: float) -> str:
        """Why this backup may not connect yet; empty if it may connect."""
        until, pause = self._refused.get(id, (0.0, 0.0))
        return f"it was too slow and may not come back within {pause:g} s" if now < until else ""

    def _is_due(self, peer: Peer, now: float) -> bool:
        if self._late.out(peer.id):
            return peer.slow_since is not None
        left = patience(self._local, peer, now)
        return left is not None and left <= 0

    def _give_up(self, peer: Peer, backlog: int, now: float) -> None:
        timeout = self._local.settings.slow_backup_timeout
        until, last = self._refused.get(peer.id, (0.0, 0.0))
        forgiven = now - until > LONGEST_FACTOR * timeout
        pause = timeout if forgiven or not last else min(2 * last, LONGEST_FACTOR * timeout)
        self._refused[peer.id] = now + pause, pause
        peer.dropped = True
        waits = "wait for it" if self._late.out(peer.id) else f"have been waiting for it for {timeout:g} s"
        self._drop(peer, f"too slow: {backlog >> 20} MiB {waits}")
