from collections.abc import Callable

from qpidd_py.core.queue import Queue

class Catchup:
    queue: Queue
    messages: int
    octets: int
    rotten: bool
    def __init__(
        self,
        queue: Queue,
        held: bytes,
        cut: int,
        again: Callable[[], None] | None = None,
        keys: int | None = None,
    ) -> None: ...
    @property
    def left(self) -> int: ...
    def drops(self) -> bytes: ...
    def slice(self, limit: int) -> bytes | None: ...
