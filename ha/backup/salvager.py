"""A joining backup puts aside messages that the cluster may have lost, before it drops anything.

    ASKING ──the primary has answered, queue by queue, which suspects it lacks─────▶ WRITING ──▶ over
       └── no suspects, or it lacks none (nearly always) ────────────────────────────────────────▶ over

It runs between welcome and held, because live dequeues and deletions of queues after the cut could remove the only
copy.  `salvage/selection.py` defines the suspects.

Invariants: every suspect that the primary lacks is on disk before `done` is called; nothing is dropped here; a disk
that fails costs the link (`failed`), never the messages.  Writing is done in slices, one in each turn: a broker that is
silent for long counts as dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ha.model.difference import Ranges, count, intersect, normalise, subtract
from ha.model.environment import SalvageFile
from ha.model.local_member import LocalMember
from ha.model.membership import Member
from ha.model.position import epoch_of
from ha.model.protocol import Kind, encode_held
from ha.model.salvaged import HOST, Grade, Header, Record
from ha.salvage.selection import Promises, Suspect
from qpidd_py.core import Queue, decode_ids, encode_ids, reading, soon
from qpidd_py.errors import LinkError

SLICE: Final = 1 << 20
"""Octets of headers and bodies written in one turn, approximately."""
MESSAGES: Final = 1024
"""Most messages written in one turn."""
READ: Final = 16
"""Messages copied from the core at once: a body may have many MiB."""

Send = Callable[[int, bytes], None]
"""(kind of frame, body)"""
Known = dict[tuple[int, int], Ranges]
"""(queue number, uid) -> ids that were put aside earlier and are still here."""


class Salvager:
    """One attempt to join; `done` or `failed` is called at most once, neither after `cancel`."""

    def __init__(
        self,
        local: LocalMember,
        promises: Promises,
        primary: Member,
        known: Known,
        done: Callable[[], None],
        failed: Callable[[LinkError], None],
    ) -> None:
        self._local = local
        self._env = local.env
        self._promises = promises
        self._primary = primary
        self._known = known
        self._done = done
        self._failed = failed
        self._over = False
        self._queues: dict[tuple[int, int], Queue] = {}
        self._asked: dict[tuple[int, int], Ranges] = {}
        self._gone: dict[tuple[int, int], Ranges] = {}
        """The suspects that the primary lacks."""
        self._file: SalvageFile | None = None
        self._waits = False

    def start(self, suspects: list[Suspect], send: Send) -> None:
        """Find the suspects that we hold and ask the primary about them; sends nothing if there are none."""
        for queue, uid in self._local.configuration.replicated() if suspects else ():
            if not queue.shadow:  # copies, of what is in other queues, too
                self._examine(queue, (queue.number, uid), suspects)
        for (number, uid), ids in list(self._asked.items()):
            send(Kind.LACK, encode_held(number, uid, encode_ids(ids)))
        self._answered()

    def _examine(self, queue: Queue, key: tuple[int, int], suspects: list[Suspect]) -> None:
        self._queues[key] = queue
        for suspect in suspects:
            held = decode_ids(queue.held(suspect.low, suspect.high))
            ids = subtract(subtract(normalise(held), self._known.get(key, [])), self._unreadable(queue))
            if ids:
                found = self._gone if suspect.foreign else self._asked
                found[key] = normalise([*found.get(key, []), *ids])

    def _unreadable(self, queue: Queue) -> Ranges:
        """Nothing can be put aside of these.  (The alarm of the page file has said that they are lost here.)"""
        return normalise(decode_ids(queue.rotten())) if self._local.hole else []

    def answer(self, number: int, uid: int, ids: bytes) -> None:
        """The primary's answer: which of the ids it lacks.  Raises LinkError."""
        key = number, uid
        if key not in self._asked:
            raise LinkError(f"an answer for queue {number}, which was not requested")
        lacking = intersect(normalise(decode_ids(ids)), self._asked.pop(key))
        if lacking:
            self._gone[key] = normalise([*self._gone.get(key, []), *lacking])
        self._answered()

    def cancel(self) -> None:
        self._over = True

    def _answered(self) -> None:
        if self._asked or self._over:
            return
        if self._gone:
            self._begin()
        else:
            self._end()

    # ---- writing --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        local = self._local
        messages = sum(count(ids) for ids in self._gone.values())
        header = Header(local.settings.name, local.id, str(self._primary), local.epoch, messages, self._hosts())
        self._octets = 0
        self._grades = dict.fromkeys(Grade, 0)
        self._records = self._read()
        try:
            file = self._file = self._env.salvage(header)
            self._write(file)
        except LinkError as error:
            self._fail(error)

    def _hosts(self) -> bool:
        return any(self._queues[key].host != HOST for key in self._gone)

    def _next(self, file: SalvageFile) -> None:
        if self._over:
            file.cancel()
            return
        try:
            self._write(file)
        except LinkError as error:
            self._fail(error)

    def _write(self, file: SalvageFile) -> None:
        """Write one slice, in each turn.  Raises LinkError."""
        slice = self._slice()
        if slice:
            file.add(slice)
        if self._waits:
            return
        if slice:
            self._env.after(0.0, lambda: self._next(file))
        else:
            file.finish()
            self._written(file.name)

    def _go_on(self) -> None:
        """What was not in memory has been read."""
        if self._waits and self._file is not None:
            self._waits = False
            self._next(self._file)

    def _slice(self) -> list[Record]:
        found: list[Record] = []
        octets = 0
        for record in self._records:
            self._waits = record is None
            if record is None:
                break
            found.append(record)
            octets += len(record.header) + len(record.body)
            self._grades[record.grade] += 1
            if octets >= SLICE or len(found) == MESSAGES:
                break
        self._octets += octets
        return found

    def _read(self) -> Iterator[Record | None]:
        """The messages to put aside, queue by queue; None while the next one is not in memory."""
        for key, ids in self._gone.items():
            for low, high in ids:
                yield from self._messages(self._queues[key], low, high)

    def _messages(self, queue: Queue, low: int, high: int) -> Iterator[Record | None]:
        while True:
            if not soon(queue, low - 1, self._go_on, high):
                yield None
                continue
            if not (found := reading.read(queue, low, high, READ)):
                return
            for id, redelivered, arrival, exchange, routing_key, header, body in found:
                grade = self._promises.grade(id)
                leader = self._local.lineage[epoch_of(id)].leader
                content = exchange, routing_key, header, body
                yield Record(leader, id, queue.name, grade, redelivered, arrival, *content, queue.host)
            low = found[-1][0] + 1

    def _written(self, name: str) -> None:
        for key, ids in self._gone.items():
            self._known[key] = normalise([*self._known.get(key, []), *ids])
        grades = {grade.value: number for grade, number in self._grades.items() if number}
        messages = sum(grades.values())
        told = ", ".join(f"{number} {grade}" for grade, number in grades.items())
        fate = f"put aside in {name}" if name else "lost: there is no place for salvage files"
        what = f"{messages} messages that {self._primary} does not have are {fate} ({told})"
        self._env.log("warning" if name else "error", f"salvage: {what}")
        attrs = {"count": messages, "octets": self._octets, "file": name, **grades}
        self._env.event("salvage", peer=str(self._primary), result="written" if name else "lost", attrs=attrs)
        self._end()

    def _fail(self, error: LinkError) -> None:
        self._over = True
        if self._file is not None:
            self._file.cancel()
        self._failed(error)

    def _end(self) -> None:
        self._over = True
        self._done()
