from collections.abc import Callable
from typing import Any

from qpidd_py.core.queue import Queue

class Mark: ...

class Route:
    queues: list[Queue]
    by_header: Callable[[bytes, bytes], list[Queue]] | None
    handler: Callable[[Any, int, bytes, bytes, bytes, bytes], None] | None
    via: tuple[Mark, ...]
    def __init__(
        self,
        queues: list[Queue],
        by_header: Callable[[bytes, bytes], list[Queue]] | None = None,
        handler: Callable[[Any, int, bytes, bytes, bytes, bytes], None] | None = None,
        via: tuple[Mark, ...] = (),
    ) -> None: ...

class Publications:
    def __len__(self) -> int: ...
