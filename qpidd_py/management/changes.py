"""Requests that change the content of queues, in slices: each returns its result and the log position that must be safe
before the result is sent, as for a reply to `queue.declare`.

    queue.move    {source, target | exchange, limit=all}    moves ready messages, in order   -> {"moved": number}
    queue.purge   {queue}                                                                    -> {"purged": number}
    queue.delete  {queue, if_unused=false, if_empty=false}                                   -> {"deleted": messages}

All of them in the virtual host `vhost` (`hosts.py`).  Moved or purged are those that are ready when it begins, and not
those that come later.  A backup refuses them for replicated objects; a broker that is deposed meanwhile refuses the
rest.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Final

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.vhost import VHost
from qpidd_py.errors import AmqpError
from qpidd_py.management.hosts import host_of
from qpidd_py.management.patience import Reading, ready_in_memory
from qpidd_py.management.request import Json, NotFound, RequestError, flag, text

SLICE: Final = 2048
"""Messages moved in one turn: 2 µs each, and as many again for each copy that an exchange makes."""

Slices = Generator[Reading | None, None, tuple[Json, int]]


class Changes:
    """For one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.methods: Mapping[str, Callable[[Json], Slices]] = {
            "queue.move": self._move,
            "queue.purge": self._purge,
            "queue.delete": self._delete,
        }

    def _move(self, arguments: Json) -> Slices:
        target, exchange = text(arguments, "target", ""), text(arguments, "exchange", "")
        if bool(target) == bool(exchange):
            raise RequestError("wanted a target (a queue) or an exchange")
        limit = arguments.get("limit", 1 << 62)
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise RequestError(f"limit {limit!r}, wanted a number above 0")
        vhost, source, moved = host_of(self._broker, arguments), text(arguments, "source"), 0
        left = min(limit, max(1, vhost.queues[source].core.ready if source in vhost.queues else 1))
        while True:
            waited = False
            try:
                some = vhost.move_messages(None, source, min(left, SLICE), target, exchange)
                moved, left = moved + some, left - some
                for reading in ready_in_memory(vhost.queues[source].core) if left else ():
                    waited = True
                    yield reading
            except (AmqpError, RequestError) as error:
                if moved:
                    why = error.reply_text if isinstance(error, AmqpError) else str(error)
                    raise RequestError(f"{why}; {moved} messages were moved before") from error
                raise
            if not left or not (some or waited):
                return {"moved": moved}, vhost.operation_log.sealed()
            if not waited:
                yield None

    def _purge(self, arguments: Json) -> Slices:
        vhost = host_of(self._broker, arguments)
        queue = vhost.purgeable_queue(None, text(arguments, "queue"))
        count = yield from self._emptied(vhost, queue, "purged")
        return {"purged": count}, vhost.purged(queue)

    def _delete(self, arguments: Json) -> Slices:
        vhost, name = host_of(self._broker, arguments), text(arguments, "queue")
        if name not in vhost.queues:
            raise NotFound(f"no queue {name!r}")
        if_unused, if_empty = flag(arguments, "if_unused"), flag(arguments, "if_empty")
        queue = vhost.deletable_queue(None, name, if_unused, if_empty)
        dropped = (yield from self._emptied(vhost, queue, "deleted")) if queue is not None else 0
        if queue is not None and vhost.queues.get(name) is not queue:  # it was deleted by another client meanwhile
            return {"deleted": dropped}, self._broker.engine.changed
        # A consumer that comes between two slices does not keep the queue.
        count, position = vhost.delete_queue(None, name, if_unused and queue is None, if_empty)
        return {"deleted": dropped + count}, position

    def _emptied(self, vhost: VHost, queue: DeclaredQueue, reason: str) -> Generator[None, None, int]:
        """Drops what is ready in a queue now: how many messages that were, or had been when it was deleted."""
        engine, dropped = self._broker.engine, 0
        last, done = engine.sequence, False
        while not done and vhost.queues.get(queue.name) is queue:
            vhost.purgeable_queue(None, queue.name)  # refuses where this broker is no longer the primary
            engine.begin_slice()
            some, done = engine.purge_some(queue.core, last, reason)
            dropped += some
            if not done:
                yield None
        return dropped
