"""Backups that live and are late: the confirms of all clients wait for the slowest backup that counts.

    on time ──debt reaches LIMIT, and the rest is enough──▶ late: it leaves the set by the shrink rule; its link stays
       ▲                                                      │
       └──debt paid, or the rest is no longer enough──────────┘

The *delay* of a backup is the age of the oldest operation that it has not acknowledged.  It is late while its delay is
above `2 * base + ha-slow-backup-latency`; `base` is the delay that would be left without it: of the quickest members
that are enough for the mode, and of our own journal.  So where all are equally slow, none is late.

*Debt*, in seconds: grows while a backup is late, and shrinks by a quarter of the time in which it is not.  A pause of
less than a second costs nothing; one that is late in more than a fifth of the time reaches LIMIT in the end.  One that
leaves owes LIMIT, and twice as much each time that it has been back for less than FORGIVEN: then it stays away for
four times that.  So a backup that is slow only as a member costs less and less.

*Enough*: without it the set is allowed (`LocalMember.may_shrink`) and has a backup that is in sync and on time.  The
last copy is never given up for the sake of speed: a pair waits for its backup.

Invariant: a backup that is kept out is linked or joins, applies the log, and is no member when its debt is paid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ha.model.local_member import LocalMember
from ha.primary.peer import Peer

LIMIT: Final = 1.0
"""Debt with which a backup leaves, in seconds; from half of it on the other brokers are asked for a rival."""
LONGEST: Final = LIMIT / 4
"""Most that one look counts for: this process may have paused, and heartbeats may be rare."""
PAID: Final = 0.25
"""How much of the debt is paid in a second on time."""
MOST: Final = 16 * LIMIT
FORGIVEN: Final = 4 * MOST / PAID
"""Seconds as a member after which the debt begins with LIMIT again."""


class Owner(Protocol):
    """The primary."""

    def delay(self, peer: Peer) -> float:
        """Age of the oldest operation that it has not acknowledged, in seconds."""
        ...

    def suspect_late(self, since: float) -> None:
        """One may leave soon: a survey begun at `since` or later will be needed."""
        ...

    def leave(self, peer: Peer, since: float) -> None:
        """It leaves the set after such a survey."""
        ...

    def come_back(self, peer: Peer) -> None:
        """It need not leave, or may be listed again."""
        ...


@dataclass
class Lateness:
    """What is known of one backup."""

    debt: float = 0.0
    owed: float = 0.0
    """Debt with which it left last."""
    out: bool = False
    """It is kept out of the set, or is leaving it."""
    since: float = 0.0
    """When the debt passed half of LIMIT."""
    back: float = -FORGIVEN

    def note(self, late: bool, seconds: float, now: float) -> None:
        before, most = self.debt, self.owed if self.out else LIMIT
        self.debt = min(before + seconds, most) if late else max(0.0, before - PAID * seconds)
        if before < LIMIT / 2 <= self.debt:
            self.since = now

    def leave(self, now: float) -> None:
        again = now - self.back < FORGIVEN
        self.out, self.owed = True, min(2 * self.owed, MOST) if again else LIMIT
        self.debt = self.owed

    def end(self, now: float) -> None:
        self.out, self.back, self.debt = False, now, 0.0


class LateBackups:
    """The delays of one primary's backups."""

    def __init__(self, local: LocalMember, owner: Owner) -> None:
        self._local = local
        self._owner = owner
        self._known: dict[str, Lateness] = {}
        self._looked = local.env.now()

    def out(self, id: str) -> bool:
        """True if this backup must not be listed now."""
        return id in self._known and self._known[id].out

    def remaining(self, id: str) -> float | None:
        """Seconds on time after which it may be back; None if it is not kept out."""
        return self._known[id].debt / PAID if self.out(id) else None

    def look(self, members: Collection[Peer], complete: Iterable[Peer], own: float, now: float) -> None:
        """Four times in each heartbeat interval.  `members`: the backups in sync; `complete`: these and others that are
        linked and hold everything; `own`: delay of our own journal."""
        seconds, self._looked = min(now - self._looked, LONGEST), now
        if not self._local.settings.slow_backup_latency:
            return
        delays = {peer: self._owner.delay(peer) for peer in {*members, *complete}}
        base = self._base(members, delays)
        for peer, delay in delays.items():
            if peer in members or self.out(peer.id):
                known = self._known.setdefault(peer.id, Lateness())
                known.note(base is not None and self._is_late(delay, max(base, own)), seconds, now)
        self._change(members, delays, base or 0.0, now)

    def _is_late(self, delay: float, base: float) -> bool:
        return delay > 2 * base + self._local.settings.slow_backup_latency

    def _base(self, members: Iterable[Peer], delays: Mapping[Peer, float]) -> float | None:
        """Delay of the slowest of the quickest that are enough; None if all of them are not."""
        quickest: list[Peer] = []
        for peer in sorted(members, key=delays.__getitem__):
            quickest.append(peer)
            if self._enough(quickest):
                return delays[peer]
        return None

    def _enough(self, rest: Collection[Peer]) -> bool:
        in_sync = self._local.persisted.in_sync
        ids = {peer.id for peer in rest}
        return bool(ids) and self._local.may_shrink(in_sync.ids - ids - {self._local.id})

    def _change(self, members: Collection[Peer], delays: Mapping[Peer, float], base: float, now: float) -> None:
        rest = [peer for peer in members if self._known[peer.id].debt < LIMIT / 2]
        enough = self._enough(rest)
        for peer in delays:
            known = self._known.get(peer.id)
            if known is None:
                continue
            if peer in members and enough and known.debt >= LIMIT / 2:
                self._consider(peer, known, (delays[peer], base), now)
            elif known.out and (not known.debt or not self._enough(members)):
                self._end(peer, known, now)

    def _consider(self, peer: Peer, known: Lateness, delays: tuple[float, float], now: float) -> None:
        since = max(known.since, now - self._local.settings.dead_after)
        if known.debt < LIMIT:
            self._owner.suspect_late(since)
        elif not peer.dropped:
            if not known.out:
                known.leave(now)
                self._told(peer, delays)
            self._owner.leave(peer, since)

    def _told(self, peer: Peer, delays: tuple[float, float]) -> None:
        delay, base = (round(1000 * seconds) for seconds in delays)
        what = f"what waits for it is {delay} ms old, {base} ms at the others"
        self._local.env.log("warning", f"backup {peer.member} is late: {what}; it leaves the in-sync set")
        attrs = {"delay_ms": delay, "others_ms": base}
        self._local.env.event("backup_late", peer=str(peer.member), result="begun", reason=what, attrs=attrs)

    def _end(self, peer: Peer, known: Lateness, now: float) -> None:
        why = "it is needed" if known.debt else "it keeps up again"
        known.end(now)
        self._local.env.log("notice", f"backup {peer.member} may return to the in-sync set: {why}")
        self._local.env.event("backup_late", peer=str(peer.member), result="ended", reason=why)
        self._owner.come_back(peer)
