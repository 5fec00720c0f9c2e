"""A virtual host: the rules of AMQP for exchanges and queues; those for bindings are in `bindings`.

Every method that changes something returns the log position that its reply has to wait for; 0 = none.  A repeated
declaration waits, too, for an operation of its own turn (`OperationLog.unchanged`).

`Engine.passive` is True while this broker is a backup: clients (a backup admits only administrative ones) may use
objects that are not replicated; replicated objects follow the log, and nothing is appended to it here.

`VHost` decides; its `Configuration` holds the state, and its `RoutingTable` says where a message goes.
"""

import logging
from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final

from qpidd_py.broker.access import check_free, check_ours, find_exchange, refuse
from qpidd_py.broker.arguments import (
    AT_LEAST_ONCE,
    DEAD_LETTER_STRATEGY,
    DEDUPLICATION,
    DELIVERY_LIMIT,
    QUEUE_TYPE,
    REPLICATE,
    check_delayed_type,
    check_exchange_arguments,
    check_queue_arguments,
    check_type,
    compared,
    delivery_limit,
    first_difference,
    keeps_letters,
    queue_level,
)
from qpidd_py.broker.bindings import Bindings
from qpidd_py.broker.common import Rules
from qpidd_py.broker.configuration import Cancelled, Configuration
from qpidd_py.broker.debris import TICK
from qpidd_py.broker.deduplication import SECRET_SIZE
from qpidd_py.broker.depths import Depths
from qpidd_py.broker.endings import Endings
from qpidd_py.broker.exchange import DELAYED, EXCHANGE_TYPES, Exchange, has_queue, repeated
from qpidd_py.broker.limits import check_queues
from qpidd_py.broker.operation_log import OperationLog
from qpidd_py.broker.operations import Operation, exchange_operation, queue_operation
from qpidd_py.broker.policy_keys import EXCHANGES, QUEUES
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.quotas import Quotas
from qpidd_py.broker.routing import MANAGEMENT, Handler, RoutingTable
from qpidd_py.core.engine import Engine
from qpidd_py.core.routes import Route
from qpidd_py.errors import ConnectionException, ReplyCode
from qpidd_py.logrules import Floods

log = logging.getLogger(__name__)

_LOCKED: Final = (
    "cannot obtain exclusive access to locked queue '{}' in vhost '{}'. It could be originally declared on another "
    "connection or the exclusive property value does not match that of the original declaration."
)


def _secret(arguments: Mapping[str, Any]) -> str:
    """Of what remembers keys (`deduplication.py`); empty for others."""
    return token_hex(SECRET_SIZE) if arguments.get(DEDUPLICATION) else ""


class VHost:
    """One virtual host as connections use it.  Nothing here leads to another one (`vhosts.py` has all)."""

    def __init__(
        self, engine: Engine, configuration: Configuration, rules: Rules, internal: Mapping[str, Handler], number: int
    ) -> None:
        """`internal`: see `RoutingTable`; `number`: for `Connection.host`, never given twice, 0 for `/`."""
        self.name = configuration.host
        self.number = number
        self.rules = rules
        self.engine = engine
        self.configuration = configuration
        self.quotas = Quotas(self.configuration.settings)
        self.routing = RoutingTable(engine, self.configuration, internal)
        self.exchanges: Mapping[str, Exchange] = self.configuration.exchanges
        self.queues: Mapping[str, DeclaredQueue] = self.configuration.queues
        self.floods = Floods(log)
        self.operation_log = OperationLog(engine, self.name)
        self.endings = Endings(engine, self.configuration, self.operation_log, self.routing)
        self.bindings = Bindings(engine, self.configuration, self.operation_log, self.endings, self.routing, rules)
        self.depths = Depths(self.endings, self.floods, rules)

    def called(self, kind: str, name: str) -> str:
        """A queue or exchange (`kind`) as texts name it."""
        return f"{kind} '{name}' in vhost '{self.name}'"

    # ------------------------------------------------------------ queues

    def find_queue(self, name: str, connection: object) -> DeclaredQueue:
        """Raises 404, 405 if it is exclusive to another connection, 403 if access is not allowed."""
        queue = self._present(name)
        if queue is None:
            raise refuse(ReplyCode.NOT_FOUND, f"no queue '{name}' in vhost '{self.name}'")
        if queue.exclusive and queue.owner is not connection:
            raise refuse(ReplyCode.RESOURCE_LOCKED, _LOCKED.format(name, self.name))
        check_ours(queue, f"queue '{name}'", self.engine.passive)
        return queue

    def _present(self, name: str) -> DeclaredQueue | None:
        """The queue of that name, unless it should be gone."""
        queue = self.queues.get(name)
        if queue is not None and queue.ending:
            self.endings.finish(queue)
            queue = self.queues.get(name)
        return queue

    def declare_queue(
        self,
        connection: object,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Mapping[str, Any],
    ) -> tuple[DeclaredQueue, int]:
        """The queue, new or found equal, and the position to wait for.  `connection`: None for the broker itself."""
        if self._present(name) is not None:
            return self._redeclare_queue(connection, name, durable, exclusive, auto_delete, arguments)
        if connection is not None and name.startswith("amq.") and not name.startswith("amq.gen-"):
            raise refuse(ReplyCode.ACCESS_REFUSED, f"queue name '{name}' contains reserved prefix 'amq.*'")
        if name == MANAGEMENT:
            raise refuse(ReplyCode.ACCESS_REFUSED, f"queue name '{name}' is reserved")
        if arguments:
            check_queue_arguments(arguments, self.called("queue", name))
        level = queue_level(arguments, exclusive, self._default_level(QUEUES, name))
        if arguments:
            flags = {"exclusive": exclusive, "transient": not durable, "auto-delete": auto_delete}
            lonely = (
                not self.rules.clustered and REPLICATE not in arguments
            )  # as a quorum queue of RabbitMQ's on one node
            check_type(arguments, "all" if lonely else level, self.called("queue", name), **flags)
            if lonely and arguments.get(QUEUE_TYPE) == "quorum":
                self.floods.write(logging.WARNING, "quorum queue without a cluster, the only copy: %.100r", name)
        if arguments.get(DEAD_LETTER_STRATEGY) == AT_LEAST_ONCE and not keeps_letters(arguments):
            text = "dead letters at most once, since there is no 'x-overflow' reject-publish, or no exchange: %.100r"
            self.floods.write(logging.WARNING, text, name)
        if delivery_limit(arguments) < 0 and arguments[DELIVERY_LIMIT] != -1:
            self.floods.write(logging.WARNING, "no delivery limit, since 'x-delivery-limit' is no number: %.100r", name)
        user = str(getattr(connection, "user", ""))
        common = self.configuration.common
        check_queues(self.rules.limits, name, user, common.queues, common.queues_of)
        if connection is not None:
            self.quotas.check_queue(self.name, name, len(self.queues))
        self.endings.go_on(2)
        kept = {**arguments, REPLICATE: level}
        operation = queue_operation(name, 0, durable, exclusive, auto_delete, kept, user, _secret(arguments))
        queue = self._new_queue(operation, level)
        if exclusive:
            self.endings.own(queue, connection)
        self.endings.idle.used(queue, queue.position)
        return queue, queue.position

    def _default_level(self, target: str, name: str) -> str:
        """Of what does not say itself how far it is replicated."""
        by_policy = self.configuration.effects.policies.replicates(target, name)
        return "all" if by_policy else self.rules.default_replicate

    def reply_queue(self, name: str) -> DeclaredQueue:
        """For direct replies: on this broker only, deleted with its consumer."""
        return self.declare_queue(None, name, False, False, True, {REPLICATE: "none"})[0]

    def _new_queue(self, operation: Operation, level: str) -> DeclaredQueue:
        if level == "none":
            return self.configuration.create_local_queue(operation)
        if self.engine.passive:
            text = f"queue '{operation['name']}' would be replicated and this broker is a backup"
            raise refuse(ReplyCode.ACCESS_REFUSED, text)
        operation["number"] = number = self.configuration.common.take_number()
        position, payload = self.operation_log.append(operation)
        return self.configuration.create_queue(operation, number, position, payload)

    def _redeclare_queue(
        self,
        connection: object,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Mapping[str, Any],
    ) -> tuple[DeclaredQueue, int]:
        queue = self.queues[name]
        returns = exclusive and queue.waits_for_its_owner and queue.user == str(getattr(connection, "user", ""))
        if not returns:
            self.find_queue(name, connection)
        if exclusive != queue.exclusive:
            raise refuse(ReplyCode.RESOURCE_LOCKED, _LOCKED.format(name, self.name))
        what = self.called("queue", name)
        check_queue_arguments(arguments, what)
        durable = queue.durable if exclusive else durable  # an exclusive queue ends with its connection anyhow
        wanted = {"durable": durable, "auto_delete": auto_delete, **compared(arguments)}
        first_difference(what, wanted, queue.properties())
        first_difference(what, {REPLICATE: arguments.get(REPLICATE, queue.level)}, {REPLICATE: queue.level})
        if returns:
            self.endings.own(queue, connection)
        self.endings.keep(queue)
        position = self.operation_log.unchanged(queue.position)
        self.endings.idle.used(queue, position)
        return queue, position

    def delete_queue(self, connection: object, name: str, if_unused: bool, if_empty: bool) -> tuple[int, int]:
        """Returns the number of messages deleted with it, and the position to wait for.  Deleting a missing queue is no
        error, so that a client may repeat a deletion whose answer it lost."""
        if self._present(name) is None:
            return 0, self.operation_log.unchanged(self.engine.changed)
        queue = self.find_queue(name, connection)
        check_free(queue)
        if if_unused and queue.core.consumer_count:
            raise refuse(ReplyCode.PRECONDITION_FAILED, f"queue '{name}' in vhost '{self.name}' in use")
        self.engine.settle(queue.core)
        if if_empty and queue.core.ready:
            raise refuse(ReplyCode.PRECONDITION_FAILED, f"queue '{name}' in vhost '{self.name}' not empty")
        count = queue.core.ready
        if not self.endings.sent_on(queue):
            text = f"queue '{name}' in vhost '{self.name}' has messages that cannot be read, and have to be sent on"
            raise refuse(ReplyCode.RESOURCE_ERROR, text)
        self.endings.drop_queue(queue)
        return count, self.engine.changed if queue.position else 0

    def deletable_queue(self, connection: object, name: str, if_unused: bool, if_empty: bool) -> DeclaredQueue | None:
        """A queue whose messages may go before it does, in slices; None for one that `delete_queue` does at once."""
        if self._present(name) is None or if_empty:
            return None
        queue = self.find_queue(name, connection)
        check_free(queue)
        in_use = if_unused and queue.core.consumer_count
        return None if in_use or queue.alternate is not None or queue.core.stuck else queue

    def purgeable_queue(self, connection: object, name: str) -> DeclaredQueue:
        """A queue that its caller purges in slices (`Engine.purge_some`), and then asks `purged`."""
        queue = self.find_queue(name, connection)
        check_free(queue)
        return queue

    def purged(self, queue: DeclaredQueue) -> int:
        """The position to wait for: purged messages must not come back."""
        return self.operation_log.sealed() if queue.core.replicated else 0

    def move_messages(self, connection: object, source: str, limit: int, target: str, exchange: str) -> int:
        """Moves ready messages, in order, to the queue `target` or, if that is empty, as `exchange` routes them; ends
        early at a full queue.  Returns how many were moved."""
        queue = self.find_queue(source, connection)
        check_free(queue)
        if target:
            to = self.find_queue(target, connection)
            check_free(to)
            route = Route([to.core])
            return self.engine.move(queue.core, limit, lambda *_: route)
        self.find_exchange(exchange)
        return self.engine.move(queue.core, limit, self.routing.router(exchange))

    # ------------------------------------------------------------ from the configuration

    def queue_limited(self, queue: DeclaredQueue) -> None:
        """A policy has changed what holds for it."""
        self.routing.queue_limited(queue)
        self.configuration.common.set_mode(queue)
        self.endings.idle.used(queue)

    def queue_created(self, queue: DeclaredQueue) -> None:
        self.routing.queue_created(queue)
        self.configuration.common.set_mode(queue)
        self.depths.created(queue)

    def delays(self, exchange: Exchange, queue: DeclaredQueue) -> None:
        self.routing.delays(exchange, queue)

    def queue_dropped(self, queue: DeclaredQueue, cancelled: Cancelled) -> None:
        """Tells its consumers."""
        self.endings.dropped(queue)
        self.configuration.common.set_mode(queue)
        self.depths.dropped(queue)
        for connection, channel, tag in cancelled:
            connection.consumer_cancelled(channel, tag)

    # ------------------------------------------------------------ effects of consumers and connections on queues

    def consumer_added(self, queue: DeclaredQueue) -> None:
        """After a promotion an auto-delete queue that had been used is deleted; one that was never used stays."""
        queue.used = True
        if queue.auto_delete and queue.position and not queue.used_position:
            self.configuration.note_used(queue, *self.operation_log.append({"op": "queue.used", "name": queue.name}))

    def tick(self, now: float) -> None:
        """Outside of a turn of clients; `now`: in seconds."""
        self.engine.begin_slice()
        self.floods.tick(now)
        self.depths.tick(now)
        self.endings.idle.tick(now, self.engine.safe)
        self.endings.go_on()
        self.configuration.effects.go_on()
        self.configuration.debris.clear(TICK)

    # ------------------------------------------------------------ exchanges

    def find_exchange(self, name: str) -> Exchange:
        """Raises 404."""
        return find_exchange(self.exchanges, name, self.name)

    def declare_exchange(
        self, name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: Mapping[str, Any]
    ) -> int:
        """The position to wait for."""
        if kind == "xml":
            text = "exchange type 'xml' is not implemented: no XQuery; use 'headers'"
            raise ConnectionException(ReplyCode.COMMAND_INVALID, text)
        if kind not in EXCHANGE_TYPES:
            raise ConnectionException(ReplyCode.COMMAND_INVALID, f"unknown exchange type '{kind}'")
        what = self.called("exchange", name)
        check_exchange_arguments(arguments, what)
        if kind == DELAYED:
            check_delayed_type(arguments, EXCHANGE_TYPES, what)
        flags = {"durable": durable, "auto_delete": auto_delete, "internal": internal}
        wanted = {"type": kind, **flags, **repeated(kind, arguments)}
        level = str(arguments.get(REPLICATE, self._default_level(EXCHANGES, name)))
        existing = self.exchanges.get(name)
        if existing is not None:
            check_ours(existing, what, self.engine.passive)
            first_difference(what, wanted, existing.properties())
            if REPLICATE in arguments:
                first_difference(what, {REPLICATE: level}, {REPLICATE: existing.level})
            return self.operation_log.unchanged(existing.position)
        self._check_name(name)
        kept = {**arguments, REPLICATE: level}
        operation = exchange_operation(name, kind, durable, auto_delete, internal, kept, _secret(arguments))
        if level == "none":
            return self.configuration.create_exchange(operation, 0, b"").position
        if self.engine.passive:
            raise refuse(ReplyCode.ACCESS_REFUSED, f"{what} would be replicated and this broker is a backup")
        if has_queue(kind, arguments):
            operation["number"] = self.configuration.common.take_number()
        return self.configuration.create_exchange(operation, *self.operation_log.append(operation)).position

    def _check_name(self, name: str) -> None:
        if name.startswith("amq."):
            raise refuse(ReplyCode.ACCESS_REFUSED, f"exchange name '{name}' contains reserved prefix 'amq.*'")
        if name in self.routing.internal_exchanges:
            raise refuse(ReplyCode.ACCESS_REFUSED, f"exchange name '{name}' is reserved")

    def delete_exchange(self, name: str, if_unused: bool) -> int:
        """The position to wait for; deleting a missing exchange is no error (see `delete_queue`)."""
        exchange = self.exchanges.get(name)
        if name == "" or name in self.routing.internal_exchanges or (exchange is not None and exchange.predeclared):
            raise refuse(ReplyCode.ACCESS_REFUSED, f"exchange '{name}' in vhost '{self.name}' cannot be deleted")
        if exchange is None:
            return self.operation_log.unchanged(self.engine.changed)
        check_ours(exchange, f"exchange '{name}'", self.engine.passive)
        if if_unused and (exchange.size or self.configuration.is_alternate(name)):
            raise refuse(ReplyCode.PRECONDITION_FAILED, f"exchange '{name}' in vhost '{self.name}' in use")
        self.endings.remove_exchange(exchange)
        return self.engine.changed if exchange.position else 0
