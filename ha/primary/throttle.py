"""Publishers are not read while a backup cannot take what they bring.

    a backup's backlog is above backlog_high ──▶ slow ──every backlog is below backlog_low──▶ not slow
    a backup says that it is at a limit of its own (memory) ──▶ limited ──it says that this is over, or is gone──▶

`slow.py` drops a slow backup in the end.  One at its limit is not dropped for that: if all equal brokers did so, the
last one would have the same backlog, and no copy.
"""

from __future__ import annotations

from typing import Final

from ha.model.local_member import LocalMember
from ha.primary.peer import Peer

CAUSE: Final = "backup"


class Throttle:
    """Why the publishers of one primary wait for its backups."""

    def __init__(self, local: LocalMember) -> None:
        self._local = local
        self._limited: dict[Peer, str] = {}
        self.slow = ""
        """Why publishers wait for a slow backup; empty if they do not."""
        self.reason = ""
        """Why publishers are not read; empty while they are."""

    def set_slow(self, reason: str) -> None:
        self.slow = reason
        self._apply()

    def set_limited(self, peer: Peer, reason: str) -> None:
        """An empty reason: it is not at a limit any more, or its link has ended."""
        if reason:
            self._limited[peer] = f"backup {peer.member}: {reason}"
        else:
            self._limited.pop(peer, None)
        self._apply()

    def stop(self) -> None:
        self._limited.clear()
        self.set_slow("")

    def _apply(self) -> None:
        before, self.reason = self.reason, self.slow or next(iter(self._limited.values()), "")
        if before == self.reason:
            return
        self._local.engine.throttle(bool(self.reason), CAUSE)
        self._local.configuration.on_throttle(self.reason)
        self._local.env.log("info", f"publishers wait: {self.reason}" if self.reason else "publishers go on")
