"""Clients: they connect to whichever broker lets them in, and do their work again after every failure.

This is what all of them have in common; `producers.py`, `consumers.py` and `architects.py` have the kinds.  All of
them report to the history what they were told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qpidd_py.amqp.client import AmqpClient
from qpidd_py.amqp.client_handshake import (
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
from tests.simulator.topology import Greeting

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

PATIENCE = 0.6
"""Seconds that a client waits for connection.open-ok."""


class Client:
    """One client with at most one connection, one channel; a host of the network."""

    busy_until = 0.0
    powered = True
    properties: Mapping[str, Any] = {}
    """What the broker is told of us."""
    reads = True
    """False: the broker's host takes no more octets for us."""

    def __init__(self, simulation: Simulation, fields: Mapping[str, Any]) -> None:
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.history = simulation.history
        self.name: str = fields["name"]
        self.fields = fields
        self.rng = simulation.scenario.rng(self.name)
        self.opened = False
        self.stays_away = False
        self.broker: BrokerProcess
        self.ballot = (0, "")
        """Of the primary that let us in, or a later one of the same broker."""
        self._end: End | None = None
        self._connection: AmqpClient
        self._to_send: deque[tuple[bytes, int]] = deque()
        self._deliver: amqp.Deliver | None = None
        self._missing = 0
        self._body = b""
        self._life = 0
        self._declared = -1
        """How many total failures there had been when it began to declare what it needs: an answer may be under way for
        longer than its broker lives."""
        self._failures = 0
        """How many there had been when this connection was opened."""
        self._next = self.rng.randrange(8)
        self.after(self.rng.uniform(0.0, 0.1), self._connect)

    @property
    def unanswered(self) -> int:
        """Methods of its greeting."""
        return len(self._to_send)

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
        if self.stays_away:
            return
        brokers = self.simulation.brokers
        self.broker = brokers[self._next % len(brokers)]
        self._next += 1
        self._life += 1
        life = self._life
        self.opened = False
        self._connection = AmqpClient(ClientHandshake(Login(), self.properties, heartbeat=1))
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
            self.simulation.tap.lost(self, reason)
        self.opened = False
        self._life += 1
        self._deliver = None
        self.disconnected()
        life = self._life
        self.after(self.rng.uniform(0.01, 0.12), lambda: self._connect() if life == self._life else None)

    def _received(self, data: bytes) -> None:
        for event in self._connection.feed(data):
            self.simulation.tap.received(self, event)
            if isinstance(event, MethodReceived):
                self._method(event.payload)
            elif isinstance(event, ContentReceived):
                self._content(event)
            elif isinstance(event, Opened):
                self._open()
            elif isinstance(event, Closed):
                self.flush()
                self._take_hint(event.reply_text)
                self.lost(event.reply_text)
        self.flush()

    def _take_hint(self, text: str) -> None:
        """A backup says where the primary is."""
        for number, broker in enumerate(self.simulation.brokers):
            if text.endswith(f"the primary is {broker.address}") and self.rng.random() < 0.7:
                self._next = number

    def _open(self) -> None:
        self.opened = True
        self.ballot = self.broker.node.local.persisted.ballot
        self.scheduler.log(self.name, f"connected to {self.broker.name}")
        self.simulation.tap.opened(self)
        self._failures = self.history.counts["total failures"]
        if self.simulation.scenario.option("policy", False):
            self.broker.run("administrator", self.broker.set_policy)
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
        self.flush()
        self.later(0.3, self._tick)

    def send(self, octets: bytes) -> None:
        self.simulation.tap.sent(self, octets)
        self._connection.handshake.write(octets)

    def read_again(self) -> None:
        """The broker's host takes octets for us again."""
        self.reads = True
        if self._end is not None:
            self._end.peer.writable()

    def flush(self) -> None:
        if self._end is not None:
            self._end.send(self._connection.take_output())

    # ---- frames ---------------------------------------------------------------------------------------------------

    def _method(self, payload: bytes) -> None:
        method = int.from_bytes(payload[:4], "big")
        if self._to_send and method == self._to_send[0][1]:
            self._to_send.popleft()
            self.answered(method)
            if not self._to_send:
                self._declared = self._failures
            if self._pipelined:
                return
            if self._to_send:
                self.send(self._to_send[0][0])
            else:
                self.ready()
        elif method in (amqp.DELIVER, amqp.GET_OK):
            self._deliver, self._body = amqp.read_deliver(payload), b""
        elif method == amqp.RETURN:
            self._deliver, self._body = None, b""
        elif method == amqp.CHANNEL_CLOSE:
            self.refused(payload[7 : 7 + payload[6]].decode("latin-1"))
        elif method == amqp.FLOW:
            self.asked_to_pause(method, not payload[4])
            self.send(amqp.flow_ok(bool(payload[4])))
        elif method in (amqp.BLOCKED, amqp.UNBLOCKED):
            self.asked_to_pause(amqp.BLOCKED, method == amqp.BLOCKED)
        else:
            self.method(method, payload)

    def _content(self, event: ContentReceived) -> None:
        if event.is_header:
            self._missing = int.from_bytes(event.payload[4:12], "big")
            if self._deliver is not None:
                count, token = (amqp.number_in(event.payload, name) for name in ("x-delivery-count", "x-fencing-token"))
                resent = amqp.RESENT in event.payload
                self._deliver = self._deliver._replace(returns=count, token=token, resent=resent)
        else:
            self._body += event.payload
            self._missing -= len(event.payload)
        if self._missing == 0 and self._deliver is not None:
            deliver, self._deliver = self._deliver, None
            self.delivered(deliver, self._body)
        elif self._missing == 0:
            self.returned(self._body)

    def asked_to_pause(self, how: int, pause: bool) -> None:
        """The broker asks us to publish nothing for a while, or to go on."""

    # ---- what each kind does --------------------------------------------------------------------------------------

    def told(self, action: str, fields: Mapping[str, Any]) -> None:
        """An action of the scenario is for us."""
        raise NotImplementedError

    def greeting(self) -> Greeting:
        """Frames to begin with, each with the answer to wait for."""
        raise NotImplementedError

    def declarations(self, wanted: Greeting) -> Greeting:
        """Of these, what it declares now: nothing if it is a program that declares when it starts, and after a failure
        goes straight on.  What was answered must be there."""
        once = self.simulation.scenario.option("once", False) and not self.history.gambles
        return [] if once and self._declared == self.history.counts["total failures"] else wanted

    def ready(self) -> None:
        """The greeting is over."""

    def answered(self, method: int) -> None:
        """The next answer of the greeting."""

    def method(self, method: int, payload: bytes) -> None:
        raise Violation(f"{self.name}: unexpected method {method:#x}")

    def refused(self, text: str) -> None:
        """The channel was closed; a queue that is not there was declared, and that was answered."""
        if text.startswith("NOT_FOUND"):
            raise Violation(f"I7: {self.name}: {self.broker.name} closes the channel: {text!r}")
        raise Violation(f"{self.name}: {self.broker.name} closes the channel: {text!r}")

    def delivered(self, deliver: amqp.Deliver, body: bytes) -> None:
        raise Violation(f"{self.name}: unexpected message")

    def returned(self, body: bytes) -> None:
        raise Violation(f"{self.name}: unexpected basic.return")

    def octets_left(self, octets: bytes) -> None:
        """The broker's host has these for us, whatever becomes of them."""

    def disconnected(self) -> None:
        """The connection is gone."""

    def calm(self) -> None:
        """The faults are over: no more mischief."""

    @property
    def finished(self) -> bool:
        return True
