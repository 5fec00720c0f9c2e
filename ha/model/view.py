"""A broker's report about itself, and the evaluated answers of a survey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ha.model.environment import Answer, Outcome
from ha.model.hearing import ages
from ha.model.membership import InSync, Member
from ha.model.position import text
from ha.model.protocol import is_short_text, need, need_epoch, short_text
from ha.model.status import State
from qpidd_py.errors import LinkError


@dataclass(frozen=True)
class View:
    """A broker's report about itself: the answer to `ha.ask`."""

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
    """It stood still, its primary closed the link, or it granted a claim and does not follow the claimant yet: it may
    have been removed from the in-sync set without knowing."""
    stood: bool = False
    """It is in doubt because this process did not run: the members that stayed in the set may know of its removal."""
    isolated: bool = False
    """A primary with `quorum` that lacked a majority for so long that it closed its clients: it can confirm nothing, so
    another broker may be promoted."""
    instance: str = ""
    before: tuple[str, ...] = ()
    """As in `Member`."""
    writer: str = ""
    """Under whose claim the last of its content was written: two brokers may write logs of one epoch."""
    durable: int = -1
    """The position up to which a restart brings back what it holds, 0 if that is not known; -1: up to `position`."""
    heard: tuple[tuple[str, float], ...] = ()
    """Address of a broker and seconds ago, see `hearing.py`."""
    ports: tuple[int, ...] = ()
    """On which the process listens: if one refuses, the others tell whether it lives."""
    returned: bool = False
    """Of our own view: a restart has brought back what we hold, less than `ha-backup-timeout` ago."""
    lost: bool = False
    """It has forgotten a vote and a set, as after a replaced disk, and no primary has listed it since."""
    led: tuple[tuple[str, int], ...] = ()
    """The last epoch of each broker that has led one, as this broker's log knows.  Of its own: or that of
    `HaState.vouched`."""
    vouched: tuple[int, str, int] = (0, "", 0)
    """Of our own view: as in `HaState`."""

    @property
    def leads(self) -> bool:
        """True for a primary over which no other broker may be promoted."""
        return self.state.is_primary and not self.isolated

    @property
    def stored(self) -> int:
        """Up to here its acknowledgement may be taken as given."""
        return self.position if self.durable < 0 else min(self.position, self.durable)

    @property
    def brought_back(self) -> bool:
        """Its journal has brought back everything up to its position, and it follows no primary yet."""
        return self.state is State.JOINING and 0 < self.position <= self.durable

    @property
    def claims(self) -> tuple[tuple[str, int], ...]:
        """Brokers, and epochs that they have claimed or led."""
        return (*self.led, (self.leader, self.epoch), (self.in_sync.leader, self.in_sync.epoch))

    def outdated(self, claims: Mapping[str, int]) -> int:
        """The last epoch that this broker has claimed by `claims`, if it does not know of that; 0 otherwise.  Then its
        data directory was put back from an older copy, and may lack what it acknowledged since."""
        claimed = claims.get(self.id, 0)
        return claimed if claimed > dict(self.led).get(self.id, 0) else 0

    def as_old_copy(self) -> View:
        """What it holds stands for no member."""
        return replace(self, whole=False, durable=0)

    @property
    def member(self) -> Member:
        return Member(self.id, self.name, self.address, self.instance, self.before)

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
            "stood": self.stood,
            "isolated": self.isolated,
            "instance": self.instance,
            "writer": self.writer,
            "heard": dict(self.heard),
            **({"before": list(self.before)} if self.before else {}),
            **({"durable": self.durable} if self.durable >= 0 else {}),
            **({"ports": list(self.ports)} if self.ports else {}),
            **({"lost": True} if self.lost else {}),
            **({"led": dict(self.led)} if self.led else {}),
        }

    @classmethod
    def from_json(cls, value: Any) -> View:
        """Raises LinkError when a peer sent something else."""
        if not isinstance(value, Mapping):
            raise LinkError(f"not a view: {value!r:.80}")
        try:
            state = State(value.get("state"))
        except ValueError as error:
            raise LinkError(f"{error!s:.80}") from error
        member = Member.from_json(value)
        return cls(
            member.id,
            member.name,
            member.address,
            state,
            need_epoch(value),
            short_text(value, "leader"),
            need(value, "position", int),
            need(value, "whole", bool),
            InSync.from_json(value.get("in_sync")),
            short_text(value, "primary"),
            bool(value.get("doubt")),
            bool(value.get("stood")),
            bool(value.get("isolated")),
            member.instance,
            member.before,
            short_text(value, "writer"),
            need(value, "durable", int) if "durable" in value else -1,
            tuple(ages(value).items()),
            _ports(value.get("ports")),
            lost=bool(value.get("lost")),
            led=tuple(epochs_led(value).items()),
        )


def epochs_led(value: Mapping[str, Any]) -> dict[str, int]:
    """The field `led`; it may be missing.  What it says of epochs above the vote of its broker is not believed, so that
    a faulty one makes no copy of another look old.  Raises LinkError when it is something else."""
    found, vote = value.get("led", {}), need_epoch(value)
    if not isinstance(found, Mapping) or not all(is_short_text(id) and type(n) is int for id, n in found.items()):
        raise LinkError(f"not the epochs that brokers have led: {found!r:.80}")
    return {id: epoch for id, epoch in found.items() if epoch <= vote}


def _ports(found: object) -> tuple[int, ...]:
    listed = found if isinstance(found, list) else []
    return tuple(port for port in listed[:8] if isinstance(port, int) and 0 < port < 65536)


@dataclass(frozen=True)
class Survey:
    """The result of the first step: the views of those that answered, and the outcome for each address."""

    views: tuple[View, ...]
    """Views of other brokers, one for each."""
    outcomes: Mapping[str, Outcome]
    """Outcome of the request, by address."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Id of the broker that answers at each address."""
    twins: tuple[View, ...] = ()
    """Other living brokers with our identity (`twins.py`): their answers and votes do not count."""

    @property
    def lost(self) -> frozenset[str]:
        """Ids of the brokers that have answered, and have forgotten what they knew."""
        return frozenset(view.id for view in self.views if view.lost)

    @classmethod
    def of(cls, own_id: str, answers: Mapping[str, Answer], instance: str = "") -> Survey:
        """A broker with an invalid answer counts as silent; several addresses of one broker count once."""
        views: dict[tuple[str, str], View] = {}
        twins: list[View] = []
        outcomes: dict[str, Outcome] = {}
        ids: dict[str, str] = {}
        for address, answer in answers.items():
            outcomes[address] = answer.outcome
            if answer.outcome is not Outcome.ANSWERED:
                continue
            try:
                view = View.from_json(answer.result)
            except LinkError:
                outcomes[address] = Outcome.SILENT
                continue
            if (view.id, view.instance) == (own_id, instance):
                del outcomes[address]
                continue
            view = view if view.address else replace(view, address=address)
            if view.id == own_id:
                twins.append(view)
            else:
                views[view.id, view.instance] = view
                ids[address] = view.id
        return cls(tuple(views.values()), outcomes, ids, tuple(twins))

    def view(self, id: str) -> View | None:
        return next((view for view in self.views if view.id == id), None)

    def of_member(self, member: Member) -> View | None:
        """The view of that process, or of its restart at the same address; not of a copy elsewhere with the same id.
        A member whose address is not known may be the copy, so no other process is taken for its restart."""
        found = [view for view in self.views if view.id == member.id]
        same = [view for view in found if view.member.same_life(member)]
        same += [view for view in found if view.member.stands_for(member)]
        there = [view for view in found if view.address == member.address]
        return next(iter([*same, *there]), None)

    def outcome(self, member: Member) -> Outcome:
        """SILENT also for a broker that was not asked."""
        if self.of_member(member) is not None:
            return Outcome.ANSWERED
        outcome = self.outcomes.get(member.address, Outcome.SILENT)
        # Another broker answers at that address: the member itself was not heard.
        return Outcome.SILENT if outcome is Outcome.ANSWERED else outcome

    def fate(self, id: str, newest: InSync) -> Outcome:
        """Outcome for a broker known by its id only: SILENT unless its address and outcome are certain."""
        member = newest.member(id)
        if member is not None:
            return self.outcome(member)  # not another process with that id, elsewhere
        if self.view(id) is not None:
            return Outcome.ANSWERED
        return Outcome.SILENT if Outcome.SILENT in self.outcomes.values() else Outcome.REFUSED
