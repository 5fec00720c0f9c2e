"""The difference between the threaded and the asyncio API: mutual exclusion and notification of waiting callers."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol


class Monitor(Protocol):
    """A `ThreadMonitor`, or the asyncio substitute, which excludes nothing."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """For who does not wait: to enter it costs a fifth."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any: ...

    def notify_all(self) -> None: ...


class ThreadMonitor(threading.Condition):
    """Of the threaded API."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        super().__init__(self.lock)
