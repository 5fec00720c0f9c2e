"""Why confirms wait, for how long, and what ends it; and when an isolated primary closes its clients.

Observation only: nothing here decides what is confirmed.  Evaluated four times in each heartbeat interval, for queries
and for the promotion score.

    frozen       this process did not run, or got no processor time: a rival may have been promoted
    disk         a change of the in-sync set cannot be stored here
    registry     a change of the in-sync set is not on record yet
    majority     quorum: the set is too small
    recovering   a new primary waits for the backups that it expects
    lost         a member of the set is not connected, and not dropped yet
    catching up  a member of the set has come back and is not complete yet
    slow         all are connected, but one does not acknowledge
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ha.model.environment import Json
from ha.model.local_member import LocalMember
from ha.model.status import State
from ha.primary.peer import Peer, Phase
from ha.primary.roster import Roster
from ha.primary.slow import patience
from ha.promotion.score import DOUBT, Outlook
from qpidd_py.errors import ReplyCode


class Watched(Protocol):
    """The properties of the primary that are observed."""

    local: LocalMember
    roster: Roster
    frozen: bool
    stopped: bool

    @property
    def sealed(self) -> int: ...

    def linked(self, brokers: Iterable[str]) -> int: ...

    def isolation_text(self) -> str: ...


@dataclass(frozen=True)
class Cause:
    """The cause of a stall, and what ends it."""

    why: str
    until: str


class StallWatch:
    """Observes whether and why the confirms of one primary wait."""

    def __init__(self, primary: Watched) -> None:
        self._primary = primary
        self._local = primary.local
        self._since: float | None = None
        self._cause: Cause | None = None
        self._safe = (-1, primary.local.env.now())

    def look(self, now: float) -> None:
        """Four times in each heartbeat interval."""
        if self._local.engine.safe != self._safe[0] or self._safe[0] >= self._primary.sealed:
            self._safe = self._local.engine.safe, now
        self._cause = self._find(now)
        if self._cause is None:
            self._since = None
        elif self._since is None:
            self._since = now

    @property
    def seconds(self) -> float:
        """How long confirms have waited, for any cause; 0 if they do not."""
        return self._local.env.now() - self._since if self._since is not None else 0.0

    @property
    def why(self) -> str:
        """Why confirms wait; empty if they do not."""
        return self._cause.why if self._cause is not None else ""

    def shown(self) -> Json | None:
        """For a query; `seconds`: how long confirms have been waiting, for any cause."""
        if self._cause is None:
            return None
        return {"why": self._cause.why, "seconds": round(self.seconds, 3), "until": self._cause.until}

    def _find(self, now: float) -> Cause | None:
        record, roster = self._primary.roster.record, self._primary.roster
        if self._primary.frozen:
            return Cause("this process did not run", "a survey has found no other primary")
        if hangs := self._local.journal_watch.hangs:
            return Cause(hangs, "it writes, or another broker is primary")
        if record.stalling and record.not_stored:
            return Cause(f"the disk has not stored: {record.stalling}: {record.not_stored}", "it can be written again")
        if record.stalling and self._local.settings.registry:
            error = f": {record.error}" if record.error else ""
            return Cause(f"the registry has not recorded: {record.stalling}{error}", "the registry answers")
        if not roster.may_confirm:
            return self._too_small()
        return self._away() or self._slow(now)

    def _too_small(self) -> Cause:
        in_sync = self._local.persisted.in_sync
        safety, brokers = self._local.safety, len(self._local.cluster.brokers)
        why = f"the in-sync set has {safety.votes(in_sync)} of {brokers} brokers, {safety.majority(in_sync)} needed"
        return Cause(why, "more backups are ready")

    def _away(self) -> Cause | None:
        roster = self._primary.roster
        waiting = [peer for peer in roster.counting if peer.phase is not Phase.COMPLETE and not peer.removal]
        if not waiting:
            return None
        names = ", ".join(str(peer.member) for peer in waiting)
        if self._local.state is State.RECOVERING:
            limit = self._local.settings.backup_timeout
            return Cause(f"expected back: {names}", f"they are complete, or have been silent for {limit:g} s")
        lost = [peer for peer in waiting if peer.link is None]
        if not lost:
            return Cause(f"catching up: {names}", "the difference is copied")
        names = ", ".join(str(peer.member) for peer in lost)
        ids = [peer.id for peer in lost]
        if self._local.needs(ids):
            return Cause(f"lost: {names}", f"they are back: no other backup has what is lost here: {self._local.hole}")
        until = "the smaller set is recorded, or they are back" if self._local.may_shrink(ids) else "they are back"
        return Cause(f"lost: {names}", until)

    def _slow(self, now: float) -> Cause | None:
        safe, since = self._safe
        peers = [peer for peer in self._primary.roster.counting if not peer.removal]
        for peer in peers:
            if peer.slow_since is not None:
                return self._too_slow(peer, now)
        if not peers or safe >= self._primary.sealed or now - since < self._local.settings.heartbeat:
            return None
        slowest = min(peers, key=_acknowledged)
        backlog = slowest.link.backlog if slowest.link else 0
        what = f"slow: {slowest.member} has acknowledged nothing for {now - since:.1f} s, {backlog} octets wait for it"
        return Cause(what, "it acknowledges, or is dropped")

    def _too_slow(self, peer: Peer, now: float) -> Cause:
        """Publishers are not read, and confirms of earlier publishes wait for the backlog."""
        left, backlog = patience(self._local, peer, now), peer.link.backlog if peer.link else 0
        until = "less waits for it" + ("" if left is None else f", or it is dropped in {max(0.0, left):.1f} s")
        return Cause(f"slow: {backlog >> 20} MiB wait for {peer.member}, publishers are paused", until)


def _acknowledged(peer: Peer) -> int:
    return peer.acked


class Observer:
    """Observes one primary; closes its clients when it has become isolated."""

    def __init__(self, primary: Watched) -> None:
        self._primary = primary
        self.stall = StallWatch(primary)
        self.isolation = Isolation(primary, self.stall)

    def look(self, now: float) -> None:
        """Four times in each heartbeat interval."""
        primary, local = self._primary, self._primary.local
        if primary.stopped:
            return
        self.stall.look(now)
        if self.isolation.look(now):
            reason = self.isolation.reason
            local.env.log("error", f"isolated: {reason}; clients are closed")
            local.env.event("isolated", result="begun", reason=reason, last_pos=local.engine.position)
            local.env.close_clients(ReplyCode.CONNECTION_FORCED, primary.isolation_text())

    @property
    def outlook(self) -> Outlook:
        """Whether another broker would do better as primary."""
        local, ready = self._primary.local, self._primary.roster.ready()
        overdue, durable = local.journal_watch.overdue, local.journal.position
        cut_off = self.isolation.seconds >= DOUBT
        # Those that follow us do not read the registry, and may be without it, too.
        unable = cut_off and not (local.settings.registry and ready)
        behind = overdue and any(peer.acked > durable for peer in ready)
        unable |= self.stall.seconds >= DOUBT and self._cannot_go_on
        return Outlook(replaceable=behind or (bool(local.hole) and bool(ready)), unable=unable)

    @property
    def _cannot_go_on(self) -> bool:
        """True if confirms that wait may wait for ever here: no backup can be completed from what we cannot read, or no
        set can be stored.  (Where each broker that answers must grant, the manager stops one that cannot store.)"""
        local, record = self._primary.local, self._primary.roster.record
        return bool(local.hole) or (bool(record.not_stored) and local.safety.mode == "quorum")


class Isolation:
    """Detects that this primary has lacked a majority, its registry, its disk, or processor time, for
    `ha-isolation-timeout`.

    The disk counts only in mode `quorum` while confirms wait, for a set that is not stored or for what it would end (a
    member that is lost, while the backup that would do in its place cannot be listed), and only if the others can do
    without our vote: a majority without us is linked, or hear each other.  In the other modes each broker that answers
    must grant, and the manager stops one that cannot.
    """

    def __init__(self, primary: Watched, stall: StallWatch) -> None:
        self._primary = primary
        self._local = primary.local
        self._stall = stall
        self._since: float | None = None
        self._stored = self._local.env.now()
        """When confirms did not wait last, or our disk took each set."""
        self.reason = ""
        """Why clients are refused; empty while they are not."""
        self.seconds = 0.0
        """For how long it has been cut off; 0 while it is not."""

    def look(self, now: float) -> bool:
        """Four times in each heartbeat interval.  True when it has just become isolated."""
        cut_off, since = self._cut_off(now)
        self._since = since if cut_off else None
        self.seconds = now - since if cut_off else 0.0
        timeout = self._local.settings.isolation_timeout
        before, self.reason = self.reason, ""
        if cut_off and timeout and now - since >= timeout:
            self.reason = cut_off
        if before and not self.reason:
            self._local.env.log("notice", "no longer isolated: clients are admitted")
            self._local.env.event("isolated", result="ended")
        return bool(self.reason) and not before

    def _cut_off(self, now: float) -> tuple[str, float]:
        """(reason, time since when)."""
        local = self._local
        since = now if self._since is None else self._since
        record = self._primary.roster.record
        unstored = record.not_stored if self._stall.why else ""
        self._stored = self._stored if unstored else now
        if self._primary.frozen:
            return "this process stands still again and again", since
        if local.settings.registry and record.error:
            return f"the registry cannot be used: {record.error}", record.reached
        if local.safety.mode != "quorum":
            return "", now
        if local.slow_disk:
            return local.slow_disk, since
        others, majority = self._primary.linked(local.cluster.brokers), local.safety.majority(local.persisted.in_sync)
        if others + 1 < majority:
            return f"{others + 1} of {len(local.cluster.brokers)} brokers are linked, {majority} needed", since
        if unstored and max(others, local.cluster.apart(self._stored)) >= majority:
            return f"{self._stall.why}{'' if record.stalling else f'; no other set is stored: {unstored}'}", since
        return "", now
