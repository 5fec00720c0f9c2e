"""The virtual host "/": the rules of AMQP for exchanges, queues and bindings, and routing.

Every method that changes something answers the log position that its reply has to wait for; 0 = none.  A repeated
declaration waits for the first one's position too: the object may not be safe yet.

`passive` is True while this broker is a backup: clients (only administration gets that far) may use objects that are
not replicated; what is replicated belongs to the log, and nothing is appended to it here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from qpidd_py.amqp.codec import decode_headers
from qpidd_py.amqp.fields import encode_table
from qpidd_py.broker.arguments import (
    REPLICATE,
    check_exchange_arguments,
    check_queue_arguments,
    first_difference,
    queue_level,
)
from qpidd_py.broker.configuration import (
    Cancelled,
    Configuration,
    Operation,
    binding_operation,
    exchange_operation,
    queue_operation,
)
from qpidd_py.broker.exchange import EXCHANGE_TYPES, Binding, Exchange
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.core.engine import Engine, Route
from qpidd_py.core.queue import Queue
from qpidd_py.errors import ChannelException, ConnectionException, InvariantError, ReplyCode

MANAGEMENT: Final = "qpid.management"
"""The pseudo exchange and pseudo queue of management requests."""

Handler = Callable[[Any, int, bytes, bytes, bytes, bytes], None]


def refuse(code: ReplyCode, text: str) -> ChannelException:
    """A channel exception; its class and method are those of the method that is being handled."""
    return ChannelException(code, text)


class VHost(Configuration):
    """What sessions call."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.default_replicate = "none"
        self.passive = False
        self.changed = 0  # position of the newest operation of ours
        self.internal_exchanges: dict[str, Handler] = {}
        self._exclusive: dict[object, dict[str, DeclaredQueue]] = {}  # by session
        self._expiring: dict[str, DeclaredQueue] = {}

    def _log(self, operation: Operation) -> tuple[int, bytes]:
        if self.passive:
            raise InvariantError(f"a backup decides {operation['op']}")
        payload = encode_table(operation)
        self.changed = self.engine.log_config(payload)
        return self.changed, payload

    # ------------------------------------------------------------ queues

    def find_queue(self, name: str, session: object) -> DeclaredQueue:
        """Raises 404, 405 if it is exclusive to another connection, 403 if it is not ours to touch."""
        queue = self.queues.get(name)
        if queue is None:
            raise refuse(ReplyCode.NOT_FOUND, f"no queue '{name}' in vhost '/'")
        if queue.exclusive and queue.owner is not session:
            text = f"cannot obtain exclusive access to locked queue '{name}' in vhost '/'"
            raise refuse(ReplyCode.RESOURCE_LOCKED, text)
        self._check_ours(queue, f"queue '{name}'")
        return queue

    def _check_ours(self, item: DeclaredQueue | Exchange, what: str) -> None:
        if self.passive and item.position:
            raise refuse(ReplyCode.ACCESS_REFUSED, f"{what} is replicated and this broker is a backup")

    def declare_queue(
        self,
        session: object,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Mapping[str, Any],
    ) -> tuple[DeclaredQueue, int]:
        """The queue, new or found equal, and the position to wait for."""
        if name in self.queues:
            return self._redeclare_queue(session, name, durable, exclusive, auto_delete, arguments)
        if name.startswith("amq.") and not name.startswith("amq.gen-"):
            raise refuse(ReplyCode.ACCESS_REFUSED, f"queue name '{name}' contains reserved prefix 'amq.*'")
        if name == MANAGEMENT:
            raise refuse(ReplyCode.ACCESS_REFUSED, f"queue name '{name}' is reserved")
        if arguments:
            check_queue_arguments(arguments, f"queue '{name}' in vhost '/'")
        level = queue_level(arguments, exclusive and auto_delete, self.default_replicate)
        operation = queue_operation(name, 0, durable, exclusive, auto_delete, {**arguments, REPLICATE: level})
        queue = self._new_queue(operation, level)
        if exclusive:
            queue.owner = session
            self._exclusive.setdefault(session, {})[name] = queue
        if queue.expires is not None:
            self._expiring[name] = queue
        return queue, queue.position

    def _new_queue(self, operation: Operation, level: str) -> DeclaredQueue:
        if level == "none":
            self.next_local += 1
            return self.create_queue(operation, self.next_local, 0, b"")
        if self.passive:
            text = f"queue '{operation['name']}' would be replicated and this broker is a backup"
            raise refuse(ReplyCode.ACCESS_REFUSED, text)
        operation["number"] = number = self.next_number
        self.next_number += 1
        position, payload = self._log(operation)
        return self.create_queue(operation, number, position, payload)

    def _redeclare_queue(
        self,
        session: object,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Mapping[str, Any],
    ) -> tuple[DeclaredQueue, int]:
        queue = self.find_queue(name, session)
        what = f"queue '{name}' in vhost '/'"
        check_queue_arguments(arguments, what)
        wanted = {"durable": durable, "exclusive": exclusive, "auto_delete": auto_delete, **arguments}
        level = wanted.pop(REPLICATE, queue.level)
        first_difference(what, wanted, queue.properties())
        first_difference(what, {REPLICATE: level}, {REPLICATE: queue.level})
        queue.idle_since = None
        return queue, queue.position

    def delete_queue(self, session: object, name: str, if_unused: bool, if_empty: bool) -> tuple[int, int]:
        """How many messages went with it, and the position to wait for.  Deleting what is not there is no error, so
        that a client may repeat a deletion whose answer it lost."""
        if name not in self.queues:
            return 0, self.changed
        queue = self.find_queue(name, session)
        if if_unused and queue.core.consumer_count:
            raise refuse(ReplyCode.PRECONDITION_FAILED, f"queue '{name}' in vhost '/' in use")
        if if_empty and queue.core.ready + queue.core.unacked:
            raise refuse(ReplyCode.PRECONDITION_FAILED, f"queue '{name}' in vhost '/' not empty")
        count = queue.core.ready
        self.remove_queue(queue)
        return count, self.changed if queue.position else 0

    def remove_queue(self, queue: DeclaredQueue) -> None:
        """Deletes without asking; auto-delete exchanges that lose their last binding go too."""
        if queue.position:
            self._log({"op": "queue.delete", "name": queue.name, "number": queue.number})
        sources = {binding.source for binding in queue.incoming.values()}
        self.drop_queue(queue)
        self._collect(sources)

    def drop_queue(self, queue: DeclaredQueue) -> Cancelled:
        """Consumers are told, whoever decided."""
        cancelled = super().drop_queue(queue)
        self._expiring.pop(queue.name, None)
        if queue.owner is not None:
            self._exclusive.get(queue.owner, {}).pop(queue.name, None)
        for session, channel, tag in cancelled:
            session.consumer_cancelled(channel, tag)
        return cancelled

    def purge_queue(self, session: object, name: str) -> int:
        """How many messages went."""
        queue = self.find_queue(name, session)
        count: int = self.engine.purge(queue.core)
        return count

    # ------------------------------------------------------------ what consumers and connections do to queues

    def consumer_added(self, queue: DeclaredQueue) -> None:
        """After promotion an auto-delete queue that had been used goes, one that waits for its first user stays."""
        queue.idle_since = None
        if queue.auto_delete and queue.position and not queue.used_position:
            queue.used_position, queue.used_payload = self._log({"op": "queue.used", "name": queue.name})

    def consumers_gone(self, queues: Iterable[Queue]) -> None:
        """Each lost a consumer; auto-delete ones go with their last.  On a former primary the log decides."""
        for core in queues:
            queue = core.owner
            if core.deleted or not isinstance(queue, DeclaredQueue) or core.consumer_count:
                continue
            queue.idle_since = None
            queue.consumed_exclusively = False
            if queue.auto_delete and not (self.passive and queue.position):
                self.remove_queue(queue)

    def session_gone(self, session: object) -> None:
        """Its exclusive queues go.  On a former primary the replicated ones stay until the new one says so."""
        for queue in list(self._exclusive.pop(session, {}).values()):
            queue.owner = None
            if not (self.passive and queue.position):
                self.remove_queue(queue)

    def on_promoted(self) -> None:
        """This broker is primary now: the clients of the old one are gone, with what depended on them."""
        for queue in list(self.queues.values()):
            orphan = queue.exclusive and queue.owner is None
            used_up = queue.auto_delete and queue.used_position and not queue.core.consumer_count
            if queue.position and (orphan or used_up) and self.queues.get(queue.name) is queue:
                self.remove_queue(queue)
        self._expiring = {name: queue for name, queue in self.queues.items() if queue.expires is not None}
        self.engine.forget_routes()

    def tick(self, now: float) -> None:
        """Deletes what was idle for its `x-expires`; `now` in seconds."""
        for queue in list(self._expiring.values()):
            expires = queue.expires
            if queue.core.consumer_count or expires is None or (self.passive and queue.position):
                queue.idle_since = None
            elif queue.idle_since is None:
                queue.idle_since = now
            elif now - queue.idle_since >= expires:
                self.remove_queue(queue)

    # ------------------------------------------------------------ exchanges

    def find_exchange(self, name: str) -> Exchange:
        """Raises 404."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise refuse(ReplyCode.NOT_FOUND, f"no exchange '{name}' in vhost '/'")
        return exchange

    def declare_exchange(
        self, name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: Mapping[str, Any]
    ) -> int:
        """The position to wait for."""
        if kind not in EXCHANGE_TYPES:
            raise ConnectionException(ReplyCode.COMMAND_INVALID, f"unknown exchange type '{kind}'")
        what = f"exchange '{name}' in vhost '/'"
        check_exchange_arguments(arguments, what)
        wanted = {"type": kind, "durable": durable, "auto_delete": auto_delete, "internal": internal, **arguments}
        level = str(wanted.pop(REPLICATE, self.default_replicate))
        existing = self.exchanges.get(name)
        if existing is not None:
            self._check_ours(existing, what)
            first_difference(what, wanted, existing.properties())
            if REPLICATE in arguments:
                first_difference(what, {REPLICATE: level}, {REPLICATE: existing.level})
            return existing.position
        self._check_name(name)
        operation = exchange_operation(name, kind, durable, auto_delete, internal, {**arguments, REPLICATE: level})
        if level == "none":
            return self.create_exchange(operation, 0, b"").position
        if self.passive:
            raise refuse(ReplyCode.ACCESS_REFUSED, f"{what} would be replicated and this broker is a backup")
        return self.create_exchange(operation, *self._log(operation)).position

    def _check_name(self, name: str) -> None:
        if name.startswith("amq."):
            raise refuse(ReplyCode.ACCESS_REFUSED, f"exchange name '{name}' contains reserved prefix 'amq.*'")
        if name in self.internal_exchanges:
            raise refuse(ReplyCode.ACCESS_REFUSED, f"exchange name '{name}' is reserved")

    def delete_exchange(self, name: str, if_unused: bool) -> int:
        """The position to wait for; what is not there is no error (see `delete_queue`)."""
        exchange = self.exchanges.get(name)
        if name == "" or name in self.internal_exchanges or (exchange is not None and exchange.predeclared):
            raise refuse(ReplyCode.ACCESS_REFUSED, f"exchange '{name}' in vhost '/' cannot be deleted")
        if exchange is None:
            return self.changed
        self._check_ours(exchange, f"exchange '{name}'")
        if if_unused and exchange.bindings:
            raise refuse(ReplyCode.PRECONDITION_FAILED, f"exchange '{name}' in vhost '/' in use")
        self._remove_exchange(exchange)
        return self.changed if exchange.position else 0

    def _remove_exchange(self, exchange: Exchange) -> None:
        if exchange.position:
            self._log({"op": "exchange.delete", "name": exchange.name})
        sources = {binding.source for binding in exchange.incoming.values()} - {exchange}
        self.drop_exchange(exchange)
        self._collect(sources)

    def _collect(self, sources: Iterable[Exchange]) -> None:
        """Auto-delete exchanges go with their last binding.  (In order of their names: a set has none.)"""
        for exchange in sorted(sources, key=lambda item: item.name):
            left = exchange.auto_delete and not exchange.bindings and self.exchanges.get(exchange.name) is exchange
            if left and not (self.passive and exchange.position):
                self._remove_exchange(exchange)

    # ------------------------------------------------------------ bindings

    def bind(
        self, source: str, destination: DeclaredQueue | Exchange, routing_key: bytes, arguments: Mapping[str, Any]
    ) -> int:
        """The position to wait for."""
        exchange = self._bindable(source, destination)
        binding = Binding(exchange, destination, routing_key, dict(arguments))
        existing = exchange.bindings.get(binding.key)
        if existing is not None:
            return existing.position
        if exchange.replicated and destination.replicated and arguments.get(REPLICATE) != "none":
            self.create_binding(binding, *self._log(binding_operation("bind", binding.key, arguments)))
        else:
            self.create_binding(binding, 0, b"")
        return binding.position

    def unbind(
        self, source: str, destination: DeclaredQueue | Exchange, routing_key: bytes, arguments: Mapping[str, Any]
    ) -> int:
        """The position to wait for; a binding that is not there is no error (see `delete_queue`)."""
        exchange = self._bindable(source, destination)
        binding = exchange.bindings.get(Binding(exchange, destination, routing_key, arguments).key)
        if binding is None:
            return self.changed
        if binding.position:
            self._log(binding_operation("unbind", binding.key, arguments))
        self.drop_binding(binding)
        self._collect([exchange])
        return self.changed if binding.position else 0

    def _bindable(self, source: str, destination: DeclaredQueue | Exchange) -> Exchange:
        if source == "" or (isinstance(destination, Exchange) and destination.name == ""):
            raise refuse(ReplyCode.ACCESS_REFUSED, "operation not permitted on the default exchange")
        exchange = self.find_exchange(source)
        if isinstance(destination, Exchange):
            self._check_ours(destination, f"exchange '{destination.name}'")
        return exchange

    # ------------------------------------------------------------ routing

    def route(self, exchange_name: bytes, routing_key: bytes) -> Route:
        """Where a message goes; the core keeps the answer until `forget_routes`.  Raises 404, 403."""
        if exchange_name == b"":
            return self._default_route(routing_key)
        name = exchange_name.decode("utf-8", "replace")
        handler = self.internal_exchanges.get(name)
        if handler is not None:
            return Route([], handler=handler)
        exchange = self.find_exchange(name)
        if exchange.internal:
            raise refuse(ReplyCode.ACCESS_REFUSED, f"cannot publish to internal exchange '{name}' in vhost '/'")
        if self._needs_headers(exchange):
            return Route([], by_header=lambda header: self._by_header(exchange, routing_key, header))
        return Route(self._permitted(self._destinations(exchange, routing_key, {})))

    def _default_route(self, routing_key: bytes) -> Route:
        """The default exchange: the queue of that name."""
        queue = self.queues.get(routing_key.decode("utf-8", "replace"))
        if queue is None:
            self.routes_missed = True
            return Route([])
        return Route(self._permitted([queue.core]))

    def _permitted(self, queues: list[Queue]) -> list[Queue]:
        if self.passive:
            for queue in queues:
                if isinstance(queue.owner, DeclaredQueue):
                    self._check_ours(queue.owner, f"queue '{queue.name}'")
        return queues

    def _by_header(self, exchange: Exchange, routing_key: bytes, header: bytes) -> list[Queue]:
        """Asked by the core for each message.  Raises 502 for a header that cannot be read."""
        return self._permitted(self._destinations(exchange, routing_key, decode_headers(header)))

    def _needs_headers(self, start: Exchange) -> bool:
        """Whether a message to `start` can meet a headers exchange."""
        return any(exchange.by_header for exchange in self._reachable(start))

    def _reachable(self, start: Exchange) -> Iterator[Exchange]:
        seen, waiting = {start.name}, [start]
        while waiting:
            exchange = waiting.pop()
            yield exchange
            following = [b.destination for b in exchange.bindings.values() if isinstance(b.destination, Exchange)]
            alternate = self.exchanges.get(exchange.alternate) if exchange.alternate is not None else None
            for item in (*following, *([alternate] if alternate else [])):
                if item.name not in seen:
                    seen.add(item.name)
                    waiting.append(item)

    def _destinations(self, start: Exchange, routing_key: bytes, headers: Mapping[str, Any]) -> list[Queue]:
        """Each queue once, in order of discovery.  An exchange where nothing matches hands on to its alternate."""
        queues: dict[Queue, None] = {}
        seen, waiting = {start.name}, [start]
        while waiting:
            exchange = waiting.pop()
            for item in self._next(exchange, routing_key, headers):
                if isinstance(item, DeclaredQueue):
                    queues[item.core] = None
                elif item.name not in seen:
                    seen.add(item.name)
                    waiting.append(item)
        return list(queues)

    def _next(
        self, exchange: Exchange, routing_key: bytes, headers: Mapping[str, Any]
    ) -> list[DeclaredQueue | Exchange]:
        if exchange.name == "":  # as an alternate
            queue = self.queues.get(routing_key.decode("utf-8", "replace"))
            self.routes_missed = self.routes_missed or queue is None
            return [queue] if queue else []
        found = [binding.destination for binding in exchange.matching(routing_key, headers)]
        if not found and exchange.alternate is not None and exchange.alternate in self.exchanges:
            return [self.exchanges[exchange.alternate]]
        return found
