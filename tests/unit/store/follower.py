"""A backup with a journal on a disk in memory, that takes over the content of one primary after the other.

The judge: after a restart its content is what it was at one moment since the last commit, or of the last moment before
an unfinished difference; never a part of one."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from pamqp import commands

from qpidd_py.broker.adoption import adopt
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.snapshot import decode_snapshot, encode_snapshot
from qpidd_py.core import Catchup, Engine
from qpidd_py.store.journal import Journal
from qpidd_py.store.layout import Kind
from qpidd_py.store.recovery import QUEUE, frames, scan, settle
from qpidd_py.store.replay import Replay
from qpidd_py.store.writer import Work, Writer
from tests.support.memory import MemoryClient, deliveries
from tests.support.memory_disk import MemoryDisk
from tests.unit.store.machine import SEGMENT, Machine

State = tuple[int, int, Any]
"""Number of the primary whose content it is, position, messages by queue."""


class Follower:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.disk = MemoryDisk()
        self.primaries = [Machine(MemoryDisk(), rng) for _ in range(2)]
        self.of = -1
        """Whose content it has, or is taking over."""
        self.taken = 0
        self.allowed: list[State] = []
        self._boot()
        self.allowed = [self.state()]

    # ---- life -----------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        settle(self.disk)
        found = scan(self.disk)
        self.broker = Broker(engine=Engine(segment_size=2048))
        engine, configuration = self.broker.engine, self.broker.configurations
        replay = Replay(engine, configuration, found)
        replay.apply(frames(self.disk, found))
        self.work: list[Work] = []
        self.calls: list[Callable[[], None]] = []
        self.writer = Writer(self.disk, found.end)
        self.journal = Journal(engine, configuration, found, self.work.append, self.calls.append, SEGMENT)
        engine.on_applied = self.journal.batch
        self.journal.start(replay)
        self.differs = False

    def restart(self) -> None:
        """Raises AssertionError."""
        self._boot()
        here = self.state()[1:]
        fits = [state for state in self.allowed if state[1:] == here]
        assert fits, f"{here!r:.300} is none of {[state[1:] for state in self.allowed]!r:.600}"
        self.allowed = fits[-1:]
        self.of = fits[-1][0]

    def state(self) -> State:
        queues = sorted(self.broker.vhost.queues.values(), key=lambda queue: queue.name)
        messages = [(queue.name, [(item[0], bytes(item[5])) for item in queue.core.peek(1 << 30)]) for queue in queues]
        return self.of, self.broker.engine.position, messages

    def note(self) -> None:
        """What it holds now may be found after a restart."""
        if not self.differs:
            self.allowed.append(self.state())

    def commit(self) -> None:
        """The writer's thread has run.  Raises PowerCut, OSError."""
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()
        work, self.work[:] = list(self.work), []
        last = self.allowed[-1:]
        self.journal.written(self.writer.commit(work))
        if not self.differs and self.journal.complete:
            self.allowed = last

    # ---- what it takes over ---------------------------------------------------------------------------------------

    def follow(self, number: int) -> None:
        """From here on the batches of this primary arrive.  The difference to it is to be taken over first."""
        self.differs = True
        for merged in self.broker.engine.queues:
            self._part(Kind.MERGE, QUEUE.pack(merged), partial(self.broker.engine.merge, merged))
        self.journal.differ()
        if number != self.of:
            self._prune()
        self.of, primary = number, self.primaries[number]
        primary.settle()
        engine = primary.broker.engine
        held = {(queue.name, queue.position): queue.core.held() for queue in self.broker.vhost.queues.values()}
        self._cut = engine.position
        self.broker.engine.set_position(self._cut)
        snapshot = encode_snapshot(primary.broker.configurations.snapshot())
        self._part(Kind.SNAPSHOT, snapshot, lambda: adopt(self.configuration, decode_snapshot(snapshot)))
        self._left = [
            (queue.name, Catchup(queue.core, held.get((queue.name, queue.position), b""), self._cut))
            for queue in primary.broker.vhost.queues.values()
        ]
        on_batch = primary.journal.batch

        def both(batch: Any) -> None:
            on_batch(batch)
            self.broker.engine.apply(bytes(batch))
            self.note()

        engine.on_batch = both

    def cut_off(self) -> None:
        primary = self.primaries[self.of]
        primary.broker.engine.on_batch = primary.journal.batch

    @property
    def configuration(self) -> Any:
        return self.broker.configurations

    def step(self) -> bool:
        """Take over some of the difference; True at its end."""
        while self._left:
            _, catchup = self._left[-1]
            if not catchup.queue.deleted and (records := self._next(catchup)):
                self._part(Kind.SLICE, records, lambda: self.broker.engine.apply_slice(records))
                return False
            self._left.pop()
            if not catchup.queue.deleted:
                number = catchup.queue.number
                self._part(Kind.MERGE, QUEUE.pack(number), partial(self.broker.engine.merge, number))
        return True

    def _next(self, catchup: Any) -> bytes:
        if drops := catchup.drops() if not catchup.messages else b"":
            number = catchup.queue.number
            self._part(Kind.DROP, QUEUE.pack(number) + drops, lambda: self.broker.engine.drop(number, drops))
        records: bytes = catchup.slice(300)
        return records

    def lead(self) -> None:
        """It is promoted, takes some messages and steps down, or gives away some that its former primary still has."""
        engine = self.broker.engine
        engine.begin_epoch(engine.epoch + 1)
        self.journal.begin_again()
        self.differs = False
        self.note()

        def on_batch(batch: Any) -> None:
            self.journal.batch(batch)
            self.note()

        engine.on_batch = on_batch
        engine.log_membership(b"its set")
        client = MemoryClient(engine)
        if self.of >= 0 and self.rng.random() < 0.5:
            self._give_away(client)
        else:
            self._take(client)
        engine.flush()
        self.note()
        engine.demote()

    def _give_away(self, client: MemoryClient) -> None:
        for queue in self.broker.vhost.queues.values():
            client.channel.consume(queue.core, queue.name, False, 3)
            for tag, _, _ in deliveries(client.turn())[1:]:  # what is behind the first leaves its place
                client.send(commands.Basic.Ack(tag))
            client.channel.cancel(queue.name)
        client.turn()
        client.connection.close()

    def _take(self, client: MemoryClient) -> None:
        self.of = -1
        for queue in self.broker.vhost.queues.values():
            client.owner.routes[queue.name.encode()] = [queue.core]
            client.publish(b"led", queue.name, delivery_mode=2)

    def finish(self) -> None:
        for number in self.broker.engine.queues:
            self.broker.engine.merge(number)  # also of a queue whose deletion is on its way
        self.journal.begin_again()
        self.differs = False
        self.taken += 1
        self.note()

    def _prune(self) -> None:
        for number, queue in self.broker.engine.queues.items():
            if ids := queue.held():
                self._part(Kind.DROP, QUEUE.pack(number) + ids, partial(self.broker.engine.drop, number, ids))

    def _part(self, kind: int, body: bytes, change: Callable[[], None]) -> None:
        change()
        self.journal.part(kind, body)
