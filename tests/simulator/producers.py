"""Producers: numbered messages with confirms, a few under way at a time.

A producer keeps what is not confirmed and sends it again, as a new *attempt*.  A polite one knows
`connection.blocked` and `channel.flow`: it pauses when it is asked to, as before a planned switch-over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from qpidd_py.amqp.client_handshake import CAPABILITIES
from tests.simulator import amqp, topology
from tests.simulator.checks import name_of
from tests.simulator.clients import Client
from tests.simulator.records import Copy
from tests.simulator.scheduler import Violation
from tests.simulator.topology import DESTINATIONS, ONCE, ROUTES, Greeting

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
    header: str = ""
    """Its header `key`."""
    delay: int = 0
    """Milliseconds for which an exchange keeps it."""
    again: int = 0
    """The number of a publish of what was published before, on purpose."""
    name: str = ""
    rejected: int = 0
    """How often a full queue did not take it; from then on it has lost its place."""

    @property
    def place(self) -> str:
        """An attempt of its own for each that has lost its place among the others."""
        again = f"x{self.again}" if self.again else ""
        return again + (f"r{self.rejected}{self.key}" if self.rejected else "")

    @property
    def headers(self) -> dict[str, Any]:
        key = {"key": self.header} if self.header else {}
        return {**key, "x-delay": self.delay} if self.delay else key


class Producer(Client):
    """Publishes what it is told."""

    def __init__(self, simulation: Simulation, fields: Mapping[str, Any]) -> None:
        super().__init__(simulation, fields)
        self._window: int = fields["window"]
        self._paused: set[int] = set()
        """Methods by which we were asked to pause."""
        if fields.get("polite"):
            self.properties = {"qpid.channel_flow": True, "capabilities": {**CAPABILITIES, "connection.blocked": True}}
        self._made = self._repeated = 0
        self._last: dict[str, list[Message]] = {}
        """By route, of those that may be published again."""
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
        self._waiting += self._repetition(fields) if "again" in fields else [self._message(fields)]
        if self._ready:
            self._publish()

    def _message(self, fields: Mapping[str, Any]) -> Message:
        self._made += 1
        key, route = f"{self.name}.{self._made}", fields["to"]
        priority, mandatory = fields.get("priority", 0), fields.get("mandatory", False)
        message = Message(
            key, route, fields["size"], priority, mandatory, fields.get("key", ""), fields.get("delay", 0)
        )
        if route in ONCE:
            message.header = key
            self._last.setdefault(route, []).append(message)
        return message

    def _repetition(self, fields: Mapping[str, Any]) -> list[Message]:
        """`again`: of the last but so many; nothing if there is none."""
        last = self._last.get(fields["to"], [])[-1 - fields["again"] :]
        self._repeated += 1
        return [replace(each, again=self._repeated, rejected=0) for each in last[:1]]

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
        message.name = f"{message.key}@{self._attempt}{message.place}"
        body = message.name.encode() + b"|" + b"." * message.size
        exchange, routing_key = ROUTES[message.route]
        by = topology.ALTERNATES.get(exchange, exchange)
        copy = Copy(DESTINATIONS[message.route], body, self.scheduler.now, message.priority, exchange=by)
        copy.key, copy.delay = message.header, message.delay / 1000
        self.history.published(message.name, copy)
        self._tag += 1
        self._under_way[self._tag] = message
        self.send(amqp.publish(exchange, routing_key, body, message.priority, message.mandatory, message.headers))

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
