"""The configuration of one virtual host as a state that can be logged, replayed, listed and compared.

Theory.  Each change of a replicated object is one *operation*: a field table with the entry "op".  On the primary
`VHost` decides, appends the operation to the log and changes the state through the mutators below; on a backup `apply`
does the same with what arrives (`configurations.py` finds the virtual host).  Every look-up is one in dictionaries of
this virtual host, so it finds nothing of another one.  A backup never decides: deletions that follow from others
(auto-delete) are operations of their own; only the bindings of a deleted object go with it on both sides.

* `operations.py` makes them, `operation_rules.py` checks them; `adoption.py` makes configurations equal to a snapshot.
* The *uid* of an object is the position of the operation that made it.  Same name and other uid is another object.
* Objects of level "none" are local: position 0, never in an operation or a snapshot.
* Queue numbers come from one counter of the broker, are part of the operation, and are never used twice; the counter is
  part of the snapshot, so that a promoted backup continues after the numbers of queues that it never saw.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Final, Protocol

from qpidd_py.broker.arguments import REPLICATE
from qpidd_py.broker.common import Common
from qpidd_py.broker.debris import CHANGE, Debris, Destination
from qpidd_py.broker.delayed import make_exchange
from qpidd_py.broker.effects import Effects
from qpidd_py.broker.exchange import FAILOVER, PREDECLARED, Binding, Exchange, binding_key, has_queue
from qpidd_py.broker.numbering import NUMBER, Numbers
from qpidd_py.broker.operations import Operation, octets
from qpidd_py.broker.policies import Policies
from qpidd_py.broker.policy_keys import EXCHANGES, QUEUES
from qpidd_py.broker.queue import DeclaredQueue, Effect, limit
from qpidd_py.broker.shadow import give_queue, queue_name
from qpidd_py.core.engine import Engine
from qpidd_py.errors import LinkError

log = logging.getLogger(__name__)

Cancelled = list[tuple[Any, int, str]]
"""Consumers that a deletion ended: connection, channel, tag."""


class Observer(Protocol):
    """Is told of queues, on a primary and on a backup."""

    def queue_created(self, queue: DeclaredQueue) -> None: ...

    def queue_limited(self, queue: DeclaredQueue) -> None: ...

    def queue_dropped(self, queue: DeclaredQueue, cancelled: Cancelled) -> None: ...

    def delays(self, exchange: Exchange, queue: DeclaredQueue) -> None: ...


class Configuration:
    """Exchanges, queues and bindings of one virtual host."""

    def __init__(
        self, engine: Engine, host: str, common: Common, observe: Callable[["Configuration"], Observer]
    ) -> None:
        """`observe`: gives the observer; it is called before anything is here."""
        self._engine = engine
        self.host = host
        self.common = common
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, DeclaredQueue] = {}
        self.links = 0  # counts changes of exchanges and of bindings between them
        self._sources: dict[Destination, dict[Exchange, None]] = {}  # those that are gone, too, until they are cleared
        self.events = common.events.of(host)
        self.records = common.records
        self.settings = common.settings
        self.debris = Debris(self.records, self._unlink)
        self._alternates: Counter[str] = Counter()  # name -> exchanges and queues that have it, there or not
        policies = Policies(self.settings, host)
        for name, kind in PREDECLARED.items():
            exchange = self.exchanges[name] = make_exchange(kind, name, True, False, name == FAILOVER, {})
            exchange.take(policies.effect(EXCHANGES, name, {}))
            self._count(exchange.alternate, 1)
        self._observer = observe(self)
        self.effects = Effects(engine, policies, self.queues, self.exchanges, self._observer, self._redirect)

    # ------------------------------------------------------------ mutators, both on a primary and on a backup

    def create_queue(self, operation: Operation, number: int, position: int, payload: bytes) -> DeclaredQueue:
        """`operation` as of "queue.declare"; `position` 0 makes it local."""
        arguments = operation["arguments"]
        kept = position > 0 and arguments[REPLICATE] == "all"
        core = self._engine.create_queue(number, operation["name"], kept, self.host)
        effect = self.effects.policies.effect(QUEUES, operation["name"], arguments)
        limit(core, effect.arguments, str(operation.get("secret", "")))
        flags = operation["durable"], operation["exclusive"], operation["auto_delete"]
        queue = DeclaredQueue(core, *flags, arguments, effect)
        queue.position = position
        self.records.put(position, payload)
        core.owner = queue
        queue.user = str(operation.get("user", ""))  # an operation of an older version has none
        self.queues[queue.name] = queue
        self.common.came(queue.user)
        self._count(queue.alternate, 1)
        self._observer.queue_created(queue)
        durable, exclusive, auto_delete = flags
        known = {"durable": durable, "exclusive": exclusive, "auto_delete": auto_delete, "user": queue.user}
        self.events.note("queueDeclare", queue=queue.name, **known)
        return queue

    def create_local_queue(self, operation: Operation) -> DeclaredQueue:
        """A queue that is not replicated."""
        return self.create_queue(operation, self.common.take_local_number(), 0, b"")

    def note_used(self, queue: DeclaredQueue, position: int, payload: bytes) -> None:
        """`payload`: the operation "queue.used", its first consumer."""
        self.records.drop(queue.used_position)
        queue.used_position = position
        self.records.put(position, payload)

    def drop_queue(self, queue: DeclaredQueue) -> None:
        """Deletes the queue with its messages and bindings."""
        self._unbind_all(queue)
        del self.queues[queue.name]
        self.records.drop(queue.position)
        self.records.drop(queue.used_position)
        self.common.went(queue.user)
        self._count(queue.alternate, -1)
        cancelled = self._engine.delete_queue(queue.core)  # forgets the routes too
        self._observer.queue_dropped(queue, cancelled)
        self.events.note("queueDelete", queue=queue.name)

    def create_exchange(self, operation: Operation, position: int, payload: bytes) -> Exchange:
        """`operation` as of "exchange.declare"."""
        exchange = make_exchange(
            operation["type"],
            operation["name"],
            operation["durable"],
            operation["auto_delete"],
            operation["internal"],
            operation["arguments"],
        )
        exchange.position = position
        exchange.take(self.effects.policies.effect(EXCHANGES, exchange.name, exchange.arguments))
        self.records.put(position, payload)
        if has_queue(exchange.type, exchange.arguments):
            self._give_queue(exchange, operation)
        if exchange.numbering:
            exchange.numbers = Numbers(exchange.name, self.records, position > 0, self.host)
        self.exchanges[exchange.name] = exchange
        self.links += 1
        self._count(exchange.alternate, 1)
        if self.is_alternate(exchange.name):
            self._engine.forget_routes()
        flags = {"durable": operation["durable"], "auto_delete": operation["auto_delete"]}
        self.events.note("exchangeDeclare", exchange=exchange.name, type=exchange.type, **flags)
        return exchange

    def _give_queue(self, exchange: Exchange, operation: Operation) -> None:
        """See `Exchange.own_queue`."""
        number, level = operation.get("number"), exchange.level
        if not exchange.position or number is None:
            number = self.common.take_local_number()
        kept = bool(exchange.position) and level == "all"
        core = self._engine.create_queue(number, queue_name(exchange), kept, self.host)
        queue = give_queue(exchange, core, str(operation.get("secret", "")))
        if exchange.waiting is not None:
            self._observer.delays(exchange, queue)

    def own_queues(self) -> list[DeclaredQueue]:
        """Those of exchanges."""
        return [queue for exchange in self.exchanges.values() if (queue := exchange.own_queue) is not None]

    def all_queues(self) -> list[DeclaredQueue]:
        """Those with names, and those of exchanges."""
        return [*self.queues.values(), *self.own_queues()]

    def numbers(self) -> list[Numbers]:
        """Those of exchanges that number their messages."""
        return [exchange.numbers for exchange in self.exchanges.values() if exchange.numbers is not None]

    def drop_exchange(self, exchange: Exchange) -> None:
        """Deletes the exchange with all bindings from it and to it, and its own queue with the messages."""
        if (queue := exchange.own_queue) is not None:
            self._engine.delete_queue(queue.core)
            exchange.waiting = exchange.shadow = None
        linked = exchange.onward or self.sources(exchange)
        self._unbind_all(exchange)
        tables, exchange.tables, exchange.size = exchange.tables, {}, 0
        self.debris.add(exchange, tables)
        del self.exchanges[exchange.name]
        self.records.drop(exchange.position)
        if exchange.numbers is not None:
            self.records.drop(exchange.numbers.position)
        self._count(exchange.alternate, -1)
        self.links += 1
        self._engine.forget_routes(None if linked else exchange.mark)  # linked: others may ask for headers no longer
        self.events.note("exchangeDelete", exchange=exchange.name)

    def _redirect(self, exchange: Exchange, effect: Effect) -> None:
        """By a policy; the caller forgets the routes."""
        self._count(exchange.alternate, -1)
        exchange.take(effect)
        self._count(exchange.alternate, 1)
        self.links += 1

    def _count(self, alternate: str | None, change: int) -> None:
        if alternate is not None:
            self._alternates[alternate] += change
            if not self._alternates[alternate]:
                del self._alternates[alternate]

    def is_alternate(self, name: str) -> bool:
        """Whether some exchange or queue has it as its alternate."""
        return name in self._alternates

    def create_binding(self, binding: Binding, position: int, payload: bytes) -> None:
        binding.position = position
        self.records.put(position, payload)
        self.debris.clear(CHANGE)
        binding.source.add(binding)
        self._sources.setdefault(binding.destination, {})[binding.source] = None
        self.links += isinstance(binding.destination, Exchange)
        to_queue = isinstance(binding.destination, DeclaredQueue)
        self._engine.forget_routes(binding.source.gains(binding) if to_queue else None)
        self._note("bind", binding)

    def drop_binding(self, binding: Binding) -> None:
        source, left = binding.source, binding.destination
        source.remove(binding)
        self.records.drop(binding.position)
        if left not in source.tables:
            self._unlink(source, left)
        self.links += isinstance(left, Exchange)
        self._engine.forget_routes(left.core if isinstance(left, DeclaredQueue) else None)
        self._shifted(source)
        self._note("unbind", binding)

    def _note(self, event: str, binding: Binding) -> None:
        key = binding.routing_key.decode("utf-8", "backslashreplace")
        self.events.note(event, exchange=binding.source.name, destination=binding.destination.name, key=key)

    def _unbind_all(self, gone: DeclaredQueue | Exchange) -> None:
        """All bindings to what is deleted leave the tables at once, and the indexes later."""
        gone.gone = True
        for source in self.sources(gone):
            self.debris.add(source, {gone: source.lose(gone)})
            self._shifted(source)
        self._sources.pop(gone, None)

    def _shifted(self, source: Exchange) -> None:
        if source.shifts:
            self._engine.forget_routes(source.mark)

    def _unlink(self, source: Exchange, destination: Destination) -> None:
        sources = self._sources.get(destination)
        if sources is not None:
            sources.pop(source, None)
            if not sources:
                del self._sources[destination]

    def sources(self, destination: Destination) -> list[Exchange]:
        """The exchanges with bindings to a queue or an exchange, without itself if it is gone."""
        return [source for source in self._sources.get(destination, ()) if not source.gone]

    def bindings(self) -> Iterable[Binding]:
        return chain.from_iterable(exchange.bindings() for exchange in self.exchanges.values())

    def clear(self) -> None:
        """The virtual host is deleted, with all that is left in it; the debris is cleared away later."""
        for queue in list(self.queues.values()):
            self.drop_queue(queue)
        for exchange in list(self.exchanges.values()):
            self.drop_exchange(exchange)

    # ------------------------------------------------------------ a backup follows the log

    def apply(self, operation: Operation, position: int, payload: bytes) -> None:
        """An operation about this virtual host, which has been checked.  Raises LinkError."""
        _APPLY[operation["op"]](self, operation, position, payload)

    def _apply_queue(self, operation: Operation, position: int, payload: bytes) -> None:
        existing = self.queues.get(operation["name"])
        if existing is not None:
            if existing.position == position:
                return
            log.warning("queue %r of %d replaces that of %d", existing.name, position, existing.position)
            self.drop_queue(existing)
        if operation["number"] in self._engine.queues:
            raise LinkError(f"queue {operation['name']!r}: number {operation['number']} is that of another queue")
        self.create_queue(operation, operation["number"], position, payload)
        self.common.next_number = max(self.common.next_number, operation["number"] + 1)

    def _apply_queue_delete(self, operation: Operation, position: int, payload: bytes) -> None:
        queue = self.queues.get(operation["name"])
        if queue is not None and queue.number == operation["number"]:
            self.drop_queue(queue)

    def _apply_used(self, operation: Operation, position: int, payload: bytes) -> None:
        queue = self.queues.get(operation["name"])
        if queue is not None:
            self.note_used(queue, position, payload)

    def _apply_exchange(self, operation: Operation, position: int, payload: bytes) -> None:
        existing = self.exchanges.get(operation["name"])
        if existing is not None:
            if existing.position == position:
                return
            log.warning("exchange %r of %d replaces that of %d", existing.name, position, existing.position)
            self.drop_exchange(existing)
        number = operation.get("number", 0)
        if number in self._engine.queues:
            raise LinkError(f"exchange {operation['name']!r}: number {number} is that of another queue")
        self.create_exchange(operation, position, payload)
        self.common.next_number = max(self.common.next_number, number + 1)

    def _apply_exchange_delete(self, operation: Operation, position: int, payload: bytes) -> None:
        exchange = self.exchanges.get(operation["name"])
        if exchange is not None and exchange.position:
            self.drop_exchange(exchange)

    def _apply_number(self, operation: Operation, position: int, payload: bytes) -> None:
        exchange = self.exchanges.get(operation["name"])
        if exchange is not None and exchange.numbers is not None:
            exchange.numbers.note(operation["last"], position, payload)

    def _apply_bind(self, operation: Operation, position: int, payload: bytes) -> None:
        source, destination = self._ends(operation)
        if source is None or destination is None:
            log.warning("binding at %d has no end here: %r", position, operation)
            return
        binding = Binding(source, destination, octets(operation["key"]), operation["arguments"])
        existing = source.find(destination, binding.key)
        if existing is not None:  # of this broker only until now; its place may depend on its position
            self.drop_binding(existing)
        self.create_binding(binding, position, payload)

    def _apply_unbind(self, operation: Operation, position: int, payload: bytes) -> None:
        source, destination = self._ends(operation)
        if source is not None and destination is not None:
            key = binding_key(source, destination, octets(operation["key"]), operation["arguments"])
            existing = source.find(destination, key)
            if existing is not None:
                self.drop_binding(existing)

    def _ends(self, operation: Operation) -> tuple[Exchange | None, DeclaredQueue | Exchange | None]:
        table: Mapping[str, DeclaredQueue | Exchange] = self.exchanges if operation["exchange"] else self.queues
        return self.exchanges.get(operation["source"]), table.get(operation["destination"])

    def positions(self) -> list[int]:
        """Of the operations that made what there is: also while records are left of what is not there any more."""
        found = [queue.position for queue in self.queues.values()]
        found += [queue.used_position for queue in self.queues.values()]
        found += [exchange.position for exchange in self.exchanges.values()]
        found += [numbers.position for numbers in self.numbers()]
        found += [binding.position for binding in self.bindings()]
        return [position for position in found if position]


_APPLY: Final[dict[str, Callable[[Configuration, Operation, int, bytes], None]]] = {
    "queue.declare": Configuration._apply_queue,
    "queue.delete": Configuration._apply_queue_delete,
    "queue.used": Configuration._apply_used,
    "exchange.declare": Configuration._apply_exchange,
    "exchange.delete": Configuration._apply_exchange_delete,
    NUMBER: Configuration._apply_number,
    "bind": Configuration._apply_bind,
    "unbind": Configuration._apply_unbind,
}
