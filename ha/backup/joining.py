"""A backup joins a primary: the conversation on one link, from hello until it has taken over everything.

    GREETING ──cut──▶ SYNCING ──caught-up──▶ APPLYING ──all applied──▶ STORING ──on disk──▶ FOLLOWING

    GREETING    hello, welcome; then possible only copies are put aside (`salvager.py`); then our ids are sent
    SYNCING     live batches from the cut on, and between them the difference: what lies before the cut
    APPLYING    a whole member applies the difference as a whole or not at all (`staging.py`); for others this step
                ends at once
    STORING     we hold everything up to `live`; the journal writes it (at once without one, `content.py`)
    FOLLOWING   joined: what we acknowledge from here on counts, so it is on disk

The frames are listed in `protocol.py`; `arrivals.py` is the primary's side.

Invariants: a primary whose ballot is below ours is not answered; ballot and in-sync set are on disk before anything
that depends on them is sent; possible only copies are on disk before anything is dropped; the lineage becomes the
primary's only when everything is applied, and has our own epochs, too, until then; after `end` nothing is sent or
applied.
Who may call: the backup that owns it; a LinkError raised by a frame costs the link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

from ha.backup.holdings import Holdings
from ha.backup.salvager import Known, Salvager
from ha.backup.staging import PAUSE, Mode, Staging
from ha.model.difference import Lineage, lineage_from_json
from ha.model.environment import Json, Link, StateNotStored
from ha.model.local_member import LocalMember
from ha.model.membership import InSync, Member
from ha.model.position import epoch_of
from ha.model.protocol import (
    VERSION,
    Kind,
    decode_drop,
    decode_held,
    decode_merge,
    encode_control,
    need,
    need_epoch,
)
from ha.model.view import View
from ha.salvage.selection import Promises, suspects
from qpidd_py.broker.snapshot import decode_snapshot
from qpidd_py.errors import LinkError

OBJECTS: Final = 1000
"""Queues, exchanges and bindings of a snapshot that are taken over in one turn, in some 10 ms: a link whose broker is
silent for a second is lost."""


class JoinStep(Enum):
    """Step of the conversation."""

    GREETING = "greeting"
    SYNCING = "syncing"
    APPLYING = "applying"
    STORING = "storing"
    FOLLOWING = "following"


class Joiner(Protocol):
    """Receives the progress: the backup."""

    def view(self) -> View:
        """Its own view."""
        ...

    def welcomed(self, leader: Member) -> None:
        """The primary welcomed us; its ballot is on disk."""
        ...

    def salvaged(self) -> None:
        """Everything that is dropped from here on is held elsewhere or on disk."""
        ...

    def not_salvaged(self, error: LinkError) -> None:
        """The disk does not take a possible only copy.  The link must be closed."""
        ...

    def admitted(self) -> None:
        """The cut is fixed, and the log arrives."""
        ...

    def not_listed(self) -> None:
        """The primary's set does not list us: from now on our content has holes."""
        ...

    def joined(self, position: int) -> None:
        """We hold everything up to here.  Raises StateNotStored if that must not be acknowledged."""
        ...

    def lost(self, reason: str) -> None:
        """The link was closed from here."""
        ...


class Joining:
    """One link to a primary, and what was received over it."""

    def __init__(self, local: LocalMember, link: Link, joiner: Joiner, position: int, aside: Known) -> None:
        """`position`: up to where we were whole; `aside`: what earlier attempts put aside and is still here."""
        self._local = local
        self._env = local.env
        self._engine = local.engine
        self._joiner = joiner
        self._position = position
        self._aside = aside
        self.link = link
        self.step = JoinStep.GREETING
        self.live = 0
        """Position of the last live batch received."""
        self._acked = 0
        self.primary = ""
        """Its name, once it has welcomed us."""
        self._lineage: Lineage = {}
        """The primary's lineage."""
        self._cut = 0
        self._slices = 0
        self._started = self._env.now()
        self._salvager: Salvager | None = None
        self._staging = Staging(local.env, local.journal)
        self._over = False
        self._handlers: dict[int, Callable[[bytes], None]] = {
            Kind.SNAPSHOT: self._on_snapshot,
            Kind.SLICE: self._on_slice,
            Kind.DROP: self._on_drop,
            Kind.MERGE: self._on_merge,
            Kind.LACK: self._on_lack,
        }

    # ---- what the backup calls ------------------------------------------------------------------------------------

    def start(self) -> None:
        view = self._joiner.view()
        hello = {**view.to_json(), "version": VERSION, "replicate": self._local.settings.replicate}
        del hello["in_sync"], hello["primary"]
        if self._local.logins is not None:
            hello["logins"] = True
        self.control("hello", **hello)

    def on_control(self, op: str, fields: Json) -> None:
        """Raises LinkError when the primary broke the protocol, as all handlers here."""
        greeting = self.step is JoinStep.GREETING
        if op == "welcome" and greeting and not self.primary:
            self._welcome(fields)
        elif op == "cut" and greeting and self.primary and self._salvager is None:
            self._on_cut(fields)
        elif op == "caught-up" and self.step is JoinStep.SYNCING:
            self._caught_up()
        else:
            raise LinkError(f"control {op} in step {self.step.value}")

    def on_frame(self, kind: int, position: int, body: bytes) -> None:
        handler = self._handlers.get(kind)
        if kind == Kind.BATCH:
            self._on_held_batch(position, body)
        elif handler is None:
            raise LinkError(f"frame of kind {kind} from a primary")
        elif kind != Kind.LACK and self.step is not JoinStep.SYNCING:
            raise LinkError(f"catch-up frame in step {self.step.value}")
        else:
            handler(body)

    def on_batches(self, position: int) -> None:
        """Live batches were applied on arrival; the backup acknowledges them."""
        if self.step not in (JoinStep.SYNCING, JoinStep.STORING, JoinStep.FOLLOWING):
            raise LinkError(f"batch in step {self.step.value}")
        self.live = position

    @property
    def holds_all(self) -> bool:
        """Everything up to `live` was applied."""
        return self.step in (JoinStep.STORING, JoinStep.FOLLOWING)

    def acknowledge(self) -> None:
        """Acknowledge what has come; when it counts, what is on disk."""
        if self.step is JoinStep.STORING:
            self._stored()
        position = min(self.live, self._local.journal.position) if self.holds_all else self.live
        if self.step is not JoinStep.STORING and position > self._acked and not self._over:
            self._acked = position
            self.link.send_frame(Kind.ACK, position, b"")

    def end(self) -> bool:
        """The link ends: a complete difference is applied, an incomplete one discarded.  True if we joined by that."""
        taken = self._staging.mode is Mode.COMPLETE and self._take_rest()
        self._staging.forget()
        if self._salvager is not None:
            self._salvager.cancel()
        self._over = True
        return taken

    def send(self, kind: int, body: bytes) -> None:
        if not self._over:
            self.link.send_frame(kind, self.live, body)

    def control(self, op: str, **fields: Any) -> None:
        self.send(Kind.CONTROL, encode_control(op, **fields))

    # ---- greeting -------------------------------------------------------------------------------------------------

    def _welcome(self, fields: Json) -> None:
        local = self._local
        leader = Member.from_json(fields)
        ballot = need_epoch(fields), leader.id
        local.cluster.check_epoch(ballot[0], leader)
        if ballot < local.persisted.ballot:
            raise LinkError(f"{leader} has epoch {ballot[0]}, we have granted {local.epoch}")
        self._lineage = lineage_from_json(fields.get("lineage"))
        local.persist(epoch=ballot[0], leader=ballot[1])
        self.primary = str(leader)
        if local.whole and not fields.get("whole", True):
            what = "it, or a copy of it, has acknowledged more than it holds"
            local.env.log("error", f"{leader} does not count this broker as whole: {what}")
            local.disown()
            self._joiner.not_listed()
        self._joiner.welcomed(leader)
        self._salvage(leader)

    def _salvage(self, leader: Member) -> None:
        """Put possible only copies aside before anything is dropped."""
        local, joiner = self._local, self._joiner
        promises = Promises(frozenset(local.led), self._engine.safe, local.acknowledged)
        found = suspects(local.lineage, self._lineage, epoch_of(self._position), promises)
        self._salvager = Salvager(local, promises, leader, self._aside, self._salvaged, joiner.not_salvaged)
        self._salvager.start(found, self.send)

    def _on_lack(self, body: bytes) -> None:
        if self._salvager is None:
            raise LinkError(f"an answer in step {self.step.value} that was not requested")
        self._salvager.answer(*decode_held(body))

    def _salvaged(self) -> None:
        self._salvager = None
        self._joiner.salvaged()
        if self._local.whole:
            self._staging.keep()
            self.link.hold_batches(True)
        holdings = Holdings(self._local, self._staging, self._lineage, self._position)
        for body in holdings.settle():
            self.send(Kind.HELD, body)
        self.control("held-end")

    # ---- syncing --------------------------------------------------------------------------------------------------

    def _on_cut(self, fields: Json) -> None:
        """From here on live batches arrive, while the difference before the cut is completed."""
        local = self._local
        cut = self._cut = need(fields, "cut", int)
        in_sync = InSync.from_json(fields.get("in_sync"))
        if in_sync.key < local.persisted.in_sync.key:
            raise LinkError(f"in-sync set {in_sync.key} of the primary is older than ours")
        local.persist(in_sync=in_sync)
        self.step, self.live = JoinStep.SYNCING, cut
        self._joiner.admitted()
        if not in_sync.lists(local.member):
            self._joiner.not_listed()
            self._staging.all()
            self.link.hold_batches(False)
        self._staging.add(lambda: self._engine.set_position(cut))
        self._env.event("catchup_begin", peer=self.primary, last_pos=cut)

    def _on_snapshot(self, body: bytes) -> None:
        steps = self._local.configuration.adopting(decode_snapshot(body))
        self._staging.stage(partial(_some, steps), Kind.SNAPSHOT, body)
        if self._staging.mode is Mode.SPREAD:
            self.link.hold_batches(True)
            self._spread()

    def _on_slice(self, body: bytes) -> None:
        self._slices += 1
        self._staging.stage(partial(self._engine.apply_slice, body), Kind.SLICE, body)
        self._credit()

    def _credit(self) -> None:
        """The next slice may come, when the disk has taken most of what came, and we all of it."""
        if self._staging.mode is Mode.SPREAD:
            self._env.after(PAUSE, self._credit)
        elif not self._over and not self._staging.disk_waits(self._credit):
            self.send(Kind.CREDIT, b"")

    def _on_drop(self, body: bytes) -> None:
        number, ids = decode_drop(body)
        self._staging.stage(partial(self._engine.drop, number, ids), Kind.DROP, body)

    def _on_merge(self, body: bytes) -> None:
        number = decode_merge(body)
        self._staging.stage(partial(self._engine.merge, number), Kind.MERGE, body)

    def _on_held_batch(self, position: int, body: bytes) -> None:
        if self.step not in (JoinStep.SYNCING, JoinStep.APPLYING):
            raise LinkError(f"batch in step {self.step.value}")
        self._staging.stage(partial(self._engine.apply_held, position, body), Kind.BATCH, body)
        self.live = position
        self.acknowledge()

    # ---- taking it over -------------------------------------------------------------------------------------------

    def _caught_up(self) -> None:
        self.step = JoinStep.APPLYING
        self._staging.complete()
        self._apply()

    def _apply(self) -> None:
        """Apply in bounded pieces, one in each turn: a broker that is silent for long counts as dead."""
        self._some_more(self._apply, self._complete)

    def _spread(self) -> None:
        """The same with what a broker that is not whole applies as it comes, as far as that takes several turns."""
        if self._staging.mode is Mode.SPREAD:  # "caught-up" may have come
            self._some_more(self._spread, partial(self.link.hold_batches, False))

    def _some_more(self, again: Callable[[], None], then: Callable[[], None]) -> None:
        if self._over or self._staging.disk_waits(again):
            return
        try:
            done = self._staging.some()
        except (LinkError, MemoryError) as error:
            self._spoiled(error)
            self.link.close()
            self._joiner.lost(str(error))
            return
        if done:
            then()
        else:
            self._env.after(0.0, again)

    def _complete(self) -> None:
        self.link.hold_batches(False)
        self.step = JoinStep.STORING
        self._taken_over()
        self._stored()

    def _stored(self) -> None:
        """The primary hears that we are complete as soon as a restart would not change that."""
        if self._over or not self._local.journal.complete:
            return
        self.step = JoinStep.FOLLOWING
        try:
            self._joiner.joined(self.live)
        except StateNotStored as error:
            self.link.close()
            self._joiner.lost(str(error))
            return
        self.control("complete")
        attrs = {"slices": self._slices, "seconds": round(self._env.now() - self._started, 6)}
        self._env.event("catchup_end", peer=self.primary, last_pos=self._cut, attrs=attrs)

    def _take_rest(self) -> bool:
        try:
            self._staging.all()
        except (LinkError, MemoryError) as error:
            self._spoiled(error)
            return False
        self._taken_over()
        return True

    def _taken_over(self) -> None:
        self._local.trace(self._lineage)
        self._local.journal.begin_again()
        self._aside.clear()

    def _spoiled(self, error: LinkError | MemoryError) -> None:
        """An error while applying: the content is inconsistent."""
        self._env.log("error", f"what {self.primary} has sent cannot be applied: {error}")
        self._staging.forget()
        self._joiner.not_listed()


def _some(steps: Iterator[None]) -> bool:
    """Takes as many as one turn may.  True: there may be more."""
    return sum(1 for _ in islice(steps, OBJECTS)) == OBJECTS
