"""The in-sync set and its versions, ballots, and the state that a broker must not forget.

The *in-sync set* holds the brokers without whose acknowledgement nothing is confirmed, the primary included.  Sets are
ordered by `key = (epoch, leader, version)`: the ballot of the primary that made it, then its number.  The version grows
with every change, also across promotions.  One primary makes the sets of one ballot, so equal keys mean equal sets.

A *ballot* is `(epoch, leader)`, the leader being the id of the broker that claimed the epoch.  Two brokers that are
promoted at the same time may claim the same epoch; ballots of one epoch are ordered by id, so every broker that hears
of both prefers the same one, and the other is deposed.

The *brokers* of a cluster are the addresses whose majority decides under `quorum`: `ha-brokers-url` until the list is
changed at run time, then the list in the newest in-sync set.  Why a change is safe: consecutive lists differ in one
address, so **every majority of one meets every majority of the other**.

    A set that confirms has a majority of its list L in it, and every member holds the record of L (it acknowledged
    what follows the record).  A promotion under L, or under the list before or after L, needs the answers and grants
    of a majority of that list; one of them is a member of the set, and reports L or denies the claim.  For lists that
    are two steps apart this does not hold.  So a change waits until the change before it is safe, and the first change
    of a primary until the first set of its own epoch is safe (otherwise two primaries could each change the same old
    list, with majorities that do not meet).

Without that last rule: of a b c d, a adds e and is cut off before any other broker hears of it; b is promoted by b c d
and removes a; b and c confirm (two of three), while a, d and e are three of a's five.  With it, d knows b's first set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ha.model.protocol import is_short_text, need, need_epoch, need_text, short_text
from qpidd_py.amqp.json_object import read_object
from qpidd_py.errors import InvariantError, LinkError

BEFORE_MAX: Final = 10_000
"""Earlier runs that a broker may name."""


@dataclass(frozen=True, order=True)
class Member:
    """A broker as others know it.  The id decides; name and address (HOST:PORT) are for people and for connecting.

    `instance` names one run of the process: what it holds belongs to it, and a copied data directory has the same id
    but never the same instance (`twins.py`).  Empty: not known, from a broker that does not send it.  `before` are the
    earlier runs whose content its journal has brought back (`content.py`); empty in sets."""

    id: str
    name: str = field(default="", compare=False)
    address: str = field(default="", compare=False)
    instance: str = field(default="", compare=False)
    before: tuple[str, ...] = field(default=(), compare=False)

    def same_life(self, other: Member) -> bool:
        """True if both are the same process, or if an instance is not known."""
        known = self.instance and other.instance
        return self.id == other.id and (not known or self.instance == other.instance)

    def stands_for(self, member: Member) -> bool:
        """True if this broker holds what `member` of a set held: it is the same process, or a later run with its
        content at the same address.  A copy of its data directory elsewhere may be older than what it acknowledged."""
        there = self.id == member.id and self.address == member.address
        return self.same_life(member) or (there and member.instance in self.before)

    def listed(self) -> Member:
        """As a set lists it."""
        return replace(self, before=()) if self.before else self

    def to_json(self) -> dict[str, Any]:
        known: dict[str, Any] = {"instance": self.instance} if self.instance else {}
        known |= {"before": list(self.before)} if self.before else {}
        return {"id": self.id, "name": self.name, "address": self.address, **known}

    @classmethod
    def from_json(cls, value: Any) -> Member:
        """Raises LinkError when a peer sent something else."""
        if not isinstance(value, Mapping) or not isinstance(value.get("id"), str) or not value["id"]:
            raise LinkError(f"not a member: {value!r:.80}")
        id, name, address, instance = (short_text(value, each) for each in ("id", "name", "address", "instance"))
        return cls(id, name, address, instance, runs(value))

    def __str__(self) -> str:
        return self.name or self.address or self.id[:8]


def runs(value: Mapping[str, Any]) -> tuple[str, ...]:
    """The field `before`; it may be missing.  Raises LinkError when it is something else."""
    found = value.get("before", ())
    named = isinstance(found, list | tuple) and all(map(is_short_text, found))
    if not named or len(found) > BEFORE_MAX:
        raise LinkError(f"not names of processes: {found!r:.80}")
    return tuple(found)


@dataclass(frozen=True)
class InSync:
    """One version of the in-sync set."""

    epoch: int = 0
    leader: str = ""
    version: int = 0
    members: tuple[Member, ...] = ()
    brokers: tuple[str, ...] = ()
    """Addresses of the cluster's members; empty: those of ha-brokers-url."""
    unsure: int = 0
    """Messages of epochs before this one may have been handed out, or sent on, by a primary of whose last turns no
    later one knows; 0: there are none."""

    @property
    def key(self) -> tuple[int, str, int]:
        return self.epoch, self.leader, self.version

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(member.id for member in self.members)

    def member(self, id: str) -> Member | None:
        return next((member for member in self.members if member.id == id), None)

    def __contains__(self, id: object) -> bool:
        return id in self.ids

    def lists(self, broker: Member) -> bool:
        """True if this broker is a member.  Another process under the same id holds what the member holds only if it
        has its content."""
        return any(broker.stands_for(member) for member in self.members)

    def shows(self, broker: Member) -> bool:
        """True if this process is a member with this name and address."""
        return any(member.to_json() == broker.listed().to_json() for member in self.members)

    def grow(self, member: Member) -> InSync:
        """The next version, with this member (once)."""
        others = tuple(other for other in self.members if other.id != member.id)
        return replace(self, version=self.version + 1, members=tuple(sorted((*others, member.listed()))))

    def shrink(self, ids: Iterable[str]) -> InSync:
        """The next version, without these."""
        gone = frozenset(ids)
        kept = tuple(member for member in self.members if member.id not in gone)
        return replace(self, version=self.version + 1, members=kept)

    def succeed(self, epoch: int, leader: str, members: Iterable[Member], complete: bool = False) -> InSync:
        """The first set of a new primary, which is on its own list: this set may have removed it, without being in
        force.  `complete`: it has the log of the primary before to its end."""
        if epoch <= self.epoch:
            raise InvariantError(f"the epoch must grow: {self.epoch} to {epoch}")
        listed = {member.listed() for member in members}
        own = {member.address for member in listed if member.id == leader and member.address}
        returns = own - set(self.brokers) if self.brokers else ()
        unsure = self.unsure if complete or not self.version else epoch
        return InSync(epoch, leader, self.version + 1, tuple(sorted(listed)), (*self.brokers, *returns), unsure)

    def change_brokers(self, brokers: tuple[str, ...], removed: str = "") -> InSync:
        """The next version, for another list of brokers; a removed one leaves the set in the same step."""
        kept = tuple(member for member in self.members if not removed or member.address != removed)
        return replace(self, version=self.version + 1, members=kept, brokers=brokers)

    def to_json(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "leader": self.leader,
            "version": self.version,
            "members": [member.to_json() for member in self.members],
            "brokers": list(self.brokers),
            **({"unsure": self.unsure} if self.unsure else {}),
        }

    @classmethod
    def from_json(cls, value: Any) -> InSync:
        """Raises LinkError when a peer sent something else."""
        if not isinstance(value, Mapping):
            raise LinkError(f"not an in-sync set: {value!r:.80}")
        try:
            epoch, version, members = need_epoch(value), need(value, "version", int), need(value, "members", list)
        except LinkError as error:
            raise LinkError(f"not an in-sync set: {error}") from error
        parsed = tuple(sorted(Member.from_json(member) for member in members))
        brokers = value.get("brokers") or []
        if not isinstance(brokers, list) or not all(map(is_short_text, brokers)):
            raise LinkError(f"not a list of brokers: {brokers!r:.80}")
        unsure = need_epoch({"unsure": 0, **value}, "unsure")
        return cls(epoch, short_text(value, "leader"), version, parsed, tuple(brokers), unsure)


@dataclass(frozen=True)
class Membership:
    """The MEMBERSHIP operation, the only one that HA itself writes to the log: from its position on this set counts."""

    in_sync: InSync
    added: str = ""
    """Id of the backup that the primary has just found complete.  It becomes ready when it applies this operation,
    because then it holds everything before it."""

    def encode(self) -> bytes:
        value = {"op": "membership", "added": self.added, "in_sync": self.in_sync.to_json()}
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Membership:
        """Raises LinkError for anything else than a membership operation."""
        try:
            value = read_object(payload)
        except ValueError as error:
            raise LinkError(f"membership operation: {error}") from error
        if value.get("op") != "membership":
            raise LinkError(f"not a membership operation: {payload[:80]!r}")
        return cls(InSync.from_json(value.get("in_sync")), short_text(value, "added"))


def newest_of(*sets: InSync) -> InSync:
    """The one with the highest key; without any the empty one."""
    return max(sets, key=lambda in_sync: in_sync.key, default=InSync())


@dataclass(frozen=True)
class HaState:
    """Vote and set, written to disk before they take effect, so that a restart forgets no vote.

    Invariant (checked by `advance`): `ballot`, `in_sync.key` and `vouched` never go back.
    """

    id: str
    epoch: int = 0
    """The highest epoch that we granted, claimed or followed."""
    leader: str = ""
    """Id of the broker whose claim of that epoch we granted or followed."""
    in_sync: InSync = field(default_factory=InSync)
    replaced: tuple[Member, ...] = ()
    """In a registry only: brokers, other than the members of `in_sync`, that may hold all that was confirmed.  They are
    members of earlier sets; empty as soon as `in_sync` is known to be in force."""
    vouched: tuple[int, str, int] = InSync().key
    """What this broker holds is not older than this: the key of the newest set of which it has the log, or the ballot
    of a claim of its own.  A set that it was only told of, and a vote for another broker, vouch for nothing."""

    @property
    def ballot(self) -> tuple[int, str]:
        return self.epoch, self.leader

    @property
    def claims(self) -> tuple[tuple[str, int], ...]:
        """Brokers, and epochs that they have claimed."""
        return (self.leader, self.epoch), (self.in_sync.leader, self.in_sync.epoch)

    def advance(self, **changes: Any) -> HaState:
        new = replace(self, **changes)
        if new.ballot < self.ballot or new.in_sync.key < self.in_sync.key or new.vouched < self.vouched:
            old_new = f"{self.ballot} {self.in_sync.key} to {new.ballot} {new.in_sync.key}"
            raise InvariantError(f"ballot or in-sync set would go back: {old_new}")
        return new

    def entry(self, in_sync: InSync, replaced: tuple[Member, ...]) -> HaState:
        """As in a registry."""
        return replace(self, in_sync=in_sync, replaced=replaced, vouched=InSync().key)

    def to_json(self) -> dict[str, Any]:
        replaced = {"replaced": [member.to_json() for member in self.replaced]} if self.replaced else {}
        return {
            "id": self.id,
            "epoch": self.epoch,
            "leader": self.leader,
            "in_sync": self.in_sync.to_json(),
            "vouched": list(self.vouched),
            **replaced,
        }

    @classmethod
    def from_json(cls, value: Any) -> HaState:
        """Raises LinkError for anything else than a state.  Without `vouched`, as earlier versions wrote it, its set
        stands for that."""
        if not isinstance(value, Mapping) or not value.get("id"):
            raise LinkError(f"not the state of a broker: {value!r:.80}")
        replaced = tuple(map(Member.from_json, need({"replaced": [], **value}, "replaced", list)))
        in_sync = InSync.from_json(value.get("in_sync"))
        vouched = _key(value.get("vouched", list(in_sync.key)))
        return cls(need_text(value, "id"), need_epoch(value), need_text(value, "leader"), in_sync, replaced, vouched)


def _key(value: Any) -> tuple[int, str, int]:
    """Raises LinkError for anything else than a key of a set."""
    if not isinstance(value, list) or [type(each) for each in value] != [int, str, int]:
        raise LinkError(f"not the key of an in-sync set: {value!r:.80}")
    epoch, leader, version = value
    return epoch, leader, version
