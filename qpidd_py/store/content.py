"""What a broker holds and an archive takes: objects that outlive their connections, and the messages in them.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qpidd_py.amqp.fields import decode_operation
from qpidd_py.broker.configuration import Configuration
from qpidd_py.broker.operations import Operation
from qpidd_py.broker.snapshot import read_snapshot
from qpidd_py.core import Queue, reading
from qpidd_py.store.archive import OBJECTS, Message

READ: Final = 16
"""Messages copied from the core at once: a body may have many MiB."""
_LAST: Final = (1 << 64) - 1


class Objects:
    """The replicated objects that outlive their connections, as they were when this was made."""

    def __init__(self, configuration: Configuration) -> None:
        self._snapshot = configuration.encoded()
        self._gone = {queue.name for queue in configuration.queues.values() if queue.exclusive}

    def __iter__(self) -> Iterator[bytes]:
        """Their operations, in their order."""
        for _, payload in read_snapshot(self._snapshot):
            operation = decode_operation(payload)
            if operation["op"] in OBJECTS and _queue_of(operation) not in self._gone:
                yield payload


def _queue_of(operation: Operation) -> str | None:
    """The name of the queue that it makes, or binds."""
    if operation["op"] == "bind":
        return None if operation["exchange"] else operation["destination"]
    return operation["name"] if operation["op"] == "queue.declare" else None


def kept_queues(configuration: Configuration) -> list[Queue]:
    """The queues whose messages are replicated, without those that end with their connection, and those of
    exchanges."""
    return [queue.core for queue in configuration.all_queues() if queue.core.replicated and not queue.exclusive]


def next_messages(queue: Queue, after: int, last: int = _LAST) -> list[Message]:
    """Some, in the order of their ids; empty when there is none up to `last`."""
    return (
        [] if queue.deleted else [Message(queue.name, *found) for found in reading.read(queue, after + 1, last, READ)]
    )


def messages(queue: Queue) -> Iterator[Message]:
    """In the order of their ids."""
    after = 0
    while some := next_messages(queue, after):
        yield from some
        after = some[-1].id
