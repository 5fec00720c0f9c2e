"""Changes of the in-sync set, one at a time: on record first, in force afterwards.

    wanted ──made──▶ under way ──answered: no higher ballot─▶ stored on our own disk ──▶ in force
                        │  ▲ └──answered: a higher ballot──▶ we are deposed; everything is forgotten
                        └──┘ no answer, or not stored: again, the same set

With a registry (`Environment.exchange`) the primary *writes* the next set and then *reads* the entries of all; a
candidate for promotion *writes* its new ballot and then *reads* (`promoter.py`).  The registry is linearizable, so of
the two at least one sees what the other has written (Dekker's argument):

    the primary reads the ballot    => it is deposed, and the set is never in force;
    else the candidate reads the set => its claim was based on an older one, and has failed.

At least one of the two happens, so no fencing is needed.  In the reverse order (read, then write) both could read
before either writes, and both go on: `tests/unit/ha/test_registry.py` tries all schedules.

A change under way is completed, never withdrawn: a write without an answer may have been made, and brokers that read it
may have acted on it.  Without a registry a change is in force as soon as our disk has it; its record is the log of the
remaining members, and `Roster.release` waits for them.

The entry also names the *holders* that the new set lacks (`HaState.replaced`): members of earlier sets.  If we die
before the new set is in force, they may be the only ones that hold all that was confirmed.  When the primary next looks
(`watch`) and the set on record is in force, it writes the entry again without them.

A registry may forget, if an administrator restores older content.  The primary notices at its next look and writes
again.  Until then the set in force is not on record.

Invariants:  the set in force is on record;  at most one change is under way;  after `stop` nothing comes into force;
the set of an entry without `replaced` is or was in force.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from ha.model.environment import Depose, Exchanged, StateNotStored
from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync, Member

FIRST_DELAY: Final = 0.1
LAST_DELAY: Final = 1.0
"""Seconds before an exchange that has failed is repeated: the first time, and at most."""


class Change(Protocol):
    """One step of the in-sync set, as data."""

    @property
    def what(self) -> str:
        """Description for people: "b is dropped"."""
        ...

    @property
    def stalls(self) -> bool:
        """True if confirms wait for this change."""
        ...


C = TypeVar("C", bound=Change)
K = TypeVar("K", bound=Change, contravariant=True)


class Owner(Protocol[K]):
    """Computes the sets, and counts by the one in force: the roster."""

    def next_set(self, change: K, in_sync: InSync) -> InSync | None:
        """The set that the change makes of the one in force; None: no longer wanted.  Called when the change begins."""
        ...

    def in_force(self, change: K, in_sync: InSync) -> None:
        """The set of the change is on record and on our own disk."""
        ...


@dataclass(frozen=True)
class Again:
    """The set in force, for a registry that has forgotten it."""

    what: ClassVar = "the in-sync set is recorded again"
    stalls: ClassVar = False


def overtaken(states: Iterable[HaState], ballot: tuple[int, str]) -> HaState | None:
    """The entry with the highest ballot, if it is above ours."""
    highest = max(states, key=lambda state: state.ballot, default=None)
    return highest if highest is not None and highest.ballot > ballot else None


class Recorder(Generic[C]):
    """The changes of one primary."""

    def __init__(self, local: LocalMember, depose: Depose, owner: Owner[C]) -> None:
        """`depose` is called for a higher ballot, with the ballot, the reason, and the address of its leader."""
        self._local = local
        self._depose = depose
        self._owner = owner
        self._queue: deque[C | Again] = deque()
        self._busy = False
        self._change: C | Again | None = None
        self._in_sync = InSync()
        self.holders: tuple[Member, ...] = ()
        """Brokers that may hold all that was confirmed: members of the set in force; at first those of the claim."""
        self._delay = FIRST_DELAY
        self._watching = False
        self._stopped = False
        self.error = ""
        """Why the last exchange with the registry failed; empty if it succeeded."""
        self.not_stored = ""
        """Why our own disk did not take the set under way; empty if it did."""
        self.reached = local.env.now()
        """When the registry last answered."""

    def stop(self) -> None:
        """The role has ended: later answers are ignored."""
        self._stopped = True
        self._queue.clear()

    @property
    def stalling(self) -> str:
        """Description of the change that confirms wait for; empty if there is none."""
        waiting = [self._change] if self._change else []
        return next((change.what for change in [*waiting, *self._queue] if change.stalls), "")

    @property
    def under_way(self) -> InSync | None:
        """The set that is not in force yet."""
        return self._in_sync if self._change is not None else None

    @property
    def idle(self) -> bool:
        return not self._busy

    def want(self, change: C | Again) -> None:
        """Begin `change` as soon as those before it are in force."""
        if not self._stopped:
            self._queue.append(change)
            self._next()

    def watch(self) -> None:
        """Check that the registry can be reached and knows no rival, even if there is nothing to change."""
        if self._local.settings.registry and self.idle and not self._watching and not self._stopped:
            self._watching = True
            self._local.env.exchange(None, self._local.settings.registry_timeout, self._watched)

    def _next(self) -> None:
        while self._queue and not self._busy:
            change = self._queue.popleft()
            in_sync = self._local.persisted.in_sync
            wanted = in_sync if isinstance(change, Again) else self._owner.next_set(change, in_sync)
            if wanted is None:
                continue
            self._busy = True  # changes wanted while this one comes into force are queued behind it
            self._change, self._in_sync, self._delay = change, wanted, FIRST_DELAY
            if self._local.settings.registry:
                self._exchange()
            else:
                self._store()

    def _exchange(self) -> None:
        if not self._stopped:
            replaced = tuple(member for member in self.holders if not self._in_sync.lists(member))
            state = self._local.persisted.entry(self._in_sync, replaced)
            self._local.env.exchange(state, self._local.settings.registry_timeout, self._exchanged)

    def _exchanged(self, end: Exchanged) -> None:
        if self._answered(end):
            self._delay = FIRST_DELAY
            self._store_and_go_on()
        else:
            self._again(self._exchange)

    def _again(self, attempt: Callable[[], None]) -> None:
        if not self._stopped:
            delay, self._delay = self._delay, min(2 * self._delay, LAST_DELAY)
            self._local.env.after(delay, attempt)

    def _store(self) -> None:
        """Store the set on our own disk; then it is in force."""
        try:
            self._local.persist(in_sync=self._in_sync, vouched=self._in_sync.key)
        except StateNotStored as error:
            self.not_stored = str(error)
            self._again(self._store_and_go_on)
            return
        self.not_stored = ""
        self.holders = self._in_sync.members
        change, self._change = self._change, None
        assert change is not None
        if not isinstance(change, Again):
            self._owner.in_force(change, self._in_sync)
        self._busy = False

    def _store_and_go_on(self) -> None:
        if not self._stopped:
            self._store()
            self._next()

    def _watched(self, end: Exchanged) -> None:
        self._watching = False
        if not self._answered(end) or not self.idle:
            return
        ours = self._local.persisted
        found = next((state for state in end.states if state.id == ours.id), None)
        forgotten = found is None or found.ballot < ours.ballot or found.in_sync.key < ours.in_sync.key
        if forgotten:
            # Older content was restored: a promotion could now take an older set for the newest.
            self._local.env.log("error", "the registry has forgotten our in-sync set; it is written again")
        if forgotten or (found is not None and found.replaced):
            self.want(Again())

    def _answered(self, end: Exchanged) -> bool:
        """True if the registry knows no higher ballot, so that we may go on as primary."""
        if self._stopped:
            return False
        if end.error:
            if not self.error:
                self._local.env.log("error", f"the registry cannot be used: {end.error}")
            self.error = end.error
            return False
        if self.error:
            self._local.env.log("notice", "the registry can be used again")
        self.error, self.reached = "", self._local.env.now()
        rival = overtaken(end.states, self._local.persisted.ballot)
        if rival is None:
            return True
        leader = rival.in_sync.member(rival.leader)
        reason = f"the registry knows of epoch {rival.epoch}, claimed by {leader or rival.leader[:8]}"
        self._depose(rival.ballot, reason, leader.address if leader else "")
        return False
