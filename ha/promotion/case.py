"""What the verdict on a promotion is based on (`promotion.py`): what this broker and the others say, and what the
manager has on record.  Pure.

With a *registry* (`recorder.py`) N is certain: no set is in force that is not in it.  Then R2 for a whole member of N,
R3's silence, R4's doubt and R5's unheard claimant do not apply, because each of them guards against a silent broker
that knows a newer set; and "fresh" means that the registry is empty, too.  N is not certain when a broker that was
heard knows a newer set than the registry: the registry was switched on later, or lost its content.  But a set that its
leader has stored and not recorded yet is certain if that leader is heard, whole, and its claim is the last one on
record: only the leader of an epoch makes sets of it, and a later epoch would be on record.

N may be on record without being in force, if its leader died in between.  Until N is known to be in force, the members
of the set before it that N lacks are on record, too (`HaState.replaced`), and in R5 they count as members of N.

A registry may also know that a broker is *gone* (its node was fenced): then it is certainly dead.  A refused connection
does not prove that.

A broker that has claimed an epoch, by the registry or any broker heard, and does not know that, has a data directory
that was put back from an older copy (`View.outdated`): it is not whole, whatever it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ha.model.environment import Exchanged, Outcome
from ha.model.membership import HaState, InSync, Member, newest_of
from ha.model.safety import Safety
from ha.model.view import Survey, View


@dataclass(frozen=True)
class ManagerRecord:
    """What the manager knows: its registry, read in the first step; or a set that came with the request."""

    states: tuple[HaState, ...] = ()
    known: InSync = field(default_factory=InSync)
    registry: bool = False
    """True if there is a registry and it has answered."""
    gone: frozenset[str] = frozenset()
    """As in `Exchanged`."""

    @classmethod
    def read(cls, exchanged: Exchanged, known: InSync | None = None) -> ManagerRecord:
        return cls(exchanged.states, known or InSync(), True, exchanged.gone)

    @property
    def newest(self) -> InSync:
        return newest_of(self.known, *(state.in_sync for state in self.states))

    def covers(self, newest: InSync, heard: Iterable[View] = ()) -> bool:
        """True if this is certainly the newest set: it is on record, or of the last epoch on record, and its leader is
        among `heard` and knows no newer one."""
        sets = [state.in_sync.key for state in self.states]
        recorded = max(sets, default=InSync().key) >= newest.key
        return self.registry and (recorded or (self._last(newest) and any(_leads_to(view, newest) for view in heard)))

    def _last(self, newest: InSync) -> bool:
        claimed = max((state.ballot for state in self.states), default=(0, ""))
        return claimed == (newest.epoch, newest.leader)

    def replaced(self, newest: InSync) -> tuple[Member, ...]:
        """Brokers, other than the members of this set, that may hold all that was confirmed, because the set is not
        known to be in force."""
        latest = newest_of(*(state.in_sync for state in self.states))
        entries = [state.replaced for state in self.states if state.in_sync.key == latest.key]
        replaced = min(entries, default=())
        if latest.key != newest.key:
            replaced = (*latest.members, *replaced)
        return tuple(member for member in replaced if not newest.lists(member))

    def dead(self, newest: InSync) -> frozenset[str]:
        """Addresses of the brokers that are gone, without those that also belong to a broker that is not gone."""
        sets = (newest.members, *((*state.in_sync.members, *state.replaced) for state in self.states))
        known = {member for members in sets for member in members}
        living = {member.address for member in known if member.id not in self.gone}
        return frozenset({member.address for member in known} - living)

    def settle(self, survey: Survey, newest: InSync) -> Survey:
        """The survey, in which a silent broker that is gone counts as one whose host refuses."""
        gone = self.dead(newest)
        outcomes = {
            address: Outcome.REFUSED if outcome is Outcome.SILENT and address in gone else outcome
            for address, outcome in survey.outcomes.items()
        }
        return replace(survey, outcomes=outcomes)


@dataclass(frozen=True)
class Case:
    """Everything that a decision is based on."""

    me: View
    survey: Survey
    safety: Safety
    newest: InSync
    claimed: tuple[int, str]
    """The highest ballot."""
    certain: bool
    """True if no silent broker can know a newer set."""
    behind: bool
    replaced: tuple[Member, ...]
    """Brokers, other than the members of N, that may hold all that was confirmed."""
    gone: frozenset[str] | None
    """With a registry: addresses of the brokers that are certainly dead."""
    older_than: int
    """The epoch that shows that what this broker holds is an old copy; 0 if none does."""

    @classmethod
    def of(cls, me: View, survey: Survey, safety: Safety, record: ManagerRecord, behind: bool) -> Case:
        newest = newest_set(me, survey.views, record)
        known: tuple[View | HaState, ...] = (me, *survey.views, *record.states)
        claims = dict(sorted(claim for each in known for claim in each.claims))
        older_than, claimed = me.outdated(claims), max(each.ballot for each in known)
        me, survey = _without_old_copies(me, record.settle(survey, newest), claims)
        gone = record.dead(newest) if record.registry else None
        certain = record.covers(newest, (me, *survey.views))
        replaced = _members(record.replaced(newest), me, survey, safety, newest)
        return cls(me, survey, safety, newest, claimed, certain, behind, replaced, gone, older_than)

    @property
    def whole(self) -> bool:
        """R4: True if this broker holds every confirmed message."""
        return self.me.whole and self.newest.lists(self.me.member)

    @property
    def others_whole(self) -> list[View]:
        """Whole members of N, of those that have answered."""
        return [view for view in self.survey.views if view.whole and self.newest.lists(view.member)]

    @property
    def restored(self) -> bool:
        """True if a journal has brought back what this broker holds, and the manager may not choose an older copy."""
        listed = any(self.me.member.same_life(member) for member in self.newest.members)
        return not listed and self.safety.mode != "availability"

    @property
    def returns(self) -> bool:
        """True if this broker was removed by a set that is on record and not known to be in force: it may hold all that
        was confirmed, and no other broker does (R5 asks for the members of that set)."""
        return any(member.id == self.me.id and member.address == self.me.address for member in self.replaced)

    @property
    def fresh(self) -> bool:
        return not self.newest.version and not self.claimed[0]

    @property
    def others(self) -> list[Member]:
        """Members of N, and the brokers that N replaces, without this broker (R5)."""
        return [member for member in (*self.newest.members, *self.replaced) if not self._is_me(member)]

    def may_live(self, member: Member) -> bool:
        """True if the broker, or what it holds, may live although its host refuses connections."""
        if self.safety.journals and self.safety.mode != "availability":
            return True  # what it holds does, on its disk
        if self.gone is None:
            return self.safety.mode == "quorum"
        return self.safety.mode != "availability" and member.address not in self.gone

    def _is_me(self, member: Member) -> bool:
        me = self.me
        if me.member.stands_for(member) or member.id != me.id:
            return member.id == me.id
        if me.address:
            return member.address == me.address
        return member.address not in self.survey.outcomes  # if that address was asked, another broker has it

    @property
    def silent(self) -> list[str]:
        """Addresses of the brokers that cannot say what they know, because they do not answer or have forgotten it."""
        survey = self.survey
        return [
            address
            for address, outcome in survey.outcomes.items()
            if outcome is Outcome.SILENT or survey.ids.get(address) in survey.lost
        ]


def newest_set(me: View, views: Iterable[View], record: ManagerRecord | None = None) -> InSync:
    """The newest set known to any of these."""
    return newest_of(me.in_sync, (record or ManagerRecord()).newest, *(view.in_sync for view in views))


def _leads_to(view: View, newest: InSync) -> bool:
    """It is the leader that has made this set, and knows no newer one."""
    return view.id == newest.leader and view.whole and view.in_sync.key == newest.key


def _without_old_copies(me: View, survey: Survey, claims: Mapping[str, int]) -> tuple[View, Survey]:
    views = (me, *survey.views)
    me, *others = (view.as_old_copy() if view.outdated(claims) else view for view in views)
    return me, replace(survey, views=tuple(others))


def _members(found: Iterable[Member], me: View, survey: Survey, safety: Safety, newest: InSync) -> tuple[Member, ...]:
    """`found` without brokers that have left the cluster.  The newest list may be on record without being in force."""
    listed = {*safety.voters(newest), *safety.voters(newest_set(me, survey.views))}
    return tuple(member for member in found if not listed or member.address in listed)
