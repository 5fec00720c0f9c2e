"""The journal of one broker: what goes into it, when a segment is full, and which segments may go.                Pure.

    engine ──batches──▶ Journal ──work──▶ Writer (a thread) ──▶ disk
       ▲                   │  ▲                  │
       └──durable──────────┘  └──on disk up to───┘

*Segments.*  A segment that is full is followed by the next one at the end of the turn, when the configuration equals
the log: the new segment begins with a snapshot of it, so the journal can begin there.

*Space.*  Segments go from the front only.  When the journal is more than twice as large as what waits in the queues
(and some segments), everything that waits is *carried*: written once more, in slices, behind a new segment.  When the
carry is complete, a HEAD frame says that the journal begins with that segment, and those before it go.  So carries
write no more than the messages that come and go, and the journal takes at most three times what waits.

*Other content.*  A backup that joins a primary takes over what is not a continuation of its log.  The disk changes from
the content before to the new one as a whole, in one of two ways:

  differ, part …, begin_again    DIFFERENCE, the parts of the difference and the batches between them, TAKEN.  A restart
                                 leaves out a difference without its TAKEN, and goes on behind a GIVEN_UP.
  leave, begin_again             Nothing is written; then a BASE and a carry of all that waits.  A restart before the
                                 HEAD of that carry finds the content before.  For what is no known change of what is
                                 on disk: a part has failed, the disk is too slow, the base before is not complete.

A difference may last over several attempts to join.  While it is open nothing is carried; and no segment that has a
part of one becomes the beginning of the journal.

Invariants: frames are handed over in the order of the log; nothing is durable before the disk has it; segments are
dropped behind the HEAD frame that makes them superfluous, and the writer syncs that frame first; a carry copies what
waits at its turn, so what is dequeued meanwhile is dequeued behind its copy, or not copied; while `complete` a restart
brings back all that the engine held at `position`, or later.
Who may call: the owner of the engine, in the loop's thread; `differ` to `note` only a member of a cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from qpidd_py.broker.configurations import Configurations
from qpidd_py.core import Batch, Engine, link_frame
from qpidd_py.core.window import KEY_SIZE
from qpidd_py.store.carry import BASE_SLICE, Carry, handed_out
from qpidd_py.store.layout import ENVELOPE_SIZE, HEADER_SIZE, Kind
from qpidd_py.store.recovery import CARRY, HEAD, TAKEN, Found
from qpidd_py.store.replay import Replay
from qpidd_py.store.writer import Drop, Roll, Work

SEGMENT_SIZE: Final = 64 << 20
SLACK: Final = 4
"""Segments that are kept before anything is carried."""
BEHIND: Final = 64 << 20
"""Octets that may wait for the disk before publishers have to, and a quarter of which lets them go on."""
_PARTS: Final[dict[int, int]] = {Kind.SNAPSHOT: Kind.ADOPTED}
"""Kinds of a link that have another meaning here."""


class Journal:
    """Of one engine."""

    def __init__(
        self,
        engine: Engine,
        configurations: Configurations,
        found: Found,
        submit: Callable[[Work], None],
        soon: Callable[[Callable[[], None]], None],
        segment_size: int = SEGMENT_SIZE,
        fell_behind: Callable[[bool], None] = lambda behind: None,
    ) -> None:
        """`submit` hands work to the writer; `soon` calls a function after this turn of the loop; `fell_behind` is
        called when the disk is far behind, and when it has caught up."""
        self.on_durable: Callable[[int], None] = engine.advance_safe
        """Called when more of the log is on disk, with its position."""
        self.position = engine.position
        """The log is on disk up to here."""
        self._base_at: int | None = 0
        """Number of the frame that completes the base; None: it is not handed over yet."""
        self._away = False
        self._difference = 0
        """Number of the frame with which the open difference begins; 0: none is open."""
        self._mixed = False
        """The segment has a part of a difference."""
        self._handed = 0
        """The log is handed over up to here."""
        self._note = b""
        self._engine = engine
        self._configurations = configurations
        self._submit = submit
        self._soon = soon
        self._segment_size = segment_size
        self._segments = {item.generation: max(item.octets, segment_size) for item in found.segments}
        self._generation = max(self._segments, default=0)
        self._begun_at = 0
        self._used = self._full_at = 0
        self._number = found.end.number
        self._rolling = False
        self._fell_behind = fell_behind
        self._behind = False
        self._unwritten: deque[tuple[int, int, int]] = deque()
        """(number, position, octets) of frames that are not on disk yet; position 0: it makes nothing safe."""
        self.waiting = 0
        """Octets of these."""
        self._carry: Carry | None = None
        self._carries = found.carries
        self._head = found.head
        self.durable = found.end.number
        """Number of the last frame on disk."""
        self.full = False
        """The disk takes no more at the moment."""
        self.carried = 0
        """Octets written by carries."""

    def start(self, replay: Replay) -> None:
        """Begin a segment.  What was read is on disk."""
        self.position = self._handed = self._engine.position
        for generation in [found for found in self._segments if found < self._head]:
            self._drop(generation)
        if replay.ended:
            self._begin_base()
        else:
            self._roll(given_up=replay.open)
        self._soon(self._make_space)

    @property
    def handed(self) -> int:
        """Number of the last frame that was handed over."""
        return self._number

    @property
    def octets(self) -> int:
        """That the segments take on disk."""
        return sum(self._segments.values()) + self._used

    def shown(self) -> dict[str, object]:
        """For management: octets on disk, and what is not there yet."""
        behind = self._engine.position - self.position
        return {"octets": self.octets, "waiting": self.waiting, "behind": behind, "full": self.full}

    def batch(self, batch: Batch) -> None:
        if not self._away:
            self._handed = batch.last
            self._add(batch, len(batch), 0 if self._base_at is None or self._difference else batch.last)

    # ---- members of a cluster -------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """What the engine holds continues what is on disk."""
        return not self._away and not self._difference and self._base_at is not None and self.durable >= self._base_at

    def differ(self) -> None:
        """From here on the engine's content changes into another one, by what `part` and `batch` are given."""
        if self._away or self._difference:
            return
        if self._base_at is None or self._handed != self._engine.position:
            self.leave()
            return
        self._set_apart()
        self._add_frame(Kind.DIFFERENCE, b"")
        self._difference, self._mixed = self._number, True

    def part(self, kind: int, body: bytes) -> None:
        """The engine has taken over a part of the difference; `kind` as on a replication link."""
        if self._difference:
            self._add_frame(_PARTS.get(kind, kind), body)

    def leave(self) -> None:
        """What the engine holds from here on is something else."""
        self._away, self._difference = True, 0
        self._set_apart()

    def _set_apart(self) -> None:
        """Octets that still wait for the disk make nothing safe of what the engine holds from here on."""
        self._carry = None
        self._unwritten = deque((number, 0, octets) for number, _, octets in self._unwritten)

    def begin_again(self) -> None:
        """What the engine holds now takes the place of what is on disk, as a whole."""
        self._engine.flush()
        if self._difference and self._note:
            self._add_frame(Kind.NOTE, self._note)
        if self._difference:
            self._take()
        elif self._away or self._base_at is None:
            self._begin_base()

    def _take(self) -> None:
        number, self._difference, self._handed = self._difference, 0, self._engine.position
        self._add_frame(Kind.TAKEN, TAKEN.pack(number), self._handed)
        self._base_at = self._number

    def _begin_base(self) -> None:
        self._away, self._base_at, self._handed = False, None, self._engine.position
        self._carries += 1
        self._roll(base=self._carries)
        self._carry = Carry(self._engine, self._carries, self._generation, self._begun_at, self._read, BASE_SLICE)
        self._carry_on(self._carry)

    def note(self, note: bytes) -> None:
        """Whose content this is; written before what follows, and again in each segment."""
        self._note = note
        if self._used and not self._away and not self._difference:
            self._add_frame(Kind.NOTE, note)

    def written(self, number: int) -> None:
        """The disk has every frame up to `number`."""
        self.durable = number
        position = 0
        while self._unwritten and self._unwritten[0][0] <= number:
            _, reached, octets = self._unwritten.popleft()
            position = max(position, reached)
            self.waiting -= octets
        self._look_behind()
        if position:
            self.position = position
            self.on_durable(position)
        if self._carry is not None and self._carry.number <= number and not self._carry.waits:
            self._carry_on(self._carry)

    def _look_behind(self) -> None:
        behind = self.waiting > (BEHIND // 4 if self._behind else BEHIND)
        if behind and self._difference:
            self.leave()  # what counts for nothing yet is not waited for
        elif behind != self._behind:
            self._behind = behind
            self._fell_behind(behind)

    def relieve(self) -> None:
        """Make space on a full disk, if what still waits fits into the segment that is reserved."""
        idle = self._carry is None and not self._rolling and not self._away and not self._difference
        if idle and self._segments and 2 * self._live() < self._segment_size:
            self._engine.flush()
            self._roll()
            self._begin_carry()

    # ---- segments -------------------------------------------------------------------------------------------------

    def _add(self, frame: Batch | bytes, length: int, position: int) -> None:
        self._submit(frame)
        self._number += 1
        self._used += ENVELOPE_SIZE + length
        self._unwritten.append((self._number, position, length))
        self.waiting += length
        self._look_behind()
        if self._used >= self._full_at and not self._rolling:
            self._rolling = True
            self._soon(self._full)

    def _add_frame(self, kind: int, body: bytes, position: int = 0) -> int:
        """Octets of the frame."""
        frame = link_frame(kind, self._engine.position, body)
        self._add(frame, len(frame), position)
        return len(frame)

    def _full(self) -> None:
        self._rolling = False
        if not self._away and self._used >= self._full_at:
            self._engine.flush()  # the snapshot must not be ahead of the log
            self._roll()
            self._make_space()

    def _make_space(self) -> None:
        idle = self._carry is None and not self._away and not self._mixed
        if idle and self.octets > 2 * self._live() + SLACK * self._segment_size:
            self._begin_carry()

    def _roll(self, base: int = 0, given_up: bool = False) -> None:
        """`base`: the number of the carry that the segment begins with, if it does not continue the one before;
        `given_up`: it continues what came before the last difference."""
        self._rolling, self._mixed = True, bool(self._difference)
        if self._used:
            self._segments[self._generation] = max(self._used, self._segment_size)
        self._generation += 1
        self._used = HEADER_SIZE
        self._submit(Roll(self._generation, self._segment_size))
        if base:
            self._add_frame(Kind.BASE, CARRY.pack(base))
        if given_up:
            self._add_frame(Kind.GIVEN_UP, b"")
        self._begun_at = self._engine.position
        self._add_frame(Kind.SNAPSHOT, self._configurations.encoded())
        if self._note:
            self._add_frame(Kind.NOTE, self._note)
        # A snapshot that fills a segment must not begin the next one.
        self._full_at = max(self._segment_size, 2 * self._used)
        self._rolling = False

    def _drop(self, generation: int) -> None:
        del self._segments[generation]
        self._submit(Drop(generation))

    def _live(self) -> int:
        found = [queue for queue in self._engine.queues.values() if queue.replicated]
        keys = sum(queue.window.count for queue in found if queue.window is not None)
        return sum(queue.bytes for queue in found) + KEY_SIZE * keys

    # ---- carries --------------------------------------------------------------------------------------------------

    def _begin_carry(self) -> None:
        self._carries += 1
        self._carry = Carry(self._engine, self._carries, self._generation, self._begun_at, self._read)
        self._carry_on(self._carry)

    def _carry_on(self, carry: Carry) -> None:
        self._engine.flush()  # what was dequeued is in the log before the copies that leave it out
        records = carry.slice()
        if records is None:
            return
        if records:
            self._add_carried(carry, Kind.CARRIED, CARRY.pack(carry.id) + records)
            return
        if delivered := handed_out(self._engine):
            self._add_carried(carry, Kind.CARRIED, CARRY.pack(carry.id) + delivered)
        self._carry, self._head = None, carry.generation
        is_base = self._base_at is None
        self._add_carried(carry, Kind.HEAD, HEAD.pack(carry.id, carry.generation), self._engine.position * is_base)
        if is_base:
            self._base_at = self._number
        for generation in [found for found in self._segments if found < carry.generation]:
            self._drop(generation)

    def _read(self, carry: Carry) -> None:
        """What it waited for is in memory."""
        if carry is self._carry:
            self._carry_on(carry)

    def _add_carried(self, carry: Carry, kind: Kind, body: bytes, position: int = 0) -> None:
        self.carried += self._add_frame(kind, body, position)
        carry.number = self._number
