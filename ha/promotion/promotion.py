"""Decides whether this broker may be promoted *now*, from the reports of the brokers.  Pure.

Promotion has two steps, so that a refused attempt has no effect: *ask* every broker (no side effect), then *claim* a
new epoch.  A broker that grants a claim stops following the old primary in the same call.

Facts, not state names, decide:

* `whole`: the broker holds everything up to its position.  True for a primary, for a ready backup and for a deposed
  primary that has not begun to follow another; false while catching up, and after a restart without a journal.
* `newest`: the highest in-sync set that any reachable broker knows.  Nothing was confirmed under it that one of its
  members lacks; so **a whole member of the newest set holds every confirmed message**.

Rules, in order (N = newest set, I = this broker, P = any other):

    R0  the manager's registry does not answer                 => refused, or by force
        I am not on the list of brokers (N's, or ha-brokers-url)  => refused, unless only the registry knows that list,
                                                                  and the set before N had me: then I return to it
    R1  a reachable P is primary, and not isolated (quorum)    => refused, named
        a reachable P has I's identity (`twins.py`)            => refused, named
    R2  safety quorum, and no majority has answered            => refused
        else so many are silent that the others (who answered, or whose host says that they are gone) are no majority,
        and we are three or more                               => refused, unless safety is availability, or by force
        (a broker that has lost what it knew, as after a replaced disk, counts as silent here and in R3)
    R3  no broker heard knows of an epoch (fresh cluster):
          safety manager, and a P is silent                    => refused, or by force; else claim
    R4  I whole and in N:
          a reachable P, ready, whole and in N, is ahead => refused, P named (no safer, but it has more); or `behind`
          I was restored, and a reachable P, whole and in N, is ahead => refused, unless safety is availability
                                                                          (what I have may be an old copy)
          I was restored, what I hold is older than N, no P whole and in N answers, and one does not
                                                               => the same, or by force
          availability, I was restarted less than `ha-backup-timeout` ago, and a P of N does not answer
                                                               => refused, or by force
          I am in doubt, and the leader of N, or the broker whose claim I granted last, is silent, or I stood still
          and another member of N is silent, or down and members keep journals
                                                               => refused, or by force; else claim
    R5  otherwise what I hold may lack confirmed messages:
          a reachable P is whole and in N                      => refused, P named
          a P of N is silent (it may live, and be whole)       => refused, unless safety is availability, or by force
          the broker of the highest ballot is silent           => the same: it may be primary
          I am catching up, and a P of N is down               => refused (it may return with what I lack), or by force
          safety quorum or a registry, and a P of N is down    => the same: a firewall or a listener that restarts
                                                                  refuses connections, too, and the broker lives
          members keep journals, and a P of N is down          => the same: what it has acknowledged is on its disk
          a reachable P, on the list, holds more               => refused, P named; else claim: total failure, best copy

What a broker holds is as new as the set of which it has the log (`HaState.vouched`), not as one that it was told of: a
copy that is cut off while it takes over a difference is as old as before.  For the same reason the first set of a new
primary lists a broker that was restarted as N does, unless it holds as much as the new primary.

*In N* refers to this run of the process: a restarted broker, or one on a copy of a data directory, has the id but is
not whole.  In R5 the member of N with I's id is I itself only at I's address: if N has it elsewhere, it may be another
broker, of whose data directory I is a copy, and it counts as any P.

R4's doubt: a living primary removes a backup only after it has lost it.  If a backup ran all the time and its primary
fell silent, the primary stands still or is cut off, and the manager decides which side goes on.  But a backup that was
paused itself, or whose link the primary closed, may have been removed; the primary knows, and so do the members that
stayed in the set.

`behind` is for a manager that knows which broker holds more (by the scores, `score.py`) and chose this one anyway: what
the other broker holds beyond this one was never confirmed, since every confirm needs every member of N, this one
included.

R3's silence: a broker that is new, or has lost its disk, cannot tell a fresh cluster from one whose other members hold
everything and cannot be heard.

With a *registry* N may be certain, and a broker may be known to be gone (`case.py`).  With neither a registry nor
`quorum` a broker whose host refuses counts as dead nevertheless, but only when the host has refused on every port that
the broker is known by, for `dead_after`, without a sign of life (`refusals.py`); before that it is silent.  That it is
dead then is one of the assumptions of `manager`.

With *journals* what a broker has acknowledged outlives it, so a dead member of N counts as one that may come back.  A
broker that has restarted is one that stood still.

An *isolated* primary has had no majority for `ha-isolation-timeout` and serves no clients.  It may answer questions for
ever while its links do not work; a claim deposes it, and until it learns of that it confirms nothing (quorum).  While
a removal is not complete it names the set before it as its own (`Roster.relied`): nothing was confirmed without the
removed broker, and nothing will be, once the primary has granted a claim that is based on that set.

`known` is an in-sync set that the manager has recorded itself; it counts as if a broker had reported it.

The second step, the claim, is in `claims.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ha.model.environment import Outcome
from ha.model.membership import InSync, Member
from ha.model.position import LAST_EPOCH, text
from ha.model.safety import Safety
from ha.model.status import State
from ha.model.twins import REMEDY
from ha.model.view import Survey, View
from ha.promotion.case import Case, ManagerRecord, newest_set
from ha.promotion.claims import Claim


@dataclass(frozen=True)
class Refuse:
    """A refusal; the text is for the administrator and names a better broker if there is one."""

    text: str


def decide(
    me: View,
    survey: Survey,
    safety: Safety,
    force: bool = False,
    record: ManagerRecord | None = None,
    behind: bool = False,
) -> Refuse | Claim:
    """The first step's verdict."""
    case = Case.of(me, survey, safety, record or ManagerRecord(), behind)
    refusal = _forbidden(case) or ("" if force else _check(case))
    epoch = 1 + max(case.claimed[0], case.newest.epoch)
    if not refusal and epoch > LAST_EPOCH:
        refusal = f"the last epoch, {LAST_EPOCH}, is used up"
    return Refuse(f"{me.member} cannot be promoted: {refusal}") if refusal else _claim(case, epoch)


def _claim(case: Case, epoch: int) -> Claim:
    newest, survey = case.newest, case.survey
    expected = _expected(case.me, survey, newest)
    positions = {view.id: (view.stored, view.writer) for view in case.others_whole}
    holders, old = (*newest.members, *case.replaced), bool(case.older_than)
    return Claim(epoch, newest, expected, case.whole, positions, holders, survey.lost, old)


def _forbidden(case: Case) -> str:
    """R0's list, R1, and R2 for quorum: force does not override these.  Empty: no objection."""
    me, voters = case.me, case.safety.voters(case.newest)
    for view in (*case.survey.views, *case.survey.twins):
        if view.leads:
            return f"{view.member} is primary ({view.state.value})"
    for twin in case.survey.twins:
        return f"{twin.member} at {twin.address} is running and has the same identity; {REMEDY}"
    if voters and me.address and me.address not in voters and not case.returns:
        changed = bool(case.newest.brokers)
        what = "is no longer a member of the cluster" if changed else f"is {me.address}, not in ha-brokers-url"
        return f"it {what} ({', '.join(voters)})"
    if case.safety.mode == "quorum":
        heard = len(_answered(me, case.survey, voters))
        majority = case.safety.majority(case.newest)
        if heard < majority:
            return f"{heard} brokers heard, {majority} needed"
    return ""


def _answered(me: View, survey: Survey, voters: Iterable[str]) -> set[str]:
    """Ids of the brokers on this list that were heard, including this one."""
    heard = {survey.ids[address] for address in voters if address in survey.ids}
    return heard | ({me.id} if me.address in voters else set())


def _check(case: Case) -> str:
    """R2 to R5.  Empty: no objection."""
    me, refusal = case.me, _cut_off(case)
    if case.fresh or refusal:
        return refusal
    rivals = case.others_whole
    if case.whole:
        rivals = [view for view in rivals if case.restored or (view.state is State.READY and not case.behind)]
        ahead = max(rivals, key=lambda view: view.position, default=me)
        if ahead.position > me.position:
            return f"{ahead} is ahead of position {text(me.position)}"
        return ("" if rivals else _outdated(case)) or _doubt(case) or _not_back(case)
    what = _incomplete(case)
    if rivals:
        return f"{what}; {max(rivals, key=lambda view: view.position)} can"
    return _unheard(case, what) or _better(case, what)


def _unheard(case: Case, what: str) -> str:
    """R5: silent brokers, or brokers that are down, that may hold what we lack."""
    survey, (epoch, leader) = case.survey, case.claimed
    others = case.others
    silent = [member for member in others if survey.outcome(member) is Outcome.SILENT]
    if case.safety.mode != "availability":
        if silent:
            return f"{what}, and {_names(silent)} may hold more but does not answer"
        unheard = survey.fate(leader, case.newest) is Outcome.SILENT and leader != case.me.id
        if unheard and not case.certain:
            return f"{what}, and broker {leader[:8]} has claimed epoch {epoch} but does not answer"
    down = [member for member in others if survey.outcome(member) is Outcome.REFUSED]
    if down and case.me.state is State.CATCHUP:
        return f"{what}, and {_names(down)} may return with more"
    if alive := [member for member in down if case.may_live(member)]:
        refusing = "a host that refuses a connection may still run a broker"
        why = "its journal is on its disk" if case.safety.journals else refusing
        return f"{what}, and {_names(alive)} may hold more: {why}. Start it, or use force"
    return ""


def _better(case: Case, what: str) -> str:
    """R5: no broker is whole any more, so the best copy wins, unless its broker has left the cluster.  A removal that
    is only in the registry was never in force, so that broker's copy may have all that was confirmed."""
    voters = case.safety.voters(newest_set(case.me, case.survey.views))
    copies = [view for view in case.survey.views if not voters or view.address in voters]
    best = max(copies, key=_content, default=case.me)
    return f"{what}; {best} holds more" if _content(best) > _content(case.me) else ""


def _cut_off(case: Case) -> str:
    """R2, R3: so many brokers are silent that this one may be cut off, or that the cluster may not be new.  Of two
    brokers that have worked together one must be able to go on."""
    silent, survey = case.silent, case.survey
    needless = case.certain and (case.fresh or case.whole)
    if case.safety.mode == "availability" or needless or not silent:
        return ""
    brokers = 1 + len(survey.outcomes)
    if case.fresh and case.safety.mode == "manager":
        what = _unheard_of(case, "does not answer")
        return f"it is new, and {what}: it may hold more. If you know that the cluster is new, use force"
    if brokers - len(silent) >= brokers // 2 + 1 or (brokers < 3 and not case.fresh):
        return ""
    return f"{_unheard_of(case, 'may hold more but does not answer')}, and the others are no majority"


def _unheard_of(case: Case, what: str) -> str:
    lost = [address for address in case.silent if case.survey.outcomes[address] is Outcome.ANSWERED]
    silent = [address for address in case.silent if address not in lost]
    said = [f"{', '.join(silent)} {what}"] if silent else []
    return " and ".join([*said, f"{', '.join(lost)} has lost what it knew"] if lost else said)


def _outdated(case: Case) -> str:
    """R4: a data directory that was put back from a backup looks like a restart; no other whole member shows how much
    it lacks."""
    me, newest = case.me, case.newest
    away = [member for member in newest.members if member.id != me.id and case.survey.of_member(member) is None]
    if not (away and me.before and case.restored) or me.vouched >= newest.key:
        return ""
    what = "it has the log up to an in-sync set that is older than the newest one, and so may lack what came later"
    return f"{what}: {_names(away)}, which would show that, does not answer"


def _doubt(case: Case) -> str:
    me, newest = case.me, case.newest
    if not me.doubt or case.safety.mode != "manager" or case.certain:
        return ""
    for leader in (newest.leader, me.leader):
        if case.survey.fate(leader, newest) is Outcome.SILENT and leader != me.id:
            who = newest.member(leader) or f"broker {leader[:8]}"
            return f"it was disconnected, and {who}, which may have gone on without it, does not answer"
    others = [member for member in newest.members if member.id != me.id] if me.stood else []
    away = {Outcome.SILENT, Outcome.REFUSED} if case.safety.journals else {Outcome.SILENT}
    if silent := [member for member in others if case.survey.outcome(member) in away]:
        return f"it was disconnected, and {_names(silent)}, which may know that it was dropped, does not answer"
    return ""


def _not_back(case: Case) -> str:
    """R4: of brokers that lose their power together one may go on a little longer, and drop the others."""
    me, newest = case.me, case.newest
    if case.safety.mode != "availability" or not me.returned:
        return ""
    others = [member for member in newest.members if member.id != me.id]
    away = [member for member in others if case.survey.outcome(member) is not Outcome.ANSWERED]
    return f"it was restarted, and {_names(away)}, which may have gone on without it, is not back yet" if away else ""


def _content(view: View) -> tuple[bool, int]:
    """Before copies with gaps those without: of a broker that is whole, and what a journal has brought back.  That one
    may lack its end, and a broker that was dropped lacks more of it."""
    return view.whole or view.brought_back, view.position


def _incomplete(case: Case) -> str:
    me = case.me
    if epoch := case.older_than:
        return f"its data directory is an older copy: it has claimed epoch {epoch} and does not know that"
    if me.state is State.CATCHUP:
        return "it is still catching up"
    if me.state is State.JOINING and not me.whole:
        return "it is joining an active cluster"
    return f"it is not in the in-sync set ({_names(case.newest.members)})"


def _names(members: Iterable[Member]) -> str:
    return ", ".join(str(member) for member in members)


def _holds_as_much(view: View, me: View, member: Member) -> bool:
    """True if this process is the member, or if what a journal has brought back reaches as far as what we hold."""
    return view.member.same_life(member) or (view.writer == me.writer and view.position >= me.position)


def _expected(me: View, survey: Survey, newest: InSync) -> tuple[Member, ...]:
    """The members of the newest set that are or may be whole, and this broker.  Another process under a member's id
    (`twins.py`) is none: it may be whole, but not by what the member holds.  The old primary counts only if it has
    answered that it is no longer primary: a silent one will be deposed by our epoch and then starts as joining."""
    expected = [me.member]
    for member in newest.members:
        view = survey.of_member(member)
        if member.id == me.id:
            continue
        if view is not None:
            if view.whole and newest.lists(view.member):
                expected.append(view.member if _holds_as_much(view, me, member) else member)
        elif member.id != newest.leader and survey.outcome(member) is Outcome.SILENT:
            expected.append(member)
    return tuple(expected)
