"""Requests that change something: each returns its result and the log position that must be safe before the result is
sent, as for a reply to `queue.declare`.

    queue.move    {source, target | exchange, limit=all}    moves ready messages, in order   -> {"moved": number}
                  in slices: those that are ready when it begins, and not those that come later
    queue.purge   {queue}                                                                    -> {"purged": number}
    queue.delete  {queue, if_unused=false, if_empty=false}                                   -> {"deleted": messages}

A backup refuses them for replicated objects.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Final

from qpidd_py.broker.broker import Broker
from qpidd_py.errors import AmqpError
from qpidd_py.management.patience import Reading, ready_in_memory
from qpidd_py.management.request import Json, NotFound, RequestError, flag, text

SLICE: Final = 2048
"""Messages moved in one turn: 2 µs each, and as many again for each copy that an exchange makes."""


class Changes:
    """For one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.methods: Mapping[str, Callable[[Json], tuple[Json, int]]] = {
            "queue.purge": self._purge,
            "queue.delete": self._delete,
        }

    def move(self, arguments: Json) -> Generator[Reading | None, None, tuple[Json, int]]:
        """A slice with each step.  Raises RequestError, AmqpError."""
        target, exchange = text(arguments, "target", ""), text(arguments, "exchange", "")
        if bool(target) == bool(exchange):
            raise RequestError("wanted a target (a queue) or an exchange")
        limit = arguments.get("limit", 1 << 62)
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise RequestError(f"limit {limit!r}, wanted a number above 0")
        vhost, source, moved = self._broker.vhost, text(arguments, "source"), 0
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

    def _purge(self, arguments: Json) -> tuple[Json, int]:
        vhost = self._broker.vhost
        queue = vhost.purgeable_queue(None, text(arguments, "queue"))
        return {"purged": self._broker.engine.purge(queue.core)}, vhost.purged(queue)

    def _delete(self, arguments: Json) -> tuple[Json, int]:
        name = text(arguments, "queue")
        if name not in self._broker.vhost.queues:
            raise NotFound(f"no queue {name!r}")
        if_unused, if_empty = flag(arguments, "if_unused"), flag(arguments, "if_empty")
        count, position = self._broker.vhost.delete_queue(None, name, if_unused, if_empty)
        return {"deleted": count}, position
