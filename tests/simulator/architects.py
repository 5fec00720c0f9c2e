"""Clients that change the configuration: an `Architect` builds, a `Vandal` destroys what others publish to."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qpidd_py.management.model import Management
from tests.simulator import amqp
from tests.simulator.clients import Client
from tests.simulator.scheduler import Violation
from tests.simulator.topology import QUEUES, Greeting

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation


class Architect(Client):
    """Does what it is told, one thing after the other; what it loses the answer to, it leaves."""

    def __init__(self, simulation: Simulation, fields: Mapping[str, Any]) -> None:
        super().__init__(simulation, fields)
        self._orders: deque[tuple[str, str, str]] = deque()
        self._waiting: tuple[int, str, bool] | None = None
        self._ready = False

    @property
    def finished(self) -> bool:
        return not self._orders and self._waiting is None

    def told(self, action: str, fields: Mapping[str, Any]) -> None:
        """`configure`"""
        self._orders.append((fields["op"], fields["name"], fields.get("to", "")))
        self._next_order()

    def greeting(self) -> Greeting:
        return [(amqp.channel_open(), amqp.CHANNEL_OK), *self.declarations(self.simulation.topology)]

    def ready(self) -> None:
        self._ready = True
        self._next_order()

    def disconnected(self) -> None:
        self._ready = False
        self._waiting = None

    def _next_order(self) -> None:
        if not self._ready or self._waiting is not None:
            return
        while self._orders and self._waiting is None:
            self._do(*self._orders.popleft())
        self.flush()

    def _do(self, op: str, name: str, to: str) -> None:
        there = self.history.configuration.there
        if op == "declare queue":
            self._ask(amqp.declare(name), amqp.DECLARE_OK, f"queue {name}", True)
        elif op == "delete queue":
            self._ask(amqp.delete(name), amqp.DELETE_OK, f"queue {name}", False)
        elif op == "declare exchange":
            self._ask(amqp.declare_exchange(name, "direct"), amqp.EXCHANGE_OK, f"exchange {name}", True)
        elif op == "delete exchange":
            self._ask(amqp.delete_exchange(name), amqp.EXCHANGE_DELETE_OK, f"exchange {name}", False)
        elif op == "set policy":
            fields = {"name": name, "pattern": "", "definition": {"ha-mode": "all", "alternate-exchange": "fan"}}
            self._request("policy.set", fields, f"policy {name}", True)
        elif op == "clear policy":
            self._request("policy.clear", {"name": name}, f"policy {name}", False)
        elif name in QUEUES or (there.get(f"queue {name}") and there.get(f"exchange {to}")):
            if op == "bind":
                self._ask(amqp.bind(name, to, "key"), amqp.BIND_OK, f"binding {name} {to}", True)
            else:
                self._ask(amqp.unbind(name, to, "key"), amqp.UNBIND_OK, f"binding {name} {to}", False)

    def _ask(self, octets: bytes, answer: int, what: str, there: bool) -> None:
        self._waiting = (answer, what, there)
        self.history.configuration.asked(what)
        self.send(octets)

    def _request(self, method: str, fields: Mapping[str, Any], what: str, there: bool) -> None:
        """A management request; only its way through the network is left out."""
        waits = self._waiting = (0, what, there)
        self.history.configuration.asked(what)
        broker = self.broker

        def ask() -> None:
            Management(broker.broker).request(method, {"vhost": "/", **fields}, answered)

        def answered(answer: Mapping[str, Any]) -> None:
            if self._waiting is not waits:
                return
            self._waiting = None
            if answer["ok"]:
                self.history.configuration.answered(what, there)
                self.history.counts["policies"] += 1
            self._next_order()

        broker.run("administrator", ask)

    def refused(self, text: str) -> None:
        """What was there may be gone where the manager gambles."""
        if not self.history.gambles:
            super().refused(text)
        self.lost(text)

    def method(self, method: int, payload: bytes) -> None:
        if self._waiting is None or method != self._waiting[0]:
            raise Violation(f"{self.name}: unexpected method {method:#x}")
        _, what, there = self._waiting
        self.history.configuration.answered(what, there)
        self._waiting = None
        self._next_order()


class Vandal(Client):
    """Makes the queue `scrap`, purges it, deletes it, and makes it again, while others publish to it."""

    def __init__(self, simulation: Simulation, fields: Mapping[str, Any]) -> None:
        super().__init__(simulation, fields)
        self._orders: deque[str] = deque(["declare"])
        self._doing = ""
        self._there = False
        self._ready = False

    @property
    def finished(self) -> bool:
        return not self._orders and not self._doing

    def told(self, action: str, fields: Mapping[str, Any]) -> None:
        """`scrap`"""
        # A redeclaration at once, so that what is published meets the new queue, and the backups both.
        self._orders.extend(("delete", "declare") if fields["op"] == "replace" else (fields["op"],))
        self._next_order()

    def greeting(self) -> Greeting:
        return [(amqp.channel_open(), amqp.CHANNEL_OK), *self.declarations(self.simulation.topology)]

    def ready(self) -> None:
        self._ready = True
        self._next_order()

    def disconnected(self) -> None:
        # What had no answer may be done or not, now or when its octets arrive.
        self._doing = ""
        self._there = self._ready = False

    def _next_order(self) -> None:
        if not self._ready or self._doing or not self._orders:
            return
        self._doing = op = self._orders.popleft()
        if op == "purge" and not self._there:
            self._orders.appendleft(op)
            self._doing = op = "declare"
        self.history.scrap.begun(op)
        make = {"declare": amqp.declare, "purge": amqp.purge, "delete": amqp.delete}[op]
        self.send(make("scrap"))
        self.flush()

    def method(self, method: int, payload: bytes) -> None:
        expected = {"declare": amqp.DECLARE_OK, "purge": amqp.PURGE_OK, "delete": amqp.DELETE_OK}.get(self._doing)
        if method != expected:
            raise Violation(f"{self.name}: unexpected method {method:#x}")
        self.history.scrap.done(self._doing, self.ballot)
        self._there = self._doing != "delete"
        self._doing = ""
        self._next_order()

    def refused(self, text: str) -> None:
        """The queue is not there: an unanswered deletion was carried out after all."""
        if not text.startswith("NOT_FOUND"):
            super().refused(text)
        self.lost(text)
