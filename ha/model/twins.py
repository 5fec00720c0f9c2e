"""Two living brokers with one identity: a data directory was copied, and both copies run.

`Member.id` comes from the data directory; `Member.instance` is made by each process at its start.  The same id with
another instance is either a restarted broker, whose old link the primary has not lost yet, or a *twin*.  To tell them
apart the primary sends a question over both links after both hellos; only a living process can answer it:

    a second hello of one id, from another process ──▶ both are asked ("alive"), the second one waits
        the first link ends      ──▶ it was half open: the second one takes its place
        both have answered       ──▶ twins: the second one is refused
        the second link ends     ──▶ nothing changes

A refused broker that never held everything ends its process (exit code 3).  One that once did may be the original,
whose place a copy took while it was cut off: it keeps its content, logs the refusal, and gets in when the other is
stopped.

The second one is refused because nothing shows which directory is the copy, and the first one has a link: it may be a
member of the in-sync set and hold what was confirmed.  A twin of the primary itself is refused at its hello.

Two copies of one vote never count as two votes: an answer with our own identity from another process is not counted
(`view.Survey.of`), a claim is granted once for each id (`claims.decide_claims`), and "whole and in the set" refers to
an instance (`InSync.lists`).

Pure.  Who may call: `Meetings` belongs to the primary's `Arrivals`; `Sightings` to the node, in both roles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ha.model.environment import Environment, Json
from ha.model.membership import HaState, Member

REMEDY: Final = "if its data directory was copied, start the copy once with --new-identity"
SAY_AGAIN: Final = 60.0
"""Seconds during which one identity is logged only once."""
SHOWN: Final = 600.0
"""Seconds for which `qpid-ha status -v` shows a twin after it was last seen."""


@dataclass(eq=False)
class _Sighting:
    twin: Member
    other: Member
    count: int = 0
    seen: float = 0.0
    said: float = float("-inf")


class Sightings:
    """Identities that were seen twice, for the log, the events and the status."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._by_id: dict[str, _Sighting] = {}

    def seen(self, twin: Member, other: Member, what: str) -> None:
        """`twin` lives and has the identity of `other`; `what`: the action taken."""
        now = self._env.now()
        sighting = self._by_id.setdefault(twin.id, _Sighting(twin, other))
        sighting.twin, sighting.other, sighting.seen = twin, other, now
        sighting.count += 1
        if now - sighting.said < SAY_AGAIN:
            return
        sighting.said = now
        reason = f"{place(twin)} has the identity {twin.id[:8]} of {place(other)}, which is running: {what}"
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
    """The state of a copied data directory under a new identity (`--new-identity`).

    Ballot and in-sync set are kept as bounds of what this broker may grant: its address may have voted under the old
    identity, and granting below that vote would let the address vote twice.  They give it no rights: a grant counts
    once for each address and id, and members of the set are known by id, so the new id is not a member and holds
    nothing until it has joined.
    """
    return replace(state, id=id)


def place(member: Member) -> str:
    """Name and address as shown to people."""
    return f"{member} ({member.address or 'address unknown'})"
