"""This broker as a member of its cluster: its ports, its vote, its state, and what it holds.

    state        one of `status.State`; every step is checked against the table there
    persisted    ballot and in-sync set, on disk before they take effect
    received     the newest in-sync set in the log that a primary has sent; every write to the disk stores it, too
    whole        we hold everything up to the role's position (see `promotion.py`)
    lineage      under whose claim the content of each epoch was written, and what that leader held when it took over
    acknowledged the position up to which we told a primary that we hold everything
    led          the epochs of this content in which we were primary
    journal      the content on disk, see `content.py`
    cluster      the other brokers, see `cluster.py`

Invariants:  ballot and in-sync key never go back;  nothing depends on a vote or a set that is not on disk.
Who may call: every part of the core.  This module imports none of them; `changed` is called after every change that the
promotion score may depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from ha.model.cluster import Cluster
from ha.model.content import Content, Journal, NoJournal
from ha.model.difference import Lineage
from ha.model.disk import DiskWatch
from ha.model.environment import Configuration, Environment, StateNotStored
from ha.model.journal_watch import JournalWatch
from ha.model.logins import KnownLogins
from ha.model.membership import HaState, InSync, Member, newest_of
from ha.model.position import epoch_of, text
from ha.model.safety import Safety
from ha.model.settings import NodeSettings
from ha.model.status import State, check_transition
from ha.model.twins import Sightings
from ha.model.view import View
from qpidd_py.core import Engine
from qpidd_py.errors import LinkError


class RoleFacts(Protocol):
    """What a view reports of the role (`ha.role.Role`)."""

    @property
    def position(self) -> int: ...

    @property
    def primary_address(self) -> str: ...

    @property
    def doubt(self) -> bool: ...

    @property
    def stood(self) -> bool: ...

    @property
    def isolation(self) -> str: ...


class LocalMember:
    """One broker, for one life of its process."""

    def __init__(
        self,
        settings: NodeSettings,
        engine: Engine,
        configuration: Configuration,
        env: Environment,
        state: HaState,
        instance: str = "",
        journal: Journal | None = None,
    ) -> None:
        """`instance`: a unique name of this run of the process; a later run under the same id has another one."""
        self.settings = settings
        self.instance = instance
        self.before: tuple[str, ...] = ()
        self.journal = journal or NoJournal(engine)
        self.keeps = journal is not None
        """What we hold outlives this process."""
        self.boot = ""
        """As in `Content`."""
        self.engine = engine
        self.configuration = configuration
        self.env = env
        self.persisted = state
        self._received = InSync()
        self._vouched = self._received.key
        self.state = State.STANDALONE
        self.whole = False
        self.lineage: Lineage = {}
        self.acknowledged = 0
        self.led: set[int] = set()
        self.safety = Safety(settings.safety, settings.brokers, settings.isolation_wait, self.keeps)
        self.stopped = False
        self.logins: KnownLogins | None = None
        """Set by the plug-in."""
        self.alarms: dict[str, str] = {}
        """Name and reason of each (`Broker.alarm`)."""
        self.limited = ""
        """Why this broker can take no more messages (`Broker.limit`); empty if it can."""
        self.hole = ""
        """Why messages of replicated queues that wait here cannot be read; empty if they can.  While there is one, this
        broker is not whole, whatever it has acknowledged, and as primary it is not either."""
        self.spent: set[str] = set()
        """As primary: members of our set that are known to hold nothing of what we cannot read."""
        self.copied = ""
        """Why what our journal has brought back does not count; empty if it does, or is replaced."""
        self.lost = ""
        """Why we have forgotten a vote, until a primary has listed us; empty if we have not."""
        self._fresh = not state.epoch and not state.in_sync.version
        self._led: tuple[Lineage, dict[str, int]] = {}, {}
        self._began = env.now()
        self.closed: Callable[[], str] = lambda: ""
        """Why a primary admits no client; empty if it does."""
        self.changed: Callable[[], None] = lambda: None
        """Called after every change that the promotion score may depend on."""
        self.sightings = Sightings(env)
        self.cluster = Cluster(self)
        self.disk = DiskWatch(env, settings.dead_after, lambda: self.changed())
        self.journal_watch = JournalWatch(env, self.journal, settings.dead_after, settings.slow_backup_timeout)

    # ---- who we are -----------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.persisted.id

    @property
    def epoch(self) -> int:
        return self.persisted.epoch

    @property
    def member(self) -> Member:
        return Member(self.id, self.settings.name, self.settings.address, self.instance, self.before)

    @property
    def ever_whole(self) -> bool:
        """True if this process once held everything; then it may hold messages that no other broker has."""
        return self.whole or bool(self.acknowledged or self.led)

    # ---- our set, as primary --------------------------------------------------------------------------------------

    def may_shrink(self, lost: Iterable[str]) -> bool:
        """True if our set without these is allowed: it is large enough, and they are not the last that may hold what we
        cannot read.  (With `availability` a loss is never waited for.)"""
        lost = frozenset(lost)
        allowed = self.safety.may_shrink(self.persisted.in_sync, lost)
        return allowed and not (self.safety.probes and self.needs(lost))

    def needs(self, lost: Collection[str]) -> bool:
        """True if no other member of our set may hold what we cannot read."""
        holders = self.persisted.in_sync.ids - self.spent - {self.id}
        return bool(self.hole and holders) and holders <= frozenset(lost)

    def view(self, role: RoleFacts) -> View:
        """Our answer to `ha.ask`."""
        origin = self.lineage.get(epoch_of(role.position))
        return View(
            self.id,
            self.settings.name,
            self.settings.address,
            self.state,
            self.epoch,
            self.persisted.leader,
            role.position,
            self.whole,
            self.persisted.in_sync,
            role.primary_address,
            role.doubt,
            role.stood,
            self.safety.mode == "quorum" and bool(role.isolation),
            self.instance,
            self.before,
            origin.leader if origin is not None else "",
            self._durable(role.position) if self.keeps else -1,
            tuple(self.cluster.ages().items()),
            self.settings.ports,
            bool(self.before) and self.env.now() - self._began < self.settings.backup_timeout,
            bool(self.lost),
            tuple(self.epochs_led.items()),
            self.persisted.vouched,
        )

    @property
    def epochs_led(self) -> dict[str, int]:
        """As in `View`."""
        if self._led[0] is not self.lineage:  # epochs become many, and this is asked at every look
            self._led = self.lineage, {origin.leader: epoch for epoch, origin in sorted(self.lineage.items())}
        led = self._led[1]
        return {**led, self.id: max(led.get(self.id, 0), self.persisted.vouched[0])}

    def _durable(self, position: int) -> int:
        """As in `View`."""
        durable, continues = self.journal.position, self.journal.complete and not self.hole
        return durable if continues and epoch_of(durable) == epoch_of(position) else 0

    def retune(self, settings: NodeSettings) -> None:
        """Options have changed, those that may while this broker runs."""
        self.settings = settings
        self.journal_watch.patience = settings.slow_backup_timeout

    def set_address(self, address: str, ports: tuple[int, ...] = ()) -> None:
        """Set the address at which other brokers reach us, and all our ports, once they are open."""
        ports = ports or self.settings.ports
        self.settings = replace(self.settings, address=address or self.settings.address, ports=ports)

    # ---- the content on disk --------------------------------------------------------------------------------------

    def restore(self, content: Content, mark: int = 0) -> None:
        """The engine holds what a journal has brought back (`content.py`).  `mark`: a position up to which the journal
        had come once.  Raises LinkError for a note that does not belong to it, and StateNotStored."""
        position = self.engine.position
        if mark > position:
            self._found_copy(f"its journal ends at {text(position)} and had come to {text(mark)}")
        self.before, self.lineage = content.known_as(self.id, self.persisted.in_sync), content.lineage
        self.led = {epoch for epoch, origin in self.lineage.items() if origin.leader == self.id}
        if (epoch := epoch_of(position)) > self.epoch:
            if epoch not in self.lineage:
                raise LinkError(f"its note names no leader of epoch {epoch}, in which the journal ends")
            # The vote on disk is older than the content: the primary that wrote it had our vote.
            self.env.log("error", f"the stored vote is of epoch {self.epoch}, the journal of epoch {epoch}")
            self.persist(epoch=epoch, leader=self.lineage[epoch].leader)
        if content.state is not None:
            self._compare(content.state)
        listed = self.persisted.in_sync.member(self.id)  # at which address we are is not known yet
        stands = listed is not None and self.persisted.in_sync.lists(replace(self.member, address=listed.address))
        self.whole = stands and not self.copied
        self.acknowledged = position  # what is not sure to be whole may be the only copy all the same
        what = "all that it has acknowledged" if self.whole else "what it held, which may not be all"
        self.env.log("notice", f"the journal has brought back {what}, up to {text(position)}")

    def _compare(self, noted: HaState) -> None:
        """The journal's note of our state file: what that one lacks is known again."""
        state = self.persisted
        if noted.id != state.id:
            self._found_copy(f"its journal is that of {noted.id[:8]}, and its identity is {state.id[:8]}")
        elif noted.ballot > state.ballot or noted.in_sync.key > state.in_sync.key:
            had, knows = (f"{it.epoch} and {it.in_sync.epoch}.{it.in_sync.version}" for it in (state, noted))
            self._found_copy(f"its vote and set are of epochs {had}, its journal knows {knows}")
            epoch, leader = max(noted.ballot, state.ballot)
            self.persist(epoch=epoch, leader=leader, in_sync=newest_of(noted.in_sync, state.in_sync))

    def _found_copy(self, why: str) -> None:
        """The parts of our data directory are not of one moment: what they hold may lack something."""
        self.copied = f"a part of its data directory is an older copy, or another broker's: {why}"
        self.env.log("error", f"{self.copied}; it joins as a broker that may lack something")

    def disown(self) -> None:
        """A primary knows that we acknowledged more than we hold: our content stands for no run any more."""
        self.before = ()
        self.journal.note(self.content.encode())

    def trace(self, lineage: Lineage) -> None:
        """Our content has this history from now on."""
        self.lineage = lineage
        self.journal.note(self.content.encode())

    @property
    def content(self) -> Content:
        return Content((*self.before, self.instance), self.lineage, self.boot, self.persisted)

    # ---- vote and state -------------------------------------------------------------------------------------------

    def persist(self, **changes: Any) -> None:
        """Change the vote or the set; it is on disk when this returns.  Raises StateNotStored: then nothing has
        changed, and what depends on it must not happen (README, "A disk that fails")."""
        state = self._with_received(self.persisted.advance(**changes))
        if state != self.persisted:
            self._store(state)

    def look_for_namesake(self, in_sync: InSync) -> None:
        """The member at our address has another identity: ours was lost, and with it the votes that we have given."""
        there = [each for each in in_sync.members if each.address == self.settings.address and each.id != self.id]
        if self._fresh and there and not self.lost and self.id not in in_sync:
            who = f"the member at {self.settings.address} was {there[0].id[:8]}, and this broker is {self.id[:8]}"
            self.lost = f"its identity and its votes are lost, as after a replaced disk: {who}"
            self.env.log("error", f"{self.lost}; it votes when a primary has listed it")
            self.env.event("identity_lost", peer=there[0].id, reason=self.lost)

    def receive(self, in_sync: InSync, complete: bool) -> None:
        """Store a set from the log of a primary.  `complete`: we hold everything before it.  Raises StateNotStored:
        then the next write stores it."""
        if (listed := in_sync.member(self.id)) is not None:
            self._fresh, self.lost = False, ""
            self.copied = self.copied if listed.instance != self.instance else ""
        self._vouched = in_sync.key if complete else self._vouched
        self._received = newest_of(self._received, in_sync)
        self.persist()

    @property
    def knows_sets(self) -> bool:
        """True if every set of the log that was received is on disk."""
        return self._received.key <= self.persisted.in_sync.key

    @property
    def slow_disk(self) -> str:
        """How slow a disk of this broker is, if any other broker would do better; empty otherwise."""
        return self.disk.slow or self.journal_watch.hangs

    def can_store(self) -> bool:
        """True if the disk takes our vote and set, and has all of them.  Tries again if the last write failed, or
        was slow and it is time."""
        return self.try_disk() if self.disk.error or self.disk.due else True

    def try_disk(self) -> bool:
        """Write vote and set again; True if the disk took them.  It may have filled up since the last write."""
        with suppress(StateNotStored):
            self._store(self._with_received(self.persisted))
        return not self.disk.error

    def _with_received(self, state: HaState) -> HaState:
        newest = newest_of(self._received, state.in_sync)
        return state.advance(in_sync=newest, vouched=max(state.vouched, self._vouched))

    def _store(self, state: HaState) -> None:
        self.disk.store(state)
        self.persisted = state
        if self.keeps:
            self.journal.note(self.content.encode())

    def set_state(self, new: State, position: int) -> None:
        """Change the state; `position` is the role's.  Raises InvariantError for an illegal step."""
        old, reason = self.state, check_transition(self.state, new)
        self.state = new
        self.env.log("notice", f"{old.value} -> {new.value}: {reason}")
        self.env.event("state", old=old.value, new=new.value, reason=reason, last_pos=position)
        self.changed()
