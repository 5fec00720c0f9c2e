from collections.abc import Callable

from qpidd_py.core.confirms import Sender
from qpidd_py.core.connection import Connection
from qpidd_py.core.queue import Queue

class Consumer:
    channel: Channel
    queue: Queue
    tag: str
    no_ack: bool
    prefetch: int
    unacked: int
    priority: int

class Channel(Sender):
    connection: Connection
    number: int
    closing: bool
    active: bool
    confirming: bool
    transactional: bool
    held: bool
    prefetch: int
    outstanding: int
    consumers: dict[str, Consumer]
    @property
    def unacked_count(self) -> int: ...
    def confirm_select(self) -> None: ...
    def tx_select(self) -> None: ...
    def tx_commit(self) -> int: ...
    def tx_rollback(self) -> None: ...
    def consume(self, queue: Queue, tag: str, no_ack: bool, prefetch: int = 0, priority: int = 0) -> Consumer: ...
    def cancel(self, tag: str) -> Queue | None: ...
    def get(self, queue: Queue, no_ack: bool) -> bool: ...
    def recover(self, requeue: bool) -> None: ...
    def hold(self, position: int, reply: bytes, then: Callable[[], None] | None = None) -> None: ...
