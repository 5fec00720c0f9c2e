from collections.abc import Callable
from typing import Any

from qpidd_py.core.queue import Queue

class Mark: ...

class Route:
    queues: list[Queue]
    by_header: Callable[[bytes, bytes], Route] | None
    handler: Callable[[Any, int, bytes, bytes, bytes, bytes], None] | None
    via: tuple[Mark, ...]
    def __init__(
        self,
        queues: list[Queue],
        by_header: Callable[[bytes, bytes], Route] | None = None,
        handler: Callable[[Any, int, bytes, bytes, bytes, bytes], None] | None = None,
        via: tuple[Mark, ...] = (),
        numbering: tuple[tuple[Any, ...], dict[Queue, Any]] | None = None,
        gates: dict[Queue, tuple[Queue, ...]] | None = None,
    ) -> None: ...

class Publications:
    def __len__(self) -> int: ...
