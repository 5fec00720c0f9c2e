"""Producers: numbered messages with confirms, a few under way at a time.

A producer keeps what is not confirmed and sends it again, as a new *attempt*.  A polite one knows
`connection.blocked` and `channel.flow`: it pauses when it is asked to, as before a planned switch-over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qpidd_py.amqp.client_handshake import CAPABILITIES
from tests.simulator import amqp, topology
from tests.simulator.checks import name_of
from tests.simulator.clients import Client
from tests.simulator.scheduler import Violation
from tests.simulator.topology import DESTINATIONS, ROUTES, Greeting

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation


@dataclass(eq=False)
class Message:
    """What to publish; `name` is that of the present attempt."""

    key: str
    route: str
    size: int
    priority: int
    mandatory: bool
    name: str = ""
    rejected: int = 0
    """How often a full queue did not take it; from then on it has lost its place."""


class Producer(Client):
    """Publishes what it is told."""

    def __init__(self, simulation: Simulation, fields: Mapping[str, Any]) -> None:
        super().__init__(simulation, fields)
        self._window: int = fields["window"]
        self._paused: set[int] = set()
        """Methods by which we were asked to pause."""
        if fields.get("polite"):
            self.properties = {"qpid.channel_flow": True, "capabilities": {**CAPABILITIES, "connection.blocked": True}}
        self._made = 0
        self._attempt = 0
        self._ready = False
        self._ready_at = 0.0
        self._waiting: deque[Message] = deque()
        self._under_way: dict[int, Message] = {}
        self._rejected: list[Message] = []
        self._tag = 0

    @property
    def finished(self) -> bool:
        return not self._under_way and not self._waiting and not self._rejected

    def told(self, action: str, fields: Mapping[str, Any]) -> None:
        """`publish`"""
        self._made += 1
        key = f"{self.name}.{self._made}"
        priority, mandatory = fields.get("priority", 0), fields.get("mandatory", False)
        self._waiting.append(Message(key, fields["to"], fields["size"], priority, mandatory))
        if self._ready:
            self._publish()

    def greeting(self) -> Greeting:
        opening = [(amqp.channel_open(), amqp.CHANNEL_OK)]
        return [*opening, *self.declarations(self.simulation.topology), (amqp.confirm_select(), amqp.CONFIRM_OK)]

    def ready(self) -> None:
        self._attempt += 1
        self._tag = 0
        self._ready, self._ready_at = True, self.scheduler.now
        self._publish()

    def asked_to_pause(self, how: int, pause: bool) -> None:
        (self._paused.add if pause else self._paused.discard)(how)
        if self._ready:
            self._publish()

    def disconnected(self) -> None:
        self.history.hung_up_on(self.name, self._ready_at, [message.name for message in self._under_way.values()])
        self._paused.clear()
        # In the order in which they were sent, so that each attempt is in order, too.
        self._waiting.extendleft(reversed([*self._under_way.values(), *self._rejected]))
        self._ready = False
        self._under_way.clear()
        self._rejected.clear()

    def _publish(self) -> None:
        while len(self._under_way) < self._window and self._waiting and not self._paused:
            self._send(self._waiting.popleft())
        self.flush()

    def _send(self, message: Message) -> None:
        # An attempt of its own for each that has lost its place.
        again = f"r{message.rejected}{message.key}" if message.rejected else ""
        message.name = f"{message.key}@{self._attempt}{again}"
        body = message.name.encode() + b"|" + b"." * message.size
        exchange, routing_key = ROUTES[message.route]
        by = topology.ALTERNATES.get(exchange, exchange)
        self.history.published(message.name, DESTINATIONS[message.route], body, message.priority, by)
        self._tag += 1
        self._under_way[self._tag] = message
        self.send(amqp.publish(exchange, routing_key, body, message.priority, message.mandatory))

    def method(self, method: int, payload: bytes) -> None:
        if method not in (amqp.ACK, amqp.NACK):
            raise Violation(f"{self.name}: unexpected method {method:#x}")
        tag, multiple = int.from_bytes(payload[4:12], "big"), bool(payload[12] & 1)
        settled = [each for each in self._under_way if each == tag or (multiple and each <= tag)]
        if tag > self._tag:
            raise Violation(f"I11: {self.broker.name} confirms {tag} to {self.name}, which has sent {self._tag}")
        if not settled:
            raise Violation(f"I11: {self.broker.name} confirms {tag} to {self.name} a second time")
        for each in settled:
            message = self._under_way.pop(each)
            if method == amqp.ACK:
                self.history.confirmed(message.name, self.broker, self.ballot)
            else:
                self._reject(message)
        self._publish()

    def returned(self, body: bytes) -> None:
        """No queue has taken it: its confirm follows, and it is nowhere."""
        self.history.returned(name_of(body))

    def _reject(self, message: Message) -> None:
        """The queue is full: try later."""
        self.history.rejected(message.name)
        message.rejected += 1
        self._rejected.append(message)

        def again() -> None:
            if message in self._rejected:
                self._rejected.remove(message)
                self._waiting.append(message)
                self._publish()

        self.later(0.05, again)
