"""Consumers of several kinds.

A `Consumer` acknowledges late, some by multiple, gives some back, rejects some, dies with them now and then.  A
`Reader` has automatic acknowledgement, a `Getter` uses basic.get.  A `Worker` takes a message, publishes results to two
queues and acknowledges, all in one transaction.  A `Hermit` has a queue that goes with it.  A `Hoarder` keeps all that
it gets until it is told to reject it, all at once.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.simulator import amqp, topology
from tests.simulator.clients import Client
from tests.simulator.scheduler import Violation
from tests.simulator.topology import Greeting

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation


NAME = re.compile(rb"\x03\x00\x01.{4}([\w./@]+)\|", re.DOTALL)
"""The name of a copy, at the beginning of the first body frame on channel 1."""


class Consumer(Client):
    """Consumes one queue."""

    def __init__(self, simulation: Simulation, fields: Mapping[str, Any]) -> None:
        super().__init__(simulation, fields)
        self._queue: str = fields["queue"]
        self._prefetch: int = fields["prefetch"]
        self._slowness: float = fields["slowness"]
        """Seconds, on average, until a message is settled."""
        self._unacked: dict[int, str] = {}
        """Copies by delivery tag."""
        self._calm = False
        self._rejects: bool = fields.get("rejects", False)
        self._returns: float = fields.get("returns", 0.1)
        """Share of the messages that go back to the queue."""

    def calm(self) -> None:
        self._calm = True

    def greeting(self) -> Greeting:
        return [
            (amqp.channel_open(), amqp.CHANNEL_OK),
            (amqp.qos(self._prefetch), amqp.QOS_OK),
            *self.queue(),
            (amqp.consume(self._queue, "c"), amqp.CONSUME_OK),
        ]

    def queue(self) -> Greeting:
        """A queue that expires is declared each time."""
        wanted = [topology.declare(self._queue)]
        return wanted if "x-expires" in topology.QUEUES[self._queue].arguments else self.declarations(wanted)

    def disconnected(self) -> None:
        self._unacked.clear()

    @property
    def queue_name(self) -> str:
        return self._queue

    @property
    def stream(self) -> str:
        return f"{self.name}:{self._life}"

    @property
    def attached(self) -> str:
        """The primary, and the epoch for which it has let us in; empty when it has given our connection up."""
        there = self._end is not None and self._end.peer.open
        return f"{self.broker.name}:{self.broker.life} {self.ballot}" if there else ""

    @property
    def holds(self) -> list[str]:
        return list(self._unacked.values())

    def delivered(self, deliver: amqp.Deliver, body: bytes) -> None:
        self._keep(deliver, body)
        if self._slowness:
            self.later(self.rng.expovariate(1 / self._slowness), lambda: self._settle(deliver.tag))
        else:
            self._settle(deliver.tag)

    def _keep(self, deliver: amqp.Deliver, body: bytes) -> None:
        name = self.history.delivered(self._queue, self.stream, deliver.marked, body, self.ballot)
        self.history.counted(self._queue, name, deliver.returns, self.ballot)
        self.history.fenced(self._queue, name, self.stream, deliver.token, self.ballot)
        self.history.grouped(self, self._queue, name)
        self._unacked[deliver.tag] = name

    def _settle(self, tag: int) -> None:
        if tag not in self._unacked:
            return
        chance = self.rng.random()
        if chance < self._returns and not self._calm:
            self.history.gave_back(self.stream, self._queue, self._unacked.pop(tag))
            self.send(amqp.requeue(tag))
        elif chance < 0.3:
            self._acknowledge([other for other in self._unacked if other <= tag])
            self.send(amqp.ack(tag, True))
        elif chance < 0.32 and not self._calm:
            self.lost("it dies")
            return
        elif chance < 0.5 and self._rejects:
            self._discard(tag)
        else:
            self._acknowledge([tag])
            self.send(amqp.ack(tag))
        self.flush()

    def refused(self, text: str) -> None:
        """A queue that expires may do so between its declaration and this consumer, if that takes long to be safe."""
        if "x-expires" not in topology.QUEUES[self._queue].arguments or not text.startswith("NOT_FOUND"):
            super().refused(text)
        self.lost(text)

    def _discard(self, tag: int) -> None:
        if self._queue in topology.LETTERS:
            del self._unacked[tag]
        else:
            self._acknowledge([tag])
        self.send(amqp.discard(tag))

    def _acknowledge(self, tags: list[int]) -> None:
        self.history.settled(self._queue, [self._unacked.pop(tag) for tag in tags])


class Reader(Client):
    """Consumes one queue with automatic acknowledgement, and does not read its socket now and then.

    What its broker's host has taken for it counts as acknowledged, also when it never arrives."""

    def __init__(self, simulation: Simulation, fields: Mapping[str, Any]) -> None:
        super().__init__(simulation, fields)
        self._queue: str = fields["queue"]
        self._calm = False

    def greeting(self) -> Greeting:
        return [
            (amqp.channel_open(), amqp.CHANNEL_OK),
            *self.declarations([topology.declare(self._queue)]),
            (amqp.consume(self._queue, "r", True), amqp.CONSUME_OK),
        ]

    def ready(self) -> None:
        if not self._calm:
            self.later(self.rng.expovariate(1 / 0.3), self._pause)

    def _pause(self) -> None:
        self.reads = False
        self.later(self.rng.expovariate(1 / 0.3), self._go_on)

    def _go_on(self) -> None:
        self.read_again()
        self.ready()

    def calm(self) -> None:
        self._calm = True
        self.read_again()

    def disconnected(self) -> None:
        self.reads = True

    def octets_left(self, octets: bytes) -> None:
        self.history.settled(self._queue, (name.decode() for name in NAME.findall(octets)))

    def delivered(self, deliver: amqp.Deliver, body: bytes) -> None:
        stream = f"{self.name}:{self._life}"
        self.history.delivered(self._queue, stream, deliver.marked, body, self.ballot)


class Getter(Consumer):
    """Asks for one message at a time, with basic.get."""

    def greeting(self) -> Greeting:
        return [(amqp.channel_open(), amqp.CHANNEL_OK), *self.queue()]

    def ready(self) -> None:
        self.send(amqp.get(self._queue))
        self.flush()

    def method(self, method: int, payload: bytes) -> None:
        if method != amqp.GET_EMPTY:
            super().method(method, payload)
        self.later(0.03, self.ready)

    def delivered(self, deliver: amqp.Deliver, body: bytes) -> None:
        super().delivered(deliver, body)
        self.later(0.0, self.ready)


class Hoarder(Consumer):
    """Keeps what it gets: it comes back to its queue when the connection ends, or is rejected, all at once."""

    def delivered(self, deliver: amqp.Deliver, body: bytes) -> None:
        self._keep(deliver, body)
        if self._calm:
            self._settle(deliver.tag)

    def told(self, action: str, fields: Mapping[str, Any]) -> None:
        for tag in list(self._unacked):
            self._discard(tag)
        self.flush()

    def calm(self) -> None:
        super().calm()
        tags = list(self._unacked)
        self._acknowledge(tags)
        self.send(b"".join(map(amqp.ack, tags)))
        self.flush()


class Worker(Client):
    """Works with transactions."""

    def __init__(self, simulation: Simulation, fields: Mapping[str, Any]) -> None:
        super().__init__(simulation, fields)
        self._serial = 0
        self._job: str | None = None
        self._inbox: deque[tuple[amqp.Deliver, str]] = deque()

    def greeting(self) -> Greeting:
        return [
            (amqp.channel_open(), amqp.CHANNEL_OK),
            *self.declarations(self.simulation.topology),
            (amqp.tx_select(), amqp.TX_OK),
            (amqp.qos(1), amqp.QOS_OK),
            (amqp.consume("work", "w"), amqp.CONSUME_OK),
        ]

    def disconnected(self) -> None:
        self._job = None
        self._inbox.clear()

    def delivered(self, deliver: amqp.Deliver, body: bytes) -> None:
        stream = f"{self.name}:{self._life}"
        source = self.history.delivered("work", stream, deliver.marked, body, self.ballot)
        self._inbox.append((deliver, source))
        # The next message may come before commit-ok: its settlement belongs to a transaction of its own.
        if self._job is None:
            self._begin()

    def _begin(self) -> None:
        deliver, source = self._inbox.popleft()
        self._serial += 1
        job = self._job = f"{self.name}/{self._serial}"
        outputs = [("out1", f"{job}a"), ("out2", f"{job}b"), ("out1", f"{job}c")][: self.rng.randint(2, 3)]
        self.history.begun(job, source, outputs)
        parts = [amqp.publish("", queue, f"{name}|".encode()) for queue, name in outputs]
        parts.insert(self.rng.randint(0, len(parts)), amqp.ack(deliver.tag))
        self.send(b"".join(parts))
        self.flush()
        self.later(self.rng.choice((0.0, 0.0, 0.01, 0.05)), lambda: self._commit(job))

    def _commit(self, job: str) -> None:
        self.history.committing(job)
        self.send(amqp.tx_commit())
        self.flush()

    def method(self, method: int, payload: bytes) -> None:
        if method != amqp.COMMIT_OK or self._job is None:
            raise Violation(f"{self.name}: unexpected method {method:#x}")
        self.history.committed(self._job, self.broker, self.ballot)
        self._job = None
        if self._inbox:
            self._begin()


class Hermit(Client):
    """Consumes what is sent to `fan` from a queue of its own, exclusive or auto-delete, and dies now and then.

    With a `timeout` (seconds) the queue waits for it."""

    _began = 0.0

    @property
    def _timeout(self) -> int:
        return int(self.fields.get("timeout", 0))

    @property
    def _queue(self) -> str:
        return f"own.{self.name}" if self._timeout else f"own.{self.name}.{self._life}"

    def greeting(self) -> Greeting:
        exclusive = self.fields["exclusive"]
        options: dict[str, Any] = {"durable": False, "exclusive": exclusive, "auto_delete": not exclusive}
        if self._timeout:
            options["arguments"] = {"qpid.auto_delete_timeout": self._timeout}
        self._began = self.scheduler.now
        self.history.moved_in(self.name, self._queue, alone=exclusive)
        return [
            (amqp.channel_open(), amqp.CHANNEL_OK),
            *self.declarations(self.simulation.topology),
            (amqp.declare(self._queue, **options), amqp.DECLARE_OK),
            (amqp.consume(self._queue, "h"), amqp.CONSUME_OK),
            (amqp.bind(self._queue, "fan", ""), amqp.BIND_OK),
        ]

    def answered(self, method: int) -> None:
        if method == amqp.CONSUME_OK and self._timeout:
            self.history.kinds.stays(self._queue, self.ballot, self._began, self._timeout)

    def refused(self, text: str) -> None:
        """An answer may come so late that the queue has been given up before it consumes."""
        if self._timeout and text.startswith(f"NOT_FOUND - no queue '{self._queue}'"):
            self.lost(text)
        else:
            super().refused(text)

    def ready(self) -> None:
        self.later(self.rng.expovariate(1 / 0.5), lambda: self.lost("it dies"))

    def disconnected(self) -> None:
        self.history.moved_in(self.name, "")

    def calm(self) -> None:
        self.stays_away = True
        self.lost("it has had enough")

    def delivered(self, deliver: amqp.Deliver, body: bytes) -> None:
        self.history.overheard(body)
        self.send(amqp.ack(deliver.tag))
        self.flush()
