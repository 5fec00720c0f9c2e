"""Backups that live and are late (`ha/primary/late.py`): scenarios with them, and what must hold, I23."""

from __future__ import annotations

from collections import defaultdict, deque
from random import Random
from typing import TYPE_CHECKING, Any

from ha.primary.peer import Peer, Phase
from ha.primary.primary import Primary
from tests.simulator.scenario import Action
from tests.simulator.scheduler import TICK, Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ha.model.membership import InSync
    from tests.simulator.process import BrokerProcess

BEFORE = 4
"""Ticks after which what the rest has acknowledged is missed."""
PATIENCE = 2.0
"""Seconds for which a member may be missed so; it leaves after one second, and a survey."""
NEEDED = 1.0
"""Seconds after which a backup that is needed is a member again."""
SHARE = 0.15


def late(seed: int, mode: str, names: str, only: Sequence[str]) -> list[Action]:
    """In some scenarios the acknowledgements of a backup, or of two, come late for long, or it runs a little of the
    time, and another broker dies meanwhile; drawn apart, so that the others stay what they are."""
    rng = Random(f"late {seed} {mode}")
    if "late" not in only and (only or rng.random() > SHARE):
        return []
    at, found = rng.uniform(0.1, 0.6), list[Action]()
    for who in rng.sample(names, rng.choice((1, 1, 2))):
        if rng.random() < 0.6:
            seconds: dict[str, Any] = {"delay": rng.choice((0.1, 0.25, 0.45)), "for": rng.choice((2.5, 4.5))}
            found += [Action(at, "slow", {"from": who, "to": other, **seconds}) for other in names if other != who]
        else:
            every = rng.choice((0.3, 0.48, 0.7))
            times = [at + step * every for step in range(int(4.0 / every))]
            found += [Action(round(time, 4), "pause", {"who": who, "for": every - 0.04}) for time in times]
    if rng.random() < 0.5:
        fields = {"who": rng.choice([*names, "primary"]), "power": False, "for": rng.choice((1.0, 2.5))}
        found.append(Action(round(rng.uniform(2.0, 4.0), 4), "crash", fields))
    return found


class LateJudge:
    """Raises Violation.  Called at each tick of a broker, so that no time counts in which it does not run."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._role: object = None
        self._seen: deque[dict[str, int]] = deque(maxlen=BEFORE)
        """What each member had acknowledged, by tick."""
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)

    def look(self) -> None:
        role = self._process.node.role
        if role is not self._role:
            self._role = role
            self._forget()
        if not isinstance(role, Primary) or role.frozen or not role.roster.record.idle or not role.roster.may_confirm:
            self._forget()
            return
        members = role.roster.ready()
        self._delays(role, members)
        self._needs(role, members)
        self._seen.append({peer.id: peer.acked for peer in members})

    def _forget(self) -> None:
        self._seen.clear()
        self._seconds.clear()

    def _delays(self, role: Primary, members: list[Peer]) -> None:
        """A member that delays the confirms of all."""
        in_sync = self._process.node.local.persisted.in_sync
        for peer in members:
            rest = [other for other in members if other is not peer]
            before = [self._seen[0].get(other.id, 0) for other in rest] if len(self._seen) == BEFORE else [0]
            now = min(self._seen[-1].values(), default=0) if self._seen else 0
            quick = all(other.acked >= now for other in rest)
            missed = quick and self._enough(rest, in_sync) and peer.acked < min(before, default=0)
            what = "delays the confirms of all"
            if self._count(peer, what, missed) > PATIENCE and self._process.settings.slow_backup_latency:
                raise Violation(f"I23: {peer.member} {what}, and {self._process.name} does not let it go")

    def _needs(self, role: Primary, members: list[Peer]) -> None:
        """One of the list that is kept out while the rest is not enough, and has what was logged before its difference
        ended."""
        in_sync = self._process.node.local.persisted.in_sync
        enough, voters = self._enough(members, in_sync), self._voters(in_sync)
        for peer in role._links.values():
            complete = peer.phase is Phase.COMPLETE and peer.acked >= peer.target
            outside = complete and peer.id not in in_sync and peer.member.address in voters
            what = "is complete and needed"
            if self._count(peer, what, outside and not enough) > NEEDED:
                raise Violation(f"I23: {peer.member} {what}, and is no member at {self._process.name}")

    def _count(self, peer: Peer, what: str, holds: bool) -> float:
        """Seconds for which it has held, less a quarter of those for which it has not."""
        before = self._seconds[peer.id, what]
        self._seconds[peer.id, what] = before + TICK if holds else max(0.0, before - TICK / 4)
        return self._seconds[peer.id, what]

    def _enough(self, rest: list[Peer], in_sync: InSync) -> bool:
        """Written anew, from the promise."""
        process = self._process
        if process.node.local.safety.mode != "quorum":
            return bool(rest)
        voters = self._voters(in_sync)
        votes = {peer.member.address for peer in rest} | {process.settings.address}
        return bool(rest) and 2 * len(votes & voters) > len(voters)

    def _voters(self, in_sync: InSync) -> set[str]:
        return set(in_sync.brokers or self._process.settings.brokers)
