"""Two living brokers with one identity: a data directory was copied, and both copies run.

`Member.id` comes from the data directory, `Member.instance` is made anew by each process.  So the same id with another
instance is either the broker's next life, whose old link the primary has not yet lost, or a *twin*.  Both links are
asked to tell them apart; only who lives can answer, and both questions come after both greetings:

    a second hello of one id, from another life ──▶ both are asked ("alive"), the second one has to wait
        the first link ends      ──▶ it was half open: the second one takes its place
        both have answered       ──▶ twins: the second one is refused
        the second link ends     ──▶ nothing has happened

A refused broker that has never held everything ends itself (exit code 3).  One that has may be the original, whose
place a copy has taken while it was cut off: it keeps what it holds, says so, and gets in when the other was stopped.

Why the second?  Nothing tells which of the two directories is the copy; the first one has a link, so it may be a member
of the in-sync set, and hold what was confirmed.  A twin of the primary itself is refused at its hello.

Two copies of one vote never make two votes: an answer with our own identity that is not ours is no vote and no witness
(`view.Survey.of`), a claim is granted once for each id (`claims.decide_claims`), and "whole and in the set" is said of
an instance (`InSync.lists`).

Pure.  Who may call: `Meetings` belongs to the primary's `Arrivals`; `Sightings` to the node, whatever its role.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ha.environment import Environment, Json
from ha.model.membership import HaState, Member

REMEDY: Final = "if its data directory was copied, start the copy once with --new-identity"
SAY_AGAIN: Final = 60.0
"""Seconds in which the same identity is complained of once."""
SHOWN: Final = 600.0
"""Seconds for which `qpid-ha status -v` shows a twin that was not seen again."""


@dataclass(eq=False)
class _Sighting:
    twin: Member
    other: Member
    count: int = 0
    seen: float = 0.0
    said: float = float("-inf")


class Sightings:
    """Which identities were seen twice, for the log, the events and the status."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._by_id: dict[str, _Sighting] = {}

    def seen(self, twin: Member, other: Member, what: str) -> None:
        """`twin` lives and has the identity of `other`; `what`: what was done about it."""
        now = self._env.now()
        sighting = self._by_id.setdefault(twin.id, _Sighting(twin, other))
        sighting.twin, sighting.other, sighting.seen = twin, other, now
        sighting.count += 1
        if now - sighting.said < SAY_AGAIN:
            return
        sighting.said = now
        reason = f"{place(twin)} has the identity {twin.id[:8]} of {place(other)}, which lives: {what}"
        self._env.log("error", f"{reason}; {REMEDY}")
        attrs = {"broker_id": twin.id, "address": twin.address, "other": other.address, "count": sighting.count}
        self._env.event("twin", peer=str(twin), reason=reason, attrs=attrs)

    def shown(self) -> list[Json]:
        """For `qpid-ha status` and `query`."""
        now = self._env.now()
        self._by_id = {id: one for id, one in self._by_id.items() if now - one.seen <= SHOWN}
        return [
            {
                "id": one.twin.id,
                "name": one.twin.name,
                "address": one.twin.address,
                "other": place(one.other),
                "count": one.count,
                "seconds": round(now - one.seen, 1),
                "remedy": REMEDY,
            }
            for one in self._by_id.values()
        ]


def with_new_identity(state: HaState, id: str) -> HaState:
    """The state of a copied data directory, under an identity of its own (`--new-identity`).

    The ballot and the in-sync set stay, as bounds of what this broker must not grant: it may stand at an address that
    has voted under the old identity, and an address that went back behind its word would vote twice.  Nothing is gained
    by them.  A grant is an answer to a claim, and counts once for each address and id; a member of the set is known by
    its id, so the new one is none, and holds nothing until it has joined.
    """
    return replace(state, id=id)


def place(member: Member) -> str:
    """For people."""
    return f"{member} ({member.address or 'address unknown'})"
