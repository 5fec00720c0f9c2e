"""What waits in the queues, as frames of a journal: a carry (`journal.py`).                                    Pure."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from qpidd_py.core import Catchup, Engine
from qpidd_py.core.batch import OPERATIONS

SLICE: Final = 256 << 10
"""Octets of a slice of a carry: one is written at a time."""
BASE_SLICE: Final = 4 << 20
"""The same for a base, that confirms wait for."""
_DELIVERED: Final = Struct("<IBBHQIIQ")
"""A record of the log (`core/batch.pyx`): size, operation, flags, queues, position; queue, rank of the level (0: all),
position."""
_OP_DELIVERED: Final = next(code for code, name in OPERATIONS.items() if name == "delivered")


class Carry:
    """A cursor over everything that waits in the queues and is older than a segment."""

    def __init__(
        self, engine: Engine, id: int, generation: int, cut: int, again: Callable[[Carry], None], octets: int = SLICE
    ) -> None:
        """`cut`: position of the log at which the segment `generation` begins; `again` is called when what a slice has
        waited for is in memory; `octets` of a slice."""
        self._octets = octets
        self.id = id
        self.generation = generation
        self.waits = False
        """For messages that are being read."""
        self._again = again
        self.number = 0
        """Of the last frame of this carry."""
        self._cut = cut
        self._queues = [queue for queue in engine.queues.values() if queue.replicated]
        self._cursor: Catchup | None = None

    def slice(self) -> bytes | None:
        """The next records; empty at the end; None when they have to be read first."""
        while True:
            cursor = self._cursor
            if cursor is not None and not cursor.queue.deleted and (records := cursor.slice(self._octets)) != b"":
                self.waits = records is None
                return records
            if not self._queues:
                return b""
            self._cursor = Catchup(self._queues.pop(), b"", self._cut, self._go_on, 0)

    def _go_on(self) -> None:
        if self.waits:
            self.waits = False
            self._again(self)


def handed_out(engine: Engine) -> bytes:
    """Records of how far the messages that wait were handed out, for `redelivered`."""
    queues = [queue for queue in engine.queues.values() if queue.replicated]
    found = [
        (queue.number, rank, level.handed_out)
        for queue in queues
        for rank, level in (enumerate(queue.levels, 1) if queue.levels is not None else ((0, queue),))
    ]
    size, at = _DELIVERED.size, engine.position
    return b"".join(_DELIVERED.pack(size, _OP_DELIVERED, 0, 1, at, *place, id) for *place, id in found if id)
