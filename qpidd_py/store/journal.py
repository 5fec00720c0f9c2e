"""The journal of one broker: what goes into it, when a segment is full, and which segments may go.                Pure.

    engine ──batches──▶ Journal ──work──▶ Writer (a thread) ──▶ disk
       ▲                   │  ▲                  │
       └──advance_safe─────┘  └──on disk up to───┘

*Segments.*  A segment that is full is followed by the next one at the end of the turn, when the configuration equals
the log: the new segment begins with a snapshot of it, so the journal can begin there.

*Space.*  Segments go from the front only.  When the journal is more than twice as large as what waits in the queues
(and some segments), everything that waits is *carried*: written once more, in slices, behind a new segment.  When the
carry is complete, a HEAD frame says that the journal begins with that segment, and those before it go.  So carries
write no more than the messages that come and go, and the journal takes at most three times what waits.

Invariants: frames are handed over in the order of the log; nothing is safe before the disk has it; segments are dropped
behind the HEAD frame that makes them superfluous, and the writer syncs that frame first; a carry copies what waits at
its turn, so what is dequeued meanwhile is dequeued behind its copy, or not copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from qpidd_py.broker.configuration import Configuration
from qpidd_py.broker.snapshot import encode_snapshot
from qpidd_py.core import Batch, Catchup, Engine, link_frame
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


class Journal:
    """Of an engine that is its log's only writer."""

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
        self.carried = 0
        """Octets written by carries."""

    def start(self) -> None:
        """Begin a segment.  What was read is on disk, and the engine continues in a new epoch."""
        self._engine.on_batch = self.batch
        for generation in [found for found in self._segments if found < self._head]:
            self._drop(generation)
        self._roll()
        self._soon(self._make_space)

    @property
    def octets(self) -> int:
        """That the segments take on disk."""
        return sum(self._segments.values()) + self._used

    def batch(self, batch: Batch) -> None:
        self._add(batch, len(batch), batch.last)

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
            self._engine.advance_safe(position)
        if self._carry is not None and self._carry.number <= number:
            self._carry_on(self._carry)

    def _look_behind(self) -> None:
        behind = self.waiting > (BEHIND // 4 if self._behind else BEHIND)
        if behind != self._behind:
            self._behind = behind
            self._fell_behind(behind)

    def relieve(self) -> None:
        """Make space on a full disk, if what still waits fits into the segment that is reserved."""
        idle = self._carry is None and not self._rolling
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

    def _full(self) -> None:
        self._engine.flush()  # the snapshot must not be ahead of the log
        self._roll()
        self._make_space()

    def _make_space(self) -> None:
        if self._carry is None and self.octets > 2 * self._live() + SLACK * self._segment_size:
            self._begin_carry()

    def _roll(self) -> None:
        self._rolling = True
        if self._used:
            self._segments[self._generation] = max(self._used, self._segment_size)
        self._generation += 1
        self._used = HEADER_SIZE
        self._submit(Roll(self._generation, self._segment_size))
        snapshot = encode_snapshot(self._configuration.snapshot())
        self._begun_at = self._engine.position
        frame = link_frame(Kind.SNAPSHOT, self._begun_at, snapshot)
        self._add(frame, len(frame), 0)
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
        self._engine.repeat_delivered()
        self._engine.flush()
        self._carry, self._head = None, carry.generation
        self._add_carried(carry, Kind.HEAD, HEAD.pack(carry.id, carry.generation))
        for generation in [found for found in self._segments if found < carry.generation]:
            self._drop(generation)

    def _add_carried(self, carry: Carry, kind: Kind, body: bytes) -> None:
        frame = link_frame(kind, self._engine.position, body)
        self.carried += len(frame)
        self._add(frame, len(frame), 0)
        carry.number = self._number


class Carry:
    """A cursor over everything that waits in the queues and is older than a segment."""

    def __init__(self, engine: Engine, id: int, generation: int, cut: int) -> None:
        """`cut`: position of the log at which the segment `generation` begins."""
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
            if self._cursor is not None and not self._cursor.queue.deleted and (records := self._cursor.slice(SLICE)):
                return records
            if not self._queues:
                return b""
            self._cursor = Catchup(self._queues.pop(), b"", self._cut)
