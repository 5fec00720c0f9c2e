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

*Other content.*  A backup that joins a primary takes over what is not a continuation of its log.  It leaves what is on
disk as it is and writes nothing (`leave`); when it holds everything it begins again with a BASE and a carry of all that
waits (`begin_again`).  A restart before the HEAD of that carry finds the content before, one behind it the new content:
the disk changes from one to the other as a whole.

Invariants: frames are handed over in the order of the log; nothing is durable before the disk has it; segments are
dropped behind the HEAD frame that makes them superfluous, and the writer syncs that frame first; a carry copies what
waits at its turn, so what is dequeued meanwhile is dequeued behind its copy, or not copied; while `complete` a restart
brings back all that the engine held at `position`, or later.
Who may call: the owner of the engine, in the loop's thread; `leave` to `note` only a member of a cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

from qpidd_py.broker.configuration import Configuration
from qpidd_py.broker.snapshot import encode_snapshot
from qpidd_py.core import Batch, Catchup, Engine, link_frame
from qpidd_py.core.batch import OPERATIONS
from qpidd_py.store.layout import ENVELOPE_SIZE, HEADER_SIZE, Kind
from qpidd_py.store.recovery import CARRY, HEAD, Found
from qpidd_py.store.writer import Drop, Roll, Work

SEGMENT_SIZE: Final = 64 << 20
SLACK: Final = 4
"""Segments that are kept before anything is carried."""
BEHIND: Final = 64 << 20
"""Octets that may wait for the disk before publishers have to, and a quarter of which lets them go on."""
SLICE: Final = 256 << 10
"""Octets of a slice of a carry: one is written at a time."""
BASE_SLICE: Final = 4 << 20
"""The same for a base, that confirms wait for."""
_DELIVERED: Final = Struct("<IBBHQIIQ")
"""A record of the log (`core/batch.pyx`): size, operation, flags, queues, position; queue, spare, position."""
_OP_DELIVERED: Final = next(code for code, name in OPERATIONS.items() if name == "delivered")


class Journal:
    """Of one engine."""

    def __init__(
        self,
        engine: Engine,
        configuration: Configuration,
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
        self._note = b""
        self._engine = engine
        self._configuration = configuration
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

    def start(self, again: bool = False) -> None:
        """Begin a segment.  What was read is on disk.  `again`: frames follow it that do not continue it."""
        self.position = self._engine.position
        for generation in [found for found in self._segments if found < self._head]:
            self._drop(generation)
        if again:
            self.begin_again()
        else:
            self._roll()
        self._soon(self._make_space)

    @property
    def octets(self) -> int:
        """That the segments take on disk."""
        return sum(self._segments.values()) + self._used

    def batch(self, batch: Batch) -> None:
        if not self._away:
            self._add(batch, len(batch), 0 if self._base_at is None else batch.last)

    # ---- members of a cluster -------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """What the engine holds continues what is on disk."""
        return not self._away and self._base_at is not None and self.durable >= self._base_at

    def leave(self) -> None:
        """What the engine holds from here on is something else: octets that still wait for the disk make none of it
        safe."""
        self._away, self._carry = True, None
        self._unwritten = deque((number, 0, octets) for number, _, octets in self._unwritten)

    def begin_again(self) -> None:
        """What the engine holds now takes the place of what is on disk, as a whole."""
        self._engine.flush()
        self._away, self._base_at = False, None
        self._carries += 1
        self._roll(base=self._carries)
        self._carry = Carry(self._engine, self._carries, self._generation, self._begun_at, BASE_SLICE)
        self._carry_on(self._carry)

    def note(self, note: bytes) -> None:
        """Whose content this is; written before what follows, and again in each segment."""
        self._note = note
        if self._used and not self._away:
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
        if self._carry is not None and self._carry.number <= number:
            self._carry_on(self._carry)

    def _look_behind(self) -> None:
        behind = self.waiting > (BEHIND // 4 if self._behind else BEHIND)
        if behind != self._behind:
            self._behind = behind
            self._fell_behind(behind)

    def relieve(self) -> None:
        """Make space on a full disk, if what still waits fits into the segment that is reserved."""
        idle = self._carry is None and not self._rolling and not self._away
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

    def _add_frame(self, kind: Kind, body: bytes, position: int = 0) -> int:
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
        if self._carry is None and not self._away and self.octets > 2 * self._live() + SLACK * self._segment_size:
            self._begin_carry()

    def _roll(self, base: int = 0) -> None:
        """`base`: the number of the carry that the segment begins with, if it does not continue the one before."""
        self._rolling = True
        if self._used:
            self._segments[self._generation] = max(self._used, self._segment_size)
        self._generation += 1
        self._used = HEADER_SIZE
        self._submit(Roll(self._generation, self._segment_size))
        if base:
            self._add_frame(Kind.BASE, CARRY.pack(base))
        self._begun_at = self._engine.position
        self._add_frame(Kind.SNAPSHOT, encode_snapshot(self._configuration.snapshot()))
        if self._note:
            self._add_frame(Kind.NOTE, self._note)
        # A snapshot that fills a segment must not begin the next one.
        self._full_at = max(self._segment_size, 2 * self._used)
        self._rolling = False

    def _drop(self, generation: int) -> None:
        del self._segments[generation]
        self._submit(Drop(generation))

    def _live(self) -> int:
        return sum(queue.bytes for queue in self._engine.queues.values() if queue.replicated)

    # ---- carries --------------------------------------------------------------------------------------------------

    def _begin_carry(self) -> None:
        self._carries += 1
        self._carry = Carry(self._engine, self._carries, self._generation, self._begun_at)
        self._carry_on(self._carry)

    def _carry_on(self, carry: Carry) -> None:
        self._engine.flush()  # what was dequeued is in the log before the copies that leave it out
        records = carry.slice()
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

    def _add_carried(self, carry: Carry, kind: Kind, body: bytes, position: int = 0) -> None:
        self.carried += self._add_frame(kind, body, position)
        carry.number = self._number


class Carry:
    """A cursor over everything that waits in the queues and is older than a segment."""

    def __init__(self, engine: Engine, id: int, generation: int, cut: int, octets: int = SLICE) -> None:
        """`cut`: position of the log at which the segment `generation` begins; `octets` of a slice."""
        self._octets = octets
        self.id = id
        self.generation = generation
        self.number = 0
        """Of the last frame of this carry."""
        self._cut = cut
        self._queues = [queue for queue in engine.queues.values() if queue.replicated]
        self._cursor: Catchup | None = None

    def slice(self) -> bytes:
        """The next records; empty at the end."""
        while True:
            cursor = self._cursor
            if cursor is not None and not cursor.queue.deleted and (records := cursor.slice(self._octets)):
                return records
            if not self._queues:
                return b""
            self._cursor = Catchup(self._queues.pop(), b"", self._cut)


def handed_out(engine: Engine) -> bytes:
    """Records of how far the messages that wait were handed out, for `redelivered`."""
    found = [(queue.number, queue.handed_out) for queue in engine.queues.values() if queue.replicated]
    size, at = _DELIVERED.size, engine.position
    return b"".join(_DELIVERED.pack(size, _OP_DELIVERED, 0, 1, at, number, 0, id) for number, id in found if id)
