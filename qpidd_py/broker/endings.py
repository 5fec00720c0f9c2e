"""Queues and exchanges that the broker deletes itself, as a rule because those who used them are gone.            Pure.

The connection of exclusive queues, the consumers of auto-delete queues, the bindings of auto-delete exchanges: one end
of one of these may end thousands.  Some are deleted at once, the rest with ticks and with queues that others declare,
and a queue as soon as a client asks for it, so that no client sees one that should be gone.  A deep one is emptied
first, in slices.  A fail-over in between leaves the rest to the new primary (`on_promoted`).

A deposed primary decides nothing: what is replicated stays, and the log of the new one says what becomes of it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from qpidd_py.broker.configuration import Configuration
from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.idle import Idle
from qpidd_py.broker.operation_log import OperationLog
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.routing import RoutingTable
from qpidd_py.core.engine import Engine
from qpidd_py.core.queue import Queue
from qpidd_py.errors import ChannelException, ReplyCode

SLICE: Final = 250
"""Queues without messages, or exchanges, that are deleted at a time, in 2 ms."""
LARGE: Final = 1000
"""Messages of a queue that cost as much again."""
DEEP: Final = 10_000
"""Messages of a queue that is emptied first, in slices."""


class EndingError(ChannelException):
    """Who asks for the queue has to ask again; channels do so by themselves."""


class Endings:
    """What is left to be deleted."""

    def __init__(
        self, engine: Engine, configuration: Configuration, operation_log: OperationLog, routing: RoutingTable
    ) -> None:
        self._engine = engine
        self._configuration = configuration
        self._operation_log = operation_log
        self._routing = routing
        self.idle = Idle(self)
        self._queues: deque[DeclaredQueue] = deque()
        self._exchanges: deque[Exchange] = deque()
        self._emptying: dict[DeclaredQueue, int] = {}
        """Deep ones, and the newest message of each when that began: what comes later goes with the queue."""
        self._under_way = False
        self._exclusive: dict[object, dict[str, DeclaredQueue]] = {}  # by connection
        self._leaving: dict[DeclaredQueue, bool] = {}  # queues that are looked at again, and whether to delete them

    def __len__(self) -> int:
        return len(self._queues) + len(self._exchanges)

    def end_queues(self, queues: Iterable[DeclaredQueue]) -> None:
        for queue in queues:
            queue.ending = True
            self._queues.append(queue)
        self.go_on()

    def end_exchanges(self, sources: Iterable[Exchange]) -> None:
        """Those of them that have lost their last binding.  May be called while one is deleted: chains of them cost no
        depth of the stack."""
        self._exchanges.extend(source for source in sources if source.auto_delete and not source.size)
        self.go_on()

    def go_on(self, most: int = SLICE) -> None:
        if self._under_way:
            return
        self._under_way = True
        try:
            while len(self) and most > 0:
                most -= self._end_exchange() if self._exchanges else self._end_queue()
        finally:
            self._under_way = False

    def finish(self, queue: DeclaredQueue) -> None:
        """Somebody asks for it.  Raises EndingError while a deep one is emptied: a slice of that is done each time."""
        if queue.ending:
            if not self._emptied(queue):
                text = f"queue '{queue.name}' is being deleted, {queue.core.ready} messages are left"
                raise EndingError(ReplyCode.RESOURCE_LOCKED, f"RESOURCE_LOCKED - {text}")
            self._end(queue)

    def _end_exchange(self) -> int:
        exchange = self._exchanges.popleft()
        if not exchange.size and not exchange.gone and self.decides(exchange):
            self.remove_exchange(exchange)
        return 1

    def _end_queue(self) -> int:
        queue = self._queues.popleft()
        messages = queue.core.ready + queue.core.unacked
        if queue.ending and not queue.gone:
            if not self._emptied(queue):
                self._queues.appendleft(queue)
                return SLICE
            self._end(queue)
        return 1 + messages // LARGE

    def _emptied(self, queue: DeclaredQueue) -> bool:
        """Drops of a deep one what fits into the slice under way (`slices.pyx`); whether it may go now."""
        core, begun = queue.core, queue in self._emptying
        sent_on = queue.alternate is not None or core.stuck
        if sent_on or not self.decides(queue) or (core.ready < DEEP and not begun):
            return True
        last = self._emptying.setdefault(queue, self._engine.sequence)
        return self._engine.purge_some(core, last, "deleted")[1]

    def _end(self, queue: DeclaredQueue) -> None:
        queue.ending = False
        self._emptying.pop(queue, None)
        if self.decides(queue):
            self.remove_queue(queue)
        else:
            queue.owner = None

    # ------------------------------------------------------------ those who used them are gone

    def own(self, queue: DeclaredQueue, connection: object) -> None:
        """The queue ends with this connection."""
        queue.owner = connection
        self._exclusive.setdefault(connection, {})[queue.name] = queue

    def consumers_gone(self, queues: Iterable[Queue]) -> None:
        """Each queue lost a consumer; auto-delete queues are deleted with their last one.  On a former primary the log
        decides."""
        unused = [core.owner for core in queues if not core.deleted and not core.consumer_count]
        ended = []
        for queue in unused:
            if isinstance(queue, DeclaredQueue):
                self.idle.used(queue)
                queue.consumed_exclusively = False
                if queue.auto_delete and queue.delay is None and self.decides(queue):
                    ended.append(queue)
        self.end_queues(ended)

    def connection_gone(self, connection: object) -> None:
        """Deletes its exclusive queues.  On a former primary the replicated ones stay until the new primary deletes
        them."""
        self.end_queues(self._exclusive.pop(connection, {}).values())

    def on_promoted(self) -> None:
        """This broker is primary now: deletes what depended on the clients of the old primary.

        The time limit of auto-delete and exclusive queues starts now, so that their users can reconnect."""
        queues, exchanges = self._configuration.queues, self._configuration.exchanges
        ending = [queue for queue in queues.values() if queue.may_end]
        self.end_queues([queue for queue in ending if self._was_used_up(queue)])
        emptied = [found for found in exchanges.values() if found.auto_delete and found.had_bindings]
        self.end_exchanges([exchange for exchange in emptied if exchange.position])
        for queue in ending:
            if not queue.gone:
                self.idle.used(queue)
        self._engine.forget_routes()

    @staticmethod
    def _was_used_up(queue: DeclaredQueue) -> bool:
        used = queue.auto_delete and queue.used_position and not queue.core.consumer_count
        return bool(queue.position and used and queue.expires is None and not queue.exclusive)

    def on_restarted(self) -> None:
        """The broker was restarted with its journal: what is not durable ends with the process."""
        self.on_promoted()
        queues, exchanges = self._configuration.queues, self._configuration.exchanges
        ended = (queue for queue in queues.values() if not queue.durable or queue.exclusive)
        for queue in [found for found in ended if found.position]:
            if queues.get(queue.name) is queue:
                self.remove_queue(queue)
        for exchange in [found for found in exchanges.values() if found.position and not found.durable]:
            if exchanges.get(exchange.name) is exchange:
                self.remove_exchange(exchange)

    def decides(self, thing: DeclaredQueue | Exchange) -> bool:
        """Whether this broker does, and not the log."""
        return not (self._engine.passive and thing.position)

    # ------------------------------------------------------------ the broker deletes

    def remove_queue(self, queue: DeclaredQueue) -> None:
        """The broker's own decision: deletes the queue, and with it auto-delete exchanges that lose their last binding.

        Remaining messages go to its alternate exchange first, each in the batch that removes it from here.  While one
        has to be read first, or cannot be read, the queue stays, and somebody who uses it meanwhile keeps it."""
        looked_at_again = queue in self._leaving
        self._leaving[queue] = True
        if not looked_at_again and self.sent_on(queue, partial(self._look_again, queue)):
            self.drop_queue(queue)

    def sent_on(self, queue: DeclaredQueue, waiter: Callable[[], None] | None = None) -> bool:
        """Whether nothing is left in a queue that has to be sent on before it is deleted (`Engine.drain`)."""
        if queue.alternate is None:
            return self._engine.settle(queue.core, waiter)
        return self._engine.drain(queue.core, self._routing.router(queue.alternate, queue.core), waiter)

    def _look_again(self, queue: DeclaredQueue) -> None:
        """A queue that was to be deleted could not be.  On a former primary the new one decides."""
        leaves = self._leaving.pop(queue, False) and not queue.core.consumer_count
        if leaves and self.decides(queue):
            self.remove_queue(queue)

    def keep(self, queue: DeclaredQueue) -> None:
        """Somebody uses it."""
        if queue in self._leaving:
            self._leaving[queue] = False

    def drop_queue(self, queue: DeclaredQueue) -> None:
        if queue.position:
            self._operation_log.append({"op": "queue.delete", "name": queue.name, "number": queue.number})
        sources = self._configuration.sources(queue)
        self._configuration.drop_queue(queue)
        self.end_exchanges(sources)

    def dropped(self, queue: DeclaredQueue) -> None:
        """It is gone, on a backup too."""
        self._leaving.pop(queue, None)
        self.idle.dropped(queue)
        if queue.owner is not None:
            self._exclusive.get(queue.owner, {}).pop(queue.name, None)

    def remove_exchange(self, exchange: Exchange) -> None:
        """Deletes unconditionally, and with it auto-delete exchanges that lose their last binding."""
        if exchange.position:
            self._operation_log.append({"op": "exchange.delete", "name": exchange.name})
        sources = self._configuration.sources(exchange)
        self._configuration.drop_exchange(exchange)
        self.end_exchanges(sources)
