"""May this broker be promoted *now*?  Pure decisions on what the brokers say of themselves.

Promotion has two steps, so that a refused attempt disturbs nobody: *ask* every broker (no side effect), then *claim* a
new epoch.  Whoever grants a claim has thereby stopped listening to the old primary.

Facts, not state names, decide:

* `whole`: the broker holds everything up to its position.  True for a primary, for a ready backup and for a deposed
  primary that has not begun to follow another; false after a restart and while catching up.
* `newest`: the highest in-sync set that anybody reachable knows of.  Nothing was confirmed under it that one of its
  members lacks; so **a whole member of the newest set holds every confirmed message**.

Rules, in order (N = newest set, I = this broker, P = any other):

    R1  a reachable P is primary                               => refused, named
    R2  safety quorum, and no majority has answered            => refused
        else so many are silent that the others (who answered, or whose host says that they are gone) are no majority,
        and we are three or more, or new                       => refused, unless safety is availability, or by force
    R3  nobody heard knows of an epoch (fresh cluster)         => claim
    R4  I whole and in N:
          a reachable P, ready, whole and in N, is ahead => refused, P named (no safer, but it has more)
          I am in doubt, and the leader of N, or the broker whose claim I granted last, is silent
                                                               => refused, or by force; else claim
    R5  otherwise what I hold may lack confirmed messages:
          a reachable P is whole and in N                      => refused, P named
          a P of N is silent (it may live, and be whole)       => refused, unless safety is availability, or by force
          the broker of the highest ballot is silent           => the same: it may be primary
          I am catching up, and a P of N is down               => refused (it may return with what I lack), or by force
          a reachable P holds more                             => refused, P named; else claim: total failure, best copy

R4's doubt: a primary that lives removes a backup only after it has lost it. A backup that ran all the time, and whose
primary simply fell silent, has lost it because the primary stands still or is cut off, and then it is for the manager
to say who goes on. But one that was stopped itself, or that the primary has hung up on, may be a removed one; only the
silent primary knows.

`known` is the in-sync set that the manager has on record, if it keeps one; it counts as if a broker had said it.

The claim is checked again by whoever grants it (`grant`), against what it knows at that moment; whoever has answered
the question has to answer the claim, too (`fell_silent`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ha.environment import Answer, Outcome
from ha.membership import InSync, Member
from ha.position import LAST_EPOCH, text
from ha.protocol import need
from ha.status import State
from qpidd_py.errors import LinkError


@dataclass(frozen=True)
class View:
    """What a broker says of itself when it is asked."""

    id: str
    name: str
    address: str
    state: State
    epoch: int
    leader: str
    position: int
    whole: bool
    in_sync: InSync = field(default_factory=InSync)
    primary: str = ""
    """Address of the primary that it follows or would try, if it knows one."""
    doubt: bool = False
    """It stood still, its primary hung up, or it has granted a claim and not followed the claimant yet: it may have
    been removed from the in-sync set without knowing."""

    @property
    def member(self) -> Member:
        return Member(self.id, self.name, self.address)

    @property
    def ballot(self) -> tuple[int, str]:
        return self.epoch, self.leader

    def __str__(self) -> str:
        return f"{self.member} ({self.state.value}, position {text(self.position)})"

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "address": self.address,
            "state": self.state.value,
            "epoch": self.epoch,
            "leader": self.leader,
            "position": self.position,
            "whole": self.whole,
            "in_sync": self.in_sync.to_json(),
            "primary": self.primary,
            "doubt": self.doubt,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> View:
        """Raises LinkError."""
        try:
            state = State(value.get("state"))
        except ValueError as error:
            raise LinkError(str(error)) from error
        return cls(
            need(value, "id", str),
            str(value.get("name", "")),
            str(value.get("address", "")),
            state,
            need(value, "epoch", int),
            str(value.get("leader", "")),
            need(value, "position", int),
            need(value, "whole", bool),
            InSync.from_json(value.get("in_sync")),
            str(value.get("primary", "")),
            bool(value.get("doubt")),
        )


@dataclass(frozen=True)
class Survey:
    """The end of the first step: who answered, and what became of the addresses that did not."""

    views: tuple[View, ...]
    """Of others, one for each broker."""
    outcomes: Mapping[str, Outcome]
    """By address."""

    @classmethod
    def of(cls, own_id: str, answers: Mapping[str, Answer]) -> Survey:
        """A broker that answers nonsense is taken as silent; several addresses of one broker count once."""
        views: dict[str, View] = {}
        outcomes: dict[str, Outcome] = {}
        for address, answer in answers.items():
            outcomes[address] = answer.outcome
            if answer.outcome is not Outcome.ANSWERED:
                continue
            try:
                view = View.from_json(answer.result)
            except LinkError:
                outcomes[address] = Outcome.SILENT
                continue
            if view.id == own_id:
                del outcomes[address]
            else:
                views[view.id] = view if view.address else replace(view, address=address)
        return cls(tuple(views.values()), outcomes)

    def view(self, id: str) -> View | None:
        return next((view for view in self.views if view.id == id), None)

    def outcome(self, member: Member) -> Outcome:
        """SILENT also for a broker that was not asked."""
        if self.view(member.id) is not None:
            return Outcome.ANSWERED
        outcome = self.outcomes.get(member.address, Outcome.SILENT)
        # Another broker answers at that address: the member itself is not heard.
        return Outcome.SILENT if outcome is Outcome.ANSWERED else outcome

    def fate(self, id: str, newest: InSync) -> Outcome:
        """Of a broker known by its id, whose address may not be known: SILENT unless it is certain that it is not."""
        if self.view(id) is not None:
            return Outcome.ANSWERED
        member = newest.member(id)
        if member is not None:
            return self.outcome(member)
        return Outcome.SILENT if Outcome.SILENT in self.outcomes.values() else Outcome.REFUSED


@dataclass(frozen=True)
class Refuse:
    """Not now; the text is for the administrator and names the better broker where there is one."""

    text: str


@dataclass(frozen=True)
class Claim:
    """Claim this epoch; `base` is the newest set, `members` the first set under the new epoch."""

    epoch: int
    base: InSync
    members: tuple[Member, ...]
    positions: Mapping[str, int] = field(default_factory=dict)
    """How far each whole broker that answered said to hold everything, by id."""


def decide(
    me: View, survey: Survey, safety: str, majority: int, force: bool = False, known: InSync | None = None
) -> Refuse | Claim:
    """The first step's verdict."""
    for view in survey.views:
        if view.state.is_primary:
            return Refuse(f"{me.member} cannot be promoted: {view.member} is primary ({view.state.value})")
    heard = 1 + len(survey.views)
    if safety == "quorum" and heard < majority:
        return Refuse(f"{me.member} cannot be promoted: {heard} brokers heard, {majority} needed")
    sets = [me.in_sync, known or InSync(), *(view.in_sync for view in survey.views)]
    newest = max(sets, key=lambda in_sync: in_sync.key)
    refusal = "" if force else _check(me, survey, newest, safety, majority)
    if refusal:
        return Refuse(f"{me.member} cannot be promoted: {refusal}")
    epoch = 1 + max([me.epoch, newest.epoch, *(view.epoch for view in survey.views)])
    if epoch > LAST_EPOCH:
        return Refuse(f"{me.member} cannot be promoted: the last epoch, {LAST_EPOCH}, is used up")
    positions = {view.id: view.position for view in survey.views if view.whole}
    return Claim(epoch, newest, _expected(me, survey, newest), positions)


def _check(me: View, survey: Survey, newest: InSync, safety: str, majority: int) -> str:
    """R3 to R5; the empty text is yes."""
    claimed = max([me.ballot, *(view.ballot for view in survey.views)])
    fresh = not newest.version and not claimed[0]
    refusal = _cut_off(survey, safety, majority, fresh)
    if fresh or refusal:
        return refusal
    rivals = [view for view in survey.views if view.whole and view.id in newest]
    if me.whole and me.id in newest:
        ahead = max((view for view in rivals if view.state is State.READY), key=lambda view: view.position, default=me)
        if ahead.position > me.position:
            return f"{ahead} is ahead of position {text(me.position)}"
        return _doubt(me, survey, newest, safety)
    what = _incomplete(me, newest)
    if rivals:
        return f"{what}; {max(rivals, key=lambda view: view.position)} can"
    others = [member for member in newest.members if member.id != me.id]
    silent = [member for member in others if survey.outcome(member) is Outcome.SILENT]
    if silent and safety != "availability":
        return f"{what}, and {_names(silent)} may hold more but does not answer"
    if survey.fate(claimed[1], newest) is Outcome.SILENT and claimed[1] != me.id and safety != "availability":
        return f"{what}, and broker {claimed[1][:8]} has claimed epoch {claimed[0]} but does not answer"
    down = [member for member in others if survey.outcome(member) is Outcome.REFUSED]
    if down and me.state is State.CATCHUP:
        return f"{what}, and {_names(down)} may return with more"
    best = max(survey.views, key=_content, default=me)
    return f"{what}; {best} holds more" if _content(best) > _content(me) else ""


def _cut_off(survey: Survey, safety: str, majority: int, fresh: bool) -> str:
    """So many are silent that it may be we who are cut off.  Of two brokers that have worked together one must be able
    to go on; who is new cannot tell a fresh cluster from one that it does not hear."""
    silent = [address for address, outcome in survey.outcomes.items() if outcome is Outcome.SILENT]
    brokers = 1 + len(survey.outcomes)
    if safety == "availability" or not silent or brokers - len(silent) >= majority or (brokers < 3 and not fresh):
        return ""
    return f"{', '.join(silent)} may hold more but does not answer, and the others are no majority"


def _doubt(me: View, survey: Survey, newest: InSync, safety: str) -> str:
    if not me.doubt or safety != "manager":
        return ""
    for leader in (newest.leader, me.leader):
        if survey.fate(leader, newest) is Outcome.SILENT and leader != me.id:
            who = newest.member(leader) or f"broker {leader[:8]}"
            return f"it was out of touch, and {who}, which may have gone on without it, does not answer"
    return ""


def _content(view: View) -> tuple[bool, int]:
    return view.whole, view.position


def _incomplete(me: View, newest: InSync) -> str:
    if me.state is State.CATCHUP:
        return "it is still catching up"
    if me.state is State.JOINING and not me.whole:
        return "it is joining an active cluster"
    return f"it is not in the in-sync set ({_names(newest.members)})"


def _names(members: Iterable[Member]) -> str:
    return ", ".join(str(member) for member in members)


def _expected(me: View, survey: Survey, newest: InSync) -> tuple[Member, ...]:
    """The members of the newest set that are or may be whole, and this broker.  The old primary counts only when it
    has answered that it is none any more: a silent one will be deposed by our epoch and then starts as joining."""
    expected = [me.member]
    for member in newest.members:
        view = survey.view(member.id)
        if member.id == me.id:
            continue
        if view is not None:
            if view.whole:
                expected.append(view.member)
        elif member.id != newest.leader and survey.outcome(member) is Outcome.SILENT:
            expected.append(member)
    return tuple(expected)


@dataclass(frozen=True)
class ClaimRequest:
    """The second step on the wire."""

    epoch: int
    claimant: Member
    position: int
    base: InSync
    force: bool = False

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
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ClaimRequest:
        """Raises LinkError."""
        return cls(
            need(value, "epoch", int),
            Member.from_json(value.get("claimant")),
            need(value, "position", int),
            InSync.from_json(value.get("base")),
            bool(value.get("force")),
        )


def grant(me: View, claim: ClaimRequest) -> str:
    """Why this broker denies the claim; the empty text grants it.

    It is here that promotion and confirming exclude each other: a grant is given by a broker that from then on
    acknowledges nothing to the old primary, and only to a claimant that knows the newest in-sync set known here.
    """
    if claim.ballot < me.ballot:
        return f"{me.member} has seen epoch {me.epoch}, claimed is {claim.epoch}"
    if claim.force or claim.ballot == me.ballot:
        return ""
    if me.in_sync.key > claim.base.key:
        return f"{me.member} knows in-sync set {me.in_sync.key}, the claim is based on {claim.base.key}"
    if me.state is State.READY and me.whole and me.id in claim.base and me.position > claim.position:
        return f"{me} is ahead of position {text(claim.position)}"
    return ""


def fell_silent(survey: Survey, answers: Mapping[str, Answer]) -> str:
    """Who answered the question but not the claim; the empty text when nobody.

    Between the two it may have acknowledged a newer set, one without us perhaps, to the old primary: then the claim is
    based on an old one.  Silence in both steps is another matter, `decide` has judged that.
    """
    asked = [address for address, outcome in survey.outcomes.items() if outcome is Outcome.ANSWERED]
    silent = [address for address in asked if address in answers and answers[address].outcome is Outcome.SILENT]
    return f"{', '.join(silent)} has answered, but not to the claim" if silent else ""


def decide_claims(claim: Claim, answers: Mapping[str, Answer], own_id: str, safety: str, majority: int) -> str:
    """The second step's verdict: why the claim has failed; the empty text: it stands."""
    granted = {own_id}
    for answer in answers.values():
        if answer.outcome is not Outcome.ANSWERED:
            continue
        if not answer.result.get("granted"):
            return str(answer.result.get("reason") or answer.error or "denied")
        granted.add(str(answer.result.get("id")))
    if safety == "quorum" and len(granted) < majority:
        return f"epoch {claim.epoch} granted by {len(granted)} brokers, {majority} needed"
    return ""
