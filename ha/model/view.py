"""What brokers say of themselves when they are asked, and what became of a question to many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ha.environment import Answer, Outcome
from ha.model.membership import InSync, Member
from ha.model.position import text
from ha.model.protocol import need
from ha.model.status import State
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
    stood: bool = False
    """It is in doubt because it stood still itself: those that stayed in the set may know more of it than it does."""
    isolated: bool = False
    """A primary with `quorum` that has had no majority for so long that it has sent its clients away: it can confirm
    nothing, so another broker may be promoted."""
    instance: str = ""
    """As in `Member`."""

    @property
    def leads(self) -> bool:
        """Is it a primary that nobody is promoted over?"""
        return self.state.is_primary and not self.isolated

    @property
    def member(self) -> Member:
        return Member(self.id, self.name, self.address, self.instance)

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
            bool(value.get("stood")),
            bool(value.get("isolated")),
            str(value.get("instance", "")),
        )


@dataclass(frozen=True)
class Survey:
    """The end of the first step: who answered, and what became of the addresses that did not."""

    views: tuple[View, ...]
    """Of others, one for each broker."""
    outcomes: Mapping[str, Outcome]
    """By address."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Who answers at which address."""
    twins: tuple[View, ...] = ()
    """Other living brokers that have our identity (`twins.py`): they are nobody's witnesses, and have no vote."""

    @classmethod
    def of(cls, own_id: str, answers: Mapping[str, Answer], instance: str = "") -> Survey:
        """A broker that answers nonsense is taken as silent; several addresses of one broker count once."""
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
        """Of that process, or of the one that was started in its place; not of a copy elsewhere that has its id."""
        found = [view for view in self.views if view.id == member.id]
        same = [view for view in found if view.member.same_life(member)]
        there = [view for view in found if not member.address or view.address == member.address]
        return next(iter([*same, *there]), None)

    def outcome(self, member: Member) -> Outcome:
        """SILENT also for a broker that was not asked."""
        if self.of_member(member) is not None:
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
