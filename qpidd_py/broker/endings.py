"""Queues and exchanges that are deleted because those who used them are gone.                                     Pure.

The connection of exclusive queues, the consumers of auto-delete queues, the bindings of auto-delete exchanges: one end
of one of these may end thousands.  Some are deleted at once, the rest with ticks and with queues that others declare,
and a queue as soon as somebody asks for it, so that nobody sees one that should be gone.  A fail-over in between leaves
the rest to the new primary (`VHost.on_promoted`).

A deposed primary decides nothing: what is replicated stays, and the log of the new one says what becomes of it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.queue import DeclaredQueue

SLICE: Final = 250
"""Queues without messages, or exchanges, that are deleted at a time, in 2 ms."""
LARGE: Final = 1000
"""Messages of a queue that cost as much again."""


class Deletes(Protocol):
    """The virtual host."""

    def remove_queue(self, queue: DeclaredQueue) -> None: ...

    def remove_exchange(self, exchange: Exchange) -> None: ...

    def decides(self, thing: DeclaredQueue | Exchange) -> bool:
        """Whether the log of another broker does not."""
        ...


class Endings:
    """What is left to be deleted."""

    def __init__(self, vhost: Deletes) -> None:
        self._vhost = vhost
        self._queues: deque[DeclaredQueue] = deque()
        self._exchanges: deque[Exchange] = deque()
        self._under_way = False

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
        """Somebody asks for it."""
        if queue.ending:
            self._end(queue)

    def _end_exchange(self) -> int:
        exchange = self._exchanges.popleft()
        if not exchange.size and not exchange.gone and self._vhost.decides(exchange):
            self._vhost.remove_exchange(exchange)
        return 1

    def _end_queue(self) -> int:
        queue = self._queues.popleft()
        messages = queue.core.ready + queue.core.unacked
        if queue.ending and not queue.gone:
            self._end(queue)
        return 1 + messages // LARGE

    def _end(self, queue: DeclaredQueue) -> None:
        queue.ending = False
        if self._vhost.decides(queue):
            self._vhost.remove_queue(queue)
        else:
            queue.owner = None
