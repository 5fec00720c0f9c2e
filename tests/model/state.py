"""States of the model as nested tuples: small, hashable, and without any object of `ha`.

Brokers are `a`, `b`, `c`, ...; the same letter in upper case is the address.  A set of brokers is a text of sorted
letters, a set of messages a number with one bit for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ha.model.membership import HaState, InSync, Member
from ha.model.status import State
from ha.promotion.claims import ClaimRequest

Set = tuple[int, str, int, str, str]
"""Epoch, leader, version, members, addresses of the brokers (empty: those of the configuration)."""
Saved = tuple[int, str, Set, str]
"""Epoch and leader of the vote, the set, and (in a registry) whom it replaces: `HaState`."""

NO_SET: Set = (0, "", 0, "", "")
EMPTY: Saved = (0, "", NO_SET, "")


class Link(NamedTuple):
    """A backup's end of a replication link."""

    primary: str
    epoch: int
    step: str
    """`greeting`, `syncing` (the cut is fixed) or `following`."""
    applied: int = 0
    """The cut, and then the last position that was applied."""
    mask: int = 0
    """Messages that it will hold when the difference is taken over."""


class PeerState(NamedTuple):
    """A backup as a primary sees it (`ha.primary.peer.Peer`), and what is on the wire from it."""

    id: str
    counts: bool
    linked: bool
    phase: str
    acked: int
    received: int
    reported: bool
    removal: int
    whole: bool
    target: int
    sent: int
    """Last position that the backup has acknowledged on this link; received by the primary or not."""
    listing: int
    """Its number among those whose listing waits for the registry; 0: it is none of them."""


class Exchange(NamedTuple):
    """A call of the registry that is under way."""

    entry: Saved | None
    step: str
    """`asked`, `written` or `read`."""
    states: tuple[Saved | None, ...] = ()
    """What was read."""


class Lead(NamedTuple):
    """What makes a primary."""

    active: bool
    peers: tuple[PeerState, ...]
    expected: str
    begun: bool
    may_confirm: bool
    removing: bool
    steady: int
    safe: int
    log: tuple[tuple[int, str, object], ...]
    """Operations that a linked backup has not applied yet: position, kind, content."""
    queue: tuple[tuple[str, str], ...] = ()
    """Changes of the set that wait for the registry: kind and whom."""
    change: tuple[str, str, Set] | None = None
    """The change that is being recorded, and its set."""
    exchange: Exchange | None = None
    holders: str = ""
    former: Set | None = None
    """The set before the first removal that is not complete."""


class Attempt(NamedTuple):
    """A promotion under way."""

    record: tuple[Saved | None, ...] | None
    """The registry as it was read first."""
    claim: tuple[object, ...] | None = None
    """Epoch, base, members, whole, positions, holders; None: the others have not been asked yet."""
    asked: tuple[tuple[str, str], ...] = ()
    """What became of the question, by address."""
    granted: str = ""
    exchange: Exchange | None = None


class Broker(NamedTuple):
    """One broker: the process, and the disk."""

    up: bool
    disk: Saved
    saved: Saved
    """In memory; the same, if the code is right."""
    state: str
    whole: bool
    position: int
    holds: int
    link: Link | None = None
    attempt: Attempt | None = None
    lead: Lead | None = None
    blank: str = ""
    """`fresh` or `lost`: `LocalMember._fresh` and `lost`, where two brokers may have one address."""


class Left(NamedTuple):
    """How often these may still happen."""

    publishes: int = 0
    claims: int = 0
    crashes: int = 0
    losses: int = 0
    """Backups that a primary gives up."""
    members: int = 0
    """Members added or removed."""
    demotes: int = 0
    looks: int = 0
    """Primaries that record that their set is in force (`Recorder.watch`)."""
    disks: int = 0
    """Disks of voters that are lost."""


class Seen(NamedTuple):
    """What the judge keeps of the history; no broker knows it."""

    published: tuple[tuple[int, str], ...] = ()
    """Position of each message, and the broker that gave it out."""
    confirmed: int = 0
    excused: int = 0
    """Published before all in-sync brokers had died."""
    stood: tuple[tuple[int, str, int], ...] = ()
    """Every ballot that has stood, and what its primary held then."""
    in_force: Set = NO_SET
    survivors: str = ""
    """Members of that set that have run ever since they became members."""


class World(NamedTuple):
    """One state."""

    brokers: tuple[Broker, ...]
    claims: tuple[tuple[object, ...], ...]
    """On the wire for ever: each may arrive late, twice or never."""
    registry: tuple[Saved | None, ...]
    seen: Seen
    left: Left


STATES = {state.value: state for state in State}


def address_of(id: str) -> str:
    """Of the broker with this id.  A mistake gives one to two brokers."""
    return id.upper()


@lru_cache(None)
def member(id: str) -> Member:
    return Member(id, id, address_of(id))


@lru_cache(None)
def in_sync(code: Set) -> InSync:
    epoch, leader, version, members, brokers = code
    return InSync(epoch, leader, version, tuple(member(id) for id in members), tuple(brokers))


def set_code(found: InSync) -> Set:
    members = letters(found.members)
    return found.epoch, found.leader, found.version, members, "".join(found.brokers)


@lru_cache(1 << 16)
def ha_state(id: str, saved: Saved) -> HaState:
    return HaState(id, saved[0], saved[1], in_sync(saved[2]), tuple(member(other) for other in saved[3]))


def saved_code(found: HaState) -> Saved:
    return found.epoch, found.leader, set_code(found.in_sync), letters(found.replaced)


def letters(members: Iterable[Member]) -> str:
    return "".join(sorted({member.id for member in members}))


def states_of(entries: tuple[Saved | None, ...]) -> tuple[HaState, ...]:
    return tuple(ha_state(chr(97 + i), entry) for i, entry in enumerate(entries) if entry is not None)


def request_code(request: ClaimRequest) -> tuple[object, ...]:
    base = set_code(request.base)
    return request.epoch, request.claimant.id, request.position, base, request.whole, request.behind


@lru_cache(1 << 16)
def request_of(code: tuple[object, ...]) -> ClaimRequest:
    epoch, claimant, position, base, whole, behind = code
    return ClaimRequest(epoch, member(claimant), position, in_sync(base), False, whole, behind)  # type: ignore[arg-type]
