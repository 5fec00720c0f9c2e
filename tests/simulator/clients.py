"""Clients: they connect to whichever broker lets them in, and do their work again after every failure.

A producer keeps what is not confirmed and sends it again (as a new *attempt*); a consumer acknowledges late, gives
messages back, or dies with them; the worker takes from a queue and publishes the results in one transaction; the
architect declares and deletes queues.  All of them report to the history what they were told.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from qpidd_py.amqp.client import (
    ClientConnection,
    ClientHandshake,
    Closed,
    ContentReceived,
    Login,
    MethodReceived,
    Opened,
    PeerSilent,
)
from tests.simulator import amqp
from tests.simulator.network import End
from tests.simulator.scheduler import Call, Violation

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

PATIENCE = 0.6
"""Seconds that a client waits for connection.open-ok."""


class Client:
    """One client with at most one connection, one channel."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.rng = simulation.scheduler.rng
        self.history = simulation.history
        self.name = name
        self.powered = True
        self.opened = False
        self.broker: BrokerProcess
        self.ballot = (0, "")
        """Of the primary that let us in, or a later one of the same broker."""
        self._end: End | None = None
        self._connection: ClientConnection
        self._to_send: deque[tuple[bytes, int]] = deque()
        self._deliver: amqp.Deliver | None = None
        self._missing = 0
        self._body = b""
        self._life = 0
        self._next = self.rng.randrange(8)
        self.after(self.rng.uniform(0.0, 0.1), self._connect)

    # ---- a host of the network ------------------------------------------------------------------------------------

    def accept(self, end: End) -> bool:
        return False

    def run(self, source: object, call: Call) -> None:
        call()

    def after(self, delay: float, call: Call) -> None:
        self.scheduler.at(delay, call)

    def later(self, delay: float, call: Call) -> None:
        """In this connection's life only."""
        life = self._life

        def due() -> None:
            if life == self._life and self.opened:
                call()

        self.after(delay, due)

    # ---- connecting -----------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        brokers = self.simulation.brokers
        self.broker = brokers[self._next % len(brokers)]
        self._next += 1
        self._life += 1
        life = self._life
        self.opened = False
        self._connection = ClientConnection(ClientHandshake(Login(), heartbeat=1))
        self._end = end = self.simulation.network.connect(self, self.broker)
        end.on_data = self._received
        end.on_closed = self.lost
        end.send(self._connection.take_output())
        self.after(PATIENCE, lambda: self._impatient(life))

    def _impatient(self, life: int) -> None:
        if life == self._life and not self.opened:
            self.lost("no answer")

    def lost(self, reason: str) -> None:
        """The connection is gone, or given up."""
        end, self._end = self._end, None
        if end is None:
            return
        end.close()
        if self.opened:
            self.scheduler.log(self.name, f"loses {self.broker.name}: {reason}")
        self.opened = False
        self._life += 1
        self._deliver = None
        self.disconnected()
        life = self._life
        self.after(self.rng.uniform(0.01, 0.12), lambda: self._connect() if life == self._life else None)

    def _received(self, data: bytes) -> None:
        for event in self._connection.feed(data):
            if isinstance(event, MethodReceived):
                self._method(event.payload)
            elif isinstance(event, ContentReceived):
                self._content(event)
            elif isinstance(event, Opened):
                self._open()
            elif isinstance(event, Closed):
                self._flush()
                self._take_hint(event.reply_text)
                self.lost(event.reply_text)
        self._flush()

    def _take_hint(self, text: str) -> None:
        """A backup says where the primary is."""
        for number, broker in enumerate(self.simulation.brokers):
            if text.endswith(f"the primary is {broker.address}") and self.rng.random() < 0.7:
                self._next = number

    def _open(self) -> None:
        self.opened = True
        self.ballot = self.broker.node.persisted.ballot
        self.scheduler.log(self.name, f"connected to {self.broker.name}")
        self._to_send = deque(self.greeting())
        pipelined = self.rng.random() < 0.3
        for octets, _ in list(self._to_send) if pipelined else [self._to_send[0]]:
            self.send(octets)
        self._pipelined = pipelined
        if pipelined:
            self.later(0.0, self.ready)
        self.later(0.3, self._tick)

    def _tick(self) -> None:
        if isinstance(silent := self._connection.tick(self.scheduler.now), PeerSilent):
            self.lost(f"silent for {silent.seconds:.2f} s")
            return
        self._flush()
        self.later(0.3, self._tick)

    def send(self, octets: bytes) -> None:
        self._connection.handshake.write(octets)

    def _flush(self) -> None:
        if self._end is not None:
            self._end.send(self._connection.take_output())

    def flush(self) -> None:
        self._flush()

    # ---- frames ---------------------------------------------------------------------------------------------------

    def _method(self, payload: bytes) -> None:
        method = int.from_bytes(payload[:4], "big")
        if self._to_send and method == self._to_send[0][1]:
            self._to_send.popleft()
            self.answered(method)
            if self._pipelined:
                return
            if self._to_send:
                self.send(self._to_send[0][0])
            else:
                self.ready()
        elif method == amqp.DELIVER:
            self._deliver, self._body = amqp.read_deliver(payload), b""
        elif method == amqp.CHANNEL_CLOSE:
            raise Violation(f"{self.name}: {self.broker.name} closes the channel: {payload[6:].decode('latin-1')!r}")
        else:
            self.method(method, payload)

    def _content(self, event: ContentReceived) -> None:
        if event.is_header:
            self._missing = int.from_bytes(event.payload[4:12], "big")
        else:
            self._body += event.payload
            self._missing -= len(event.payload)
        if self._missing == 0 and self._deliver is not None:
            deliver, self._deliver = self._deliver, None
            self.delivered(deliver, self._body)

    # ---- what each kind does --------------------------------------------------------------------------------------

    def greeting(self) -> list[tuple[bytes, int]]:
        """Frames to begin with, each with the answer to wait for."""
        raise NotImplementedError

    def ready(self) -> None:
        """The greeting is over."""

    def answered(self, method: int) -> None:
        """The next answer of the greeting."""

    def method(self, method: int, payload: bytes) -> None:
        raise Violation(f"{self.name}: unexpected method {method:#x}")

    def delivered(self, deliver: amqp.Deliver, body: bytes) -> None:
        raise Violation(f"{self.name}: unexpected message")

    def disconnected(self) -> None:
        """The connection is gone."""

    @property
    def finished(self) -> bool:
        return True


TOPOLOGY = [
    (amqp.declare("main"), amqp.DECLARE_OK),
    (amqp.declare("work"), amqp.DECLARE_OK),
    (amqp.declare("fan1"), amqp.DECLARE_OK),
    (amqp.declare("fan2"), amqp.DECLARE_OK),
    (amqp.declare("out1"), amqp.DECLARE_OK),
    (amqp.declare("out2"), amqp.DECLARE_OK),
    (amqp.declare_exchange("fan", "fanout"), amqp.EXCHANGE_OK),
    (amqp.bind("fan1", "fan", ""), amqp.BIND_OK),
    (amqp.bind("fan2", "fan", ""), amqp.BIND_OK),
]
ROUTES = {("", "main"): ("main",), ("", "work"): ("work",), ("fan", ""): ("fan1", "fan2")}


class Producer(Client):
    """Publishes numbered messages with confirms, a few under way at a time."""

    def __init__(self, simulation: Simulation, name: str, count: int) -> None:
        super().__init__(simulation, name)
        self._count = count
        self._made = 0
        self._attempt = 0
        self._window = self.rng.randint(1, 6)
        # Most are at work for as long as there are faults.
        self._pace = min(0.5, self.rng.choice((0.0, 3.0, 6.0, 6.0)) / count)
        self._unconfirmed: deque[tuple[str, tuple[str, str], int]] = deque()
        self._again: deque[tuple[str, tuple[str, str], int]] = deque()
        self._under_way: dict[int, tuple[str, tuple[str, str], int]] = {}
        self._tag = 0
        self._busy = False

    @property
    def finished(self) -> bool:
        return self._made == self._count and not self._under_way and not self._again

    def greeting(self) -> list[tuple[bytes, int]]:
        return [(amqp.channel_open(), amqp.CHANNEL_OK), *TOPOLOGY, (amqp.confirm_select(), amqp.CONFIRM_OK)]

    def ready(self) -> None:
        self._attempt += 1
        self._tag = 0
        self._publish()

    def disconnected(self) -> None:
        # In the order in which they were sent, so that each attempt is in order, too.
        self._again = deque([*self._under_way.values(), *self._again])
        self._under_way.clear()

    def _publish(self) -> None:
        self._busy = False
        while len(self._under_way) < self._window and (self._again or self._made < self._count):
            message = self._again.popleft() if self._again else self._make()
            key, route, size = message
            name = f"{key}@{self._attempt}"
            body = name.encode() + b"|" + b"." * size
            self.history.published(name, ROUTES[route], body)
            self._tag += 1
            self._under_way[self._tag] = message
            self.send(amqp.publish(*route, body))
            if self._pace and self.rng.random() < 0.7:
                break
        self.flush()
        if self._pace and self._made < self._count and len(self._under_way) < self._window and not self._busy:
            self._busy = True
            self.later(self.rng.expovariate(1 / self._pace), self._publish)

    def _make(self) -> tuple[str, tuple[str, str], int]:
        self._made += 1
        route = self.rng.choices(list(ROUTES), (5, 3, 2))[0]
        size = self.rng.choice((0, 10, 10, 100, 1000)) if self.rng.random() < 0.95 else 9000
        return f"{self.name}.{self._made}", route, size

    def method(self, method: int, payload: bytes) -> None:
        if method != amqp.ACK:
            raise Violation(f"{self.name}: unexpected method {method:#x}")
        tag, multiple = int.from_bytes(payload[4:12], "big"), bool(payload[12])
        if tag > self._tag:
            raise Violation(f"{self.name}: {self.broker.name} confirms {tag}, {self._tag} were published")
        for each in [each for each in self._under_way if each == tag or (multiple and each <= tag)]:
            key, _, _ = self._under_way.pop(each)
            self.history.confirmed(f"{key}@{self._attempt}", self.broker, self.ballot)
        self._publish()


class Consumer(Client):
    """Consumes one queue; acknowledges late, some by multiple, gives some back, dies now and then."""

    def __init__(self, simulation: Simulation, name: str, queue: str) -> None:
        super().__init__(simulation, name)
        self._queue = queue
        self._prefetch = self.rng.choice((1, 2, 5, 20))
        self._slowness = self.rng.choice((0.0, 0.005, 0.05))
        self._unacked: list[int] = []
        self.calm = False

    def greeting(self) -> list[tuple[bytes, int]]:
        return [
            (amqp.channel_open(), amqp.CHANNEL_OK),
            (amqp.qos(self._prefetch), amqp.QOS_OK),
            (amqp.declare(self._queue), amqp.DECLARE_OK),
            (amqp.consume(self._queue, "c"), amqp.CONSUME_OK),
        ]

    def disconnected(self) -> None:
        self._unacked.clear()

    def delivered(self, deliver: amqp.Deliver, body: bytes) -> None:
        stream = f"{self.name}:{self._life}"
        self.history.delivered(self._queue, stream, deliver.redelivered, body)
        self._unacked.append(deliver.tag)
        if self._slowness:
            self.later(self.rng.expovariate(1 / self._slowness), lambda: self._settle(deliver.tag))
        else:
            self._settle(deliver.tag)

    def _settle(self, tag: int) -> None:
        if tag not in self._unacked:
            return
        chance = self.rng.random()
        if chance < 0.1 and not self.calm:
            self._unacked.remove(tag)
            self.send(amqp.requeue(tag))
        elif chance < 0.3:
            self._unacked = [other for other in self._unacked if other > tag]
            self.send(amqp.ack(tag, True))
        elif chance < 0.32 and not self.calm:
            self.lost("it dies")
            return
        else:
            self._unacked.remove(tag)
            self.send(amqp.ack(tag))
        self.flush()


class Worker(Client):
    """Takes a message, publishes results to two queues and acknowledges, all in one transaction."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        super().__init__(simulation, name)
        self._serial = 0
        self._job: str | None = None
        self._inbox: deque[tuple[amqp.Deliver, str]] = deque()

    def greeting(self) -> list[tuple[bytes, int]]:
        return [
            (amqp.channel_open(), amqp.CHANNEL_OK),
            *TOPOLOGY,
            (amqp.tx_select(), amqp.TX_OK),
            (amqp.qos(1), amqp.QOS_OK),
            (amqp.consume("work", "w"), amqp.CONSUME_OK),
        ]

    def disconnected(self) -> None:
        self._job = None
        self._inbox.clear()

    def delivered(self, deliver: amqp.Deliver, body: bytes) -> None:
        source = self.history.delivered("work", f"{self.name}:{self._life}", deliver.redelivered, body)
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
        self.history.committed(self._job, self.broker)
        self._job = None
        if self._inbox:
            self._begin()


class Architect(Client):
    """Declares queues of its own, binds them, and deletes some of them."""

    def __init__(self, simulation: Simulation, name: str, count: int) -> None:
        super().__init__(simulation, name)
        self._count = count
        self._made = 0
        self._waiting: tuple[int, str] | None = None

    @property
    def finished(self) -> bool:
        return self._made >= self._count

    def greeting(self) -> list[tuple[bytes, int]]:
        return [(amqp.channel_open(), amqp.CHANNEL_OK), *TOPOLOGY]

    def ready(self) -> None:
        self._do()

    def disconnected(self) -> None:
        self._waiting = None

    def _do(self) -> None:
        if self.finished:
            return
        name = f"own{self._made % 3 if self.rng.random() < 0.5 else self._made}"
        if self.history.declared.get(name) and self.rng.random() < 0.7:
            self._waiting = (amqp.DELETE_OK, name)
            self.history.architect(name, None)
            self.send(amqp.delete(name))
        else:
            self._waiting = (amqp.DECLARE_OK, name)
            self.history.architect(name, None)
            self.send(amqp.declare(name))
        self.flush()

    def method(self, method: int, payload: bytes) -> None:
        if self._waiting is None or method != self._waiting[0]:
            raise Violation(f"{self.name}: unexpected method {method:#x}")
        self.history.architect(self._waiting[1], method == amqp.DECLARE_OK)
        self._waiting = None
        self._made += 1
        self.later(self.rng.uniform(0.01, 0.5), self._do)
