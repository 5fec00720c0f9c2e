"""A broker with a journal on a disk in memory, a client, and the judge of what must be there after a restart.

The judge knows what clients were told, and nothing of the broker: a message that was confirmed and neither acknowledged
nor deleted is there, in order and once; what is there was published; an acknowledgement that was on disk stays."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pamqp import commands

from qpidd_py.broker.broker import Broker
from qpidd_py.core import Engine
from qpidd_py.store.journal import Journal
from qpidd_py.store.recovery import Found, frames, scan, settle
from qpidd_py.store.replay import Replay, continue_alone
from qpidd_py.store.writer import Work, Writer
from tests.support.memory import MemoryClient, deliveries
from tests.support.memory_disk import MemoryDisk

SEGMENT = 4096


@dataclass
class Told:
    """What clients were told of one queue."""

    waiting: list[bytes] = field(default_factory=list)
    """Published and not acknowledged, in order."""
    confirmed: set[bytes] = field(default_factory=set)
    gone: set[bytes] = field(default_factory=set)
    """Acknowledged, and the disk had everything after that."""
    acknowledged: set[bytes] = field(default_factory=set)
    answered: bool = False
    """Its declaration: the disk had it."""


class Machine:
    """One broker; `boot` begins a life of its process."""

    def __init__(self, disk: MemoryDisk, rng: random.Random) -> None:
        self.disk = disk
        self.rng = rng
        self.told: dict[str, Told] = {}
        self.deleted: dict[str, Told] = {}
        """Queues whose deletion was not answered yet: they may come back."""
        self._count = 0
        self.boot()

    # ---- life -----------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        self.found = found = self._read()
        self.broker = Broker(engine=Engine(segment_size=2048))
        configuration = self.broker.configurations
        replay = Replay(self.broker.engine, configuration, found)
        replay.apply(frames(self.disk, found))
        continue_alone(self.broker)
        self.work: list[Work] = []
        self.calls: list[Callable[[], None]] = []
        self.writer = Writer(self.disk, found.end)
        self.journal = Journal(self.broker.engine, configuration, found, self.work.append, self.calls.append, SEGMENT)
        self.broker.engine.on_batch = self.journal.batch
        self.journal.start(replay)
        self.broker.vhosts.on_restarted()
        self.client = MemoryClient(self.broker.engine)
        self.client.channel.confirm_select()
        self._tags: dict[int, tuple[Told, bytes]] = {}
        self._tag = 0
        self.judge()

    def _read(self) -> Found:
        settle(self.disk)
        return scan(self.disk)

    # ---- what clients do ------------------------------------------------------------------------------------------

    def declare(self, name: str, **arguments: Any) -> None:
        queue, _ = self.broker.vhost.declare_queue(None, name, True, False, False, arguments)
        self.client.owner.routes[name.encode()] = [queue.core]
        self.told.setdefault(name, Told())

    def delete(self, name: str) -> None:
        self.broker.vhost.delete_queue(None, name, False, False)
        self.deleted.setdefault(name, self.told.pop(name))

    def publish(self, name: str, count: int, size: int = 20) -> None:
        self.client.owner.routes[name.encode()] = [self.broker.vhost.queues[name].core]
        for _ in range(count):
            self._count += 1
            body = b"%06d" % self._count + bytes(self.rng.randrange(size))
            self.client.publish(body, name, delivery_mode=2)
            self._tag += 1
            self._tags[self._tag] = (self.told[name], body)
            self.told[name].waiting.append(body)

    def consume(self, name: str, count: int) -> None:
        """A client takes messages and acknowledges them."""
        client = MemoryClient(self.broker.engine)
        client.channel.consume(self.broker.vhost.queues[name].core, "c", False, count)
        for tag, body, _ in deliveries(client.turn()):
            client.send(commands.Basic.Ack(tag))
            self.told[name].acknowledged.add(body)
        client.turn()
        client.channel.cancel("c")
        client.connection.close()
        self.turn()

    def turn(self) -> None:
        """Ends the turn, and takes what the client is told."""
        for _, frame in self.client.turn():
            if isinstance(frame, commands.Basic.Ack):
                tags = range(1, frame.delivery_tag + 1) if frame.multiple else (frame.delivery_tag,)
                for told, body in [self._tags.pop(tag) for tag in tags if tag in self._tags]:
                    told.confirmed.add(body)
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()

    def commit(self) -> None:
        """The writer's thread has run.  Raises PowerCut, OSError."""
        self.broker.engine.flush()
        self.turn()
        gone = {name: set(told.acknowledged) for name, told in self.told.items()}
        work, self.work[:] = list(self.work), []
        self.journal.written(self.writer.commit(work))
        for name, bodies in gone.items():
            self.told[name].gone |= bodies
            self.told[name].answered = True
        self.deleted.clear()
        self.turn()

    def settle(self) -> None:
        """Until nothing is left to do."""
        self.turn()
        while self.work or self.calls:
            self.commit()

    def idle(self) -> None:
        """Nothing comes for a while.  Raises PowerCut."""
        self.settle()
        self.writer.mark()

    # ---- the judge ------------------------------------------------------------------------------------------------

    def contents(self, name: str) -> list[bytes]:
        return [bytes(item[5]) for item in self.broker.vhost.queues[name].core.peek(1 << 30)]

    def judge(self) -> None:
        """After a restart.  What is there now is promised from now on."""
        names = {*self.told, *self.deleted}
        self.told = {name: told for name in names if (told := self._judge_queue(name)) is not None}
        self.deleted.clear()

    def _judge_queue(self, name: str) -> Told | None:
        there = self.contents(name) if name in self.broker.vhost.queues else None
        allowed = [self.told.get(name), *([self.deleted[name]] if name in self.deleted else [])]
        wrong = [_wrong(told, there) for told in allowed]
        assert "" in wrong, f"{name}: {wrong}"
        if there is None:
            return None
        return Told(there, set(there), answered=True)


def _wrong(told: Told | None, there: list[bytes] | None) -> str:
    """What is wrong if these messages are found where clients were told that; None: there is no queue."""
    if told is None:
        return "" if there is None else "a deleted queue is back"
    confirmed = told.confirmed - told.acknowledged
    if there is None:
        lost = f"the queue is lost, with {len(confirmed)} confirmed messages"
        return lost if confirmed or told.answered else ""
    if missing := sorted(confirmed - set(there)):
        return f"{len(missing)} of {len(confirmed)} confirmed messages are lost, the first {missing[0]!r}"
    if back := told.gone & set(there):
        return f"{len(back)} acknowledged messages are back"
    return "" if [body for body in told.waiting if body in set(there)] == there else "order, twice or phantom"
