"""What a broker holds and an archive takes: objects that outlive their connections, and the messages in them.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qpidd_py.amqp.fields import decode_operation
from qpidd_py.broker.configurations import Configurations
from qpidd_py.broker.host_settings import host_of
from qpidd_py.broker.operations import Operation
from qpidd_py.broker.snapshot import read_snapshot
from qpidd_py.core import Queue, reading
from qpidd_py.store.archive import OBJECTS, Message

READ: Final = 16
"""Messages copied from the core at once: a body may have many MiB."""
_LAST: Final = (1 << 64) - 1


class Objects:
    """The replicated objects that outlive their connections, as they were when this was made."""

    def __init__(self, configurations: Configurations) -> None:
        self._snapshot = configurations.encoded()
        queues = (queue for each in configurations for queue in each.queues.values())
        self._gone = {(queue.host, queue.name) for queue in queues if queue.exclusive}

    def __iter__(self) -> Iterator[bytes]:
        """Their operations, in their order."""
        for _, payload in read_snapshot(self._snapshot):
            operation = decode_operation(payload)
            if operation["op"] in OBJECTS and _queue_of(operation) not in self._gone:
                yield payload


def _queue_of(operation: Operation) -> tuple[str, str] | None:
    """The virtual host and name of the queue that it makes, or binds."""
    host = host_of(operation)
    if operation["op"] == "bind":
        return None if operation["exchange"] else (host, operation["destination"])
    return (host, operation["name"]) if operation["op"] == "queue.declare" else None


def kept_queues(configurations: Configurations) -> list[Queue]:
    """The queues whose messages are replicated, without those that end with their connection, and those of
    exchanges."""
    return [queue.core for queue in configurations.all_queues() if queue.core.replicated and not queue.exclusive]


def next_messages(queue: Queue, after: int, last: int = _LAST) -> list[Message]:
    """Some, in the order of their ids; empty when there is none up to `last`."""
    found = [] if queue.deleted else reading.read(queue, after + 1, last, READ)
    return [Message(queue.name, *each, host=queue.host) for each in found]


def messages(queue: Queue) -> Iterator[Message]:
    """In the order of their ids."""
    after = 0
    while some := next_messages(queue, after):
        yield from some
        after = some[-1].id
