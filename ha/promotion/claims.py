"""The second step of a promotion: a new epoch is claimed, and granted or denied.  Pure decisions.

Each granter checks the claim again (`grant`) against what it knows at that moment: it may have become primary, or
whole, since it answered the question.  So every broker that answered the question must answer the claim, too
(`fell_silent`).  The registry, read after our ballot was written into it, must not contradict the claim
(`contradicted`); then a whole member of N needs no other answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ha.model.environment import Answer, Exchanged, Json, Outcome
from ha.model.membership import HaState, InSync, Member, newest_of
from ha.model.position import far_ahead, text
from ha.model.protocol import need, need_epoch
from ha.model.safety import Safety
from ha.model.status import State
from ha.model.view import Survey, View


@dataclass(frozen=True)
class Claim:
    """Claim this epoch; `base` is the newest set, `members` the first set under the new epoch."""

    epoch: int
    base: InSync
    members: tuple[Member, ...]
    whole: bool = True
    """True if the claimant is a whole member of the base (R4), False if it is the best copy (R5)."""
    positions: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Id -> position up to which a whole broker that answered holds everything, on disk if it keeps a journal, and
    whose log that is."""
    holders: tuple[Member, ...] = ()
    """Brokers that may hold all that was confirmed, until the first set of the new epoch is in force."""
    lost: frozenset[str] = frozenset()
    """Ids of the brokers that have forgotten what they knew: the first step took them for silent."""
    old_copy: bool = False
    """True if the claimant's data directory is an older copy: the claim alone does not make it a newer one."""
    complete: bool = False
    """True if the claimant has the log of the leader of the base to its end (`has_the_end`)."""


@dataclass(frozen=True)
class ClaimRequest:
    """The second step on the wire."""

    epoch: int
    claimant: Member
    position: int
    base: InSync
    force: bool = False
    whole: bool = True
    """As in `Claim`."""
    behind: bool = False
    """The manager accepts that another whole member may hold more, which was not confirmed."""

    @property
    def ballot(self) -> tuple[int, str]:
        return self.epoch, self.claimant.id

    def to_json(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "claimant": self.claimant.to_json(),
            "position": self.position,
            "base": self.base.to_json(),
            "force": self.force,
            "whole": self.whole,
            "behind": self.behind,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ClaimRequest:
        """Raises LinkError."""
        return cls(
            need_epoch(value),
            Member.from_json(value.get("claimant")),
            need(value, "position", int),
            InSync.from_json(value.get("base")),
            bool(value.get("force")),
            bool(value.get("whole")),
            bool(value.get("behind")),
        )


def grant(me: View, claim: ClaimRequest) -> str:
    """Why this broker denies the claim; empty if it grants it.

    This makes promotion and confirming exclude each other: a granter acknowledges nothing to the old primary from then
    on, and grants only to a claimant that knows the newest in-sync set known here.
    """
    if claim.ballot < me.ballot:
        return f"{me.member} has seen epoch {me.epoch}, claimed is {claim.epoch}"
    if why := far_ahead(max(claim.epoch, claim.base.epoch), me.epoch):
        return f"{me.member}: {why}"
    if claim.force:
        return ""
    # Also for a ballot that is ours already: we may have learned of it without granting it.
    if me.in_sync.key > claim.base.key:
        return f"{me.member} knows in-sync set {me.in_sync.key}, the claim is based on {claim.base.key}"
    if not claim.whole and me.whole and claim.base.lists(me.member):
        return f"{me} is a whole member of the in-sync set, and the claimant is not"
    listed = me.whole and claim.base.lists(me.member)
    ahead = me.state is State.READY and listed and me.position > claim.position
    if ahead and not claim.behind:
        return f"{me} is ahead of position {text(claim.position)}"
    return ""


def fell_silent(survey: Survey, answers: Mapping[str, Answer]) -> str:
    """Which brokers answered the question but not the claim; empty if there are none.

    Between the two such a broker may have acknowledged a newer set, perhaps without us, to the old primary: then the
    claim is based on an old set.  `decide` has judged brokers that were silent in both steps.
    """
    asked = [address for address, outcome in survey.outcomes.items() if outcome is Outcome.ANSWERED]
    silent = [address for address in asked if address in answers and answers[address].outcome is Outcome.SILENT]
    return f"{', '.join(silent)} has answered, but not to the claim" if silent else ""


def denial(answer: Answer, claim: Claim, safety: Safety) -> str:
    """Why no answer of another broker can save the claim any more; empty if one may.

    With `quorum` a broker that cannot store its vote abstains, as if it were silent: others can form the majority.  In
    all modes one that has forgotten its vote abstains, if it had when it was asked, and so was not counted as heard."""
    result = answer.result
    if answer.outcome is not Outcome.ANSWERED or result.get("granted"):
        return ""
    abstains = safety.mode == "quorum" or (result.get("lost") and result.get("id") in claim.lost)
    return "" if abstains and result.get("abstains") else _reason(answer)


def _reason(answer: Answer) -> str:
    return str(answer.result.get("reason") or answer.error or "denied")


def decide_claims(claim: Claim, answers: Mapping[str, Answer], me: Member, safety: Safety) -> str:
    """The second step's verdict: why the claim has failed; empty if it stands.

    A vote counts once for each listed address and once for each id: two brokers with one identity have one vote."""
    voters = safety.voters(claim.base)
    abstained = ""
    granted = {me.id} if me.address in voters else set()
    for address, answer in answers.items():
        if reason := denial(answer, claim, safety):
            return reason
        if answer.outcome is not Outcome.ANSWERED:
            continue
        if not answer.result.get("granted"):
            abstained = f": {_reason(answer)}"
        elif address in voters:
            granted.add(str(answer.result.get("id")))
    majority = safety.majority(claim.base)
    if safety.mode == "quorum" and len(granted) < majority:
        return f"epoch {claim.epoch} granted by {len(granted)} brokers, {majority} needed{abstained}"
    return ""


def end_of_log(me: Member, position: int, base: InSync) -> Json:
    """What a broker that has granted a claim adds if it is the leader of the base: it has stepped down, and this is how
    far its log has come.  A later run of it does not know that."""
    return {"end": position} if _led(base, me) else {}


def has_the_end(claim: Claim, answers: Iterable[Answer], me: Member, position: int) -> bool:
    """True if nobody has led since the leader of the base, and that is this process, or has granted the claim and has
    logged nothing above our position.  Then the log shows what clients got from it and what it has sent on."""
    ends = [position] if _led(claim.base, me) else [_end(answer) for answer in answers]
    return claim.whole and claim.epoch == claim.base.epoch + 1 and any(0 <= end <= position for end in ends)


def _led(base: InSync, broker: Member) -> bool:
    leader = base.member(base.leader)
    return leader is not None and (leader.id, leader.instance) == (broker.id, broker.instance)


def _end(answer: Answer) -> int:
    end = answer.result.get("end") if answer.result.get("granted") else None
    return end if type(end) is int else -1


def contradicted(claim: Claim, own_id: str, exchanged: Exchanged) -> str:
    """How the registry, read after our ballot was written into it, contradicts the claim; empty if it does not.

    A primary writes a new set before it reads (`recorder.py`): so either we see the set, or it sees our ballot."""
    if exchanged.error:
        return f"the registry does not answer: {exchanged.error}"
    rival = max(exchanged.states, key=lambda state: state.ballot, default=HaState(own_id))
    if rival.ballot > (claim.epoch, own_id):
        return f"broker {rival.leader[:8]} has claimed epoch {rival.epoch} meanwhile"
    newest = newest_of(*(state.in_sync for state in exchanged.states))
    if newest.key > claim.base.key:
        return f"in-sync set {newest.key} was recorded meanwhile, the claim is based on {claim.base.key}"
    return ""
